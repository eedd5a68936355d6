//! The sparse index of a segment: from memory, from the end of its file, or built again from its batches.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;

use hashbrown::HashMap;
use shards::buffer::Shared;
use shards::disk::{DiskError, File};
use shards::executor;
use wire::Offset;

use crate::cold_read::Place;
use crate::file_cache::SegmentKey;
use crate::format::BLOCK_BYTES;
use crate::format::segment::{SegmentIndex, SegmentScan, SegmentTail, SegmentTrailer, Stretch};
use crate::segment_file::SegmentFile;
use crate::shard::Shard;

/// Indexes of segments that are read, over all partitions of a shard: about a thousand full segments.
const INDEX_CACHE_BYTES_MAX: usize = 16 << 20;

/// Bytes of one read of a scan.
const SCAN_BYTES: usize = 1 << 20;

/// Indexes held in memory, each with the offset before which it holds the batches; the oldest goes first.
#[derive(Debug, Default)]
pub(crate) struct IndexCache {
    indexes: RefCell<HashMap<SegmentKey, (Rc<SegmentIndex>, u64)>>,
    order: RefCell<VecDeque<SegmentKey>>,
    bytes: Cell<usize>,
    /// How often one was forgotten: an index that was being read meanwhile may be of a file that is gone.
    forgotten: Cell<u64>,
}

impl IndexCache {
    /// The index of a segment, if it reaches `end`: what was built of one that was still written does not.
    fn get(&self, key: SegmentKey, end: u64) -> Option<Rc<SegmentIndex>> {
        let indexes = self.indexes.borrow();
        indexes.get(&key).filter(|(_, known_end)| *known_end >= end).map(|(index, _)| index.clone())
    }

    /// Adds the index of the batches of a segment before `end`.
    pub(crate) fn insert(&self, key: SegmentKey, index: Rc<SegmentIndex>, end: u64) {
        self.take_out(key);
        self.bytes.set(self.bytes.get() + index.memory_bytes());
        self.indexes.borrow_mut().insert(key, (index, end));
        self.order.borrow_mut().push_back(key);
        while self.bytes.get() > INDEX_CACHE_BYTES_MAX {
            let Some(oldest) = self.order.borrow_mut().pop_front() else { break };
            self.remove(oldest);
        }
    }

    /// The file has gone or was cut: another may take its name.
    pub(crate) fn forget(&self, key: SegmentKey) {
        self.forgotten.set(self.forgotten.get() + 1);
        self.take_out(key);
    }

    fn take_out(&self, key: SegmentKey) {
        if self.remove(key) {
            self.order.borrow_mut().retain(|other| *other != key);
        }
    }

    fn remove(&self, key: SegmentKey) -> bool {
        let removed = self.indexes.borrow_mut().remove(&key);
        if let Some((index, _)) = &removed {
            self.bytes.set(self.bytes.get() - index.memory_bytes());
        }
        removed.is_some()
    }
}

/// A position at or before the batch that holds `offset`.
pub(crate) async fn position_of(shard: &Shard, place: &Place, offset: u64) -> Result<u64, DiskError> {
    if let Some(active) = &place.active
        && offset >= active.index_start
    {
        return Ok(active.index.borrow().position_of(Offset(offset)).max(active.index_start_position));
    }
    Ok(index_of(shard, place).await?.position_of(Offset(offset)))
}

/// The first stretch of the place with offsets at or above `from` and a timestamp at or after `timestamp_ms`.
pub(crate) async fn stretch(shard: &Shard, place: &Place, from: u64, timestamp_ms: i64) -> Result<Option<Stretch>, DiskError> {
    let Some(active) = &place.active else {
        return Ok(index_of(shard, place).await?.stretch(Offset(from), timestamp_ms));
    };
    let start = active.index_start;
    if from < start
        && let Some(before) = index_of(shard, place).await?.stretch(Offset(from), timestamp_ms)
    {
        return Ok(Some(Stretch { end: Some(before.end.unwrap_or(Offset(start))), ..before }));
    }
    Ok(active.index.borrow().stretch(Offset(from.max(start)), timestamp_ms))
}

/// The index of a segment that was written under this handle: of the part that was there before it, and of what was added.
pub(crate) async fn whole(shard: &Shard, segment: &Rc<SegmentFile>, end: u64) -> Result<Rc<SegmentIndex>, DiskError> {
    if segment.index_start == segment.key.base {
        return Ok(Rc::new(segment.index.borrow().clone()));
    }
    // A reader may have come first, and built it from the batches.
    if let Some(index) = shard.indexes.get(segment.key, end) {
        return Ok(index);
    }
    let (disk, end_position) = (segment.disk().clone(), segment.position());
    let place = Place { key: segment.key, disk, end, end_position, active: Some(segment.clone()) };
    let mut index = (*index_of(shard, &place).await?).clone();
    index.append(&segment.index.borrow());
    Ok(Rc::new(index))
}

/// The index of a sealed segment, or of the part of an active one that was there before this start.
async fn index_of(shard: &Shard, place: &Place) -> Result<Rc<SegmentIndex>, DiskError> {
    let (end, end_position) = match &place.active {
        Some(active) => (active.index_start, active.index_start_position),
        None => (place.end, place.end_position),
    };
    if let Some(index) = shard.indexes.get(place.key, end) {
        return Ok(index);
    }
    let forgotten = shard.indexes.forgotten.get();
    let file = shard.files.get(place.key, &place.disk).await?;
    let stored = if place.active.is_none() { read_stored(shard, &file, place.key, end).await? } else { None };
    let index = match stored {
        Some(index) => index,
        None => {
            shard.counters.add(|stats| stats.indexes_rebuilt += 1);
            rebuild(&file, place.key, end, end_position).await?.0
        }
    };
    let index = Rc::new(index);
    if shard.indexes.forgotten.get() == forgotten {
        shard.indexes.insert(place.key, index.clone(), end);
    }
    Ok(index)
}

/// The index at the end of the file; `None` when there is none or it does not hold. One that goes beyond `end` is from before a cut: what it says of the
/// batches there must not meet what follows the cut.
async fn read_stored(shard: &Shard, file: &File, key: SegmentKey, end: u64) -> Result<Option<SegmentIndex>, DiskError> {
    let file_bytes = file.len()?;
    if file_bytes < 2 * BLOCK_BYTES as u64 || !file_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(None);
    }
    let tail = file.read_at(file_bytes - BLOCK_BYTES as u64, BLOCK_BYTES).await?;
    let Ok(trailer) = SegmentTrailer::decode(&tail, key.partition, Offset(key.base), file_bytes) else { return Ok(None) };
    if trailer.end_offset > Offset(end) {
        return Ok(None);
    }
    let bytes = file.read_at(trailer.index_position, trailer.index_bytes(file_bytes) as usize).await?;
    shard.counters.add(|stats| {
        stats.indexes_read += 1;
        stats.indexes_read_bytes += (tail.len() + bytes.len()) as u64;
    });
    Ok(SegmentIndex::decode(&bytes, &trailer).ok())
}

/// Builds the index of a whole segment from its batches.
pub(crate) async fn rebuild(
    file: &File,
    key: SegmentKey,
    end: u64,
    end_position: u64,
) -> Result<(SegmentIndex, SegmentTail), DiskError> {
    let start = BLOCK_BYTES as u64;
    let scan = SegmentScan::new(start, Offset(key.base), Offset(end), end_position);
    let (tail, index) = scan_file(file, scan.with_index(SegmentIndex::new(Offset(key.base))), end_position).await?;
    Ok((index.expect("it was asked for"), tail))
}

/// Feeds a scan with the file up to `end_position`.
pub(crate) async fn scan_file(
    file: &File,
    mut scan: SegmentScan,
    end_position: u64,
) -> Result<(SegmentTail, Option<SegmentIndex>), DiskError> {
    let mut wanted = SCAN_BYTES;
    loop {
        let position = scan.position();
        let start = position - position % BLOCK_BYTES as u64;
        let before = (position - start) as usize;
        let left = end_position.saturating_sub(start);
        let length = ((before + wanted.max(SCAN_BYTES)).next_multiple_of(BLOCK_BYTES) as u64).min(left) as usize;
        let bytes = if length == 0 { Shared::empty() } else { file.read_at(start, length).await? };
        let last = bytes.len() < length || start + bytes.len() as u64 >= end_position;
        let bytes = bytes.slice(before.min(bytes.len())..);
        match scan.feed(&bytes, last) {
            ControlFlow::Break(()) => return Ok(scan.finish()),
            ControlFlow::Continue(_) if last && scan.position() == position => return Ok(scan.finish()),
            ControlFlow::Continue(needed) => wanted = needed,
        }
        executor::yield_if_needed().await;
    }
}
