//! ListOffsets: positions of a partition by name or time.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{Offset, PartitionIndex, TimestampMs, TopicId};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::messages::produce::check_count;

/// Asks for offsets.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListOffsetsRequest {
    /// The partitions.
    pub partitions: Vec<ListOffsetsPartition>,
}

impl ListOffsetsRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_REQUEST_MAX)
    }
}

/// What to find in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListOffsetsPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The position.
    pub at: OffsetAt,
}

/// A position in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum OffsetAt {
    /// The first offset that can be read.
    Earliest,
    /// The offset after the last that can be read.
    Latest,
    /// The first record at or after that time; the latest offset when there is none.
    Timestamp(TimestampMs),
}

/// Answers [`ListOffsetsRequest`], one entry per partition in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListOffsetsReply {
    /// The partitions.
    pub partitions: Vec<ListOffsetsPartitionReply>,
}

/// What was found in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListOffsetsPartitionReply {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whether it was found.
    pub error: ErrorCode,
    /// The offset.
    pub offset: Offset,
    /// Timestamp of the record there, when it was found by time; otherwise -1.
    pub timestamp_ms: TimestampMs,
}

bodies! {
    ListOffsetsRequest within check = ListOffsets => ListOffsetsReply;
}
