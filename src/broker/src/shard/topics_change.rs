//! A change of topics or producers reaches a shard: its copy of the catalog, then its partitions.

use super::{Shard, retention};
use crate::{
    ack, calls, groups,
    mail::Mail,
    metadata::{Change, Command, Topic},
    partition::{Partition, partition_options},
};
use commit_log::{CreateError, LogFailed};
use shards::executor;
use std::{rc::Rc, sync::Arc};
use wire::{ErrorCode, PartitionIndex, PartitionKey};

/// Applies changes to the copy in order; gives the work that takes durable writes. Other tasks get their turn in between: they find the partitions of a
/// topic that are there so far, as they do while one shard has applied a change and another has not. Groups learn of a change with the copy.
pub(super) async fn apply(shard: &Rc<Shard>, version: u64, changes: &[Change]) -> Vec<Work> {
    let mut work = Vec::new();
    for (change, version) in changes.iter().zip(version..) {
        let before = shard.topics.borrow_mut().apply(version, change);
        match change {
            Change::Put(topic) => {
                let existing = before.map_or(0, |entry| entry.topic.config.partitions);
                groups::changed(shard, topic);
                work.extend(put(shard, topic, existing).await);
            }
            Change::Deleting(topic) => {
                groups::deleted(shard, topic);
                work.extend(delete(shard, topic).await);
            }
            Change::Purged(_) | Change::ProducerIds { .. } => {}
            Change::Producer(producer) => shard.fences.borrow_mut().put(producer),
            Change::ProducerForgotten(producer) => shard.fences.borrow_mut().forget(producer),
        }
    }
    work
}

/// Does the work and tells the metadata thread that this shard has the changes up to `version`.
pub(super) async fn finish(shard: Rc<Shard>, version: u64, work: Vec<Work>) {
    if let Err(failed) = run(&shard, work).await {
        // The log has said so, and the shard is ending: nothing is confirmed.
        tracing::error!("topics cannot be changed: {failed}");
        return;
    }
    let applied = Command::Applied { version };
    let _ended = shard.process.commands.send(applied);
}

/// A step that takes a durable write.
#[derive(Debug)]
pub(super) enum Work {
    /// Partitions were created: wait until they are on stable storage.
    Created,
    /// A partition has other settings.
    Alter(Rc<Partition>, Arc<Topic>),
    /// A partition goes.
    Delete(PartitionKey),
}

pub(super) async fn run(shard: &Shard, work: Vec<Work>) -> Result<(), LogFailed> {
    let mut created = false;
    for step in work {
        match step {
            Work::Created => created = true,
            Work::Alter(partition, topic) => {
                partition.log.alter(partition_options(&topic.config)).await?;
                retention::altered(shard, &partition);
            }
            Work::Delete(key) => shard.log.delete_partition(key).await?,
        }
    }
    if created {
        shard.log.barrier().await?;
    }
    Ok(())
}

/// Serves the partitions of `topic` that this shard owns: those it has, and new ones for those it has not.
pub(super) async fn put(shard: &Rc<Shard>, topic: &Arc<Topic>, existing: u32) -> Vec<Work> {
    let owned: Vec<PartitionIndex> = {
        let topics = shard.topics.borrow();
        let entry = topics.get(topic.id).expect("the topic was just put");
        entry.owned_by(shard.id.0, 0..topic.config.partitions).collect()
    };
    let mut work = Vec::new();
    for index in owned {
        executor::yield_if_needed().await;
        let key = PartitionKey::new(topic.id, index);
        let served = shard.partitions.borrow().get(&key).cloned();
        if let Some(partition) = served {
            assert!(index.0 < existing, "a served partition belongs to its topic");
            partition.altered(topic);
            retention::altered(shard, &partition);
            if partition.log.options() != partition_options(&topic.config) {
                work.push(Work::Alter(partition, Arc::clone(topic)));
            }
            continue;
        }
        let log = match shard.log.partition(key) {
            Some(log) => log,
            None => match shard.log.create_partition(key, partition_options(&topic.config)) {
                Ok(log) => {
                    work.push(Work::Created);
                    log
                }
                Err(error @ (CreateError::Closing | CreateError::BeingRemoved | CreateError::Failed(_))) => {
                    tracing::warn!(partition = %key, "not created: {error}; it will be at the next start");
                    continue;
                }
                Err(CreateError::Exists) => unreachable!("the log was just asked for {key}"),
            },
        };
        let partition = Partition::new(log, topic, shard.counters_of(topic.id));
        // This broker holds the only copy: what is durable is what consumers see.
        ack::show(shard, &partition, partition.log.watermarks().durable_end);
        shard.partitions.borrow_mut().insert(key, Rc::clone(&partition));
        if topic.name == groups::TOPIC {
            groups::serve(shard, &partition);
        }
    }
    work
}

/// Ends the partitions of `topic`: producers and consumers that wait are told at once, the data goes with durable writes.
pub(super) async fn delete(shard: &Rc<Shard>, topic: &Arc<Topic>) -> Vec<Work> {
    shard.topic_counters.borrow_mut().remove(&topic.id);
    let mut work = Vec::new();
    for index in (0..topic.config.partitions).map(PartitionIndex) {
        executor::yield_if_needed().await;
        let key = PartitionKey::new(topic.id, index);
        shard.retention.forget(key);
        let served = shard.partitions.borrow_mut().remove(&key);
        if let Some(partition) = served {
            ack::refuse_waiters(&partition, ErrorCode::UnknownTopicOrPartition, "the topic was deleted");
            partition.wake_watchers(|target, id| calls::send_now(shard, target, Mail::Wake { id }));
        }
        if shard.log.partition(key).is_some() {
            work.push(Work::Delete(key));
        }
    }
    work
}
