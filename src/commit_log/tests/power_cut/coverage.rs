//! What the runs came across. A run that never met a fault or a verdict proves nothing about it.

use shards::simulated::{CrashCounts, FaultCounts};

macro_rules! coverage {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Coverage {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Coverage {
            pub(crate) fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)*
            }

            /// # Panics
            /// When something never occurred.
            pub(crate) fn assert_complete(&self) {
                let counts = [$((stringify!($name), self.$name),)*];
                let missing: Vec<_> = counts.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
                assert!(missing.is_empty(), "these never occurred: {missing:?}");
            }
        }
    };
}

coverage! {
    power_cuts,
    kills,
    crashes_in_recovery,
    crashes_in_checkpoint,
    crashes_in_truncation,
    crashes_in_deletion,
    crashes_in_compaction,
    graceful_closes,
    writes_torn,
    sectors_garbage,
    entries_dropped,
    unacknowledged_batches_kept,
    unacknowledged_batches_cut,
    acknowledged_batches_checked,
    blocks_replayed,
    batches_replayed,
    direct_bytes_recovered,
    direct_writes,
    groups,
    checkpoints,
    truncations,
    log_start_moves,
    deletions,
    failed_by_error,
    failed_by_short_write,
    failed_by_full_disk,
    lost_writes,
    misdirected_writes,
    bit_flips,
    garbled_blocks,
    lossy_verdicts,
    unreadable_batches_reported,
    refused_starts,
    scrub_passes,
    compactions,
    /// For lack of memory for all keys.
    compactions_that_go_on,
    compactions_without_room,
    records_compacted,
    tombstones_gone,
    /// Starts with another number of shards than the one before.
    shard_counts_changed,
    /// The one ambiguity allowed: the last acknowledged block was damaged before a later one recorded it.
    ambiguous_tails,
}

impl Coverage {
    pub(crate) fn add_disk(&mut self, crashes: CrashCounts, faults: FaultCounts) {
        self.writes_torn += crashes.writes_torn;
        self.sectors_garbage += crashes.sectors_garbage;
        self.entries_dropped += crashes.entries_dropped;
        self.lost_writes += faults.lost_writes;
        self.misdirected_writes += faults.misdirected_writes;
        self.bit_flips += faults.bit_flips;
    }
}
