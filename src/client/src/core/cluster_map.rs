//! What the client knows of the cluster: an immutable picture, replaced as a whole by each metadata reply.

use std::collections::HashMap;
use std::sync::Arc;

use wire::{ErrorCode, LeaderEpoch, MetadataReply, PartitionIndex, PartitionKey, TopicConfig, TopicId};

/// A shard of a broker: the end of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The broker's number in the cluster.
    pub broker: u32,
    /// The shard of that broker.
    pub shard: u16,
}

/// A broker as metadata names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerInfo {
    /// The broker's number in the cluster.
    pub(crate) id: u32,
    /// Host name or address to connect to.
    pub(crate) host: String,
    /// Port to connect to.
    pub(crate) port: u16,
    /// Shards it runs.
    pub(crate) shard_count: u16,
}

impl BrokerInfo {
    pub(crate) fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Who serves a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The broker and shard that lead it.
    pub leader: Target,
    /// Grows with each change of leader.
    pub leader_epoch: LeaderEpoch,
}

/// A topic as metadata names it.
#[derive(Clone, Debug)]
pub struct TopicInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity: a topic deleted and created again has another.
    pub id: TopicId,
    /// Its configuration.
    pub config: TopicConfig,
    /// Leader of each partition, by index.
    pub partitions: Vec<PartitionInfo>,
}

impl TopicInfo {
    /// The number of partitions; at least 1.
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("partitions per topic are limited")
    }

    pub(crate) fn key(&self, partition: u32) -> PartitionKey {
        PartitionKey { topic: self.id, partition: PartitionIndex(partition) }
    }
}

/// The picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterMap {
    pub(crate) version: u64,
    brokers: HashMap<u32, BrokerInfo>,
    topics: HashMap<Arc<str>, Arc<TopicInfo>>,
    names: HashMap<TopicId, Arc<str>>,
}

impl ClusterMap {
    /// The picture after `reply`, which answered a request for `asked` topics (`None`: for all).
    ///
    /// A topic asked for and not found disappears; one not asked for stays as it was. A reply about a topic without any
    /// partition, or with a hole among them, is not a topic one can use: it counts as not found.
    pub(crate) fn updated(&self, asked: Option<&[String]>, reply: &MetadataReply) -> Self {
        let mut next = self.clone();
        next.version = reply.version;
        for broker in &reply.brokers {
            let info =
                BrokerInfo { id: broker.id, host: broker.host.clone(), port: broker.port, shard_count: broker.shard_count };
            next.brokers.insert(broker.id, info);
        }
        next.brokers.retain(|id, _| reply.brokers.iter().any(|broker| broker.id == *id));
        match asked {
            None => {
                next.topics.clear();
                next.names.clear();
            }
            Some(names) => names.iter().for_each(|name| next.forget(name)),
        }
        for topic in reply.topics.iter().filter(|topic| topic.error == ErrorCode::None) {
            let mut partitions: Vec<_> = topic.partitions.iter().collect();
            partitions.sort_by_key(|partition| partition.partition);
            let whole = partitions.iter().enumerate().all(|(index, partition)| partition.partition.0 as usize == index);
            if partitions.is_empty() || !whole {
                continue;
            }
            let partitions = partitions
                .iter()
                .map(|partition| PartitionInfo {
                    leader: Target { broker: partition.leader, shard: partition.shard },
                    leader_epoch: partition.leader_epoch,
                })
                .collect();
            let name: Arc<str> = topic.name.as_str().into();
            let info = TopicInfo { name: Arc::clone(&name), id: topic.id, config: topic.config.clone(), partitions };
            next.names.insert(topic.id, Arc::clone(&name));
            next.topics.insert(name, Arc::new(info));
        }
        next
    }

    /// The names of the topics known.
    pub(crate) fn topic_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.topics.keys().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    /// The picture without a topic, so that it is asked for again.
    pub(crate) fn without(&self, name: &str) -> Self {
        let mut next = self.clone();
        next.forget(name);
        next
    }

    fn forget(&mut self, name: &str) {
        if let Some(topic) = self.topics.remove(name) {
            self.names.remove(&topic.id);
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Option<&Arc<TopicInfo>> {
        self.topics.get(name)
    }

    pub(crate) fn broker(&self, id: u32) -> Option<&BrokerInfo> {
        self.brokers.get(&id)
    }

    /// Known brokers, by number.
    pub(crate) fn brokers(&self) -> Vec<&BrokerInfo> {
        let mut brokers: Vec<_> = self.brokers.values().collect();
        brokers.sort_by_key(|broker| broker.id);
        brokers
    }

    pub(crate) fn partition(&self, key: PartitionKey) -> Option<&PartitionInfo> {
        self.topics.get(self.names.get(&key.topic)?)?.partitions.get(key.partition.0 as usize)
    }

    /// Who leads a partition, if the picture says so and names the broker.
    pub(crate) fn leader(&self, key: PartitionKey) -> Option<Target> {
        let leader = self.partition(key)?.leader;
        self.brokers.contains_key(&leader.broker).then_some(leader)
    }
}
