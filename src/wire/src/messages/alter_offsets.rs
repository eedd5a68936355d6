//! AlterOffsets: moves a group by hand.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{Offset, PartitionIndex, TopicId};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::messages::commit_offsets::GroupPartitionReply;
use crate::messages::field::FieldError;
use crate::messages::produce::check_count;
use crate::names::check_group_id;

/// Sets committed offsets, forward or back. A partition that a member owns is refused with [`ErrorCode::PartitionOwned`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterOffsetsRequest {
    /// The group; it is made when it does not exist.
    pub group: String,
    /// Also forgets what is parked in these partitions. Without it a partition with parked records is refused with
    /// [`ErrorCode::PartitionParked`], since they would be delivered beside the new position.
    pub clear_parked: bool,
    /// The partitions.
    pub partitions: Vec<AlterPartition>,
}

/// The new position in one partition. One that was stopped goes on from it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The next offset to read; `None` forgets the position.
    pub offset: Option<Offset>,
}

impl AlterOffsetsRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_REQUEST_MAX)
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// The group, when its id breaks the rules.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)
    }
}

/// Answers [`AlterOffsetsRequest`], one entry per partition in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterOffsetsReply {
    /// Whether the request as a whole is right; if not, nothing is changed and no partition named.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The partitions.
    pub partitions: Vec<GroupPartitionReply>,
}

bodies! {
    AlterOffsetsRequest within check = AlterOffsets => AlterOffsetsReply;
}
