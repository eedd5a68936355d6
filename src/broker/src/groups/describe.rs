//! What the coordinator does not know of the partitions that a group reads: where they start and end.

use super::route::{self, Place};
use crate::{
    admin, calls,
    mail::{Answer, Call},
    shard::Shard,
};
use hashbrown::HashMap;
use shards::ShardId;
use std::{collections::BTreeMap, rc::Rc};
use wire::{DescribeGroupReply, PartitionIndex, PartitionKey};

/// Fills in where the coordinator is, and the ends of each partition, which the lag is measured by.
pub(super) async fn fill(shard: &Rc<Shard>, coordinator: PartitionIndex, reply: &mut DescribeGroupReply) {
    reply.shard = match route::find(shard, coordinator) {
        Ok(Place::Shard(owner)) => owner.0,
        Ok(Place::Here(_)) | Err(_) => shard.id.0,
    };
    let mut by_owner: BTreeMap<u16, Vec<PartitionKey>> = BTreeMap::new();
    for partition in &reply.partitions {
        let owner = shard.topics.borrow().get(partition.topic).and_then(|entry| entry.owner(partition.partition));
        if let Some(owner) = owner {
            by_owner.entry(owner).or_default().push(PartitionKey::new(partition.topic, partition.partition));
        }
    }
    let mut ends = HashMap::new();
    for (owner, keys) in by_owner {
        let described = if owner == shard.id.0 {
            keys.iter().map(|key| admin::describe(shard, *key)).collect()
        } else {
            match calls::ask(shard, ShardId(owner), Call::Describe(keys.clone())).await {
                Some(Answer::Describe(described)) => described,
                _ => continue,
            }
        };
        ends.extend(keys.into_iter().zip(described.into_iter().map(|described| (described.log_start, described.high_watermark))));
    }
    for partition in &mut reply.partitions {
        if let Some((log_start, high_watermark)) = ends.get(&PartitionKey::new(partition.topic, partition.partition)) {
            (partition.log_start, partition.high_watermark) = (*log_start, *high_watermark);
        }
    }
}
