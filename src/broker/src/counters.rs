//! What one shard counts: plain cells on the data path, published as a snapshot once in a while.

use std::cell::Cell;

/// Counters of a shard since it started.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    pub(crate) requests: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    /// Requests answered "overloaded" for lack of memory.
    pub(crate) overloaded: Cell<u64>,
    pub(crate) accepted: Cell<u64>,
    /// Connections closed because they held memory, without moving, that others waited for.
    pub(crate) gave_way: Cell<u64>,
    pub(crate) handed_over: Cell<u64>,
    pub(crate) fetched_bytes: Cell<u64>,
    pub(crate) sent_bytes: Cell<u64>,
    /// Appended by the coordinators of the shard.
    pub(crate) dead_letters: Cell<u64>,
    /// What retention took.
    pub(crate) expired_segments: Cell<u64>,
    pub(crate) expired_bytes: Cell<u64>,
}

impl ShardCounters {
    /// Counts what retention took.
    pub(crate) fn expired(&self, segments: u64, bytes: u64) {
        self.expired_segments.set(self.expired_segments.get() + segments);
        self.expired_bytes.set(self.expired_bytes.get() + bytes);
    }
}

/// Counters of one topic on a shard, shared by its partitions there.
#[derive(Debug, Default)]
pub(crate) struct TopicCounters {
    pub(crate) appended_bytes: Cell<u64>,
    pub(crate) appended_batches: Cell<u64>,
    pub(crate) appended_records: Cell<u64>,
    pub(crate) fetched_bytes: Cell<u64>,
    pub(crate) expired_segments: Cell<u64>,
    pub(crate) expired_bytes: Cell<u64>,
}

impl TopicCounters {
    /// Counts an append.
    pub(crate) fn appended(&self, bytes: usize, batches: usize, records: u64) {
        self.appended_bytes.set(self.appended_bytes.get() + bytes as u64);
        self.appended_batches.set(self.appended_batches.get() + batches as u64);
        self.appended_records.set(self.appended_records.get() + records);
    }

    /// Counts a read.
    pub(crate) fn fetched(&self, bytes: usize) {
        self.fetched_bytes.set(self.fetched_bytes.get() + bytes as u64);
    }

    /// Counts what retention took.
    pub(crate) fn expired(&self, segments: u64, bytes: u64) {
        self.expired_segments.set(self.expired_segments.get() + segments);
        self.expired_bytes.set(self.expired_bytes.get() + bytes);
    }

    /// Whether anything was ever read, written or expired.
    pub(crate) fn is_idle(&self) -> bool {
        self.appended_batches.get() == 0 && self.fetched_bytes.get() == 0 && self.expired_segments.get() == 0
    }
}
