//! Settings of a shard's log and of a partition.

use crate::limits;

/// What an acknowledgement of this partition promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// On stable storage.
    #[default]
    Stable,
    /// In memory; on stable storage within [`LogOptions::relaxed_flush_ms_max`].
    Relaxed,
}

/// Settings of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionOptions {
    /// A segment is sealed at this size.
    pub segment_bytes: u64,
    /// A segment is sealed at this age, counted from its first append.
    pub segment_ms: u64,
    /// What an acknowledgement promises.
    pub durability: Durability,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self { segment_bytes: limits::SEGMENT_BYTES_DEFAULT, segment_ms: 7 * 24 * 3600 * 1000, durability: Durability::Stable }
    }
}

/// Settings of one shard's log. The defaults suit a shard of a few GiB of memory on one NVMe disk.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Identity of the cluster that the data belongs to. Data of another one is refused.
    pub cluster_id: [u8; 16],
    /// Number of the broker within it. Data of another one is refused.
    pub broker_id: u32,
    /// Number of this start of the broker, greater than [`crate::Recovered::boot_max`] of every directory recovered. When two directories
    /// name the same partition, the entry with the greater boot number stands.
    pub boot: u64,
    /// Block groups written at the same time. More hide the disk's latency, and widen the window that recovery must look ahead.
    pub commit_groups_in_flight: u32,
    /// A partition with at least this much pending at a commit is written straight into its segment.
    pub direct_write_threshold_bytes: u64,
    /// Writes in flight into one segment.
    pub segment_write_depth: u32,
    /// Cold reads in flight on this shard.
    pub read_depth: u32,
    /// Size of the write-ahead log over all its files. Bounds the replay after a crash.
    pub wal_bytes_max: u64,
    /// Size of one write-ahead file.
    pub wal_file_bytes: u64,
    /// Batches accepted and not yet durable.
    pub append_queue_bytes_max: u64,
    /// A batch this large is written from the block in which it landed ([`crate::ShardLog::landing_bytes`]): one write more costs less than the
    /// copy.
    pub in_place_bytes_min: usize,
    /// Written buffers kept in memory for readers near the end.
    pub tail_cache_bytes_max: u64,
    /// Written buffers kept in memory because a batch in them is not in a segment yet. From half of it on the oldest are flushed, at half as
    /// much again appends wait. The more, the larger are the writes of a flush when there are many partitions.
    pub unflushed_bytes_max: u64,
    /// Buffers of cold reads kept in memory.
    pub read_cache_bytes_max: u64,
    /// Bound within which an acknowledged append of a relaxed partition is on stable storage.
    pub relaxed_flush_ms_max: u64,
    /// Segment files held open.
    pub open_files_max: usize,
    /// Below this much free space on the disk appends are refused ([`crate::AppendError::DiskFull`]), below half of it also those to partitions
    /// that may use the reserve ([`crate::PartitionLog::use_space_reserve`]).
    pub free_bytes_min: u64,
    /// Above this much free space appends are accepted again.
    pub free_bytes_resume: u64,
    /// Idempotent producers remembered for one partition: more, and the one whose last append is the longest ago is forgotten.
    pub producers_per_partition_max: usize,
    /// Those of all partitions together: more, and a partition forgets one of its own for each new one.
    pub producers_max: usize,
    /// One that appended nothing to a partition for that long, by the broker's clock, is forgotten there.
    pub producer_idle_ms_max: u64,
    /// Rate at which compaction reads and writes, together.
    pub compaction_bytes_per_second: u64,
    /// Memory for the keys of one pass of compaction. With more keys it takes several.
    pub compaction_table_bytes_max: u64,
    /// Rate at which sealed segments are checked at rest; 0: not at all.
    pub scrub_bytes_per_second: u64,
    /// Between two passes of that check, and before the first.
    pub scrub_pause_ms: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            cluster_id: [0; 16],
            broker_id: 0,
            boot: 1,
            commit_groups_in_flight: 3,
            direct_write_threshold_bytes: limits::DIRECT_THRESHOLD_BYTES_DEFAULT,
            segment_write_depth: 4,
            read_depth: 8,
            wal_bytes_max: limits::WAL_BYTES_MAX_DEFAULT,
            wal_file_bytes: limits::WAL_FILE_BYTES,
            append_queue_bytes_max: 64 << 20,
            in_place_bytes_min: 128 << 10,
            tail_cache_bytes_max: 128 << 20,
            unflushed_bytes_max: 256 << 20,
            read_cache_bytes_max: 32 << 20,
            relaxed_flush_ms_max: 50,
            open_files_max: 512,
            free_bytes_min: 1 << 30,
            free_bytes_resume: 2 << 30,
            producers_per_partition_max: limits::PRODUCERS_PER_PARTITION_MAX,
            producers_max: limits::PRODUCERS_PER_SHARD_MAX,
            producer_idle_ms_max: limits::PRODUCER_IDLE_MS_MAX_DEFAULT,
            compaction_bytes_per_second: limits::COMPACTION_BYTES_PER_SECOND_DEFAULT,
            compaction_table_bytes_max: limits::COMPACTION_TABLE_BYTES_MAX_DEFAULT,
            scrub_bytes_per_second: limits::SCRUB_BYTES_PER_SECOND_DEFAULT,
            scrub_pause_ms: limits::SCRUB_PAUSE_MS_DEFAULT,
        }
    }
}

impl LogOptions {
    /// What is left of the space below the lower mark when nothing is taken any more.
    pub(crate) fn free_bytes_reserved(&self) -> u64 {
        self.free_bytes_min / 2
    }

    /// Write-ahead files at a time, without the one kept in reserve for structural records.
    pub(crate) fn wal_files_max(&self) -> usize {
        usize::try_from(self.wal_bytes_max / self.wal_file_bytes).unwrap_or(usize::MAX)
    }

    /// Asserts what the parts of the log depend on. Options come from checked configuration, so a breach is a programming error.
    pub(crate) fn check(&self) {
        assert!(
            (1..=limits::WAL_GROUPS_IN_FLIGHT_MAX).contains(&self.commit_groups_in_flight.into()),
            "recovery looks this far ahead"
        );
        assert!(self.segment_write_depth >= 1, "at least one segment write at a time");
        assert!(self.read_depth >= 1, "at least one read at a time");
        assert!(self.wal_file_bytes.is_multiple_of(4096), "write-ahead files are whole blocks");
        assert!(self.wal_file_bytes <= limits::WAL_FILE_BYTES_MAX, "recovery reads files up to this size");
        assert!(self.wal_bytes_max >= 3 * self.wal_file_bytes, "the write-ahead log needs three files: written, flushed, next");
        assert!(self.direct_write_threshold_bytes >= 4096, "a direct write costs a sync of its own");
        assert!(self.direct_write_threshold_bytes <= limits::DIRECT_THRESHOLD_BYTES_MAX, "what is below fits a block group");
        // A group aims at a quarter of a file and may exceed that by one batch below the threshold.
        assert!(self.direct_write_threshold_bytes <= self.wal_file_bytes / 2, "a group with one batch more fits a file");
        assert!(
            self.tail_cache_bytes_max <= self.unflushed_bytes_max,
            "what is kept for readers is no reason for appends to wait"
        );
        assert!(
            (1..=limits::PRODUCERS_PER_PARTITION_MAX).contains(&self.producers_per_partition_max),
            "recovery keeps this many"
        );
        assert!(self.compaction_bytes_per_second > 0, "compaction gets on");
        assert!(self.open_files_max >= 16, "a handful of files must stay open");
        assert!(self.free_bytes_resume >= self.free_bytes_min, "the marks need a distance, or appends flap");
    }
}
