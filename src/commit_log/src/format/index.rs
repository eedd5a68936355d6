//! Sparse index of one segment: from an offset, or a timestamp, to a position at or before it.
//!
//! ```text
//!  position   4096          134,000        266,000
//!             ├─ entry 0 ───┼─ entry 1 ────┼─ entry 2 …      at least INDEX_INTERVAL_BYTES apart
//!  before     MIN           ts of all      ts of all         max_timestamp_before: the greatest timestamp of all batches before the entry
//!                           before 1       before 2          (it never falls, so that it can be searched although timestamps do fall)
//! ```

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
    /// Greatest timestamp of the batches before; `i64::MIN` when there are none.
    pub max_timestamp_before_ms: i64,
}

impl IndexEntry {
    /// Bytes on the disk.
    pub const BYTES: usize = 24;
}

/// Built while a segment is written, or again from its batches; both give the same entries.
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
        let ascending = entries.windows(2).all(|pair| {
            pair[0].offset < pair[1].offset
                && pair[0].position < pair[1].position
                && pair[0].max_timestamp_before_ms <= pair[1].max_timestamp_before_ms
        });
        let starts = entries.first().is_none_or(|first| first.offset >= base_offset && first.position >= BLOCK_BYTES as u64);
        let ends = entries.last().is_none_or(|last| last.max_timestamp_before_ms <= max_timestamp_ms);
        (ascending && starts && ends).then_some(Self { base_offset, entries, max_timestamp_ms })
    }

    /// Takes note of a batch, in the order of the file. Padding batches are not given.
    pub fn add(&mut self, base_offset: Offset, position: u64, max_timestamp_ms: i64) {
        assert!(base_offset >= self.base_offset, "the batch belongs to this segment");
        let due = match self.entries.last() {
            None => true,
            Some(last) => {
                assert!(base_offset > last.offset, "batches come in offset order");
                assert!(position > last.position, "batches come in file order");
                position - last.position >= INDEX_INTERVAL_BYTES
            }
        };
        if due {
            let entry = IndexEntry { offset: base_offset, position, max_timestamp_before_ms: self.max_timestamp_ms };
            self.entries.push(entry);
        }
        self.max_timestamp_ms = self.max_timestamp_ms.max(max_timestamp_ms);
    }

    /// Where to start looking for the batch that holds `offset`: at or before it. Positions below the first entry do not exist.
    pub fn position_of(&self, offset: Offset) -> u64 {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.position_at(after.saturating_sub(1))
    }

    /// Where to start looking for the first batch with a timestamp at or after `timestamp_ms`; `None` when the segment has none.
    pub fn position_of_timestamp(&self, timestamp_ms: i64) -> Option<u64> {
        if self.max_timestamp_ms < timestamp_ms {
            return None;
        }
        // The last entry before which everything is older: the first batch that is not older stands at or after it.
        let after = self.entries.partition_point(|entry| entry.max_timestamp_before_ms < timestamp_ms);
        Some(self.position_at(after.saturating_sub(1)))
    }

    fn position_at(&self, entry: usize) -> u64 {
        self.entries.get(entry).map_or(BLOCK_BYTES as u64, |entry| entry.position)
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
