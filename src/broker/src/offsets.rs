//! ListOffsets: positions of a partition by name or time.

use crate::{
    calls,
    connection::Incoming,
    fetch::read_code,
    mail::{Answer, Call, Mail},
    partition::Partition,
    router::{Route, route},
    shard::Shard,
};
use futures_util::stream::{self, StreamExt};
use hashbrown::HashMap;
use shards::{ShardId, executor};
use std::rc::Rc;
use wire::{
    ErrorCode, ListOffsetsPartition, ListOffsetsPartitionReply, ListOffsetsReply, ListOffsetsRequest, Offset, OffsetAt,
    PartitionKey, TimestampMs, limits::PARTITIONS_PER_REQUEST_MAX,
};

/// Lookups of one request that may wait for the disk at a time.
const LOOKUPS_AT_ONCE: usize = 16;

/// Answers a request: partitions of this shard here, the others with one hop to each owner.
pub(crate) async fn list(shard: Rc<Shard>, request: ListOffsetsRequest, incoming: Incoming) {
    let mut replies: Vec<Option<ListOffsetsPartitionReply>> = Vec::with_capacity(request.partitions.len());
    let mut elsewhere: HashMap<ShardId, Vec<(usize, ListOffsetsPartition)>> = HashMap::new();
    let mut here = Vec::new();
    for (index, part) in request.partitions.into_iter().enumerate() {
        replies.push(None);
        if index >= PARTITIONS_PER_REQUEST_MAX {
            replies[index] = Some(failed(&part, ErrorCode::InvalidRequest));
            continue;
        }
        match route(&shard, PartitionKey::new(part.topic, part.partition)) {
            Route::Here(partition) => here.push(async move { (index, find(&partition, &part).await) }),
            Route::Shard(owner) => elsewhere.entry(owner).or_default().push((index, part)),
            Route::Nowhere(code) => replies[index] = Some(failed(&part, code)),
        }
    }
    let mut here = stream::iter(here).buffer_unordered(LOOKUPS_AT_ONCE);
    while let Some((index, reply)) = here.next().await {
        replies[index] = Some(reply);
        executor::yield_if_needed().await;
    }
    drop(here);
    for (owner, parts) in elsewhere {
        let asked = parts.iter().map(|(_, part)| part.clone()).collect();
        match calls::ask(&shard, owner, Call::Offsets(asked)).await {
            Some(Answer::Offsets(found)) => {
                for ((index, _), reply) in parts.into_iter().zip(found) {
                    replies[index] = Some(reply);
                }
            }
            _ => parts.iter().for_each(|(index, part)| replies[*index] = Some(failed(part, ErrorCode::ShuttingDown))),
        }
    }
    let partitions = replies.into_iter().map(|reply| reply.expect("every partition was found here or there")).collect();
    incoming.into_reply_to().send(&ListOffsetsReply { partitions });
}

/// The other end of a hop.
pub(crate) async fn list_for(shard: Rc<Shard>, source: ShardId, id: u64, parts: Vec<ListOffsetsPartition>) {
    let lookups = parts.iter().map(async |part| match route(&shard, PartitionKey::new(part.topic, part.partition)) {
        Route::Here(partition) => find(&partition, part).await,
        Route::Shard(_) => failed(part, ErrorCode::WrongShard),
        Route::Nowhere(code) => failed(part, code),
    });
    let replies = stream::iter(lookups).buffered(LOOKUPS_AT_ONCE).collect().await;
    calls::send_now(&shard, source, Mail::Answer { id, answer: Answer::Offsets(replies) });
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
