//! ListOffsets: positions of a partition by name or time.

use crate::{
    connection::Incoming,
    fetch::read_code,
    mail::{Answer, Call},
    partition::Partition,
    scatter::{self, Question},
    shard::Shard,
};
use std::rc::Rc;
use wire::{
    ErrorCode, ListOffsetsPartition, ListOffsetsPartitionReply, ListOffsetsReply, ListOffsetsRequest, Offset, OffsetAt,
    PartitionKey, TimestampMs, limits::PARTITIONS_PER_REQUEST_MAX,
};

/// Answers a request.
pub(crate) async fn list(shard: Rc<Shard>, mut request: ListOffsetsRequest, incoming: Incoming) {
    let too_many = request.partitions.split_off(request.partitions.len().min(PARTITIONS_PER_REQUEST_MAX));
    let mut partitions = scatter::ask_all(&shard, request.partitions).await;
    partitions.extend(too_many.iter().map(|part| failed(part, ErrorCode::InvalidRequest)));
    incoming.into_reply_to().send(&ListOffsetsReply { partitions });
}

impl Question for ListOffsetsPartition {
    type Reply = ListOffsetsPartitionReply;

    fn key(&self) -> PartitionKey {
        PartitionKey::new(self.topic, self.partition)
    }

    async fn answer(&self, _shard: &Shard, partition: &Partition) -> ListOffsetsPartitionReply {
        find(partition, self).await
    }

    fn failed(&self, code: ErrorCode) -> ListOffsetsPartitionReply {
        failed(self, code)
    }

    fn into_call(questions: Vec<Self>) -> Call {
        Call::Offsets(questions)
    }

    fn into_answer(replies: Vec<ListOffsetsPartitionReply>) -> Answer {
        Answer::Offsets(replies)
    }

    fn from_answer(answer: Answer) -> Option<Vec<ListOffsetsPartitionReply>> {
        match answer {
            Answer::Offsets(replies) => Some(replies),
            _ => None,
        }
    }
}

async fn find(partition: &Partition, part: &ListOffsetsPartition) -> ListOffsetsPartitionReply {
    let marks = partition.log.watermarks();
    let found = |offset, timestamp_ms| ListOffsetsPartitionReply {
        topic: part.topic,
        partition: part.partition,
        error: ErrorCode::None,
        offset,
        timestamp_ms,
    };
    match part.at {
        OffsetAt::Earliest => found(marks.log_start, TimestampMs(-1)),
        OffsetAt::Latest => found(marks.high_watermark, TimestampMs(-1)),
        OffsetAt::Timestamp(timestamp) => match partition.log.offset_for_timestamp(timestamp).await {
            // What consumers do not see yet is not there.
            Ok(Some((offset, at))) if offset < partition.high_watermark() => found(offset, at),
            Ok(_) => found(marks.high_watermark, TimestampMs(-1)),
            Err(error) => {
                tracing::warn!(partition = %partition.key, "cannot find an offset by time: {error}");
                failed(part, read_code(&error))
            }
        },
    }
}

/// The answer for a partition in which nothing was found.
pub(crate) fn failed(part: &ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionReply {
    ListOffsetsPartitionReply {
        topic: part.topic,
        partition: part.partition,
        error,
        offset: Offset::ZERO,
        timestamp_ms: TimestampMs(-1),
    }
}
