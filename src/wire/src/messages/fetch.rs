//! Fetch: whole stored batches of many partitions.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::limits::{ALIGNMENT_BYTES, PARTITIONS_PER_REQUEST_MAX};
use crate::messages::produce::check_count;

/// Reads batches; a long poll when there are too few.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchRequest {
    /// How long to wait for `min_bytes`; at most [`crate::limits::WAIT_MS_MAX`].
    pub max_wait_ms: u32,
    /// Answer at once when that much is there.
    pub min_bytes: u32,
    /// Attachments of the reply; the first batch of the first partition is returned even when it is larger, so that a consumer
    /// always gets on.
    pub max_bytes: u32,
    /// The partitions, in the order in which they are served.
    pub partitions: Vec<FetchPartition>,
}

/// What to read of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The first offset wanted. The first batch returned contains it, and may begin before it.
    pub offset: Offset,
    /// Batches of this partition.
    pub max_bytes: u32,
    /// The reign the client believes in; a broker of another answers [`ErrorCode::NotLeader`].
    pub leader_epoch: Option<LeaderEpoch>,
}

impl FetchRequest {
    /// Checks counts.
    ///
    /// # Errors
    /// [`FrameError::TooMany`].
    pub fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_REQUEST_MAX)
    }
}

/// Answers [`FetchRequest`], one entry per partition in the same order; their batches are attached in that order too.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchReply {
    /// The partitions.
    pub partitions: Vec<FetchPartitionReply>,
}

/// What was read of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct FetchPartitionReply {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whether reading succeeded.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// End of what consumers see.
    pub high_watermark: Offset,
    /// First offset that can be read.
    pub log_start: Offset,
    /// End of what has been appended.
    pub log_end: Offset,
    /// Length of this partition's batches in the attachments.
    pub batch_bytes: u32,
}

impl FetchReply {
    /// Checks that the lengths add up to the attachments, so that these can be cut without further checks.
    ///
    /// # Errors
    /// [`FrameError::Attachments`].
    pub fn check(&self, attachment_bytes: usize) -> Result<(), FrameError> {
        let stated_bytes = self.partitions.iter().map(|partition| u64::from(partition.batch_bytes)).sum();
        let fail = |reason| Err(FrameError::Attachments { reason, stated_bytes, found_bytes: attachment_bytes });
        if self.partitions.iter().any(|partition| !(partition.batch_bytes as usize).is_multiple_of(ALIGNMENT_BYTES)) {
            return fail("the batches of a partition are not a multiple of 16");
        }
        if stated_bytes != attachment_bytes as u64 {
            return fail("the batches of the partitions do not add up to the attachments");
        }
        Ok(())
    }
}

bodies! {
    FetchRequest within check = Fetch => FetchReply;
}
