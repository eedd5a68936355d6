//! CommitOffsets: how far a group has come.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{LeaderEpoch, MemberEpoch, Offset, PartitionIndex, TopicId};
use crate::limits::{OFFSET_MAX, OFFSET_METADATA_BYTES_MAX, PARTITIONS_PER_REQUEST_MAX};
use crate::messages::field::{FieldError, require, require_bytes, within};
use crate::messages::produce::check_count;
use crate::names::{check_group_id, check_member_id};

/// Commits offsets.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CommitOffsetsRequest {
    /// The group.
    pub group: String,
    /// The member; `None` for one that assigns partitions to itself, which only a group without members allows.
    pub member_id: Option<String>,
    /// Its epoch; [`MemberEpoch::LEAVE`] without a member.
    pub member_epoch: MemberEpoch,
    /// The partitions.
    pub partitions: Vec<CommitPartition>,
}

/// The position in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CommitPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The position.
    pub commit: CommittedOffset,
}

/// A position that a group has committed.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CommittedOffset {
    /// The next offset to read: everything before it is handled, parked or held.
    pub offset: Offset,
    /// The reign of the leader that the record before it was read from.
    pub leader_epoch: Option<LeaderEpoch>,
    /// What the application wants to remember with it.
    pub metadata: Option<String>,
}

impl CommittedOffset {
    /// Checks the fields.
    ///
    /// # Errors
    /// [`ErrorCode::OffsetMetadataTooLarge`], or an offset that no partition has.
    pub fn validate(&self) -> Result<(), FieldError> {
        require("offset", self.offset, within(self.offset.0, 0, OFFSET_MAX), ErrorCode::InvalidRequest)?;
        let length = self.metadata.as_ref().map_or(0, String::len);
        require_bytes("metadata", length, OFFSET_METADATA_BYTES_MAX, ErrorCode::OffsetMetadataTooLarge)
    }
}

impl CommitOffsetsRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_REQUEST_MAX)
    }

    /// Checks group and member; each partition is checked by [`CommittedOffset::validate`], so that one that is wrong does not keep
    /// the others from being committed.
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)?;
        self.member_id.as_deref().map_or(Ok(()), check_member_id)
    }
}

/// Answers [`CommitOffsetsRequest`], one entry per partition in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CommitOffsetsReply {
    /// Whether group and member are right; if not, nothing is committed and no partition named.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The partitions.
    pub partitions: Vec<GroupPartitionReply>,
}

/// What became of one partition in a request about a group.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupPartitionReply {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whether it was done, durably.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
}

bodies! {
    CommitOffsetsRequest within check = CommitOffsets => CommitOffsetsReply;
}
