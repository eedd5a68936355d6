//! How the groups stand whose coordinators are on a shard: looked at some at a time, so that ten thousand of them hold up nothing.
//!
//! ```text
//!  coordinator ─► some groups: members, commits, what is parked ─► where those partitions end, asked of their owners ─► levels, the furthest
//!       ▲                                                                                                               behind of them named
//!       └── a pause ──────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A commit is read before the end of its partition, wherever that is: what is shown was the lag at some moment in between, or a little more.

mod furthest;

use furthest::Furthest;

use crate::{
    groups, scatter,
    shard::Shard,
    standing::{Standing, StandingOf},
};
use consumer_groups::{GroupId, GroupStanding, retry::RetryCounts};
use hashbrown::HashMap;
use shards::{clock, executor};
use std::{rc::Rc, sync::Arc, time::Duration};
use wire::{PartitionIndex, PartitionKey};

/// Between two rounds over all groups, and between two parts of a round.
const PAUSE: Duration = Duration::from_secs(1);

/// Partitions of groups looked at before a pause: they take some milliseconds of the shard in a second, and a group of ten thousand partitions is
/// shown anew each second.
const PARTITIONS_BEFORE_PAUSE: usize = 10_000;

/// Of them, those looked at before other tasks get their turn.
const PARTITIONS_AT_ONCE: usize = 500;

/// Partitions named in the metrics for each group named, on average.
const PARTITIONS_PER_GROUP: usize = 10;

/// The groups whose coordinators are on one shard, all together; and those that are named.
#[derive(Debug)]
pub(crate) struct GroupLevels {
    pub(crate) groups: u64,
    pub(crate) members: u64,
    pub(crate) lag_records: u64,
    pub(crate) parked_records: u64,
    pub(crate) named: Furthest<GroupLevel>,
    pub(crate) partitions: Furthest<GroupPartitionLevel>,
}

/// How one group stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupLevel {
    pub(crate) group: GroupId,
    pub(crate) lag_records: u64,
    pub(crate) members: usize,
    pub(crate) rebalances: u64,
    pub(crate) retries: RetryCounts,
}

/// How one group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupPartitionLevel {
    pub(crate) group: GroupId,
    pub(crate) topic: Arc<str>,
    pub(crate) partition: PartitionIndex,
    /// `None`: nothing is committed.
    pub(crate) lag_records: Option<u64>,
    pub(crate) parked_records: u64,
}

impl GroupLevels {
    /// Of no group; up to `groups_max` will be named.
    pub(crate) fn new(groups_max: usize) -> GroupLevels {
        GroupLevels {
            groups: 0,
            members: 0,
            lag_records: 0,
            parked_records: 0,
            named: Furthest::new(groups_max),
            partitions: Furthest::new(groups_max * PARTITIONS_PER_GROUP),
        }
    }

    /// Adds groups of another shard.
    pub(crate) fn add_named(&mut self, other: &GroupLevels) {
        self.named.add_all(&other.named);
        self.partitions.add_all(&other.partitions);
    }

    fn add(&mut self, standing: GroupStanding, topics: &TopicNames, ends: &HashMap<PartitionKey, Standing>) {
        let GroupStanding { group, members, rebalances, retries, partitions } = standing;
        let mut lag_records = 0;
        for part in partitions {
            let Some(topic) = topics.get(&part.partition) else { continue };
            let lag = part.committed.and_then(|committed| Some(ends.get(&part.partition)?.lag(committed)));
            lag_records += lag.unwrap_or(0);
            self.partitions.add(GroupPartitionLevel {
                group: group.clone(),
                topic: Arc::clone(topic),
                partition: part.partition.partition,
                lag_records: lag,
                parked_records: part.parked_records,
            });
        }
        self.groups += 1;
        self.members += members as u64;
        self.lag_records += lag_records;
        self.parked_records += retries.parked_records;
        self.named.add(GroupLevel { group, lag_records, members, rebalances, retries });
    }
}

/// Names of the topics of partitions.
type TopicNames = HashMap<PartitionKey, Arc<str>>;

/// Looks at the groups of a shard again and again, in the background, until the shard ends.
pub(crate) async fn run(shard: Rc<Shard>) {
    loop {
        clock::sleep(PAUSE).await;
        let mut levels = GroupLevels::new(shard.config.groups.metrics_max as usize);
        let mut looked = 0;
        for coordinator in groups::all(&shard) {
            let mut after = None;
            loop {
                let standings = coordinator.survey(after.as_ref(), PARTITIONS_AT_ONCE);
                let Some(last) = standings.last() else { break };
                after = Some(last.group.clone());
                looked += standings.iter().map(|standing| 1 + standing.partitions.len()).sum::<usize>();
                add_all(&shard, &mut levels, standings).await;
                if looked >= PARTITIONS_BEFORE_PAUSE {
                    looked = 0;
                    clock::sleep(PAUSE).await;
                }
            }
        }
        shard.group_levels.replace(Some(Arc::new(levels)));
    }
}

async fn add_all(shard: &Rc<Shard>, levels: &mut GroupLevels, standings: Vec<GroupStanding>) {
    let mut names = TopicNames::new();
    {
        let topics = shard.topics.borrow();
        let mut by_id: HashMap<_, Arc<str>> = HashMap::new();
        for part in standings.iter().flat_map(|standing| &standing.partitions) {
            let topic = part.partition.topic;
            let Some(entry) = topics.get(topic) else { continue };
            let name = by_id.entry(topic).or_insert_with(|| entry.topic.name.as_str().into());
            names.insert(part.partition, Arc::clone(name));
        }
    }
    // Many groups read the same partitions: each is asked for once.
    let keys: Vec<PartitionKey> = names.keys().copied().collect();
    let mut ends = HashMap::with_capacity(keys.len());
    for keys in keys.chunks(PARTITIONS_AT_ONCE) {
        let standings = scatter::ask_all(shard, keys.iter().copied().map(StandingOf).collect()).await;
        ends.extend(keys.iter().zip(standings).filter_map(|(key, standing)| Some((*key, standing?))));
        executor::yield_if_needed().await;
    }
    for standing in standings {
        levels.add(standing, &names, &ends);
        executor::yield_if_needed().await;
    }
}
