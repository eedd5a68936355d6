//! Every limit of the log, with the reason for its value.

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// One write-ahead file. Made ready in the background, by a new name or by writing it full of zeros: 64 MiB take some 40 ms of disk time, so
/// that the next file is always ready, and a log of 1 GiB gives space back in sixteenths.
pub const WAL_FILE_BYTES: u64 = 64 * MIB;

/// Largest write-ahead file that is read: positions in it stay far within 32 bits, and a scan of one file within a second.
pub const WAL_FILE_BYTES_MAX: u64 = 1024 * MIB;

/// Size of the whole write-ahead log of a shard unless configured. It bounds the replay after a crash: at 1 GB/s and two passes, two seconds.
pub const WAL_BYTES_MAX_DEFAULT: u64 = 512 * MIB;

/// The largest block group. Beyond some MiB a group gains nothing and makes those behind it wait; a batch that could exceed it goes straight
/// into its segment ([`DIRECT_THRESHOLD_BYTES_MAX`]).
pub const WAL_BLOCK_BYTES_MAX: u64 = 32 * MIB;

/// Most block groups that may be in flight, whatever is configured: recovery looks this far ahead of a bad block before it concludes
/// that acknowledged data was lost. More hide no more latency (three fill the measured disk), and a wider window would
/// take real losses for torn tails.
pub const WAL_GROUPS_IN_FLIGHT_MAX: u64 = 8;

/// A partition with this much pending at a commit is written straight into its segment. A write with its own sync costs as much as writing
/// the bytes twice at 256 KiB when it is alone; two overlap, and a batch of half that size is not copied either.
pub const DIRECT_THRESHOLD_BYTES_DEFAULT: u64 = 128 * KIB;

/// The highest that threshold may be set: what is pending for one partition below it must fit one block group with much room.
pub const DIRECT_THRESHOLD_BYTES_MAX: u64 = 8 * MIB;

/// A sealed segment unless the topic says otherwise: large enough for few files, small enough that retention takes space back in fine steps.
pub const SEGMENT_BYTES_DEFAULT: u64 = 256 * MIB;

/// The most that one read brings from the disk, beyond a single batch that is larger; a sequential reader is read ahead in windows of this size.
pub const COLD_READ_BYTES_MAX: usize = MIB as usize;

/// Rate of the check of sealed segments: a hundredth of the measured disk, and 700 GB a day.
pub const SCRUB_BYTES_PER_SECOND_DEFAULT: u64 = 8 * MIB;

/// Time between its passes. An hour after the start, whatever made the broker restart is over.
pub const SCRUB_PAUSE_MS_DEFAULT: u64 = 3_600_000;

/// Rate of compaction, what it reads and what it writes together: a twentieth of the measured disk, and more than five times what a shard
/// gets of a topic whose keys change by a megabyte a second.
pub const COMPACTION_BYTES_PER_SECOND_DEFAULT: u64 = 64 * MIB;

/// Memory for the keys of one pass: 900,000, in 24 MiB, beside the 12 MiB from which the table grows to that size.
pub const COMPACTION_TABLE_BYTES_MAX_DEFAULT: u64 = 36 * MIB;

/// Largest segment file that is read. A batch that opens a segment may exceed the configured size; nothing exceeds this.
pub const SEGMENT_FILE_BYTES_MAX: u64 = 4096 * MIB;

/// Distance of two entries of a sparse index: at most one read of 128 KiB between an entry and any batch that is not larger than that itself,
/// and 2,048 entries (48 KiB) for a segment of 256 MiB.
pub const INDEX_INTERVAL_BYTES: u64 = 128 * KIB;

/// Entries of one index: one for each interval of the largest file.
pub const INDEX_ENTRIES_MAX: u64 = SEGMENT_FILE_BYTES_MAX / INDEX_INTERVAL_BYTES;

/// Partitions that one checkpoint names. Far above the goal of 10,000 a broker.
pub const CHECKPOINT_PARTITIONS_MAX: u32 = 1 << 20;

/// A checkpoint file. 10,000 partitions with four segments each take 4 MiB; this leaves room for long retention and keeps a damaged length from
/// allocating the machine's memory.
pub const CHECKPOINT_BYTES_MAX: u64 = 1024 * MIB;

/// Segments of one partition: 64 TiB at 256 MiB each.
pub const SEGMENTS_PER_PARTITION_MAX: u32 = 1 << 18;

/// Epochs remembered for one partition. A leader change each second for three hours; older ones go with their segments.
pub const EPOCHS_PER_PARTITION_MAX: u32 = 10_000;

/// Lost ranges remembered for one partition; more are merged into one.
pub const LOST_RANGES_PER_PARTITION_MAX: usize = 64;

/// Batches that an idempotent producer may have in flight in one partition: so many are recognised when they are sent again.
pub const PRODUCER_BATCHES: usize = wire::limits::PRODUCER_BATCHES_IN_FLIGHT_MAX;

/// Batches of a producer that are remembered: those it may have in flight, and as many before them that are durable, so that a crash or a truncation of
/// all that was in flight leaves what a retry may name.
pub const PRODUCER_BATCHES_KEPT: usize = 2 * PRODUCER_BATCHES;

/// Producers remembered for one partition. More than that append to one partition at a time only in very large fleets; the one whose last append is the
/// longest ago is forgotten, and has to begin a new epoch when it comes again. 300 KiB.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 2_000;

/// Producers remembered in all partitions of a shard: 40 MiB, also in each checkpoint. At this bound a partition that gets another one forgets one of its
/// own.
pub const PRODUCERS_PER_SHARD_MAX: usize = 1 << 18;

/// A producer that appended nothing to a partition for that long is forgotten there: far longer than any retry goes on.
pub const PRODUCER_IDLE_MS_MAX_DEFAULT: u64 = 7 * 24 * 3600 * 1000;

const _: () = {
    assert!(WAL_FILE_BYTES <= WAL_FILE_BYTES_MAX);
    assert!(WAL_FILE_BYTES.is_multiple_of(crate::format::BLOCK_BYTES as u64));
    assert!(WAL_BYTES_MAX_DEFAULT >= 3 * WAL_FILE_BYTES, "one written, one flushed, one made ready");
    assert!(WAL_BLOCK_BYTES_MAX < WAL_FILE_BYTES, "a group fits a fresh file, behind its header");
    assert!(WAL_FILE_BYTES_MAX <= u32::MAX as u64);
    assert!(DIRECT_THRESHOLD_BYTES_DEFAULT <= DIRECT_THRESHOLD_BYTES_MAX);
    assert!(DIRECT_THRESHOLD_BYTES_MAX * 2 <= WAL_BLOCK_BYTES_MAX);
    assert!(SEGMENT_BYTES_DEFAULT <= SEGMENT_FILE_BYTES_MAX);
    assert!(wire::limits::SEGMENT_BYTES_MAX + wire::limits::BATCH_BYTES_MAX as u64 + MIB <= SEGMENT_FILE_BYTES_MAX);
    assert!(INDEX_INTERVAL_BYTES >= 64 * KIB && INDEX_INTERVAL_BYTES <= 256 * KIB);
    assert!(CHECKPOINT_BYTES_MAX <= u32::MAX as u64);
    assert!(PRODUCERS_PER_SHARD_MAX as u64 * 160 < CHECKPOINT_BYTES_MAX / 16, "a checkpoint has room for every producer");
    assert!(PRODUCER_BATCHES_KEPT <= u8::MAX as usize);
};
