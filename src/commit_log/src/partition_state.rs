//! Where one partition stood: plain data that a checkpoint stores and that moves between shards.

use std::path::Path;
use std::sync::Arc;

use wire::{Offset, PartitionKey};

use crate::PartitionOptions;
use crate::epochs::Epochs;
use crate::limits::LOST_RANGES_PER_PARTITION_MAX;

/// Offsets from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetRange {
    /// First offset.
    pub start: Offset,
    /// Offset after the last.
    pub end: Offset,
}

impl OffsetRange {
    /// Whether no offset is in it.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The offsets that both hold.
    pub fn intersection(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

/// One segment file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentState {
    /// The data directory that holds it.
    pub disk: Arc<Path>,
    /// Offset of its first batch: its name.
    pub base: Offset,
    /// First offset that does not belong to it. The file may hold more after a cut: nothing past this is read.
    pub end: Offset,
    /// Position after its last batch and padding: a whole block.
    pub end_position: u64,
    /// Greatest timestamp in it; `i64::MIN` for none.
    pub max_timestamp_ms: i64,
    /// When it was made, for sealing by age.
    pub created_ms: i64,
    /// It takes no more batches.
    pub sealed: bool,
    /// 0: appends were written into it. Else compaction made it, and the number tells its file from earlier ones with the same base.
    pub generation: u32,
    /// Compaction found deleting records in it whose older values are gone, and since when they are; `None` for none.
    pub tombstones_since_ms: Option<i64>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// The partition.
    pub key: PartitionKey,
    /// Start of the broker under which this was written. When two shard directories name one partition, the greater stands.
    pub boot: u64,
    /// Its options.
    pub options: PartitionOptions,
    /// First offset still kept.
    pub log_start: Offset,
    /// The last block of the write-ahead log whose records this state holds: of those in earlier blocks, only batches that stand in no segment
    /// are missing from it.
    pub as_of_block: u64,
    /// Highest high watermark known.
    pub high_watermark: Offset,
    /// Its epochs.
    pub epochs: Epochs,
    /// Its segments, ascending, not overlapping. Only the last may be unsealed.
    pub segments: Vec<SegmentState>,
    /// Ranges of acknowledged offsets that are gone, ascending. Reading one is an error.
    pub lost: Vec<OffsetRange>,
    /// Compaction has cleaned everything below: no key has two records there.
    pub clean_end: Offset,
    /// Acknowledged data may have been lost, in `lost` or behind the end.
    pub lossy: bool,
}

impl PartitionState {
    /// A partition that begins to exist, empty, at `start`.
    pub fn new(key: PartitionKey, boot: u64, options: PartitionOptions, start: Offset) -> Self {
        Self {
            key,
            boot,
            options,
            log_start: start,
            as_of_block: 0,
            high_watermark: start,
            epochs: Epochs::default(),
            segments: Vec::new(),
            lost: Vec::new(),
            clean_end: Offset(0),
            lossy: false,
        }
    }

    /// Offset after the last batch: the end of the log.
    pub fn end(&self) -> Offset {
        let stored = self.segments.last().map_or(self.log_start, |segment| segment.end);
        let lost = self.lost.last().map_or(stored, |range| range.end);
        stored.max(lost).max(self.log_start)
    }

    /// Marks a range as lost. Too many ranges are merged: the bound of the list is kept, and no lost offset is forgotten.
    pub fn add_lost(&mut self, range: OffsetRange) {
        if range.is_empty() {
            return;
        }
        self.lossy = true;
        self.lost.push(range);
        self.lost.sort_unstable();
        let mut merged: Vec<OffsetRange> = Vec::with_capacity(self.lost.len());
        for range in self.lost.drain(..) {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        while merged.len() > LOST_RANGES_PER_PARTITION_MAX {
            let last = merged.pop().expect("more than the limit");
            merged.last_mut().expect("the limit is not zero").end = last.end;
        }
        self.lost = merged;
    }

    /// Asserts the invariants of the segment list.
    pub(crate) fn check(&self) {
        assert!(self.log_start <= self.high_watermark.max(self.log_start), "a log starts at or below its watermark");
        for pair in self.segments.windows(2) {
            assert!(pair[0].end <= pair[1].base, "segments do not overlap: {:?}", self.key);
            assert!(pair[0].sealed, "only the last segment takes batches: {:?}", self.key);
        }
        for segment in &self.segments {
            assert!(segment.base <= segment.end, "a segment ends after it starts: {:?}", self.key);
            assert!(
                segment.end_position.is_multiple_of(crate::format::BLOCK_BYTES as u64),
                "segments end on blocks: {:?}",
                self.key
            );
        }
    }
}
