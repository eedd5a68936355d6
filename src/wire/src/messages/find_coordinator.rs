//! FindCoordinator: who keeps a group.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::PartitionIndex;
use crate::limits::GROUPS_PER_REQUEST_MAX;
use crate::messages::produce::check_count;

/// Asks for the coordinators of groups.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FindCoordinatorRequest {
    /// The groups.
    pub groups: Vec<String>,
}

impl FindCoordinatorRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("groups in a request", self.groups.len(), GROUPS_PER_REQUEST_MAX)
    }
}

/// Answers [`FindCoordinatorRequest`], one entry per group in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FindCoordinatorReply {
    /// The groups.
    pub groups: Vec<GroupCoordinator>,
}

/// The shard that keeps a group: the leader of the group's partition of the topic `__groups`.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupCoordinator {
    /// The group.
    pub group: String,
    /// Whether it is known who keeps it.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The group's partition of `__groups`.
    pub partition: PartitionIndex,
    /// The broker that leads that partition.
    pub broker: u32,
    /// The shard of that broker.
    pub shard: u16,
}

bodies! {
    FindCoordinatorRequest within check = FindCoordinator => FindCoordinatorReply;
}
