//! Produce: batches for many partitions at once.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{Offset, PartitionIndex, TimestampMs, TopicId};
use crate::limits::{ALIGNMENT_BYTES, BATCH_HEADER_BYTES, BATCHES_PER_REQUEST_MAX, PARTITIONS_PER_REQUEST_MAX};

/// Where data must be before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum Acks {
    /// Durable on all in-sync replicas.
    #[default]
    AllInSync = 0,
    /// Durable on the leader.
    Leader = 1,
}

/// What an acknowledgement stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum AckLevel {
    /// On stable storage.
    #[default]
    Stable = 0,
    /// In memory: the topic is relaxed.
    Relaxed = 1,
}

/// Appends batches. They are attached in the order in which the body names them.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ProduceRequest {
    /// Where the data must be before the reply.
    pub acks: Acks,
    /// How long to wait for that; at most [`crate::limits::WAIT_MS_MAX`].
    pub timeout_ms: u32,
    /// The partitions.
    pub partitions: Vec<ProducePartition>,
}

/// The batches for one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ProducePartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Total length of each batch, in order.
    pub batch_lengths: Vec<u32>,
}

impl ProduceRequest {
    /// Checks counts, and that the lengths add up to the attachments, so that these can be cut without further checks.
    ///
    /// # Errors
    /// [`FrameError::TooMany`] or [`FrameError::Attachments`].
    pub fn check(&self, attachment_bytes: usize) -> Result<(), FrameError> {
        check_count("partitions in a request", self.partitions.len(), PARTITIONS_PER_REQUEST_MAX)?;
        let lengths = || self.partitions.iter().flat_map(|partition| &partition.batch_lengths);
        check_count("batches in a request", lengths().count(), BATCHES_PER_REQUEST_MAX)?;
        let stated_bytes = lengths().map(|&length| u64::from(length)).sum();
        let fail = |reason| Err(FrameError::Attachments { reason, stated_bytes, found_bytes: attachment_bytes });
        for &length in lengths() {
            if (length as usize) < BATCH_HEADER_BYTES || !(length as usize).is_multiple_of(ALIGNMENT_BYTES) {
                return fail("a batch is shorter than its header, or not a multiple of 16");
            }
        }
        if stated_bytes != attachment_bytes as u64 {
            return fail("the lengths of the batches do not add up to the attachments");
        }
        Ok(())
    }
}

/// Refuses more than a limit of something.
pub(crate) fn check_count(what: &'static str, found: usize, limit: usize) -> Result<(), FrameError> {
    if found > limit { Err(FrameError::TooMany { what, found, limit }) } else { Ok(()) }
}

/// Answers [`ProduceRequest`], one entry per partition in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ProduceReply {
    /// The partitions.
    pub partitions: Vec<ProducePartitionReply>,
}

/// What became of the batches for one partition: all were appended, or none.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ProducePartitionReply {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whether they are acknowledged.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// First offset that can be read.
    pub log_start: Offset,
    /// Time of appending, in topics whose broker sets it; otherwise -1.
    pub append_time_ms: TimestampMs,
    /// What the acknowledgement stands for.
    pub level: AckLevel,
    /// Replicas on whose stable storage the data is.
    pub replicas_durable: u8,
}

bodies! {
    ProduceRequest = Produce => ProduceReply;
}
