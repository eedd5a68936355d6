//! Settle: what became of delivered records. One request says it of many partitions, of each all at once or not at all.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{MemberEpoch, Offset, PartitionIndex, TimestampMs, TopicId};
use crate::limits::{
    FAILED_PER_REQUEST_MAX, FAILURE_REASON_BYTES_MAX, PARKING_KEY_BYTES_MAX, PARTITIONS_PER_SETTLE_MAX, SETTLED_PER_REQUEST_MAX,
};
use crate::messages::commit_offsets::CommittedOffset;
use crate::messages::field::{FieldError, require_bytes};
use crate::messages::produce::check_count;
use crate::names::{check_group_id, check_member_id};

/// Settles records.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct SettleRequest {
    /// The group.
    pub group: String,
    /// The member.
    pub member_id: String,
    /// Its epoch.
    pub member_epoch: MemberEpoch,
    /// The partitions; the member owns them.
    pub partitions: Vec<SettlePartition>,
}

/// What became of records of one partition. Applied in the order of the fields, so that the commit passes only records that are handled,
/// parked or held.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct SettlePartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Records of parked keys that were read and not delivered: they wait behind the one that failed. In the order of their offsets.
    pub deferred: Vec<DeferredRecord>,
    /// Records that were delivered again and are handled.
    pub done: Vec<DoneRecord>,
    /// Records that could not be handled.
    pub failed: Vec<FailedRecord>,
    /// How far the group has come in this partition.
    pub commit: Option<CommittedOffset>,
}

/// A record that waits because an earlier one of its key is parked.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeferredRecord {
    /// The key, as [`crate::parking_key()`] gives it.
    pub key: Vec<u8>,
    /// The record.
    pub offset: Offset,
}

/// A record that was delivered again and is handled.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DoneRecord {
    /// Its key, as [`crate::parking_key()`] gives it.
    pub key: Option<Vec<u8>>,
    /// The record.
    pub offset: Offset,
}

/// A record that could not be handled.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FailedRecord {
    /// The record.
    pub offset: Offset,
    /// Its key, as [`crate::parking_key()`] gives it; a record without one parks alone.
    pub key: Option<Vec<u8>>,
    /// Which attempt failed, 1 for the first delivery: a request that is repeated because its answer was lost counts once.
    pub attempt: u32,
    /// What the consumer says, in at most [`FAILURE_REASON_BYTES_MAX`].
    pub reason: String,
}

impl SettleRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_SETTLE_MAX)?;
        let settled = self.partitions.iter().map(|partition| partition.deferred.len() + partition.done.len()).sum();
        check_count("records settled in a request", settled, SETTLED_PER_REQUEST_MAX)?;
        let failed = self.partitions.iter().map(|partition| partition.failed.len()).sum();
        check_count("failed records in a request", failed, FAILED_PER_REQUEST_MAX)
    }

    /// Checks group and member; each partition is checked by [`SettlePartition::validate`], so that one that is wrong does not keep the
    /// others from being settled.
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)?;
        check_member_id(&self.member_id)
    }
}

impl SettlePartition {
    /// Checks the fields.
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn validate(&self) -> Result<(), FieldError> {
        let deferred = self.deferred.iter().map(|record| &record.key);
        let done = self.done.iter().filter_map(|record| record.key.as_ref());
        let failed = self.failed.iter().filter_map(|record| record.key.as_ref());
        for key in deferred.chain(done).chain(failed) {
            require_bytes("key", key.len(), PARKING_KEY_BYTES_MAX, ErrorCode::InvalidRequest)?;
        }
        for record in &self.failed {
            require_bytes("reason", record.reason.len(), FAILURE_REASON_BYTES_MAX, ErrorCode::InvalidRequest)?;
        }
        self.commit.as_ref().map_or(Ok(()), CommittedOffset::validate)
    }
}

/// Answers [`SettleRequest`], one entry per partition in the same order; everything in it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct SettleReply {
    /// Whether group and member are right; if not, nothing is settled and no partition named.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The partitions.
    pub partitions: Vec<SettlePartitionReply>,
}

/// What became of one partition: with an error nothing of it is settled.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct SettlePartitionReply {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whether it is settled.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// What becomes of each failed record, in the same order.
    pub outcomes: Vec<SettleOutcome>,
    /// Of the keys that the request names, those that are not parked after it: their records are delivered again. It tells how things
    /// stand, so that a repeated request is answered the same.
    pub released: Vec<Vec<u8>>,
    /// The lowest deferred record that was refused because as much is parked as may be; all that were lie at or after it.
    pub full_from: Option<Offset>,
    /// Where the commit stands now: never past a record that was refused.
    pub committed: Option<Offset>,
}

/// What becomes of a failed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum SettleOutcome {
    /// It is delivered again.
    Parked {
        /// When, at the earliest.
        due_ms: TimestampMs,
        /// How often it has been tried.
        attempts: u32,
    },
    /// Its attempts are used up: it goes to the dead-letter topic, whatever happens to this member.
    DeadLettered,
    /// Its attempts are used up: it is left behind.
    Skipped,
    /// Its attempts are used up: the partition stops for this group.
    Stopped,
    /// As much is parked as may be: the record is still the member's, which pauses the partition until retries make room.
    Full,
    /// It was settled before: the request is a repeated one.
    Settled,
}

bodies! {
    SettleRequest within check = Settle => SettleReply;
}
