//! Topics by name, in pages: whatever is asked for, a reply is bounded, and says when there is more.

use crate::{
    connection::{Incoming, reply_memory},
    partition::LEADER_EPOCH,
    shard::Shard,
    topics::{Since, TopicEntry},
};
use shards::executor;
use std::rc::Rc;
use wire::{
    BrokerMetadata, ErrorCode, ListTopicsReply, ListTopicsRequest, MetadataReply, MetadataRequest, PartitionIndex,
    PartitionMetadata, TopicConfig, TopicId, TopicListing, TopicMetadata, limits,
};

/// Half of what a body may have, since the sizes of a page are estimates.
const PAGE_BYTES_MAX: usize = limits::REPLY_BODY_BYTES_MAX as usize / 2;
/// Room that a topic takes in a reply, at most, besides its name and its partitions.
const TOPIC_BYTES: usize = 256;
/// Topics put into a reply before other tasks get their turn.
const TOPICS_AT_ONCE: usize = 256;

/// What a reply has room for. The first topic always fits: the largest is far below the bound.
#[derive(Clone, Copy)]
struct Page {
    bytes: usize,
    topics: usize,
}

const _: () = assert!(
    TOPIC_BYTES + limits::TOPIC_NAME_BYTES_MAX + limits::PARTITIONS_PER_TOPIC_MAX as usize * size_of::<PartitionMetadata>()
        <= PAGE_BYTES_MAX
);

impl Page {
    /// `limit` is the client's; 0 for none.
    fn new(limit: u32) -> Self {
        Page { bytes: PAGE_BYTES_MAX, topics: if limit == 0 { usize::MAX } else { limit as usize } }
    }

    /// Takes room for a topic, if there is some.
    fn takes(&mut self, name: &str, partitions: u32) -> bool {
        let bytes = TOPIC_BYTES + name.len() + partitions as usize * size_of::<PartitionMetadata>();
        if self.topics == 0 || bytes > self.bytes {
            return false;
        }
        (self.topics, self.bytes) = (self.topics - 1, self.bytes - bytes);
        true
    }

    fn takes_topic(&mut self, entry: &TopicEntry) -> bool {
        self.takes(&entry.topic.name, entry.topic.config.partitions)
    }
}

/// Room for a reply about so many topics, at most.
fn page_bytes(topics: usize, names: usize, partitions: u64) -> usize {
    let partitions = usize::try_from(partitions).unwrap_or(usize::MAX).saturating_mul(size_of::<PartitionMetadata>());
    topics.saturating_mul(TOPIC_BYTES).saturating_add(names).saturating_add(partitions).min(PAGE_BYTES_MAX)
}

/// Topics and their partitions.
pub(crate) async fn metadata(shard: Rc<Shard>, request: MetadataRequest, incoming: Incoming) {
    let bytes = {
        let topics = shard.topics.borrow();
        match &request.topics {
            Some(names) => {
                let known = names.iter().filter_map(|name| topics.named(name));
                let partitions = known.map(|entry| u64::from(entry.topic.config.partitions)).sum();
                page_bytes(names.len(), names.iter().map(String::len).sum(), partitions)
            }
            None => page_bytes(topics.len(), topics.len() * limits::TOPIC_NAME_BYTES_MAX, topics.partition_count()),
        }
    };
    let Some(memory) = reply_memory(&shard, incoming.connection(), bytes).await else { return };
    let mut reply = MetadataReply {
        error: ErrorCode::None,
        message: None,
        version: shard.topics.borrow().version(),
        only_changes: false,
        brokers: vec![broker(&shard)],
        topics: Vec::new(),
        more: false,
        deleted: Vec::new(),
    };
    let page = Page::new(request.limit);
    match request.topics {
        Some(names) if names.len() > limits::TOPICS_PER_REQUEST_MAX => {
            reply.error = ErrorCode::InvalidRequest;
            let (found, limit) = (names.len(), limits::TOPICS_PER_REQUEST_MAX);
            reply.message = Some(format!("{found} topics are named, and one request may name {limit}: ask in parts"));
        }
        Some(names) => named(&shard, names, page, &mut reply).await,
        None => changed_or_all(&shard, request.since_version, request.after, page, &mut reply).await,
    }
    incoming.into_reply_to().send_holding(&reply, memory);
}

async fn named(shard: &Shard, names: Vec<String>, mut page: Page, reply: &mut MetadataReply) {
    for names in names.chunks(TOPICS_AT_ONCE) {
        {
            let topics = shard.topics.borrow();
            for name in names {
                let entry = topics.named(name);
                if !page.takes(name, entry.map_or(0, |entry| entry.topic.config.partitions)) {
                    reply.more = true;
                    return;
                }
                reply.topics.push(topic_metadata(shard, entry, name.clone()));
            }
        }
        executor::yield_if_needed().await;
    }
}

async fn changed_or_all(shard: &Shard, since_version: u64, after: Option<String>, page: Page, reply: &mut MetadataReply) {
    let whole_changes = if since_version > 0 && after.is_none() { changes(shard, since_version, page) } else { None };
    match whole_changes {
        Some((put, deleted)) => {
            reply.only_changes = true;
            reply.deleted = deleted;
            for ids in put.chunks(TOPICS_AT_ONCE) {
                {
                    let topics = shard.topics.borrow();
                    let known = ids.iter().filter_map(|id| topics.get(*id));
                    reply.topics.extend(known.map(|entry| topic_metadata(shard, Some(entry), entry.topic.name.clone())));
                }
                executor::yield_if_needed().await;
            }
        }
        None => all(shard, after, page, reply).await,
    }
}

/// The topics put and deleted since a version, when that is known and fits one reply.
fn changes(shard: &Shard, since_version: u64, mut page: Page) -> Option<(Vec<TopicId>, Vec<TopicId>)> {
    let topics = shard.topics.borrow();
    let Since::Changes { put, deleted } = topics.since(since_version) else { return None };
    let fits = put.iter().filter_map(|id| topics.get(*id)).all(|entry| page.takes_topic(entry));
    fits.then_some((put, deleted))
}

async fn all(shard: &Shard, mut after: Option<String>, mut page: Page, reply: &mut MetadataReply) {
    loop {
        let before = reply.topics.len();
        for entry in shard.topics.borrow().after(after.as_deref()).take(TOPICS_AT_ONCE) {
            if !page.takes_topic(entry) {
                reply.more = true;
                return;
            }
            reply.topics.push(topic_metadata(shard, Some(entry), entry.topic.name.clone()));
        }
        if reply.topics.len() == before {
            return;
        }
        after = reply.topics.last().map(|topic| topic.name.clone());
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
    let count = shard.topics.borrow().len();
    let bytes = page_bytes(count, count * limits::TOPIC_NAME_BYTES_MAX, 0);
    let Some(memory) = reply_memory(&shard, incoming.connection(), bytes).await else { return };
    let mut reply = ListTopicsReply { error: ErrorCode::None, topics: Vec::new(), more: false };
    let mut page = Page::new(request.limit);
    let mut after = request.after;
    loop {
        let before = reply.topics.len();
        for entry in shard.topics.borrow().matching(&request.prefix, after.as_deref()).take(TOPICS_AT_ONCE) {
            // Without its partitions: their number is all that is said.
            if !page.takes(&entry.topic.name, 0) {
                reply.more = true;
                return incoming.into_reply_to().send_holding(&reply, memory);
            }
            reply.topics.push(TopicListing {
                name: entry.topic.name.clone(),
                id: entry.topic.id,
                partitions: entry.topic.config.partitions,
                replication_factor: entry.topic.config.replication_factor,
            });
        }
        if reply.topics.len() == before {
            return incoming.into_reply_to().send_holding(&reply, memory);
        }
        after = reply.topics.last().map(|topic| topic.name.clone());
        executor::yield_if_needed().await;
    }
}
