//! A partition as this shard serves it: its log, and who waits for it.

use crate::{ack::Waiter, counters::TopicCounters, metadata::Topic, shard::retention::retention};
use commit_log::{PartitionLog, PartitionOptions};
use shards::{ShardId, clock::Monotonic, sync::Notify};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
};
use wire::{Durability, LeaderEpoch, Offset, PartitionKey, TimestampKind, TopicConfig, limits::SEGMENT_MS_MIN};

/// The reign of the only broker there is.
pub(crate) const LEADER_EPOCH: LeaderEpoch = LeaderEpoch(1);

/// A served partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) key: PartitionKey,
    pub(crate) log: PartitionLog,
    pub(crate) counters: Rc<TopicCounters>,
    /// Producers that wait until their batches are durable, in offset order.
    pub(crate) waiters: RefCell<VecDeque<Waiter>>,
    watchers: RefCell<Vec<Watcher>>,
    append_time: Cell<bool>,
    /// Retention is going to look at it.
    pub(crate) retention_planned: Cell<bool>,
}

/// A consumer that waits for more.
#[derive(Debug)]
pub(crate) enum Watcher {
    /// On this shard.
    Here(Weak<Notify>),
    /// Through another shard.
    There {
        /// That shard.
        shard: ShardId,
        /// Its name for the watch.
        id: u64,
        /// It may be forgotten then.
        until: Monotonic,
    },
}

impl Partition {
    pub(crate) fn new(log: PartitionLog, topic: &Topic, counters: Rc<TopicCounters>) -> Rc<Self> {
        Rc::new(Partition {
            key: log.key(),
            log,
            counters,
            waiters: RefCell::default(),
            watchers: RefCell::default(),
            append_time: Cell::new(topic.config.timestamp_kind == TimestampKind::Append),
            retention_planned: Cell::new(false),
        })
    }

    /// The topic has other settings now. The log's own are altered separately, since that takes a durable write.
    pub(crate) fn altered(&self, topic: &Topic) {
        self.append_time.set(topic.config.timestamp_kind == TimestampKind::Append);
    }

    /// Whether the broker sets timestamps.
    pub(crate) fn sets_append_time(&self) -> bool {
        self.append_time.get()
    }

    /// End of what consumers see.
    pub(crate) fn high_watermark(&self) -> Offset {
        self.log.watermarks().high_watermark
    }

    /// Moves the high watermark up to `offset`, and wakes the consumers that wait. `send` tells watchers on other shards.
    pub(crate) fn show_up_to(&self, offset: Offset, send: impl Fn(ShardId, u64)) {
        if offset <= self.high_watermark() {
            return;
        }
        self.log.set_high_watermark(offset);
        self.wake_watchers(send);
    }

    /// Wakes every consumer that waits.
    pub(crate) fn wake_watchers(&self, send: impl Fn(ShardId, u64)) {
        for watcher in std::mem::take(&mut *self.watchers.borrow_mut()) {
            match watcher {
                Watcher::Here(notify) => {
                    if let Some(notify) = notify.upgrade() {
                        notify.notify_waiters();
                    }
                }
                Watcher::There { shard, id, .. } => send(shard, id),
            }
        }
    }

    /// Adds a consumer that waits. Those who gave up are removed when the list would grow, so that a partition without writes and
    /// with a reader that comes again and again does not collect them.
    pub(crate) fn watch(&self, watcher: Watcher, now: Monotonic) {
        let mut watchers = self.watchers.borrow_mut();
        if watchers.len() == watchers.capacity() {
            watchers.retain(|watcher| match watcher {
                Watcher::Here(notify) => notify.strong_count() > 0,
                Watcher::There { until, .. } => *until > now,
            });
        }
        watchers.push(watcher);
    }
}

/// Only whole closed segments go: so many fit what a topic keeps, and it keeps at most this part of it longer or more than it says.
const SEGMENTS_OF_RETENTION: u64 = 4;

/// A segment is not closed below this size because the topic keeps little: a file that holds less is mostly overhead.
const SEGMENT_BYTES_FLOOR: u64 = 4 << 20;

/// What the log needs to know of a topic.
pub(crate) fn partition_options(config: &TopicConfig) -> PartitionOptions {
    let kept = retention(config);
    let bytes_max = kept.bytes.map_or(u64::MAX, |bytes| (bytes / SEGMENTS_OF_RETENTION).max(SEGMENT_BYTES_FLOOR));
    let ms_max = kept.age_ms.map_or(u64::MAX, |age_ms| (age_ms / SEGMENTS_OF_RETENTION).max(SEGMENT_MS_MIN));
    PartitionOptions {
        segment_bytes: config.segment_bytes.min(bytes_max),
        segment_ms: config.segment_ms.min(ms_max),
        durability: match config.durability {
            Durability::Stable => commit_log::Durability::Stable,
            Durability::Relaxed => commit_log::Durability::Relaxed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Cleanup;

    #[test]
    fn segments_are_closed_early_enough_for_what_a_topic_keeps() {
        let options = |retention_ms, retention_bytes| {
            let config = TopicConfig { retention_ms, retention_bytes, ..TopicConfig::default() };
            let options = partition_options(&config);
            (options.segment_ms, options.segment_bytes)
        };
        let TopicConfig { segment_ms, segment_bytes, .. } = TopicConfig::default();
        assert_eq!(options(None, None), (segment_ms, segment_bytes));
        assert_eq!(options(Some(3_600_000), Some(1 << 30)), (900_000, 256 << 20));
        assert_eq!(options(Some(1), Some(1)), (SEGMENT_MS_MIN, SEGMENT_BYTES_FLOOR));
        assert_eq!(options(Some(i64::MAX), Some(u64::MAX)), (segment_ms, segment_bytes));
        let compacted = TopicConfig { cleanup: Cleanup::Compact, retention_ms: Some(1), ..TopicConfig::default() };
        assert_eq!(partition_options(&compacted).segment_ms, segment_ms);
    }
}
