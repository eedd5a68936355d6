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
use crate::format::segment::{SegmentIndex, SegmentScan, SegmentTail, SegmentTrailer};
use crate::shard::Shard;

/// Indexes of segments that are read, over all partitions of a shard: about a thousand full segments.
const INDEX_CACHE_BYTES_MAX: usize = 16 << 20;

/// Bytes of one read of a scan.
const SCAN_BYTES: usize = 1 << 20;

/// Indexes held in memory; the oldest goes first.
#[derive(Debug, Default)]
pub(crate) struct IndexCache {
    indexes: RefCell<HashMap<SegmentKey, Rc<SegmentIndex>>>,
    order: RefCell<VecDeque<SegmentKey>>,
    bytes: Cell<usize>,
}

impl IndexCache {
    fn get(&self, key: SegmentKey) -> Option<Rc<SegmentIndex>> {
        self.indexes.borrow().get(&key).cloned()
    }

    pub(crate) fn insert(&self, key: SegmentKey, index: Rc<SegmentIndex>) {
        self.forget(key);
        self.bytes.set(self.bytes.get() + index.memory_bytes());
        self.indexes.borrow_mut().insert(key, index);
        self.order.borrow_mut().push_back(key);
        while self.bytes.get() > INDEX_CACHE_BYTES_MAX {
            let Some(oldest) = self.order.borrow_mut().pop_front() else { break };
            self.remove(oldest);
        }
    }

    pub(crate) fn forget(&self, key: SegmentKey) {
        if self.remove(key) {
            self.order.borrow_mut().retain(|other| *other != key);
        }
    }

    fn remove(&self, key: SegmentKey) -> bool {
        let removed = self.indexes.borrow_mut().remove(&key);
        if let Some(index) = &removed {
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

/// An offset at or before the first batch that is not older than `timestamp_ms`.
pub(crate) async fn offset_near(shard: &Shard, place: &Place, timestamp_ms: i64) -> Result<u64, DiskError> {
    let near = |index: &SegmentIndex| {
        let after = index.entries().partition_point(|entry| entry.max_timestamp_before_ms < timestamp_ms);
        index.entries().get(after.saturating_sub(1)).map(|entry| entry.offset.0)
    };
    if let Some(active) = &place.active
        && active.index_start == place.key.base
    {
        return Ok(near(&active.index.borrow()).unwrap_or(place.key.base));
    }
    Ok(near(&*index_of(shard, place).await?).unwrap_or(place.key.base))
}

/// The index of a sealed segment, or of the part of an active one that was there before this start.
async fn index_of(shard: &Shard, place: &Place) -> Result<Rc<SegmentIndex>, DiskError> {
    if let Some(index) = shard.indexes.get(place.key) {
        return Ok(index);
    }
    let file = shard.files.get(place.key, &place.disk).await?;
    let stored = if place.active.is_none() { read_stored(&file, place.key).await? } else { None };
    let index = match stored {
        Some(index) => index,
        None => {
            let (end, end_position) = match &place.active {
                Some(active) => (active.index_start, active.index_start_position),
                None => (place.end, place.end_position),
            };
            rebuild(&file, place.key, end, end_position).await?.0
        }
    };
    let index = Rc::new(index);
    shard.indexes.insert(place.key, index.clone());
    Ok(index)
}

/// The index at the end of the file; `None` when there is none or it does not hold.
async fn read_stored(file: &File, key: SegmentKey) -> Result<Option<SegmentIndex>, DiskError> {
    let file_bytes = file.len()?;
    if file_bytes < 2 * BLOCK_BYTES as u64 || !file_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(None);
    }
    let tail = file.read_at(file_bytes - BLOCK_BYTES as u64, BLOCK_BYTES).await?;
    let Ok(trailer) = SegmentTrailer::decode(&tail, key.partition, Offset(key.base), file_bytes) else { return Ok(None) };
    let bytes = file.read_at(trailer.index_position, trailer.index_bytes(file_bytes) as usize).await?;
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
