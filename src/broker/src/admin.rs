//! Requests about topics and the broker: read from this shard's copy of the catalog, changed by the metadata thread.

mod listing;

pub(crate) use listing::{list_topics, metadata};

use crate::{
    calls,
    connection::{Incoming, reply_memory},
    mail::{Answer, Call},
    metadata::{Answered, Command, Refusal, Request, Topic, TopicRequest},
    partition::LEADER_EPOCH,
    shard::{ASKED_MAX, Shard},
};
use futures_util::future::join_all;
use hashbrown::HashMap;
use shards::{ShardId, clock, sync::oneshot};
use std::{rc::Rc, sync::Arc};
use wire::{
    AlterTopicReply, AlterTopicRequest, BrokerDescription, ConfigEntry, ConfigOrigin, CreateTopicReply, CreateTopicRequest,
    DeleteTopicReply, DeleteTopicRequest, DescribeClusterReply, DescribeClusterRequest, DescribeConfigReply,
    DescribeConfigRequest, DescribeTopicReply, DescribeTopicRequest, ErrorCode, Offset, PartitionDescription, PartitionIndex,
    PartitionKey, ShardDescription, TopicConfig, TopicId, is_internal_topic, topic_name::INTERNAL_TOPIC_PREFIX,
};

/// Makes a topic: answered when it is durable and served by every shard.
pub(crate) async fn create_topic(shard: Rc<Shard>, request: CreateTopicRequest, incoming: Incoming) {
    let validate_only = request.validate_only;
    let create = TopicRequest::Create { name: request.name, config: request.config, validate_only };
    let reply = match change_topic(&shard, create).await {
        Ok(topic) => {
            let id = if validate_only { TopicId([0; 16]) } else { topic.id };
            CreateTopicReply { error: ErrorCode::None, message: None, id }
        }
        Err(refusal) => CreateTopicReply { error: refusal.code, message: Some(refusal.message), id: TopicId([0; 16]) },
    };
    incoming.into_reply_to().send(&reply);
}

/// Changes a topic.
pub(crate) async fn alter_topic(shard: Rc<Shard>, request: AlterTopicRequest, incoming: Incoming) {
    let AlterTopicRequest { name, changes, validate_only } = request;
    let reply = match change_topic(&shard, TopicRequest::Alter { name, changes, validate_only }).await {
        Ok(topic) => AlterTopicReply { error: ErrorCode::None, message: None, config: topic.config.clone() },
        Err(refusal) => AlterTopicReply { error: refusal.code, message: Some(refusal.message), config: TopicConfig::default() },
    };
    incoming.into_reply_to().send(&reply);
}

/// Removes a topic.
pub(crate) async fn delete_topic(shard: Rc<Shard>, request: DeleteTopicRequest, incoming: Incoming) {
    let reply = match change_topic(&shard, TopicRequest::Delete { name: request.name }).await {
        Ok(_) => DeleteTopicReply { error: ErrorCode::None, message: None },
        Err(refusal) => DeleteTopicReply { error: refusal.code, message: Some(refusal.message) },
    };
    incoming.into_reply_to().send(&reply);
}

/// A change that a user wants: not of the topics that the broker makes for itself.
async fn change_topic(shard: &Rc<Shard>, request: TopicRequest) -> Result<Arc<Topic>, Refusal> {
    let (TopicRequest::Create { name, .. } | TopicRequest::Alter { name, .. } | TopicRequest::Delete { name }) = &request;
    if is_internal_topic(name) {
        let message =
            format!("topics whose names begin with {INTERNAL_TOPIC_PREFIX} are the broker's own: they can be read, not changed");
        return Err(Refusal::new(ErrorCode::InternalTopic, message));
    }
    change_any_topic(shard, request).await
}

/// A change that a user wants, or the broker itself.
pub(crate) async fn change_any_topic(shard: &Rc<Shard>, request: TopicRequest) -> Result<Arc<Topic>, Refusal> {
    match ask_metadata(shard, Request::Topic(request)).await? {
        Answered::Topic(topic) => Ok(topic),
        other @ Answered::Producer(_) => unreachable!("a topic was asked for, and the answer is {other:?}"),
    }
}

/// Asks the metadata thread and waits: for the journal, then for every shard.
pub(crate) async fn ask_metadata(shard: &Rc<Shard>, request: Request) -> Result<Answered, Refusal> {
    if shard.is_stopping() {
        return Err(Refusal::new(ErrorCode::ShuttingDown, ErrorCode::ShuttingDown.text()));
    }
    if shard.asked.borrow().len() >= ASKED_MAX {
        let message = format!("{ASKED_MAX} requests to the metadata thread wait on this shard");
        return Err(Refusal::new(ErrorCode::Overloaded, message));
    }
    let ticket = shard.new_ticket();
    let (sender, receiver) = oneshot();
    shard.asked.borrow_mut().insert(ticket, sender);
    let ended = || Refusal::new(ErrorCode::ShuttingDown, ErrorCode::ShuttingDown.text());
    shard.process.commands.send(Command::Request { shard: shard.id, ticket, request }).map_err(|_| ended())?;
    receiver.await.unwrap_or_else(|_| Err(ended()))
}

/// A topic's configuration and how its partitions stand.
pub(crate) async fn describe_topic(shard: Rc<Shard>, request: DescribeTopicRequest, incoming: Incoming) {
    let entry = shard.topics.borrow().named(&request.name).cloned();
    let Some(entry) = entry else {
        let reply = DescribeTopicReply {
            error: ErrorCode::UnknownTopicOrPartition,
            message: Some(format!("there is no topic {}", request.name)),
            id: TopicId([0; 16]),
            config: TopicConfig::default(),
            created_ms: 0,
            partitions: Vec::new(),
        };
        return incoming.into_reply_to().send(&reply);
    };
    let topic = Arc::clone(&entry.topic);
    let bytes = topic.config.partitions as usize * size_of::<PartitionDescription>();
    let Some(memory) = reply_memory(&shard, incoming.connection(), bytes).await else { return };
    let mut owners: HashMap<u16, Vec<PartitionKey>> = HashMap::new();
    for index in (0..topic.config.partitions).map(PartitionIndex) {
        let owner = entry.owner(index).expect("the topic has this partition");
        owners.entry(owner).or_default().push(PartitionKey::new(topic.id, index));
    }
    let described = owners.into_iter().map(async |(owner, keys)| {
        if owner == shard.id.0 {
            return keys.into_iter().map(|key| describe(&shard, key)).collect();
        }
        match calls::ask(&shard, ShardId(owner), Call::Describe(keys)).await {
            Some(Answer::Describe(described)) => described,
            _ => Vec::new(),
        }
    });
    let mut partitions = join_all(described).await.concat();
    partitions.sort_by_key(|partition| partition.partition);
    let (id, config, created_ms) = (topic.id, topic.config.clone(), topic.created_ms);
    let reply = DescribeTopicReply { error: ErrorCode::None, message: None, id, config, created_ms, partitions };
    incoming.into_reply_to().send_holding(&reply, memory);
}

/// How a partition of this shard stands.
pub(crate) fn describe(shard: &Shard, key: PartitionKey) -> PartitionDescription {
    let mut description = PartitionDescription {
        partition: key.partition,
        error: ErrorCode::UnknownTopicOrPartition,
        leader: shard.process.broker_id,
        leader_epoch: LEADER_EPOCH,
        shard: shard.id.0,
        log_start: Offset::ZERO,
        high_watermark: Offset::ZERO,
        log_end: Offset::ZERO,
        size_bytes: 0,
        segments: 0,
    };
    if let Some(partition) = shard.partitions.borrow().get(&key) {
        let (log, marks) = (&partition.log, partition.log.watermarks());
        description.error = if log.is_lossy() { ErrorCode::PartitionLossy } else { ErrorCode::None };
        (description.log_start, description.high_watermark, description.log_end) =
            (marks.log_start, marks.high_watermark, marks.appended_end);
        description.size_bytes = log.size_bytes();
        description.segments = u32::try_from(log.segments().len()).unwrap_or(u32::MAX);
    }
    description
}

/// The broker and its shards, as last published.
pub(crate) async fn describe_cluster(shard: Rc<Shard>, request: DescribeClusterRequest, incoming: Incoming) {
    let process = &shard.process;
    let known = request.broker.is_none_or(|wanted| wanted == process.broker_id);
    let shards = process.snapshots.iter().enumerate().map(|(number, slot)| {
        let snapshot = Arc::clone(&slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        ShardDescription {
            shard: u16::try_from(number).expect("there are at most u16::MAX shards"),
            cpu: process.cpus.get(number).copied(),
            disk: process.disks[number].clone(),
            partitions: u32::try_from(snapshot.log.partitions).unwrap_or(u32::MAX),
            connections: u32::try_from(snapshot.connections).unwrap_or(u32::MAX),
            log_bytes: snapshot.log_bytes,
            disk_available_bytes: snapshot.log.disk_free_bytes,
        }
    });
    let description = BrokerDescription {
        id: process.broker_id,
        host: process.host.clone(),
        port: process.port,
        server: crate::connection::SERVER.to_owned(),
        uptime_ms: u64::try_from(clock::wall_ms() - process.started_ms).unwrap_or(0),
        shards: shards.collect(),
    };
    let topics = shard.topics.borrow();
    let reply = DescribeClusterReply {
        error: ErrorCode::None,
        cluster_id: process.cluster_id,
        controller: process.broker_id,
        topics: u32::try_from(topics.len()).unwrap_or(u32::MAX),
        partitions: u32::try_from(topics.partition_count()).unwrap_or(u32::MAX),
        brokers: if known { vec![description] } else { Vec::new() },
    };
    drop(topics);
    incoming.into_reply_to().send(&reply);
}

/// The settings in effect.
pub(crate) async fn describe_config(shard: Rc<Shard>, request: DescribeConfigRequest, incoming: Incoming) {
    let settings = shard.process.settings.iter().filter(|(key, _, _)| key.starts_with(&request.prefix));
    let entries = settings.map(|(key, value, given)| ConfigEntry {
        key: key.clone(),
        value: value.clone(),
        origin: if *given { ConfigOrigin::Given } else { ConfigOrigin::Default },
    });
    let reply = DescribeConfigReply { error: ErrorCode::None, entries: entries.collect() };
    incoming.into_reply_to().send(&reply);
}
