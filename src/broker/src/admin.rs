//! Requests about topics and the broker: read from this shard's copy of the catalog, changed by the metadata thread.

use crate::{
    calls,
    connection::Incoming,
    mail::{Answer, Call},
    metadata::{Command, Refusal, Topic, TopicRequest},
    partition::LEADER_EPOCH,
    shard::{ASKED_MAX, Shard},
    topics::{Since, TopicEntry},
};
use hashbrown::HashMap;
use shards::{ShardId, clock, executor, sync::oneshot};
use std::{rc::Rc, sync::Arc};
use wire::{
    AlterTopicReply, AlterTopicRequest, BrokerDescription, BrokerMetadata, ConfigEntry, ConfigOrigin, CreateTopicReply,
    CreateTopicRequest, DeleteTopicReply, DeleteTopicRequest, DescribeClusterReply, DescribeClusterRequest, DescribeConfigReply,
    DescribeConfigRequest, DescribeTopicReply, DescribeTopicRequest, ErrorCode, ListTopicsReply, ListTopicsRequest,
    MetadataReply, MetadataRequest, Offset, PartitionDescription, PartitionIndex, PartitionKey, PartitionMetadata,
    ShardDescription, TopicConfig, TopicId, TopicListing, TopicMetadata, limits,
};

/// Room that a topic and a partition take in a metadata reply, at most: bounds what is answered at once.
const TOPIC_REPLY_BYTES: usize = 192;
const PARTITION_REPLY_BYTES: usize = size_of::<PartitionMetadata>();
/// Half of what a body may have, since the sizes above are estimates.
const REPLY_BYTES_MAX: usize = limits::REPLY_BODY_BYTES_MAX as usize / 2;

/// Topics and their partitions.
pub(crate) async fn metadata(shard: Rc<Shard>, request: MetadataRequest, incoming: Incoming) {
    let mut reply = MetadataReply {
        error: ErrorCode::None,
        version: shard.topics.borrow().version(),
        only_changes: false,
        brokers: vec![broker(&shard)],
        topics: Vec::new(),
        deleted: Vec::new(),
    };
    match request.topics {
        Some(names) if names.len() > limits::TOPICS_PER_REQUEST_MAX => reply.error = ErrorCode::InvalidRequest,
        Some(names) => {
            let topics = shard.topics.borrow();
            reply.topics = names.into_iter().map(|name| topic_metadata(&shard, topics.named(&name), name)).collect();
        }
        None => changed_or_all(&shard, request.since_version, &mut reply).await,
    }
    incoming.into_reply_to().send(&reply);
}

async fn changed_or_all(shard: &Shard, since_version: u64, reply: &mut MetadataReply) {
    let ids: Vec<TopicId> = {
        let topics = shard.topics.borrow();
        let bytes = topics.len() * TOPIC_REPLY_BYTES
            + usize::try_from(topics.partition_count()).unwrap_or(usize::MAX) * PARTITION_REPLY_BYTES;
        match topics.since(since_version) {
            Since::Changes { put, deleted } if since_version > 0 => {
                reply.only_changes = true;
                reply.deleted = deleted;
                put
            }
            _ if bytes > REPLY_BYTES_MAX => {
                // Too many to say at once: the client must name those it wants.
                reply.error = ErrorCode::InvalidRequest;
                return;
            }
            _ => topics.iter().map(|entry| entry.topic.id).collect(),
        }
    };
    for chunk in ids.chunks(256) {
        {
            let topics = shard.topics.borrow();
            let known = chunk.iter().filter_map(|id| topics.get(*id));
            reply.topics.extend(known.map(|entry| topic_metadata(shard, Some(entry), entry.topic.name.clone())));
        }
        executor::yield_if_needed().await;
    }
}

fn broker(shard: &Shard) -> BrokerMetadata {
    let process = &shard.process;
    BrokerMetadata { id: process.broker_id, host: process.host.clone(), port: process.port, shard_count: shard.count }
}

fn topic_metadata(shard: &Shard, entry: Option<&TopicEntry>, name: String) -> TopicMetadata {
    let Some(entry) = entry else {
        let error = ErrorCode::UnknownTopicOrPartition;
        return TopicMetadata { error, name, id: TopicId([0; 16]), config: TopicConfig::default(), partitions: Vec::new() };
    };
    let partition = |index| PartitionMetadata {
        partition: PartitionIndex(index),
        leader: shard.process.broker_id,
        leader_epoch: LEADER_EPOCH,
        shard: entry.owner(PartitionIndex(index)).expect("the topic has this partition"),
    };
    let config = entry.topic.config.clone();
    TopicMetadata {
        error: ErrorCode::None,
        name,
        id: entry.topic.id,
        partitions: (0..config.partitions).map(partition).collect(),
        config,
    }
}

/// The topics by name.
pub(crate) async fn list_topics(shard: Rc<Shard>, request: ListTopicsRequest, incoming: Incoming) {
    let topics: Vec<TopicListing> = {
        let topics = shard.topics.borrow();
        let wanted = topics.iter().filter(|entry| entry.topic.name.starts_with(&request.prefix));
        wanted
            .map(|entry| TopicListing {
                name: entry.topic.name.clone(),
                id: entry.topic.id,
                partitions: entry.topic.config.partitions,
                replication_factor: entry.topic.config.replication_factor,
            })
            .collect()
    };
    let bytes: usize = topics.iter().map(|topic| topic.name.len() + size_of::<TopicListing>()).sum();
    let reply = if bytes > REPLY_BYTES_MAX {
        ListTopicsReply { error: ErrorCode::InvalidRequest, topics: Vec::new() }
    } else {
        ListTopicsReply { error: ErrorCode::None, topics }
    };
    incoming.into_reply_to().send(&reply);
}

/// Makes a topic: answered when it is durable and served by every shard.
pub(crate) async fn create_topic(shard: Rc<Shard>, request: CreateTopicRequest, incoming: Incoming) {
    let validate_only = request.validate_only;
    let create = TopicRequest::Create { name: request.name, config: request.config, validate_only };
    let reply = match ask_metadata(&shard, create).await {
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
    let reply = match ask_metadata(&shard, TopicRequest::Alter { name, changes, validate_only }).await {
        Ok(topic) => AlterTopicReply { error: ErrorCode::None, message: None, config: topic.config.clone() },
        Err(refusal) => AlterTopicReply { error: refusal.code, message: Some(refusal.message), config: TopicConfig::default() },
    };
    incoming.into_reply_to().send(&reply);
}

/// Removes a topic.
pub(crate) async fn delete_topic(shard: Rc<Shard>, request: DeleteTopicRequest, incoming: Incoming) {
    let reply = match ask_metadata(&shard, TopicRequest::Delete { name: request.name }).await {
        Ok(_) => DeleteTopicReply { error: ErrorCode::None, message: None },
        Err(refusal) => DeleteTopicReply { error: refusal.code, message: Some(refusal.message) },
    };
    incoming.into_reply_to().send(&reply);
}

/// Asks the metadata thread and waits: for the journal, then for every shard.
async fn ask_metadata(shard: &Rc<Shard>, request: TopicRequest) -> Result<Arc<Topic>, Refusal> {
    if shard.is_stopping() {
        return Err(Refusal::new(ErrorCode::ShuttingDown, ErrorCode::ShuttingDown.text()));
    }
    if shard.asked.borrow().len() >= ASKED_MAX {
        let message = format!("{ASKED_MAX} changes of topics wait on this shard");
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
    let mut owners: HashMap<u16, Vec<PartitionKey>> = HashMap::new();
    for index in (0..topic.config.partitions).map(PartitionIndex) {
        let owner = entry.owner(index).expect("the topic has this partition");
        owners.entry(owner).or_default().push(PartitionKey::new(topic.id, index));
    }
    let mut partitions = Vec::new();
    for (owner, keys) in owners {
        if owner == shard.id.0 {
            partitions.extend(keys.into_iter().map(|key| describe(&shard, key)));
        } else if let Some(Answer::Describe(described)) = calls::ask(&shard, ShardId(owner), Call::Describe(keys)).await {
            partitions.extend(described);
        }
    }
    partitions.sort_by_key(|partition| partition.partition);
    let (id, config, created_ms) = (topic.id, topic.config.clone(), topic.created_ms);
    incoming.into_reply_to().send(&DescribeTopicReply {
        error: ErrorCode::None,
        message: None,
        id,
        config,
        created_ms,
        partitions,
    });
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
