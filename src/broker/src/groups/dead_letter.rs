//! Dead letters: read where they failed, appended to their topic as an idempotent producer.
//!
//! ```text
//!   core: intent durable ─► read the record (one hop at most) ─► append with producer and sequence (one hop at most) ─► report
//!                              └ gone by retention: its key and the story of its failures are left
//! ```
//!
//! Each step is tried until it succeeds: the intent is durable, and whatever was appended before a crash is known to the log.

mod letter;

use super::Coordinator;
use crate::{
    admin, append, calls,
    mail::{Answer, Call, ReadPart},
    metadata::{Answered, Refusal, Request, TopicRequest},
    router::{Route, route},
    shard::Shard,
};
use consumer_groups::{
    Event, GroupId,
    retry::{DeadLetter, DeadLetterProducer, RetryAction, RetryEvent},
};
use shards::{buffer::Shared, clock, executor};
use std::{collections::VecDeque, rc::Rc, time::Duration};
use wire::{
    BatchHeader, Cleanup, Durability, ErrorCode, InitProducerRequest, Offset, PartitionIndex, PartitionKey, TimestampMs,
    TopicConfig, limits::MESSAGE_BYTES_MAX_CEILING,
};

/// Before another try at a step.
const AGAIN: Duration = Duration::from_millis(200);
/// Tries of one step after which that is said: five seconds.
const TRIES_BEFORE_WARNING: u32 = 25;

/// Where records failed: of which group, and in which partition.
pub(super) type Origin = (GroupId, PartitionKey);

/// Queues an action behind those of the same origin.
pub(super) fn carry_out(shard: &Rc<Shard>, coordinator: &Rc<Coordinator>, action: RetryAction) {
    let origin = match &action {
        RetryAction::OpenLane { group, origin, .. } => (group.clone(), *origin),
        RetryAction::AppendDeadLetter(letter) => (letter.group.clone(), letter.origin),
    };
    let mut letters = coordinator.letters().borrow_mut();
    let is_first = !letters.contains_key(&origin);
    letters.entry(origin.clone()).or_default().push_back(action);
    drop(letters);
    if is_first {
        executor::spawn(run(Rc::clone(shard), Rc::clone(coordinator), origin)).detach();
    }
}

/// Carries out the actions of one origin, one after the other, while there are any.
async fn run(shard: Rc<Shard>, coordinator: Rc<Coordinator>, origin: Origin) {
    let mut tries = 0;
    loop {
        let action = {
            let mut letters = coordinator.letters().borrow_mut();
            let Some(action) = letters.get_mut(&origin).and_then(VecDeque::pop_front) else {
                letters.remove(&origin);
                return;
            };
            action
        };
        while !coordinator.has_ended() {
            let done = match &action {
                RetryAction::OpenLane { group, origin, topic } => open_lane(&shard, group, *origin, topic).await,
                RetryAction::AppendDeadLetter(letter) => append_letter(&shard, letter).await,
            };
            match done {
                Ok(event) => {
                    if matches!(event, RetryEvent::DeadLetterAppended { .. }) {
                        shard.counters.dead_letters.set(shard.counters.dead_letters.get() + 1);
                    }
                    coordinator.tell(&shard, Event::Retry(event));
                    tries = 0;
                    break;
                }
                Err(refusal) => {
                    tries += 1;
                    if tries == TRIES_BEFORE_WARNING {
                        let (group, partition) = (origin.0.as_str(), origin.1);
                        tracing::warn!(group, %partition, "dead letters cannot be written, and wait: {}", refusal.message);
                    }
                    clock::sleep(AGAIN).await;
                }
            }
        }
    }
}

/// Makes the topic if there is none, and gets an identity for its producer.
async fn open_lane(shard: &Rc<Shard>, group: &GroupId, origin: PartitionKey, topic: &str) -> Result<RetryEvent, Refusal> {
    let partitions = partitions(shard, origin, topic).await?;
    let request = Request::Producer(InitProducerRequest { name: None, current: None });
    let identity = match admin::ask_metadata(shard, request).await? {
        Answered::Producer(identity) => identity,
        other => unreachable!("a producer was asked for, and the answer is {other:?}"),
    };
    let partition = PartitionIndex(origin.partition.0 % partitions);
    let producer = DeadLetterProducer { id: identity.id, epoch: identity.epoch, partition };
    Ok(RetryEvent::LaneOpened { group: group.clone(), origin, topic: topic.to_owned(), producer })
}

/// How many partitions the dead-letter topic has. A new one has as many as the topic that the records are from, and keeps what it gets: they
/// wait for people.
async fn partitions(shard: &Rc<Shard>, origin: PartitionKey, topic: &str) -> Result<u32, Refusal> {
    let (existing, config) = {
        let topics = shard.topics.borrow();
        let from = topics.get(origin.topic).map(|entry| entry.topic.config.clone()).unwrap_or_default();
        (topics.named(topic).map(|entry| entry.topic.config.clone()), from)
    };
    if let Some(existing) = existing {
        check_keeps(&existing)?;
        return Ok(existing.partitions);
    }
    let config = TopicConfig {
        partitions: config.partitions,
        message_bytes_max: shard.config.limits.message_bytes_max.0.try_into().unwrap_or(MESSAGE_BYTES_MAX_CEILING),
        compression: config.compression,
        retention_ms: None,
        ..TopicConfig::default()
    };
    let partitions = config.partitions;
    let create = TopicRequest::Create { name: topic.to_owned(), config, validate_only: false };
    match admin::change_any_topic(shard, create).await {
        Ok(_) => Ok(partitions),
        // Another coordinator was first: the next look finds it.
        Err(refusal) => Err(refusal),
    }
}

/// Whether the topic keeps each record that it acknowledges: what is decided is forgotten when its dead letter is acknowledged.
fn check_keeps(config: &TopicConfig) -> Result<(), Refusal> {
    let lacks = if config.durability != Durability::Stable {
        "it acknowledges before records are durable: set its durability to stable"
    } else if config.cleanup != Cleanup::Delete {
        "compaction keeps only the last dead letter of a key: set its cleanup to delete"
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::InvalidConfig, format!("the topic cannot take dead letters: {lacks}")))
}

async fn append_letter(shard: &Rc<Shard>, letter: &DeadLetter) -> Result<RetryEvent, Refusal> {
    let lost = || RetryEvent::LaneLost { group: letter.group.clone(), origin: letter.origin, producer: letter.producer };
    let to = shard.topics.borrow().named(&letter.topic).map(|entry| (entry.topic.id, check_keeps(&entry.topic.config)));
    let Some((to, keeps)) = to else { return Ok(lost()) };
    keeps?;
    let origin_name = shard.topics.borrow().get(letter.origin.topic).map(|entry| entry.topic.name.clone());
    let batch = read(shard, letter.origin, letter.letter.offset).await?;
    let now = TimestampMs(clock::wall_ms());
    let bytes = letter::build(letter, origin_name.as_deref().unwrap_or_default(), batch.as_ref(), now);
    let header = BatchHeader::decode(&bytes).expect("what was just built can be read");
    let to = PartitionKey::new(to, letter.producer.partition);
    let reply = append::append_own(shard, to, vec![(header, bytes)]).await;
    match reply.error {
        ErrorCode::None => {
            let DeadLetter { group, origin, producer, number, .. } = letter;
            Ok(RetryEvent::DeadLetterAppended { group: group.clone(), origin: *origin, producer: *producer, number: *number })
        }
        ErrorCode::UnknownProducer
        | ErrorCode::ProducerFenced
        | ErrorCode::OutOfOrderSequence
        | ErrorCode::UnknownTopicOrPartition => Ok(lost()),
        code => Err(Refusal::new(code, reply.message.unwrap_or_else(|| code.text().to_owned()))),
    }
}

/// The batch with the record; `None` when it is not in the log any more, or cannot be read.
async fn read(shard: &Rc<Shard>, key: PartitionKey, offset: Offset) -> Result<Option<Shared>, Refusal> {
    let part = ReadPart { key, offset, bytes_max: 1, leader_epoch: None };
    let (error, batches) = match route(shard, key) {
        Route::Here(partition) => match partition.log.read(offset, 1, partition.high_watermark()).await {
            Ok(batches) => (ErrorCode::None, batches),
            Err(error) => (crate::fetch::read_code(&error), Vec::new()),
        },
        Route::Shard(owner) => {
            match calls::ask(shard, owner, Call::Read { parts: vec![part], bytes_before: 0, bytes_max: 1 }).await {
                Some(Answer::Read(mut parts)) => {
                    let (reply, batches) = parts.pop().expect("one partition was asked for");
                    (reply.error, batches.into_iter().map(|batch| batch.into_shared()).collect())
                }
                _ => (ErrorCode::ShuttingDown, Vec::new()),
            }
        }
        Route::Nowhere(code) => (code, Vec::new()),
    };
    match error {
        // One that is not written yet comes in two pieces.
        ErrorCode::None if batches.len() > 1 => {
            let whole: Vec<u8> = batches.iter().flat_map(|piece| piece.iter().copied()).collect();
            Ok(Some(Shared::copy_from_slice(&whole)))
        }
        ErrorCode::None => Ok(batches.into_iter().next()),
        ErrorCode::OffsetOutOfRange | ErrorCode::DataCorrupt | ErrorCode::PartitionLossy | ErrorCode::UnknownTopicOrPartition => {
            tracing::warn!(partition = %key, %offset, "a dead letter without its record: {}", error.text());
            Ok(None)
        }
        code => Err(Refusal::new(code, code.text())),
    }
}
