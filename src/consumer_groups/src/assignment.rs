//! Who gets which partition: the group's assignor computes it from subscriptions and from who has what.
//!
//! Invariants, whatever the input:
//! - Each partition of a topic that anybody subscribes to has exactly one member, who subscribes to its topic.
//! - The same input gives the same result; a result, given back as what members have, is not changed.

mod range;
mod round_robin;
mod sticky;

use std::collections::BTreeMap;

use wire::{Assignor, PartitionIndex, PartitionKey, TopicId};

/// What is to be spread.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Partitions of each topic that anybody subscribes to.
    pub topics: BTreeMap<TopicId, u32>,
    /// The members, in an order that stays the same from one time to the next.
    pub members: Vec<Subscriber>,
}

/// One member.
#[derive(Debug, Default)]
pub(crate) struct Subscriber {
    /// The topics it subscribes to, ordered, without repetition; each is in [`Demand::topics`].
    pub topics: Vec<TopicId>,
    /// What it has been given before, ordered.
    pub current: Vec<PartitionKey>,
}

impl Demand {
    /// Every partition, ordered.
    fn partitions(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        let of_topic = |(&topic, &count): (&TopicId, &u32)| {
            (0..count).map(move |partition| PartitionKey::new(topic, PartitionIndex(partition)))
        };
        self.topics.iter().flat_map(of_topic)
    }

    fn has(&self, partition: PartitionKey) -> bool {
        self.topics.get(&partition.topic).is_some_and(|&count| partition.partition.0 < count)
    }
}

impl Subscriber {
    fn wants(&self, topic: TopicId) -> bool {
        self.topics.binary_search(&topic).is_ok()
    }
}

/// The partitions of each member, in the order of [`Demand::members`]; each list is ordered.
pub(crate) fn assign(assignor: Assignor, demand: &Demand) -> Vec<Vec<PartitionKey>> {
    let mut assigned = match assignor {
        Assignor::Sticky => sticky::assign(demand),
        Assignor::Range => range::assign(demand),
        Assignor::RoundRobin => round_robin::assign(demand),
    };
    assigned.iter_mut().for_each(|partitions| partitions.sort_unstable());
    debug_assert!(
        demand.members.iter().zip(&assigned).all(|(member, partitions)| partitions.iter().all(|p| member.wants(p.topic)))
    );
    assigned
}

#[cfg(test)]
mod tests;
