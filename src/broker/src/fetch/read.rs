//! Partitions of this shard, read for one fetch: what is in memory at once, what is on disk side by side.
//!
//! ```text
//!  partitions in the order of the request ─► in memory? ── yes ──────────────────────────────────► found
//!                                                │ no                                                ▲
//!                                                └─► under way: at most READS_AT_ONCE, ──────────────┘
//!                                                    each has its part of the bytes reserved
//! ```

use super::{Part, reply};
use crate::{
    mail::ReadPart,
    partition::{LEADER_EPOCH, Partition},
};
use commit_log::{ReadError, limits::COLD_READ_BYTES_MAX};
use futures_util::stream::{FuturesUnordered, StreamExt};
use shards::{buffer::Shared, executor};
use std::rc::Rc;
use wire::{ErrorCode, limits};

/// Reads of one fetch that may wait for the disk at a time. The log bounds those of the shard; this keeps one consumer of a thousand cold
/// partitions from standing in front of all others.
const READS_AT_ONCE: usize = 16;

/// A partition to read, and its place in the request.
pub(super) struct Wanted {
    pub(super) index: usize,
    pub(super) partition: Rc<Partition>,
    pub(super) part: ReadPart,
}

/// What is known of a partition without the disk.
enum Look {
    Found(Part),
    /// So many bytes are to be read from the disk.
    Cold(usize),
}

/// Reads the partitions, with `bytes_before` read already of others and `bytes_max` for all together; gives each with its place. At least one
/// batch is read whole, however large; then the bound may be passed by the last one.
pub(super) async fn read_here(wanted: Vec<Wanted>, bytes_before: usize, bytes_max: usize) -> Vec<(usize, Part)> {
    let mut found: Vec<(Wanted, Part)> = Vec::with_capacity(wanted.len());
    let mut reading = FuturesUnordered::new();
    let (mut bytes, mut reserved) = (bytes_before, 0);
    for wanted in wanted {
        // With less left than a read brings it waits for those before it: what they do not take is its.
        let most = wanted.part.bytes_max.min(COLD_READ_BYTES_MAX);
        while reading.len() == READS_AT_ONCE || (!reading.is_empty() && bytes + reserved + most > bytes_max) {
            let (wanted, part, held): (Wanted, Part, usize) = reading.next().await.expect("something is under way");
            (bytes, reserved) = (bytes + part.0.batch_bytes as usize, reserved - held);
            found.push((wanted, part));
        }
        match look(&wanted, bytes + reserved, bytes_max) {
            Look::Found(part) => {
                bytes += part.0.batch_bytes as usize;
                found.push((wanted, part));
            }
            Look::Cold(held) => {
                reserved += held;
                reading.push(read_cold(wanted, held));
            }
        }
        executor::yield_if_needed().await;
    }
    while let Some((wanted, part, _)) = reading.next().await {
        found.push((wanted, part));
    }
    drop(reading);
    found.sort_unstable_by_key(|(wanted, _)| wanted.index);
    keep_within(&mut found, bytes_before, bytes_max);
    found.into_iter().map(|(wanted, part)| (wanted.index, part)).collect()
}

/// Answers what can be answered at once, with `bytes` read or being read of those before.
fn look(wanted: &Wanted, bytes: usize, bytes_max: usize) -> Look {
    let Wanted { partition, part, .. } = wanted;
    let marks = partition.log.watermarks();
    if part.leader_epoch.is_some_and(|epoch| epoch != LEADER_EPOCH) {
        return Look::Found((super::failed(part.key, ErrorCode::NotLeader, None), Vec::new()));
    }
    if part.offset < marks.log_start || part.offset > marks.appended_end {
        let message = format!("offset {}: the log holds {} to {}", part.offset, marks.log_start, marks.appended_end);
        // What was below the log start has gone by intention; what is missing at the end of a lossy log has not.
        let is_lost = part.offset > marks.appended_end && partition.log.is_lossy();
        let error = if is_lost { ErrorCode::PartitionLossy } else { ErrorCode::OffsetOutOfRange };
        return Look::Found((reply(partition, error, Some(message), 0), Vec::new()));
    }
    let left = part.bytes_max.min(bytes_max.saturating_sub(bytes));
    if part.offset >= marks.high_watermark || (left == 0 && bytes > 0) {
        return Look::Found((reply(partition, ErrorCode::None, None, 0), Vec::new()));
    }
    match partition.log.read_in_memory(part.offset, left, marks.high_watermark) {
        Some(read) => Look::Found(answer(partition, read)),
        None => Look::Cold(left.min(COLD_READ_BYTES_MAX)),
    }
}

async fn read_cold(wanted: Wanted, held: usize) -> (Wanted, Part, usize) {
    let Wanted { partition, part, .. } = &wanted;
    let read = partition.log.read(part.offset, held, partition.high_watermark()).await;
    let part = answer(partition, read);
    (wanted, part, held)
}

fn answer(partition: &Partition, read: Result<Vec<Shared>, ReadError>) -> Part {
    match read {
        Ok(batches) => (reply(partition, ErrorCode::None, None, batches.iter().map(Shared::len).sum()), batches),
        Err(error) => (reply(partition, read_code(&error), Some(error.to_string()), 0), Vec::new()),
    }
}

/// The log gives at least one batch of each partition, however little was left. Counts what goes out, in the order of the request, and
/// leaves out what no longer fits.
fn keep_within(found: &mut [(Wanted, Part)], bytes_before: usize, bytes_max: usize) {
    let mut bytes = bytes_before;
    for (wanted, (reply, batches)) in found {
        let read = reply.batch_bytes as usize;
        let fits = bytes < bytes_max && bytes + read <= limits::FETCH_BYTES_MAX as usize;
        if bytes == 0 || fits {
            bytes += read;
            wanted.partition.counters.fetched(read);
        } else {
            reply.batch_bytes = 0;
            batches.clear();
        }
    }
}

/// What a reader is told.
pub(crate) fn read_code(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Lost { .. } => ErrorCode::PartitionLossy,
        ReadError::Corrupt { .. } => ErrorCode::DataCorrupt,
        ReadError::Deleted => ErrorCode::UnknownTopicOrPartition,
        ReadError::Io(_) => ErrorCode::StorageFailed,
    }
}
