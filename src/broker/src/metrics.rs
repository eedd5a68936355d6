//! Snapshots of the shards, and their text for Prometheus.
//!
//! A shard copies its counters once a second into a slot that only the HTTP thread and administrators read: nothing on the data path
//! is shared, and a scrape costs the shards nothing.

mod groups;
mod prometheus;

pub(crate) use groups::{GroupLevel, GroupLevels, GroupPartitionLevel, run as watch_groups};
pub(crate) use prometheus::render;

use crate::{
    counters::TopicCounters,
    metadata::Topic,
    shard::{Shard, compaction::CompactionLevels},
};
use commit_log::{LogHistograms, LogStats};
use rustix::time::{ClockId, clock_gettime};
use shards::{
    clock::{self, Monotonic},
    executor,
};
use std::{
    rc::Rc,
    sync::{Arc, PoisonError},
};
use wire::{Offset, PartitionIndex, PartitionKey, TopicId};

/// Topics named in the metrics of one shard, those with the most traffic first: a hundred thousand would drown the rest. How many are
/// left out is a metric of its own.
pub(crate) const TOPICS_MAX: usize = 1000;
/// Partitions named in the metrics of one shard, of those topics.
const PARTITIONS_MAX: usize = 1000;
/// A partition's size is looked up for so many partitions in one go, so that the shard is not held up.
const SIZES_AT_ONCE: usize = 2000;

/// How a shard stood at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSnapshot {
    /// Share of the last second in which the shard's thread ran, in thousandths.
    pub(crate) busy_permille: u64,
    pub(crate) connections: usize,
    pub(crate) accepted: u64,
    pub(crate) handed_over: u64,
    pub(crate) refused: u64,
    pub(crate) gave_way: u64,
    pub(crate) requests: u64,
    pub(crate) overloaded: u64,
    pub(crate) appends_waiting: usize,
    pub(crate) open_requests: usize,
    pub(crate) fetched_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) mesh_hops: u64,
    pub(crate) mesh_waiting: usize,
    pub(crate) mesh_unsent: usize,
    pub(crate) in_flight_bytes: usize,
    pub(crate) reply_bytes: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) compaction: CompactionLevels,
    /// Bytes of its partitions on disk.
    pub(crate) log_bytes: u64,
    pub(crate) lossy_partitions: u64,
    pub(crate) topic_count: usize,
    pub(crate) log: LogStats,
    /// None before the first look.
    pub(crate) writes: Option<LogHistograms>,
    pub(crate) topics: Vec<TopicTotals>,
    /// Topics with traffic that `topics` has no room for.
    pub(crate) topics_left_out: usize,
    /// Partitions of those topics.
    pub(crate) partitions: Vec<PartitionStanding>,
    pub(crate) rebalances: u64,
    pub(crate) dead_letters: u64,
    pub(crate) expired_segments: u64,
    pub(crate) expired_bytes: u64,
    /// None before the first look.
    pub(crate) groups: Option<Arc<GroupLevels>>,
}

/// Where one partition stands.
#[derive(Clone, Debug)]
pub(crate) struct PartitionStanding {
    pub(crate) topic: Arc<Topic>,
    pub(crate) partition: PartitionIndex,
    pub(crate) log_start: Offset,
}

/// What one topic did on a shard.
#[derive(Clone, Debug)]
pub(crate) struct TopicTotals {
    pub(crate) name: String,
    pub(crate) appended_bytes: u64,
    pub(crate) appended_batches: u64,
    pub(crate) appended_records: u64,
    pub(crate) fetched_bytes: u64,
    pub(crate) expired_segments: u64,
    pub(crate) expired_bytes: u64,
}

/// Takes a shard's snapshots.
#[derive(Debug)]
pub(crate) struct Meter {
    looked: Monotonic,
    ran_ns: u64,
    /// Where the walk over the partitions goes on, and what it has found so far.
    walk: Vec<Rc<crate::partition::Partition>>,
    walked: (u64, u64),
    sizes: (u64, u64),
}

impl Meter {
    fn new() -> Self {
        Meter { looked: clock::monotonic(), ran_ns: thread_time_ns(), walk: Vec::new(), walked: (0, 0), sizes: (0, 0) }
    }

    /// Begins with a whole snapshot: who asks as soon as the broker serves is told of everything that there is.
    pub(crate) async fn begin(shard: &Shard) -> Self {
        let mut meter = Meter::new();
        loop {
            meter.publish(shard);
            if meter.walk.is_empty() {
                return meter;
            }
            executor::yield_if_needed().await;
        }
    }

    /// Publishes how the shard stands now.
    pub(crate) fn publish(&mut self, shard: &Shard) {
        self.walk_partitions(shard);
        let (now, ran_ns) = (clock::monotonic(), thread_time_ns());
        let passed_ns = now.as_nanos().saturating_sub(self.looked.as_nanos()).max(1);
        let busy_permille = (ran_ns.saturating_sub(self.ran_ns) * 1000 / passed_ns).min(1000);
        (self.looked, self.ran_ns) = (now, ran_ns);
        let counters = &shard.counters;
        let busy = busy_topics(shard);
        let topics_left_out = busy.len().saturating_sub(TOPICS_MAX);
        let topics = topic_totals(shard, &busy);
        let partitions = standings(shard, &busy);
        let snapshot = ShardSnapshot {
            busy_permille,
            connections: shard.connections.borrow().len(),
            accepted: counters.accepted.get(),
            handed_over: counters.handed_over.get(),
            refused: counters.refused.get(),
            gave_way: counters.gave_way.get(),
            requests: counters.requests.get(),
            overloaded: counters.overloaded.get(),
            appends_waiting: shard.appends_waiting.len(),
            open_requests: shard.open_requests(),
            fetched_bytes: counters.fetched_bytes.get(),
            sent_bytes: counters.sent_bytes.get(),
            mesh_hops: shard.calls.hops(),
            mesh_waiting: shard.calls.waiting(),
            mesh_unsent: shard.calls.unsent(),
            in_flight_bytes: shard.in_flight.used(),
            reply_bytes: shard.reply_bytes.used(),
            buffer_bytes: shards::buffer::allocated_bytes(),
            compaction: shard.compaction.get(),
            log_bytes: self.sizes.0,
            lossy_partitions: self.sizes.1,
            topic_count: shard.topics.borrow().len(),
            log: shard.log.stats(),
            writes: Some(shard.log.histograms()),
            topics,
            topics_left_out,
            partitions,
            rebalances: crate::groups::all(shard).iter().map(|coordinator| coordinator.rebalances()).sum(),
            dead_letters: counters.dead_letters.get(),
            expired_segments: counters.expired_segments.get(),
            expired_bytes: counters.expired_bytes.get(),
            groups: shard.group_levels.borrow().clone(),
        };
        *shard.process.snapshots[shard.id.index()].lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Adds up the sizes of some more partitions; a whole round becomes the figure shown.
    fn walk_partitions(&mut self, shard: &Shard) {
        if self.walk.is_empty() {
            self.walk = shard.partitions.borrow().values().cloned().collect();
        }
        let left = self.walk.len().saturating_sub(SIZES_AT_ONCE);
        for partition in self.walk.drain(left..) {
            self.walked.0 += partition.log.size_bytes();
            self.walked.1 += u64::from(partition.log.is_lossy());
        }
        if self.walk.is_empty() {
            self.sizes = std::mem::take(&mut self.walked);
        }
    }
}

/// The topics with traffic, busiest first.
fn busy_topics(shard: &Shard) -> Vec<(TopicId, Rc<TopicCounters>)> {
    let counters = shard.topic_counters.borrow();
    let busy = counters.iter().filter(|(_, counters)| !counters.is_idle());
    let mut busy: Vec<_> = busy.map(|(id, counters)| (*id, Rc::clone(counters))).collect();
    busy.sort_by_key(|(_, counters)| std::cmp::Reverse(counters.appended_bytes.get() + counters.fetched_bytes.get()));
    busy
}

fn topic_totals(shard: &Shard, busy: &[(TopicId, Rc<TopicCounters>)]) -> Vec<TopicTotals> {
    let topics = shard.topics.borrow();
    let totals = busy.iter().take(TOPICS_MAX).filter_map(|(id, counters)| {
        Some(TopicTotals {
            name: topics.get(*id)?.topic.name.clone(),
            appended_bytes: counters.appended_bytes.get(),
            appended_batches: counters.appended_batches.get(),
            appended_records: counters.appended_records.get(),
            fetched_bytes: counters.fetched_bytes.get(),
            expired_segments: counters.expired_segments.get(),
            expired_bytes: counters.expired_bytes.get(),
        })
    });
    totals.collect()
}

/// Where the partitions of the busiest topics stand that this shard owns.
fn standings(shard: &Shard, busy: &[(TopicId, Rc<TopicCounters>)]) -> Vec<PartitionStanding> {
    let (topics, partitions) = (shard.topics.borrow(), shard.partitions.borrow());
    let entries = busy.iter().take(TOPICS_MAX).filter_map(|(id, _)| topics.get(*id));
    let standings = entries.flat_map(|entry| {
        let owned = entry.owned_by(shard.id.0, 0..entry.topic.config.partitions);
        owned.filter_map(|index| {
            let partition = partitions.get(&PartitionKey::new(entry.topic.id, index))?;
            let log_start = partition.log.watermarks().log_start;
            Some(PartitionStanding { topic: Arc::clone(&entry.topic), partition: index, log_start })
        })
    });
    standings.take(PARTITIONS_MAX).collect()
}

/// Processor time of this thread.
fn thread_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + nanoseconds.unwrap_or(0)
}
