//! What a shard's log has done: plain numbers for metrics.

use std::cell::Cell;

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
    /// Sum of the times from group taken to group completed, in nanoseconds. With `groups`: the mean.
    pub group_ns: u64,
    /// Longest of them.
    pub group_ns_max: u64,
    /// Direct writes (one partition, one sync).
    pub direct_writes: u64,
    /// Bytes of them.
    pub direct_bytes: u64,
    /// Sum of the times from taken to durable, in nanoseconds.
    pub direct_ns: u64,
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
    /// Batches whose checksum did not hold.
    pub corrupt_batches: u64,
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

/// The counters, in cells: one shard, one thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stats: Cell<LogStats>,
}

impl Counters {
    pub(crate) fn add(&self, change: impl FnOnce(&mut LogStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    pub(crate) fn get(&self) -> LogStats {
        self.stats.get()
    }
}
