//! What a shard's log has done: plain numbers for metrics.

use std::cell::Cell;
use std::time::Duration;

use crate::histogram::{Histogram, HistogramCounts};

/// Counters since the log was opened, and a few levels. Cheap to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Batches that got an offset.
    pub appended_batches: u64,
    /// Bytes of them, with headers.
    pub appended_bytes: u64,
    /// Block groups written to the write-ahead log.
    pub groups: u64,
    /// Bytes of them, with padding.
    pub group_bytes: u64,
    /// Direct writes (one partition, one sync).
    pub direct_writes: u64,
    /// Bytes of them.
    pub direct_bytes: u64,
    /// Bytes copied from the write-ahead log's buffers into segments, without a sync of their own.
    pub flushed_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Write-ahead files that had to be made because none was ready.
    pub wal_file_waits: u64,
    /// Reads answered from memory.
    pub tail_reads: u64,
    /// Reads answered from the read cache.
    pub cached_reads: u64,
    /// Reads that went to the disk.
    pub disk_reads: u64,
    /// Bytes read from the disk.
    pub disk_read_bytes: u64,
    /// Batches given to readers.
    pub read_batches: u64,
    /// Batches whose checksum did not hold.
    pub corrupt_batches: u64,
    /// Bytes of sealed segments checked at rest.
    pub scrubbed_bytes: u64,
    /// Passes of that check over all of them.
    pub scrub_passes: u64,
    /// Ranges of offsets that it found damaged, again at each pass.
    pub scrub_damaged_ranges: u64,
    /// Passes of compaction over a partition.
    pub compaction_passes: u64,
    /// Bytes of segments that they cleaned.
    pub compacted_bytes: u64,
    /// Bytes of segments that they wrote.
    pub compaction_written_bytes: u64,
    /// Records that they removed.
    pub compaction_removed_records: u64,
    /// Segments that they left as they are, again at each pass, because they are damaged.
    pub compaction_damaged_segments: u64,
    /// Appends refused because a bound was reached.
    pub appends_refused: u64,
    /// Level: bytes accepted and not yet durable.
    pub queue_bytes: u64,
    /// Level: bytes of written buffers held.
    pub tail_cache_bytes: u64,
    /// Level: bytes of read buffers held.
    pub read_cache_bytes: u64,
    /// Level: bytes of the write-ahead log that a crash now would replay.
    pub wal_live_bytes: u64,
    /// Level: free bytes on the disk, at the last look.
    pub disk_free_bytes: u64,
    /// Level: appends are refused for lack of disk space.
    pub disk_full: bool,
    /// Level: segment files open.
    pub open_files: u64,
    /// Level: partitions.
    pub partitions: u64,
}

/// How large the writes of a log were, and how long they took from taken to durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHistograms {
    /// Bytes of block groups, with padding.
    pub group_bytes: HistogramCounts,
    /// Nanoseconds of block groups.
    pub group_ns: HistogramCounts,
    /// Bytes of direct writes.
    pub direct_bytes: HistogramCounts,
    /// Nanoseconds of direct writes.
    pub direct_ns: HistogramCounts,
}

/// The counters, in cells: one shard, one thread.
#[derive(Debug)]
pub(crate) struct Counters {
    stats: Cell<LogStats>,
    group_bytes: Histogram,
    group_ns: Histogram,
    direct_bytes: Histogram,
    direct_ns: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            stats: Cell::default(),
            group_bytes: Histogram::bytes(),
            group_ns: Histogram::nanoseconds(),
            direct_bytes: Histogram::bytes(),
            direct_ns: Histogram::nanoseconds(),
        }
    }
}

impl Counters {
    pub(crate) fn add(&self, change: impl FnOnce(&mut LogStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Counts a block group that is durable.
    pub(crate) fn group(&self, bytes: u64, elapsed: Duration) {
        self.add(|stats| {
            stats.groups += 1;
            stats.group_bytes += bytes;
        });
        self.group_bytes.observe(bytes);
        self.group_ns.observe(nanoseconds(elapsed));
    }

    /// Counts a direct write that is durable.
    pub(crate) fn direct_write(&self, bytes: u64, elapsed: Duration) {
        self.add(|stats| {
            stats.direct_writes += 1;
            stats.direct_bytes += bytes;
        });
        self.direct_bytes.observe(bytes);
        self.direct_ns.observe(nanoseconds(elapsed));
    }

    pub(crate) fn get(&self) -> LogStats {
        self.stats.get()
    }

    pub(crate) fn histograms(&self) -> LogHistograms {
        LogHistograms {
            group_bytes: self.group_bytes.get(),
            group_ns: self.group_ns.get(),
            direct_bytes: self.direct_bytes.get(),
            direct_ns: self.direct_ns.get(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
