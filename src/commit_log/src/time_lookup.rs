//! From a timestamp to an offset: the first record at or after it, from the log start on.
//!
//! ```text
//!   log start                                        flushed end                 appended end
//!      │ sealed │ sealed │ sealed │ … │ active segment  │ written buffers │ pending   │
//!      │        the first whose greatest timestamp      │ the first batch whose      │
//!      │        is late enough ─► its index ─► one      │ header is late enough      │
//!      │        stretch of 128 KiB ─► batch ─► record   │ ─► record                  │
//! ```
//!
//! Why it is bounded though timestamps need not ascend: what is known of each segment and of each stretch of its index is the *greatest* timestamp in
//! it. A segment or stretch whose greatest is older holds no answer; the first whose greatest is late enough holds one. So a lookup reads one index and
//! one stretch, and goes on only where what was late is not there any more: before the log start, in the segment that the log start cuts; behind a
//! cut, in the segment that it cut; each costs one more stretch. A batch whose header promises a later record than it holds costs one too: the answer
//! stays exact.

use std::rc::Rc;

use shards::buffer::{self, Shared};
use shards::executor;
use wire::batch::{BatchHeader, BatchView, PayloadKind};
use wire::limits::ALIGNMENT_BYTES;
use wire::{AlignedVec, Offset, TimestampMs};

use crate::cold_read::Place;
use crate::partition::{Inner, Partition};
use crate::reader::{self, ReadError};
use crate::shard::Shard;
use crate::{segment_fill, segment_index};

/// Bytes of one read within a stretch: a stretch has as much, and the rest of its last batch.
const READ_BYTES: usize = crate::limits::INDEX_INTERVAL_BYTES as usize;

/// Batches in memory whose headers are looked at in one go, so that the shard is not held up.
const HEADERS_AT_ONCE: usize = 4096;

type Found = (Offset, TimestampMs);

/// The first record at or after `timestamp`.
pub(crate) async fn offset_for_timestamp(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    timestamp: TimestampMs,
) -> Result<Option<Found>, ReadError> {
    let mut next = 0;
    loop {
        let found = search(shard, partition, &mut next, timestamp).await?;
        let log_start = partition.inner.borrow().marks.log_start;
        match found {
            // The log start has passed it meanwhile.
            Some((offset, _)) if offset < log_start => next = log_start.0,
            found => return Ok(found),
        }
    }
}

/// Where to look next.
enum Look {
    /// Into the index of a segment.
    Segment(Place),
    /// Into a batch in memory.
    Batch(BatchHeader, Shared),
    /// At the headers behind this offset.
    On(u64),
    /// Everything is older.
    Nowhere,
}

async fn search(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    next: &mut u64,
    timestamp: TimestampMs,
) -> Result<Option<Found>, ReadError> {
    loop {
        let look = {
            let inner = partition.inner.borrow();
            if inner.deleted {
                return Err(ReadError::Deleted);
            }
            *next = (*next).max(inner.marks.log_start.0);
            look(&inner, *next, timestamp.0)
        };
        match look {
            Look::Segment(place) => {
                let found = in_segment(shard, partition, &place, *next, timestamp).await;
                match found {
                    Ok(None) => *next = place.end,
                    // Retention or a cut took the segment, or the place in it: what is left is looked at again.
                    Err(ReadError::OutOfRange { .. }) => {}
                    Err(_) if !reader::is_current(partition, &place) => {}
                    found => return found,
                }
            }
            Look::Batch(header, bytes) => {
                if let Some(found) = find_record(&header, &bytes, Offset(*next), timestamp) {
                    return Ok(Some(found));
                }
                *next = header.next_offset().0;
            }
            Look::On(behind) => *next = behind,
            Look::Nowhere => return Ok(None),
        }
        executor::yield_if_needed().await;
    }
}

fn look(inner: &Inner, from: u64, timestamp_ms: i64) -> Look {
    if let Some(place) = first_late_segment(inner, from, timestamp_ms) {
        return Look::Segment(place);
    }
    let from = from.max(inner.flushed_end);
    let first = inner.cached.partition_point(|batch| batch.last < from);
    let mut looked = 0;
    for batch in inner.cached.range(first..) {
        if batch.max_timestamp_ms >= timestamp_ms {
            let header = BatchHeader::decode(&batch.bytes).expect("the log has stamped this header");
            return Look::Batch(header, batch.bytes.clone());
        }
        looked += 1;
        if looked == HEADERS_AT_ONCE {
            return Look::On(batch.last + 1);
        }
    }
    for batch in inner.pending.iter().skip_while(|batch| batch.last < from) {
        if batch.max_timestamp_ms >= timestamp_ms {
            let header = BatchHeader::decode(&batch.header).expect("the log has stamped this header");
            let mut whole = buffer::allocate_plain(batch.bytes.len());
            segment_fill::copy_batch(&mut whole, Some(&batch.header), &batch.bytes);
            return Look::Batch(header, whole.freeze());
        }
        looked += 1;
        if looked == HEADERS_AT_ONCE {
            return Look::On(batch.last + 1);
        }
    }
    Look::Nowhere
}

/// The first segment with offsets at or above `from` that has a timestamp late enough.
fn first_late_segment(inner: &Inner, from: u64, timestamp_ms: i64) -> Option<Place> {
    let first = inner.sealed.partition_point(|segment| segment.end <= from);
    let late = inner.sealed[first..].iter().find(|segment| segment.max_timestamp_ms >= timestamp_ms);
    if let Some(segment) = late {
        return Some(Place::sealed(segment));
    }
    let place = Place::active(inner)?;
    let is_late = inner.active.as_ref().is_some_and(|active| active.max_timestamp_ms >= timestamp_ms);
    (is_late && place.end > from && place.end > place.key.base).then_some(place)
}

async fn in_segment(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    place: &Place,
    from: u64,
    timestamp: TimestampMs,
) -> Result<Option<Found>, ReadError> {
    let mut next = from.max(place.key.base);
    while next < place.end {
        let Some(stretch) = segment_index::stretch(shard, place, next, timestamp.0).await? else { return Ok(None) };
        let end = stretch.end.map_or(place.end, |end| end.0.min(place.end));
        next = next.max(stretch.start.0);
        while next < end {
            let slices = match reader::read(shard, partition, Offset(next), READ_BYTES, Offset(end)).await {
                Ok(slices) => slices,
                Err(ReadError::Lost { end, .. }) => {
                    next = end.0;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let read_from = next;
            for header_and_batch in slices.iter().flat_map(batches) {
                let (header, batch) = header_and_batch.map_err(|error| damaged(next, &error))?;
                if header.max_timestamp_ms >= timestamp
                    && let Some(found) = find_record(&header, &batch, Offset(from), timestamp)
                {
                    return Ok(Some(found));
                }
                next = header.next_offset().0;
            }
            if next == read_from {
                // The end has moved below: a cut.
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// The batches of a slice that was read.
fn batches(slice: &Shared) -> impl Iterator<Item = Result<(BatchHeader, Shared), wire::BatchError>> {
    let mut rest = slice.clone();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = BatchHeader::decode(&rest).map(|header| (header, rest.slice(..header.total_length())));
        rest = match &next {
            Ok((header, _)) => rest.slice(header.total_length()..),
            Err(_) => Shared::empty(),
        };
        Some(next)
    })
}

fn damaged(offset: u64, error: &dyn std::fmt::Display) -> ReadError {
    // Read batches were checked: this is memory that changed under us.
    ReadError::Corrupt { offset: Offset(offset), segment: Offset(0), position: 0, reason: error.to_string() }
}

/// The first record of a batch that is at or above `from` and at or after `timestamp`. Batches for the machinery have none for a reader; of records
/// that cannot be opened here the first stands for all.
fn find_record(header: &BatchHeader, batch: &[u8], from: Offset, timestamp: TimestampMs) -> Option<Found> {
    if matches!(header.payload_kind, PayloadKind::Control | PayloadKind::Padding) {
        return None;
    }
    let mut copy = AlignedVec::new();
    let batch = if batch.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES) {
        batch
    } else {
        copy.extend_from_slice(batch);
        copy.as_slice()
    };
    match BatchView::new(batch) {
        Ok(view) => {
            let mut records = view.records().filter(|record| record.offset >= from);
            records.find(|record| record.timestamp_ms >= timestamp).map(|record| (record.offset, record.timestamp_ms))
        }
        Err(_) => Some((header.base_offset.max(from), header.max_timestamp_ms)),
    }
}
