//! What travels between shards, and from ordinary threads to shards.

use crate::{
    connection::Counted,
    metadata::{Answered, Change, Refusal},
    standing::{Standing, StandingOf},
};
use commit_log::PartitionState;
use shards::{buffer::Portable, net::Handover};
use std::sync::Arc;
use wire::{
    BatchHeader, DeleteRecordsPartition, DeleteRecordsPartitionReply, ErrorCode, FetchPartitionReply, ListOffsetsPartition,
    ListOffsetsPartitionReply, Offset, PartitionDescription, PartitionIndex, PartitionKey, ProducePartitionReply,
};

/// One message of the mesh.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Another shard asks; answered by [`Mail::Answer`] with the same id.
    Call {
        /// Chosen by the asking shard.
        id: u64,
        /// What it asks.
        call: Call,
    },
    /// The answer to a call of this shard.
    Answer {
        /// The id of the call.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// Tell this shard once when one of these partitions shows more than its consumer has seen.
    Watch {
        /// Chosen by the asking shard; returned in [`Mail::Wake`].
        id: u64,
        /// Partitions and the high watermarks already seen.
        seen: Vec<(PartitionKey, Offset)>,
        /// The watch may be forgotten at this time (nanoseconds of the monotonic clock).
        until_ns: u64,
    },
    /// Something watched has moved.
    Wake {
        /// The id of the watch.
        id: u64,
    },
    /// A connection that wants this shard. Nothing was read from it.
    Connection {
        /// The socket.
        handover: Handover,
        /// Its place among the connections of the process.
        counted: Counted,
    },
    /// Phase 2 of the start: the partitions this shard owns.
    Assigned(Vec<PartitionState>),
    /// Every shard is open: accept connections.
    Listen,
    /// Topics changed; the metadata thread waits until every shard has applied it.
    Metadata {
        /// The version of the first change.
        version: u64,
        /// The changes, in order.
        changes: Arc<[Change]>,
    },
    /// The metadata thread answers a request of a client of this shard.
    MetadataAnswer {
        /// The request's number on this shard.
        ticket: u64,
        /// What it came to, or why not.
        result: Result<Answered, Refusal>,
    },
    /// Stop accepting, answer what is in progress, say when done.
    Drain,
    /// Every shard has drained: close the log and end.
    Close,
}

/// A question to the shard that owns partitions.
#[derive(Debug)]
pub(crate) enum Call {
    /// Append verified batches.
    Append {
        /// The partition.
        key: PartitionKey,
        /// Each batch with its checked header.
        batches: Vec<(BatchHeader, Portable)>,
    },
    /// Read what is there, without waiting.
    Read {
        /// The partitions, in order.
        parts: Vec<ReadPart>,
        /// Read already of those before them.
        bytes_before: usize,
        /// The most of all together.
        bytes_max: usize,
    },
    /// Find offsets.
    Offsets(Vec<ListOffsetsPartition>),
    /// Move log starts.
    DeleteRecords(Vec<DeleteRecordsPartition>),
    /// Say where partitions start and end.
    Standing(Vec<StandingOf>),
    /// Describe partitions.
    Describe(Vec<PartitionKey>),
    /// Answer a request of a group.
    Group {
        /// The partition of the internal topic that keeps the group.
        partition: PartitionIndex,
        /// What is asked.
        request: Box<consumer_groups::Request>,
    },
}

/// One partition of a read.
#[derive(Clone, Debug)]
pub(crate) struct ReadPart {
    pub(crate) key: PartitionKey,
    pub(crate) offset: Offset,
    pub(crate) bytes_max: usize,
    pub(crate) leader_epoch: Option<wire::LeaderEpoch>,
}

/// The answer to a [`Call`].
#[derive(Debug)]
pub(crate) enum Answer {
    /// To [`Call::Append`].
    Append(ProducePartitionReply),
    /// To [`Call::Read`], in the same order.
    Read(Vec<(FetchPartitionReply, Vec<Portable>)>),
    /// To [`Call::Offsets`], in the same order.
    Offsets(Vec<ListOffsetsPartitionReply>),
    /// To [`Call::DeleteRecords`], in the same order.
    DeleteRecords(Vec<DeleteRecordsPartitionReply>),
    /// To [`Call::Standing`], in the same order.
    Standing(Vec<Option<Standing>>),
    /// To [`Call::Describe`], in the same order.
    Describe(Vec<PartitionDescription>),
    /// To [`Call::Group`].
    Group(Result<Box<consumer_groups::Reply>, ErrorCode>),
}
