//! Sparse index of one segment: from an offset to a position at or before it, from a timestamp to the stretch that holds the first one as late.
//!
//! ```text
//!  position   4096          134,000        266,000
//!             ├─ entry 0 ───┼─ entry 1 ────┼─ entry 2 …      at least INDEX_INTERVAL_BYTES apart
//!  max        ts of the     ts of the      ts of the         max_timestamp: the greatest timestamp of the batches of the entry's stretch,
//!             first stretch second         third             which reaches to the next entry
//! ```
//!
//! Timestamps need not ascend. The first batch that is as late as wanted stands in the first stretch whose greatest timestamp is: one stretch is read,
//! whatever the order. Where the log starts inside a stretch, what made it look late enough may be gone: then a second one is.

use wire::Offset;

use super::BLOCK_BYTES;
use crate::limits::INDEX_INTERVAL_BYTES;

/// One entry. 24 bytes on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Base offset of the batch at `position`.
    pub offset: Offset,
    /// Position of a batch in the file.
    pub position: u64,
    /// Greatest timestamp of the batches from this one to before the next entry.
    pub max_timestamp_ms: i64,
}

impl IndexEntry {
    /// Bytes on the disk.
    pub const BYTES: usize = 24;
}

/// Batches between two entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Base offset of the first.
    pub start: Offset,
    /// Base offset of the first behind them; `None` for the last stretch, which ends with the segment.
    pub end: Option<Offset>,
}

/// Built while a segment is written, or again from its batches; both give the same entries, but for one more where a restart lay between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentIndex {
    base_offset: Offset,
    entries: Vec<IndexEntry>,
    max_timestamp_ms: i64,
}

impl SegmentIndex {
    /// The index of a segment without batches.
    pub fn new(base_offset: Offset) -> Self {
        Self { base_offset, entries: Vec::new(), max_timestamp_ms: i64::MIN }
    }

    pub(super) fn from_entries(base_offset: Offset, entries: Vec<IndexEntry>, max_timestamp_ms: i64) -> Option<Self> {
        let ascending = entries.windows(2).all(|pair| pair[0].offset < pair[1].offset && pair[0].position < pair[1].position);
        let starts = entries.first().is_none_or(|first| first.offset >= base_offset && first.position >= BLOCK_BYTES as u64);
        let greatest = entries.iter().map(|entry| entry.max_timestamp_ms).max().unwrap_or(i64::MIN);
        (ascending && starts && greatest == max_timestamp_ms).then_some(Self { base_offset, entries, max_timestamp_ms })
    }

    /// Takes note of a batch, in the order of the file. Padding batches are not given.
    pub fn add(&mut self, base_offset: Offset, position: u64, max_timestamp_ms: i64) {
        assert!(base_offset >= self.base_offset, "the batch belongs to this segment");
        self.max_timestamp_ms = self.max_timestamp_ms.max(max_timestamp_ms);
        if let Some(last) = self.entries.last_mut() {
            assert!(base_offset > last.offset, "batches come in offset order");
            assert!(position > last.position, "batches come in file order");
            if position - last.position < INDEX_INTERVAL_BYTES {
                last.max_timestamp_ms = last.max_timestamp_ms.max(max_timestamp_ms);
                return;
            }
        }
        self.entries.push(IndexEntry { offset: base_offset, position, max_timestamp_ms });
    }

    /// Adds the entries of batches behind all that it has.
    pub fn append(&mut self, later: &SegmentIndex) {
        if let (Some(last), Some(first)) = (self.entries.last(), later.entries.first()) {
            assert!(first.offset > last.offset, "batches come in offset order");
            assert!(first.position > last.position, "batches come in file order");
        }
        self.entries.extend(&later.entries);
        self.max_timestamp_ms = self.max_timestamp_ms.max(later.max_timestamp_ms);
    }

    /// Where to start looking for the batch that holds `offset`: at or before it. Positions below the first entry do not exist.
    pub fn position_of(&self, offset: Offset) -> u64 {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.entries.get(after.saturating_sub(1)).map_or(BLOCK_BYTES as u64, |entry| entry.position)
    }

    /// The first stretch with offsets at or above `from` and a timestamp at or after `timestamp_ms`. `None` when there is none.
    ///
    /// It looks at each entry from there on: some thousand for a whole segment, a few microseconds.
    pub fn stretch(&self, from: Offset, timestamp_ms: i64) -> Option<Stretch> {
        let first = self.entries.partition_point(|entry| entry.offset <= from).saturating_sub(1);
        let found = first + self.entries[first..].iter().position(|entry| entry.max_timestamp_ms >= timestamp_ms)?;
        let end = self.entries.get(found + 1).map(|next| next.offset);
        Some(Stretch { start: self.entries[found].offset, end })
    }

    /// First offset of the segment.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Greatest timestamp of all batches; `i64::MIN` for none.
    pub fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms
    }

    /// The entries, ascending.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Bytes it holds in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<IndexEntry>()
    }
}
