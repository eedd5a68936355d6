//! From a group to its coordinator.

use super::{Coordinator, topic::GROUPS_TOPIC};
use crate::shard::Shard;
use shards::ShardId;
use std::rc::Rc;
use wire::{ErrorCode, PartitionIndex, partition_for_key};

/// Where the coordinator of a partition of the internal topic is.
pub(super) enum Place {
    Here(Rc<Coordinator>),
    Shard(ShardId),
}

/// The partition of the internal topic that keeps `group`, by the hash that places keys.
pub(super) fn partition_of(group: &str, partitions: u32) -> PartitionIndex {
    partition_for_key(group.as_bytes(), partitions)
}

/// The coordinator of `partition`.
///
/// # Errors
/// There is none yet, or none any more: worth another try.
pub(super) fn find(shard: &Shard, partition: PartitionIndex) -> Result<Place, ErrorCode> {
    let owner = shard.topics.borrow().named(GROUPS_TOPIC).and_then(|entry| entry.owner(partition));
    match owner {
        Some(owner) if owner != shard.id.0 => Ok(Place::Shard(ShardId(owner))),
        Some(_) | None => {
            shard.coordinators.borrow().get(&partition).cloned().map(Place::Here).ok_or(ErrorCode::CoordinatorLoading)
        }
    }
}
