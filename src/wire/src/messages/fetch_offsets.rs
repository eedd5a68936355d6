//! FetchOffsets: where a group goes on, and what its members must not deliver.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{Offset, PartitionIndex, PartitionKey, TopicId};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::messages::commit_offsets::CommittedOffset;
use crate::messages::field::FieldError;
use crate::messages::produce::check_count;
use crate::names::check_group_id;

/// Asks for committed offsets.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchOffsetsRequest {
    /// The group.
    pub group: String,
    /// The partitions; `None` for all of which the group has state, by topic id and number.
    pub partitions: Option<Vec<PartitionKey>>,
    /// Of all partitions only those after this one: the next page.
    pub after: Option<PartitionKey>,
}

impl FetchOffsetsRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.as_ref().map_or(0, Vec::len), PARTITIONS_PER_REQUEST_MAX)
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// The group, when its id breaks the rules.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)
    }
}

/// Answers [`FetchOffsetsRequest`], in the order asked for.
///
/// What does not fit one reply is asked for again: the partitions that it does not reach, or those after its last one.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchOffsetsReply {
    /// Whether the request succeeded; a group that does not exist has no offsets, which is success.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The partitions.
    pub partitions: Vec<FetchedOffset>,
    /// There are more than fit this reply.
    pub more: bool,
}

/// Where a group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchedOffset {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The position; `None` when nothing was ever committed.
    pub committed: Option<CommittedOffset>,
    /// Keys that are parked: further records of them are held back, not delivered.
    pub parked: Vec<ParkedKey>,
    /// Offsets at or after the committed one that the coordinator holds (parked or deferred) or that are settled (handled by a retry,
    /// dead-lettered or skipped): who reads on from the committed offset does not deliver them.
    pub held: Vec<Offset>,
    /// The group's policy stopped the partition: nothing more is delivered until an operator resets it.
    pub stopped: bool,
}

/// A key that is parked.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ParkedKey {
    /// The key, as [`crate::parking_key()`] gives it.
    pub key: Vec<u8>,
    /// The record that failed: those of this key before it are handled.
    pub head: Offset,
}

bodies! {
    FetchOffsetsRequest within check = FetchOffsets => FetchOffsetsReply;
}
