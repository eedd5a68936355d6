//! Compaction: of each key only the newest record stays. In the background, beside appends and reads, within a bound of memory and of the disk's time.
//!
//! ```text
//!   sealed segments below the high watermark                          active
//!   │ clean: a key once │ dirty: any number of records of a key │       │
//!           │                      │ learn ─► newest offset of each key (key_table)
//!           └───── judge each batch ┴──► stays, becomes smaller, goes (judge, verdict, rewrite)
//!                       │
//!                       ▼
//!   a new file beside ─► synced, read back ─► switch, one record in the log ─► the old files go some checkpoints later
//! ```
//!
//! Invariants:
//! - The newest record of a key below the high watermark stays, unless it is a tombstone that has been clean for the topic's time.
//! - Offsets, timestamps, epochs and producers of what stays are as they were. Offsets whose records went are covered by batches with fewer records or
//!   none, so that segments hold their offsets without a hole, as everywhere.
//! - The active segment, what is above the high watermark and what is younger than the lag are not touched.
//! - Until the switch is durable nothing that was there has changed; after it nothing of the new file is missing.
//! - A segment that does not hold what it should is left as it is, and reported. Tombstones above it never become clean.
//!
//! When the table of keys is full, the pass ends where it stands: everything below is clean, and the next pass goes on behind.

mod judge;
mod key_hash;
mod key_table;
mod output;
mod pace;
mod pass;
mod plan;
mod rewrite;
mod switch;
mod verdict;
mod walk;

pub(crate) mod superseded;

use std::rc::Rc;

use shards::clock;

use crate::failure::LogFailed;
use crate::partition::{Inner, Partition};
use crate::partition_state::OffsetRange;
use crate::shard::Shard;
use plan::{Part, Terms};

/// What a topic wants of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionTerms {
    /// A record stays for at least this long, by its timestamp. 0: it may go at once.
    pub lag_ms: u64,
    /// A tombstone stays for so long after everything that it took away is gone.
    pub tombstone_retention_ms: u64,
}

/// What there is to do in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactionNeed {
    /// Bytes in which no key has two records.
    pub clean_bytes: u64,
    /// Bytes after them that may be cleaned now.
    pub dirty_bytes: u64,
    /// Since when the oldest of those may be; `None` when there are none.
    pub dirty_since_ms: Option<i64>,
    /// When the next tombstones may go; `None` when there are none.
    pub tombstones_due_ms: Option<i64>,
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Bytes of the segments that were cleaned.
    pub bytes: u64,
    /// Records that went.
    pub removed_records: u64,
    /// Keys that were in the part that was not clean.
    pub keys: u64,
    /// Everything that might be cleaned is. Otherwise there were more keys than there was memory for: another pass goes on.
    pub is_complete: bool,
    /// Segments that were left as they are, because they are damaged.
    pub damaged: Vec<OffsetRange>,
}

/// Why a pass ended early. What it has cleaned until then is cleaned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// There is no room for the new segment beside the old ones.
    #[error("the disk has no room for compaction: {0}")]
    NoRoom(String),
    /// What was written could not be read again. The old segments are as they were.
    #[error("a compacted segment could not be read back: {0}")]
    NotReadBack(String),
    /// The partition is deleted.
    #[error("the partition is deleted")]
    Deleted,
    /// The log is being closed.
    #[error("the log is closing")]
    Closing,
    /// The shard's storage failed.
    #[error(transparent)]
    Failed(#[from] LogFailed),
}

/// Runs one pass over a partition. One at a time on a shard: others wait.
pub(crate) async fn compact(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    terms: CompactionTerms,
) -> Result<Compacted, CompactError> {
    let _turn = shard.compaction_turn.acquire(1).await;
    let _compacting = Compacting::begin(shard, partition);
    pass::run(shard, partition, terms).await
}

/// Says that files of a partition are being made: who deletes it waits for the end, which is near then.
struct Compacting<'a> {
    shard: &'a Shard,
    partition: &'a Partition,
}

impl<'a> Compacting<'a> {
    fn begin(shard: &'a Shard, partition: &'a Partition) -> Self {
        partition.compacting.set(true);
        Self { shard, partition }
    }
}

impl Drop for Compacting<'_> {
    fn drop(&mut self) {
        self.partition.compacting.set(false);
        self.shard.progress.notify_waiters();
    }
}

/// What there is to do.
pub(crate) fn need(inner: &Inner, wanted: CompactionTerms) -> CompactionNeed {
    let terms = terms(inner, wanted);
    let parts: Vec<Part> = inner.sealed.iter().map(Part::of).collect();
    let mut need = CompactionNeed::default();
    for (part, segment) in parts[..terms.scope(&parts)].iter().zip(&inner.sealed) {
        if part.end <= terms.clean_end {
            need.clean_bytes += part.bytes;
        } else {
            need.dirty_bytes += part.bytes;
            let newest_ms = part.max_timestamp_ms.min(terms.now_ms).max(segment.created_ms);
            need.dirty_since_ms.get_or_insert(newest_ms.saturating_add(terms.lag_ms).min(terms.now_ms));
        }
        if let Some(since_ms) = part.tombstones_since_ms.filter(|since_ms| *since_ms != plan::NEVER_MS) {
            let due_ms = since_ms.saturating_add(terms.tombstone_retention_ms);
            need.tombstones_due_ms = Some(need.tombstones_due_ms.map_or(due_ms, |before| before.min(due_ms)));
        }
    }
    need
}

fn terms(inner: &Inner, wanted: CompactionTerms) -> Terms {
    let milliseconds = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Terms {
        now_ms: clock::wall_ms(),
        lag_ms: milliseconds(wanted.lag_ms),
        tombstone_retention_ms: milliseconds(wanted.tombstone_retention_ms),
        below: inner.marks.high_watermark.min(inner.marks.durable_end),
        clean_end: inner.clean_end.0,
        segment_bytes: inner.options.segment_bytes,
    }
}
