//! What the coordinator does not know of the partitions that a group reads: where they start and end.

use super::route::{self, Place};
use crate::{scatter, shard::Shard, standing::StandingOf};
use std::rc::Rc;
use wire::{DescribeGroupReply, PartitionIndex, PartitionKey};

/// Fills in where the coordinator is, and the ends of each partition, which the lag is measured by.
pub(super) async fn fill(shard: &Rc<Shard>, coordinator: PartitionIndex, reply: &mut DescribeGroupReply) {
    reply.shard = match route::find(shard, coordinator) {
        Ok(Place::Shard(owner)) => owner.0,
        Ok(Place::Here(_)) | Err(_) => shard.id.0,
    };
    let questions = reply.partitions.iter().map(|part| StandingOf(PartitionKey::new(part.topic, part.partition))).collect();
    let standings = scatter::ask_all(shard, questions).await;
    for (partition, standing) in reply.partitions.iter_mut().zip(standings) {
        if let Some(standing) = standing {
            (partition.log_start, partition.high_watermark) = (standing.log_start, standing.high_watermark);
        }
    }
}
