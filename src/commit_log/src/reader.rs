//! Reading: memory first, then segments.

use std::rc::Rc;

use shards::buffer::Shared;
use shards::disk::DiskError;
use wire::Offset;

use crate::cold_read;
use crate::partition::{Inner, Partition};
use crate::shard::Shard;

/// Why a read returned nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The offset is outside what is kept.
    #[error("offset outside the log, which holds {start} to {end}")]
    OutOfRange {
        /// First offset kept.
        start: Offset,
        /// Offset of the next append.
        end: Offset,
    },
    /// A stored batch does not match its checksum. Batches before it and segments after it can be read.
    #[error("the batch at offset {offset} is damaged on disk (segment {segment}, position {position}): {reason}")]
    Corrupt {
        /// First offset that cannot be read.
        offset: Offset,
        /// Base offset of its segment.
        segment: Offset,
        /// Byte position in the segment.
        position: u64,
        /// What did not hold.
        reason: String,
    },
    /// Acknowledged batches that are gone: recovery could not find them.
    #[error("the batches from offset {offset} to {end} were lost")]
    Lost {
        /// First offset wanted.
        offset: Offset,
        /// Where the log goes on.
        end: Offset,
    },
    /// The disk did not answer the read.
    #[error(transparent)]
    Io(#[from] DiskError),
    /// The partition is deleted.
    #[error("the partition is deleted")]
    Deleted,
}

pub(crate) async fn read(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    from: Offset,
    bytes_max: usize,
    below: Offset,
) -> Result<Vec<Shared>, ReadError> {
    // A removal of old segments, a truncation or an eviction may come between choosing a segment and reading it: then choose again.
    loop {
        if let Some(found) = read_in_memory(shard, partition, from, bytes_max, below) {
            return found;
        }
        let place = cold_read::find(&partition.inner.borrow(), from.0)?;
        match cold_read::read(shard, &place, from.0, bytes_max, below.0).await {
            // Its name may be gone by now, or its space.
            Err(ReadError::Io(_) | ReadError::Corrupt { .. }) if !is_current(partition, &place) => {}
            other => return other,
        }
    }
}

/// The same without the disk: nothing when that has to be asked.
pub(crate) fn read_in_memory(
    shard: &Shard,
    partition: &Partition,
    from: Offset,
    bytes_max: usize,
    below: Offset,
) -> Option<Result<Vec<Shared>, ReadError>> {
    let inner = partition.inner.borrow();
    if let Err(error) = check_range(&inner, from) {
        return Some(Err(error));
    }
    let below = below.0.min(inner.marks.appended_end.0);
    if from.0 >= below {
        return Some(Ok(Vec::new()));
    }
    if !is_in_memory(&inner, from.0) {
        return None;
    }
    let (found, batches) = collect(&inner, from.0, bytes_max, below);
    shard.counters.add(|stats| {
        stats.tail_reads += 1;
        stats.read_batches += batches;
    });
    Some(Ok(found))
}

pub(crate) fn check_range(inner: &Inner, from: Offset) -> Result<(), ReadError> {
    if inner.deleted {
        return Err(ReadError::Deleted);
    }
    let (start, end) = (inner.marks.log_start, inner.marks.appended_end);
    if from < start || from > end {
        return Err(ReadError::OutOfRange { start, end });
    }
    Ok(())
}

/// Whether the partition still has the segment.
pub(crate) fn is_current(partition: &Partition, place: &cold_read::Place) -> bool {
    let inner = partition.inner.borrow();
    let sealed = inner.sealed.iter().any(|segment| segment.key == place.key);
    sealed || inner.active.as_ref().is_some_and(|active| active.file.key == place.key)
}

fn is_in_memory(inner: &Inner, from: u64) -> bool {
    let start = inner.cached.front().map_or_else(|| inner.grouped_end(), |batch| batch.base);
    from >= start
}

/// Batches in memory from the one that holds `from`, and how many: at least one, then while they fit.
fn collect(inner: &Inner, from: u64, bytes_max: usize, below: u64) -> (Vec<Shared>, u64) {
    let mut found: Vec<Shared> = Vec::new();
    let mut taken = 0;
    let mut batches = 0;
    let first = inner.cached.partition_point(|batch| batch.last < from);
    for batch in inner.cached.range(first..) {
        if batch.base >= below || (taken > 0 && taken + batch.bytes.len() > bytes_max) {
            return (found, batches);
        }
        taken += batch.bytes.len();
        batches += 1;
        push_joined(&mut found, batch.bytes.clone());
    }
    for batch in inner.pending.iter().skip_while(|batch| batch.last < from) {
        if batch.base >= below || (taken > 0 && taken + batch.bytes.len() > bytes_max) {
            return (found, batches);
        }
        taken += batch.bytes.len();
        batches += 1;
        found.push(Shared::copy_from_slice(&batch.header));
        found.push(batch.bytes.slice(batch.header.len()..));
    }
    (found, batches)
}

/// Neighbours in one buffer go out as one slice.
pub(crate) fn push_joined(found: &mut Vec<Shared>, bytes: Shared) {
    if let Some(joined) = found.last().and_then(|last| last.join(&bytes)) {
        found.pop();
        found.push(joined);
    } else {
        found.push(bytes);
    }
}
