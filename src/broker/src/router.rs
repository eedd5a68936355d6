//! Who serves a partition: this shard, another shard of this broker, or nobody here.

use crate::{partition::Partition, shard::Shard};
use shards::ShardId;
use std::rc::Rc;
use wire::{ErrorCode, PartitionKey};

/// Where a request for a partition goes.
#[derive(Debug)]
pub(crate) enum Route {
    /// This shard owns it.
    Here(Rc<Partition>),
    /// One hop away.
    Shard(ShardId),
    /// Not served by this broker, or not now.
    Nowhere(ErrorCode),
}

/// Finds the owner of `key`.
pub(crate) fn route(shard: &Shard, key: PartitionKey) -> Route {
    if shard.is_stopping() {
        return Route::Nowhere(ErrorCode::ShuttingDown);
    }
    if let Some(partition) = shard.partitions.borrow().get(&key) {
        return Route::Here(Rc::clone(partition));
    }
    let topics = shard.topics.borrow();
    match topics.get(key.topic).and_then(|entry| entry.owner(key.partition)) {
        Some(owner) if owner != shard.id.0 => Route::Shard(ShardId(owner)),
        // Owned here and not served: it is being made, or deleted.
        Some(_) | None => Route::Nowhere(ErrorCode::UnknownTopicOrPartition),
    }
}
