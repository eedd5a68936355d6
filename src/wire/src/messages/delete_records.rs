//! DeleteRecords: moves the log start of partitions, so that what lies before it is gone.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{Offset, PartitionIndex, TopicId};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::messages::produce::check_count;

/// Deletes the records before an offset. Deleting what is gone already is success.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteRecordsRequest {
    /// The partitions.
    pub partitions: Vec<DeleteRecordsPartition>,
}

/// What to delete of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteRecordsPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The first offset to keep, at most the high watermark; `None` for the high watermark: everything that consumers see goes.
    pub before: Option<Offset>,
}

impl DeleteRecordsRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_REQUEST_MAX)
    }
}

/// Answers [`DeleteRecordsRequest`], one entry per partition in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteRecordsReply {
    /// The partitions.
    pub partitions: Vec<DeleteRecordsPartitionReply>,
}

/// What became of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteRecordsPartitionReply {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whether the new log start is durable.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// First offset that can be read now; later than asked for when it was so before.
    pub log_start: Offset,
}

bodies! {
    DeleteRecordsRequest within check = DeleteRecords => DeleteRecordsReply;
}
