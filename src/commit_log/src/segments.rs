//! Which segment takes the next batches of a partition.

use std::rc::Rc;

use crate::file_cache::SegmentKey;
use shards::clock;
use wire::Offset;

use crate::format::BLOCK_BYTES;
use crate::format::record::SegmentEnd;
use crate::partition::{ActiveSegment, Inner, Partition, SealedSegment};
use crate::seal::Sealing;
use crate::segment_file::{Reservation, SegmentFile};
use crate::segment_fill::Chunk;
use crate::shard::Shard;

/// A batch of a reservation, for the sparse index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) base: u64,
    pub(crate) last: u64,
    pub(crate) max_timestamp_ms: i64,
    /// Distance to the next batch in the file: its length, and the padding behind it if it ends a chunk.
    pub(crate) stride: u64,
}

/// Adds the padding of `chunks` to the batches that end them. Returns the bytes of all.
pub(crate) fn spread(placed: &mut [Placed], chunks: &[Chunk]) -> u64 {
    let mut total = 0;
    let mut last = 0;
    for chunk in chunks {
        last += chunk.count;
        placed[last - 1].stride += (chunk.padded - chunk.length) as u64;
        total += chunk.padded as u64;
    }
    assert_eq!(last, placed.len(), "each batch is in one chunk");
    total
}

/// A place for batches, handed out in offset order.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) file: Rc<SegmentFile>,
    pub(crate) reservation: Reservation,
    /// The file was not named by a direct-start note since the last checkpoint.
    pub(crate) unnoted: bool,
}

impl Place {
    /// The start of the place, in which `offset` is the first.
    pub(crate) fn start(&self, offset: u64) -> SegmentEnd {
        self.at(self.reservation.position, offset)
    }

    /// The end of the place, before `offset`.
    pub(crate) fn end(&self, offset: u64) -> SegmentEnd {
        self.at(self.reservation.position + self.reservation.bytes, offset)
    }

    fn at(&self, position: u64, offset: u64) -> SegmentEnd {
        let (base, incarnation) = (Offset(self.file.key.base), self.file.incarnation);
        SegmentEnd { base, incarnation, position, offset: Offset(offset) }
    }
}

/// Reserves room for `batches` (in order, `padded` bytes in the file), in a new segment if the present one is full or old. The caller holds the
/// partition's segments lock.
pub(crate) fn reserve(
    shard: &Shard,
    partition: &Rc<Partition>,
    inner: &mut Inner,
    batches: &[Placed],
    padded: u64,
    now_ms: i64,
) -> Place {
    let first = batches.first().expect("a reservation has batches");
    let last = batches.last().expect("a reservation has batches");
    if inner.active.as_ref().is_some_and(|active| is_full(inner, active, padded, now_ms)) {
        seal(shard, partition, inner);
    }
    let active = inner.active.get_or_insert_with(|| {
        let segment = SegmentKey { partition: partition.key, base: first.base, generation: 0 };
        // Between two files of one name lies a cut, and it took a block.
        let incarnation = shard.wal.borrow().next_block();
        ActiveSegment {
            file: Rc::new(SegmentFile::new(shard.disk.clone(), segment, shard.storage_id, incarnation)),
            reserved_end: first.base,
            flushed_position: BLOCK_BYTES as u64,
            max_timestamp_ms: i64::MIN,
            noted: false,
            known_by: 0,
        }
    });
    assert_eq!(active.reserved_end, first.base, "a segment holds its offsets without a hole");
    let reservation = active.file.reserve(padded);
    let mut position = reservation.position;
    let mut index = active.file.index.borrow_mut();
    for batch in batches {
        index.add(Offset(batch.base), position, batch.max_timestamp_ms);
        active.max_timestamp_ms = active.max_timestamp_ms.max(batch.max_timestamp_ms);
        position += batch.stride;
    }
    drop(index);
    active.reserved_end = last.last + 1;
    Place { file: active.file.clone(), reservation, unnoted: !active.noted }
}

/// Whether `padded` bytes would begin a new segment.
pub(crate) fn begins(inner: &Inner, padded: u64, now_ms: i64) -> bool {
    inner.active.as_ref().is_none_or(|active| is_full(inner, active, padded, now_ms))
}

fn is_full(inner: &Inner, active: &ActiveSegment, padded: u64, now_ms: i64) -> bool {
    let position = active.file.position();
    if position == BLOCK_BYTES as u64 {
        return false;
    }
    position + padded > inner.options.segment_bytes || is_aged(inner, now_ms)
}

/// Whether what no sealed segment holds is so old that it should be in one.
pub(crate) fn is_aged(inner: &Inner, now_ms: i64) -> bool {
    let age_ms = u64::try_from(now_ms.saturating_sub(inner.open_since_ms)).unwrap_or(0);
    age_ms >= inner.options.segment_ms
}

/// A segment of this size is not continued after a restart: its index would have to be built again, by reading all of it.
const CONTINUED_BYTES_MAX: u64 = 16 << 20;

/// Whether the active segment is so large, and its index at hand.
pub(crate) fn is_large(inner: &Inner) -> bool {
    inner.active.as_ref().is_some_and(|active| {
        let file = &active.file;
        file.position() >= CONTINUED_BYTES_MAX && file.index_start_position < CONTINUED_BYTES_MAX
    })
}

/// Closes the active segment: it takes no more batches. Its index and trailer are written in the background.
pub(crate) fn seal(shard: &Shard, partition: &Rc<Partition>, inner: &mut Inner) {
    let Some(active) = inner.active.take() else { return };
    let end = active.reserved_end;
    // What is appended and in no segment yet may be a little older: it is kept that much longer.
    let sealed_ms = clock::wall_ms();
    inner.open_since_ms = sealed_ms;
    if end == active.file.key.base {
        return;
    }
    inner.sealed.push(SealedSegment {
        key: active.file.key,
        disk: active.file.disk().clone(),
        end,
        bytes: active.file.position(),
        max_timestamp_ms: active.max_timestamp_ms,
        sealed_ms,
        tombstones_since_ms: None,
        known_by: active.known_by,
        incarnation: active.file.incarnation,
    });
    if active.file.index_start == active.file.key.base {
        // Found there until it is in the file.
        shard.indexes.insert(active.file.key, Rc::new(active.file.index.borrow().clone()), end);
    }
    shard.rolled(partition.key, inner);
    shard.seal_later(Sealing { partition: partition.clone(), file: active.file, end });
}
