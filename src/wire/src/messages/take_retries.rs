//! TakeRetries: parked records that are due again.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{MemberEpoch, Offset, PartitionIndex, PartitionKey, TopicId};
use crate::limits::{PARTITIONS_PER_TAKE_MAX, RETRIES_PER_REPLY_MAX, WAIT_MS_MAX};
use crate::messages::field::{FieldError, require, within};
use crate::messages::produce::check_count;
use crate::names::{check_group_id, check_member_id};

/// Takes due records of the partitions that a member owns; a long poll when there are none.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TakeRetriesRequest {
    /// The group.
    pub group: String,
    /// The member.
    pub member_id: String,
    /// Its epoch.
    pub member_epoch: MemberEpoch,
    /// Its number, greater than that of every request this member sent before: one that comes late is answered with none.
    pub poll: u64,
    /// The number of the last request whose answer arrived, 0 without: records that were given in later ones are given again.
    pub received: u64,
    /// The partitions that the member has begun to consume: it takes no records of others.
    pub partitions: Vec<PartitionKey>,
    /// Records in the reply, 1 to [`RETRIES_PER_REPLY_MAX`].
    pub max_records: u32,
    /// How long to wait for the first, at most [`WAIT_MS_MAX`].
    pub max_wait_ms: u32,
}

impl TakeRetriesRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_TAKE_MAX)
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)?;
        check_member_id(&self.member_id)?;
        let records = within(self.max_records, 1, RETRIES_PER_REPLY_MAX);
        require("max_records", self.max_records, records, ErrorCode::InvalidRequest)?;
        require("max_wait_ms", self.max_wait_ms, within(self.max_wait_ms, 0, WAIT_MS_MAX), ErrorCode::InvalidRequest)
    }
}

/// Answers [`TakeRetriesRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TakeRetriesReply {
    /// Whether the member may take records.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The records: at most one of each key. They are the member's until it settles them or loses the partition; nobody else gets them
    /// meanwhile.
    pub records: Vec<DueRecord>,
}

/// A record to deliver again; it is read from the log by its offset.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DueRecord {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The record.
    pub offset: Offset,
    /// Which attempt this is: 1 for a record that waited behind another, 2 and more for one that failed.
    pub attempt: u32,
    /// Its key, as [`crate::parking_key()`] gives it.
    pub key: Option<Vec<u8>>,
}

bodies! {
    TakeRetriesRequest within check = TakeRetries => TakeRetriesReply;
}
