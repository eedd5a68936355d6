//! When each partition is looked at next.

use hashbrown::HashMap;
use shards::sync::Notify;
use std::{cell::RefCell, collections::BTreeSet};
use wire::PartitionKey;

/// Partitions by the time, in milliseconds by the wall clock, at which they are due; each once.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: RefCell<Entries>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    by_time: BTreeSet<(i64, PartitionKey)>,
    by_key: HashMap<PartitionKey, i64>,
}

impl Schedule {
    /// Has a partition looked at by `at_ms`, or sooner if that was planned already.
    pub(crate) fn plan(&self, key: PartitionKey, at_ms: i64) {
        let mut entries = self.entries.borrow_mut();
        if let Some(planned_ms) = entries.by_key.get(&key).copied() {
            if planned_ms <= at_ms {
                return;
            }
            entries.by_time.remove(&(planned_ms, key));
        }
        entries.by_key.insert(key, at_ms);
        let is_first = entries.by_time.first().is_none_or(|first| (at_ms, key) < *first);
        entries.by_time.insert((at_ms, key));
        drop(entries);
        if is_first {
            self.sooner.notify_waiters();
        }
    }

    /// Forgets a partition that is gone.
    pub(crate) fn forget(&self, key: PartitionKey) {
        let mut entries = self.entries.borrow_mut();
        if let Some(planned_ms) = entries.by_key.remove(&key) {
            entries.by_time.remove(&(planned_ms, key));
        }
    }

    pub(crate) fn is_planned(&self, key: PartitionKey) -> bool {
        self.entries.borrow().by_key.contains_key(&key)
    }

    /// Takes out what is due at `now_ms`, the most overdue first, up to `count_max`.
    pub(crate) fn take_due(&self, now_ms: i64, count_max: usize) -> Vec<PartitionKey> {
        let mut entries = self.entries.borrow_mut();
        let mut due = Vec::new();
        while due.len() < count_max
            && let Some((at_ms, key)) = entries.by_time.first().copied()
            && at_ms <= now_ms
        {
            entries.by_time.pop_first();
            entries.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    /// When the next one is due.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.entries.borrow().by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Completes when, after this call, something is planned before everything else.
    pub(crate) fn sooner(&self) -> impl Future<Output = ()> + use<> {
        self.sooner.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{PartitionIndex, TopicId};

    fn key(partition: u32) -> PartitionKey {
        PartitionKey::new(TopicId([1; 16]), PartitionIndex(partition))
    }

    #[test]
    fn each_partition_is_due_once_at_the_soonest_time() {
        let schedule = Schedule::default();
        for (partition, at_ms) in [(1, 50), (2, 30), (1, 20), (1, 90), (3, 40)] {
            schedule.plan(key(partition), at_ms);
        }
        assert_eq!(schedule.next_ms(), Some(20));
        assert_eq!(schedule.take_due(19, 10), []);
        assert_eq!(schedule.take_due(35, 10), [key(1), key(2)]);
        assert!(!schedule.is_planned(key(1)) && schedule.is_planned(key(3)));
        schedule.forget(key(3));
        assert_eq!(schedule.next_ms(), None);
    }

    #[test]
    fn a_hundred_thousand_at_rest_are_not_looked_at() {
        let schedule = Schedule::default();
        (0..100_000).for_each(|partition| schedule.plan(key(partition), 1_000_000 + i64::from(partition)));
        assert_eq!(schedule.take_due(999_999, usize::MAX), []);
        assert_eq!(schedule.take_due(1_000_001, usize::MAX), [key(0), key(1)]);
        assert_eq!(schedule.take_due(i64::MAX, 256).len(), 256, "no more at once than asked for");
    }
}
