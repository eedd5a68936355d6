//! A small cluster for the tests of the core, and a clock they turn by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{
    BrokerMetadata, ErrorCode, LeaderEpoch, MetadataReply, PartitionIndex, PartitionKey, PartitionMetadata, TopicConfig, TopicId,
    TopicMetadata,
};

use super::backoff::Backoff;
use super::cluster_map::{ClusterMap, Target, TopicInfo};

pub(crate) const TOPIC: &str = "t";
pub(crate) const FIRST: Target = Target { broker: 1, shard: 0 };
pub(crate) const SECOND: Target = Target { broker: 1, shard: 1 };

/// The longest wait of [`backoff`].
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

pub(crate) fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(100), BACKOFF_MAX)
}

/// A cluster with one topic whose partitions are led by these; brokers that lead nothing do not exist.
pub(crate) fn map(leaders: &[Target]) -> ClusterMap {
    let partitions = (0..).zip(leaders).map(|(partition, leader)| PartitionMetadata {
        partition: PartitionIndex(partition),
        leader: leader.broker,
        leader_epoch: LeaderEpoch(1),
        shard: leader.shard,
    });
    let topic = TopicMetadata {
        error: ErrorCode::None,
        name: TOPIC.to_owned(),
        id: TopicId([1; 16]),
        config: TopicConfig::default(),
        partitions: partitions.collect(),
    };
    let broker = BrokerMetadata { id: 1, host: "broker".to_owned(), port: 1, shard_count: 2 };
    let reply = MetadataReply {
        error: ErrorCode::None,
        message: None,
        version: 1,
        only_changes: false,
        brokers: vec![broker],
        topics: vec![topic],
        more: false,
        deleted: Vec::new(),
    };
    ClusterMap::default().updated(None, &reply)
}

pub(crate) fn topic(map: &ClusterMap) -> Arc<TopicInfo> {
    Arc::clone(map.topic(TOPIC).expect("the sample has it"))
}

pub(crate) fn key(partition: u32) -> PartitionKey {
    PartitionKey::new(TopicId([1; 16]), PartitionIndex(partition))
}

/// A time that moves when told to.
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.0 += by;
    }
}
