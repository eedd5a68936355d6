//! Dead letters: read where they failed, appended to their topic as an idempotent producer.
//!
//! ```text
//!   core: intent durable ─► read the record (one hop at most) ─► append with producer and sequence (one hop at most) ─► report
//!                              └ gone by retention: its key and the story of its failures are left
//! ```
//!
//! Each step is tried until it succeeds: the intent is durable, and whatever was appended before a crash is known to the log.

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
    BatchHeader, BatchView, ErrorCode, InitProducerRequest, Offset, PartitionIndex, PartitionKey, RecordView, TopicConfig,
    batch::{BatchBuilder, BuilderOptions},
    dead_letter as headers,
    limits::{BATCH_BYTES_MAX, HEADERS_PER_RECORD_MAX, MESSAGE_BYTES_MAX_CEILING},
};

/// Before another try at a step.
const AGAIN: Duration = Duration::from_millis(200);

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
                    break;
                }
                Err(refusal) => {
                    tracing::debug!(group = origin.0.as_str(), partition = %origin.1, "a dead letter waits: {}", refusal.message);
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
        (topics.named(topic).map(|entry| entry.topic.config.partitions), from)
    };
    if let Some(partitions) = existing {
        return Ok(partitions);
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

async fn append_letter(shard: &Rc<Shard>, letter: &DeadLetter) -> Result<RetryEvent, Refusal> {
    let lost = || RetryEvent::LaneLost { group: letter.group.clone(), origin: letter.origin, producer: letter.producer };
    let Some(to) = shard.topics.borrow().named(&letter.topic).map(|entry| entry.topic.id) else { return Ok(lost()) };
    let origin_name = shard.topics.borrow().get(letter.origin.topic).map(|entry| entry.topic.name.clone());
    let batch = read(shard, letter.origin, letter.letter.offset).await?;
    let bytes = build(letter, origin_name.as_deref().unwrap_or_default(), batch.as_ref());
    let header = BatchHeader::decode(&bytes).expect("what was just built can be read");
    let to = PartitionKey::new(to, letter.producer.partition);
    let reply = append::append_own(shard, to, vec![(header, bytes)]).await;
    match reply.error {
        ErrorCode::None => {
            Ok(RetryEvent::DeadLetterAppended { group: letter.group.clone(), origin: letter.origin, number: letter.number })
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

/// The batch of the dead letter: the record as it was, with the story of its failures in headers.
fn build(letter: &DeadLetter, topic: &str, batch: Option<&Shared>) -> Shared {
    let view = batch.and_then(|batch| BatchView::new(batch).ok());
    let offset = letter.letter.offset;
    let record = view.as_ref().and_then(|view| view.records().find(|record| record.offset == offset));
    let numbers = [
        (headers::HEADER_PARTITION, letter.origin.partition.0.to_string()),
        (headers::HEADER_OFFSET, offset.0.to_string()),
        (headers::HEADER_ATTEMPTS, letter.letter.attempts.to_string()),
        (headers::HEADER_FIRST_FAILURE, letter.letter.first_failure.0.to_string()),
        (headers::HEADER_LAST_FAILURE, letter.letter.last_failure.0.to_string()),
    ];
    let mut added: Vec<(&str, Option<&[u8]>)> = vec![
        (headers::HEADER_TOPIC, Some(topic.as_bytes())),
        (headers::HEADER_GROUP, Some(letter.group.as_str().as_bytes())),
        (headers::HEADER_REASON, Some(letter.letter.reason.as_bytes())),
    ];
    added.extend(numbers.iter().map(|(name, text)| (*name, Some(text.as_bytes()))));
    let timestamp = record.as_ref().map(|record| record.timestamp_ms.0.to_string());
    if let Some(timestamp) = &timestamp {
        added.push((headers::HEADER_TIMESTAMP, Some(timestamp.as_bytes())));
    } else {
        added.push((headers::HEADER_RECORD_GONE, Some(b"true")));
    }
    let key = record.as_ref().map_or(letter.letter.key.as_deref(), |record| record.key);
    added.extend(key.map(|key| (headers::HEADER_KEY, Some(key))));
    assemble(letter, record.as_ref(), key, &added)
}

fn assemble(letter: &DeadLetter, record: Option<&RecordView<'_>>, key: Option<&[u8]>, added: &[(&str, Option<&[u8]>)]) -> Shared {
    let options = BuilderOptions {
        batch_bytes_max: BATCH_BYTES_MAX,
        message_bytes_max: MESSAGE_BYTES_MAX_CEILING,
        ..BuilderOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    builder.set_producer(letter.producer.id, letter.producer.epoch, letter.sequence);
    let now = wire::TimestampMs(clock::wall_ms());
    // Of a record with as many headers as there may be, its own first ones stay.
    let room = HEADERS_PER_RECORD_MAX - added.len();
    let own = record.map(|record| record.headers.iter().take(room).map(|header| (header.name, header.value)).collect::<Vec<_>>());
    let all: Vec<_> = own.into_iter().flatten().chain(added.iter().copied()).collect();
    let value = record.and_then(|record| record.value);
    if builder.push(now, key, value, &all).is_err() {
        // Only a record of the largest size there is: without its value the rest fits.
        builder.push(now, None, None, added).expect("headers within their limits fit a batch");
    }
    Shared::copy_from_slice(&builder.build())
}
