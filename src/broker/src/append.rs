//! The way of an append, from the frame to the log. Read `produce` from top to bottom; what it calls stands in that order.
//!
//! | step | place |
//! |---|---|
//! | bytes arrive, are admitted | `connection.rs`, `admission.rs` |
//! | body read, lengths add up; batch header and payload checked | `wire` |
//! | who owns the partition | `router.rs` |
//! | offset and epoch stamped, appended | `commit_log` |
//! | group commit; high watermark moves; waiters answered in order | `commit_log`, `ack.rs` |

mod waiting;

pub(crate) use waiting::WaitingLine;

use crate::{
    ack::{self, Pending, Placed, Slot, To},
    calls,
    connection::{Attachments, Incoming, Refused},
    mail::Call,
    partition::{LEADER_EPOCH, Partition},
    router::{Route, route},
    shard::Shard,
};
use commit_log::{AppendError, ProducerError};
use shards::{
    ShardId,
    buffer::{self, BufferMut, Portable, Shared},
    clock, executor,
    sync::oneshot,
};
use std::{rc::Rc, time::Duration};
use wire::{
    Api, BatchError, BatchHeader, BatchView, ErrorCode, FrameHeader, PartitionKey, PayloadKind, ProducePartition,
    ProducePartitionReply, ProduceRequest, ProducerEpoch, TimestampMs,
};

/// Batches of one partition with their checked headers.
type Batches = Vec<(BatchHeader, Shared)>;

/// Takes a produce request as far as the log; the reply leaves when its batches are durable. Returns when every batch has its place
/// in the order, so that the next request of the connection comes after it.
pub(crate) async fn produce(shard: &Rc<Shard>, mut incoming: Incoming) -> Result<(), Refused> {
    let request: ProduceRequest = incoming.decode()?;
    request.check(incoming.header.attachment_bytes())?;

    let mut attached = incoming.take_attachments();
    let keys: Rc<[PartitionKey]> = request.partitions.iter().map(|part| PartitionKey::new(part.topic, part.partition)).collect();
    let pending = Pending::new(shard, request.partitions.len(), To::Client(incoming.into_reply_to()));
    for (index, part) in request.partitions.iter().enumerate() {
        let key = keys[index];
        let slot = pending.slot(index);
        let batches = match checked_batches(shard, key, part, &mut attached).await {
            Ok(batches) => batches,
            Err((code, message)) => {
                slot.refuse(key, code, Some(message));
                continue;
            }
        };
        match route(shard, key) {
            Route::Here(partition) => append_here(shard, partition, batches, slot).await,
            Route::Shard(owner) => append_there(shard, owner, key, batches, slot).await,
            Route::Nowhere(code) => slot.refuse(key, code, None),
        }
    }
    pending.send_if_complete();
    let wait = Duration::from_millis(u64::from(request.timeout_ms.min(wire::limits::WAIT_MS_MAX)));
    if !wait.is_zero() {
        shard.deadlines.add(clock::monotonic_coarse() + wait, &pending, keys);
    }
    Ok(())
}

/// Where the next so many bytes of a request's attachments are to land.
pub(crate) struct Landing {
    pub(crate) bytes: usize,
    block: Block,
}

/// The memory of a [`Landing`].
enum Block {
    /// What is in it is copied where it is needed, and shares the block with what comes next.
    Common,
    /// One batch for another shard: the block itself goes there.
    Travelling,
    /// One batch of this shard, in a block of so many bytes from which the log writes it.
    Io(usize),
}

impl Landing {
    pub(crate) fn allocate(&self) -> BufferMut {
        match self.block {
            Block::Io(block_bytes) => buffer::allocate(block_bytes),
            Block::Common | Block::Travelling => buffer::allocate_plain(self.bytes),
        }
    }
}

/// Cuts the attachments of a large request before they are read: each large batch gets a block of its own, from which the log of this shard
/// writes it or with which it goes to its shard; what stands between goes into one piece. Only where to put bytes is decided here: nothing in
/// `body` is taken for true that is not checked again.
pub(crate) fn landings(shard: &Shard, header: &FrameHeader, body: &[u8]) -> Vec<Landing> {
    let attachment_bytes = header.attachment_bytes();
    let mut landings: Vec<Landing> = Vec::new();
    let request = (header.api == Api::Produce.code()).then(|| wire::decode_body::<ProduceRequest>(body));
    if let Some(Ok(request)) = request
        && request.check(attachment_bytes).is_ok()
    {
        for part in &request.partitions {
            let is_here = shard.partitions.borrow().contains_key(&PartitionKey::new(part.topic, part.partition));
            for length in &part.batch_lengths {
                let bytes = *length as usize;
                let block = match shard.log.landing_bytes(bytes) {
                    None => Block::Common,
                    Some(block_bytes) if is_here => Block::Io(block_bytes),
                    Some(_) => Block::Travelling,
                };
                match landings.last_mut() {
                    Some(Landing { bytes: common, block: Block::Common }) if matches!(block, Block::Common) => *common += bytes,
                    _ => landings.push(Landing { bytes, block }),
                }
            }
        }
    } else if attachment_bytes > 0 {
        landings.push(Landing { bytes: attachment_bytes, block: Block::Common });
    }
    landings
}

/// What a topic allows.
#[derive(Clone, Copy)]
struct Allowed {
    message_bytes_max: u32,
    /// Each record needs a key: without one nothing would ever supersede it.
    keys_only: bool,
}

/// Cuts the batches of `part` off `attached` and checks each: header, payload checksum, message size, keys where a topic is compacted. All are good,
/// or none is taken.
async fn checked_batches(
    shard: &Shard,
    key: PartitionKey,
    part: &ProducePartition,
    attached: &mut Attachments,
) -> Result<Batches, (ErrorCode, String)> {
    let taken: Vec<Shared> = part.batch_lengths.iter().map(|length| attached.take(*length as usize)).collect();
    if part.batch_lengths.is_empty() {
        return Err((ErrorCode::InvalidRequest, "no batch is given for this partition".to_owned()));
    }
    let allowed = {
        let topics = shard.topics.borrow();
        let topic = topics.get(key.topic).map(|entry| &entry.topic);
        if let Some(internal) = topic.filter(|topic| topic.is_internal()) {
            return Err((
                ErrorCode::InternalTopic,
                format!("{} is the broker's own: it can be read, not written", internal.name),
            ));
        }
        topic.map_or(Allowed { message_bytes_max: u32::MAX, keys_only: false }, |topic| Allowed {
            message_bytes_max: topic.config.message_bytes_max,
            keys_only: topic.config.cleanup.compacts(),
        })
    };
    let mut batches = Vec::with_capacity(taken.len());
    for bytes in taken {
        let header = check_batch(&bytes, allowed)?;
        batches.push((header, bytes));
        executor::yield_if_needed().await;
    }
    Ok(batches)
}

fn check_batch(bytes: &Shared, allowed: Allowed) -> Result<BatchHeader, (ErrorCode, String)> {
    let refuse = |error: BatchError| {
        let damaged = matches!(error, BatchError::HeaderCrc { .. } | BatchError::PayloadCrc { .. });
        (if damaged { ErrorCode::CorruptBatch } else { ErrorCode::InvalidBatch }, error.to_string())
    };
    let header = BatchHeader::decode(bytes).map_err(refuse)?;
    header.check_produced().map_err(refuse)?;
    if header.total_length() != bytes.len() {
        let message = format!("the batch says {} bytes, the request {}", header.total_length(), bytes.len());
        return Err((ErrorCode::InvalidBatch, message));
    }
    wire::verify_payload(&header, bytes).map_err(refuse)?;
    // Only a payload above the limit can hold a message above it: the usual batch is not looked into.
    if header.uncompressed_length_bytes > allowed.message_bytes_max {
        check_messages(&header, bytes, allowed.message_bytes_max)?;
    }
    if allowed.keys_only {
        check_keys(&header, bytes)?;
    }
    Ok(header)
}

/// Looks for the key of every record. A topic that is not compacted does not pay for it.
fn check_keys(header: &BatchHeader, bytes: &Shared) -> Result<(), (ErrorCode, String)> {
    if header.payload_kind != PayloadKind::Records {
        let message = "the topic is compacted: its batches are of native records, whose keys the broker can read".to_owned();
        return Err((ErrorCode::InvalidBatch, message));
    }
    let view = BatchView::new(bytes).map_err(|error| (ErrorCode::InvalidBatch, error.to_string()))?;
    match view.records().position(|record| record.key.is_none()) {
        None => Ok(()),
        Some(index) => {
            let message = format!("record {index} of the batch has no key: the topic is compacted, and only keys are");
            Err((ErrorCode::InvalidBatch, message))
        }
    }
}

/// Finds a message above the limit in a large batch.
fn check_messages(header: &BatchHeader, bytes: &Shared, message_bytes_max: u32) -> Result<(), (ErrorCode, String)> {
    let too_large = |found: usize| {
        let message = format!("a message of {found} bytes (key, value and headers): the topic allows {message_bytes_max}");
        (ErrorCode::MessageTooLarge, message)
    };
    if header.payload_kind != PayloadKind::Records {
        return Err(too_large(header.uncompressed_length_bytes as usize));
    }
    let view = BatchView::new(bytes).map_err(|error| (ErrorCode::InvalidBatch, error.to_string()))?;
    for record in view.records() {
        let headers: usize = record.headers.iter().map(|header| header.name.len() + header.value.map_or(0, <[u8]>::len)).sum();
        let found = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len) + headers;
        if found > message_bytes_max as usize {
            return Err(too_large(found));
        }
    }
    Ok(())
}

/// Appends to a partition of this shard. While the log's queue is full this waits, and with it the connection: nothing is dropped.
async fn append_here(shard: &Rc<Shard>, partition: Rc<Partition>, batches: Batches, slot: Slot) {
    if let Some(placed) = waiting::append(shard, Append { partition, batches, slot }) {
        // The answer stands in the slot; here it only matters that the next request of the connection comes after this one.
        let _left_the_line = placed.await;
    }
}

/// Batches on their way into a partition of this shard.
#[derive(Debug)]
struct Append {
    partition: Rc<Partition>,
    batches: Batches,
    slot: Slot,
}

impl Append {
    /// Appends the batches without waiting: all of them, or none. Gives itself back when the log's queue is full; any other refusal is
    /// answered.
    fn try_now(self, shard: &Shard) -> Result<(), (Append, AppendError)> {
        if let Some(epoch) = self.fenced_by(shard) {
            let message = format!("a later instance of the producer has begun: its epoch is {epoch}");
            self.slot.refuse(self.partition.key, ErrorCode::ProducerFenced, Some(message));
            return Ok(());
        }
        let partition = &self.partition;
        let append_time = partition.sets_append_time().then(|| TimestampMs(clock::wall_ms()));
        match partition.log.append_all(&self.batches, LEADER_EPOCH, append_time) {
            Ok(appended) => {
                if !appended.is_duplicate {
                    let bytes: usize = self.batches.iter().map(|(_, bytes)| bytes.len()).sum();
                    let records: u64 = self.batches.iter().map(|(header, _)| u64::from(header.record_count)).sum();
                    partition.counters.appended(bytes, self.batches.len(), records);
                }
                let placed = Placed { first: appended.base_offset, last: appended.last_offset };
                // When a batch that is sent again was appended first, nobody remembers.
                let append_time = append_time.filter(|_| !appended.is_duplicate);
                ack::appended(shard, partition, placed, append_time, self.slot);
                Ok(())
            }
            Err(error @ AppendError::Full { .. }) => Err((self, error)),
            Err(error) => {
                self.refuse(&error);
                Ok(())
            }
        }
    }

    /// The epoch of a later instance of the named producer whose batches these are. All of them: the log takes no others together.
    fn fenced_by(&self, shard: &Shard) -> Option<ProducerEpoch> {
        let (first, _) = self.batches.first()?;
        shard.fences.borrow().fencing(first)
    }

    fn refuse(self, error: &AppendError) {
        refuse(self.partition.key, self.slot, error);
    }
}

/// One hop: the owner appends what was checked here.
async fn append_there(shard: &Rc<Shard>, owner: ShardId, key: PartitionKey, batches: Batches, slot: Slot) {
    let batches = batches.into_iter().map(|(header, bytes)| (header, Portable::from(bytes))).collect();
    calls::append(shard, owner, Call::Append { key, batches }, slot).await;
}

/// An append of the broker itself, to whichever shard owns the partition; answered when it is durable.
pub(crate) async fn append_own(shard: &Rc<Shard>, key: PartitionKey, batches: Batches) -> ProducePartitionReply {
    let (sender, receiver) = oneshot();
    let slot = Pending::new(shard, 1, To::Task(sender)).slot(0);
    match route(shard, key) {
        Route::Here(partition) => append_here(shard, partition, batches, slot).await,
        Route::Shard(owner) => append_there(shard, owner, key, batches, slot).await,
        Route::Nowhere(code) => slot.refuse(key, code, None),
    }
    receiver.await.unwrap_or_else(|_| ack::refused(key, ErrorCode::ShuttingDown, None))
}

/// The other end of the hop. The mesh does not wait: the append does, and what comes after it stands in line.
pub(crate) fn append_for(shard: &Rc<Shard>, source: ShardId, id: u64, key: PartitionKey, batches: Vec<(BatchHeader, Portable)>) {
    let pending = Pending::new(shard, 1, To::Shard { shard: source, id });
    let slot = pending.slot(0);
    let batches = batches.into_iter().map(|(header, bytes)| (header, bytes.into_shared())).collect();
    match route(shard, key) {
        Route::Here(partition) => drop(waiting::append(shard, Append { partition, batches, slot })),
        Route::Shard(_) => slot.refuse(key, ErrorCode::WrongShard, None),
        Route::Nowhere(code) => slot.refuse(key, code, None),
    }
}

fn refuse(key: PartitionKey, slot: Slot, error: &AppendError) {
    let code = match error {
        AppendError::Full { .. } | AppendError::Truncating => ErrorCode::Overloaded,
        AppendError::DiskFull { .. } => ErrorCode::DiskFull,
        AppendError::Producer(error) => producer_code(error),
        AppendError::Deleted => ErrorCode::UnknownTopicOrPartition,
        AppendError::Closing => ErrorCode::ShuttingDown,
        AppendError::Failed(_) => ErrorCode::StorageFailed,
    };
    slot.refuse(key, code, Some(error.to_string()));
}

fn producer_code(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::OutOfOrder { .. } => ErrorCode::OutOfOrderSequence,
        ProducerError::Fenced { .. } => ErrorCode::ProducerFenced,
        ProducerError::Unknown { .. } => ErrorCode::UnknownProducer,
        // Sent one by one they are answered: a client that hears this of several batches does so.
        ProducerError::PartlyStored { .. } | ProducerError::Mixed => ErrorCode::InvalidRequest,
        ProducerError::Invalid { .. } => ErrorCode::InvalidBatch,
    }
}

#[cfg(test)]
mod tests;
