//! The internal topic: made at first use, served like any other, and what changes of topics mean for groups.

use super::{Coordinator, load, load::LoadError, snapshot, writer};
use crate::{admin, metadata::Refusal, metadata::Topic, metadata::TopicRequest, partition::Partition, shard::Shard};
use consumer_groups::Event;
use shards::executor;
use std::{rc::Rc, sync::Arc};
use wire::{ErrorCode, TopicConfig, limits::SEGMENT_BYTES_MIN};

/// Name of the topic that holds the state of groups.
pub(crate) const GROUPS_TOPIC: &str = "__groups";

/// How many partitions it has; makes it when there is none.
///
/// # Errors
/// It cannot be made.
pub(super) async fn partitions(shard: &Rc<Shard>) -> Result<u32, Refusal> {
    loop {
        if let Some(entry) = shard.topics.borrow().named(GROUPS_TOPIC) {
            return Ok(entry.topic.config.partitions);
        }
        let config = TopicConfig {
            partitions: shard.config.groups.partitions,
            // What is kept is decided by snapshots: old segments go when a snapshot has replaced them.
            retention_ms: None,
            segment_bytes: SEGMENT_BYTES_MIN,
            ..TopicConfig::default()
        };
        let create = TopicRequest::Create { name: GROUPS_TOPIC.to_owned(), config, validate_only: false };
        match admin::change_any_topic(shard, create).await {
            Ok(topic) => return Ok(topic.config.partitions),
            // Another request was first.
            Err(refusal) if refusal.code == ErrorCode::TopicExists => executor::yield_now().await,
            Err(refusal) => return Err(refusal),
        }
    }
}

/// Begins to serve a partition of the internal topic that this shard owns.
pub(crate) fn serve(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    // Groups go on at a full disk, so that consumers catch up and what they have read can be deleted.
    partition.log.use_space_reserve();
    let coordinator = Coordinator::new(shard, Rc::clone(partition));
    let before = shard.coordinators.borrow_mut().insert(partition.key.partition, Rc::clone(&coordinator));
    assert!(before.is_none(), "a partition has one coordinator");
    executor::spawn(run(Rc::clone(shard), coordinator)).detach();
}

async fn run(shard: Rc<Shard>, coordinator: Rc<Coordinator>) {
    match load::load(&coordinator, &shard).await {
        Ok(()) => {}
        Err(LoadError::Stopping) => return coordinator.end(ErrorCode::ShuttingDown),
        Err(error) => {
            tracing::error!(partition = %coordinator.partition().key, "the groups of this partition are not served: {error}");
            return coordinator.end(ErrorCode::DataCorrupt);
        }
    }
    coordinator.begin(&shard);
    executor::spawn(writer::run(Rc::clone(&shard), Rc::clone(&coordinator))).detach();
    executor::spawn_background(snapshot::run(Rc::clone(&coordinator))).detach();
    coordinator.run_timer(&shard).await;
}

/// A topic was made or altered.
pub(crate) fn changed(shard: &Rc<Shard>, topic: &Arc<Topic>) {
    for coordinator in all(shard) {
        coordinator.tell(shard, Event::TopicsChanged { names: vec![topic.name.clone()] });
    }
}

/// A topic was deleted.
pub(crate) fn deleted(shard: &Rc<Shard>, topic: &Arc<Topic>) {
    for coordinator in all(shard) {
        coordinator.tell(shard, Event::TopicDeleted { id: topic.id, name: topic.name.clone() });
    }
}

/// The coordinators of this shard, in the order of their partitions.
pub(crate) fn all(shard: &Shard) -> Vec<Rc<Coordinator>> {
    let mut all: Vec<_> = shard.coordinators.borrow().values().cloned().collect();
    all.sort_unstable_by_key(|coordinator| coordinator.partition().key.partition);
    all
}
