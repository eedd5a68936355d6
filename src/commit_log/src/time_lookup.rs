//! From a timestamp to an offset.

use std::rc::Rc;

use shards::buffer::Shared;
use wire::batch::{BatchHeader, BatchView, PayloadKind};
use wire::{Offset, TimestampMs};

use crate::cold_read;
use crate::partition::{Inner, Partition};
use crate::reader::{self, ReadError};
use crate::segment_index;
use crate::shard::Shard;

/// Bytes of one step of the search from the index entry on.
const STEP_BYTES: usize = 1 << 20;

/// The first record at or after `timestamp`, from the log start on.
pub(crate) async fn offset_for_timestamp(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    timestamp: TimestampMs,
) -> Result<Option<(Offset, TimestampMs)>, ReadError> {
    let mut from = start(shard, partition, timestamp.0).await?;
    loop {
        let below = Offset(partition.inner.borrow().grouped_end());
        let slices = reader::read(shard, partition, from, STEP_BYTES, below).await?;
        if slices.is_empty() {
            return Ok(find_pending(&partition.inner.borrow(), timestamp));
        }
        for slice in &slices {
            let mut rest = slice.clone();
            while !rest.is_empty() {
                let header = BatchHeader::decode(&rest).map_err(|error| damaged(from, &error))?;
                from = header.next_offset();
                let batch = rest.slice(..header.total_length());
                rest = rest.slice(header.total_length()..);
                if header.max_timestamp_ms >= timestamp {
                    return Ok(Some(find_record(&header, &batch, timestamp)));
                }
            }
        }
    }
}

fn damaged(offset: Offset, error: &dyn std::fmt::Display) -> ReadError {
    // Read batches were checked: this is memory that changed under us.
    ReadError::Corrupt { offset, segment: Offset(0), position: 0, reason: error.to_string() }
}

/// Where the search starts: at an index entry before which everything is older.
async fn start(shard: &Shard, partition: &Partition, timestamp_ms: i64) -> Result<Offset, ReadError> {
    let (log_start, place) = {
        let inner = partition.inner.borrow();
        reader::check_range(&inner, inner.marks.log_start)?;
        let sealed = inner.sealed.iter().find(|segment| segment.max_timestamp_ms >= timestamp_ms);
        let first = match (sealed, &inner.active) {
            (Some(segment), _) => Some(segment.key.base),
            (None, Some(active)) if active.file.key.base < inner.flushed_end => Some(active.file.key.base),
            (None, _) => None,
        };
        let Some(first) = first else { return Ok(Offset(inner.flushed_end).max(inner.marks.log_start)) };
        (inner.marks.log_start, cold_read::find(&inner, first)?)
    };
    let near = segment_index::offset_near(shard, &place, timestamp_ms).await?;
    Ok(Offset(near).max(log_start))
}

/// Among the records of one batch. Batches of other kinds than ours are not opened: the answer is their first record.
fn find_record(header: &BatchHeader, batch: &Shared, timestamp: TimestampMs) -> (Offset, TimestampMs) {
    if header.payload_kind == PayloadKind::Records
        && let Ok(view) = BatchView::new(batch)
        && let Some(record) = view.records().find(|record| record.timestamp_ms >= timestamp)
    {
        return (record.offset, record.timestamp_ms);
    }
    (header.base_offset, header.first_timestamp_ms)
}

/// Batches that no group has taken yet. They are not opened: they will be within a commit.
fn find_pending(inner: &Inner, timestamp: TimestampMs) -> Option<(Offset, TimestampMs)> {
    let batch = inner.pending.iter().find(|batch| batch.max_timestamp_ms >= timestamp.0)?;
    Some((Offset(batch.base), TimestampMs(batch.max_timestamp_ms)))
}
