//! The ordered half of an append: a batch gets its offsets.

use std::rc::Rc;

use shards::buffer::Shared;
use shards::clock;
use wire::batch::{BatchHeader, HEADER_BYTES};
use wire::{LeaderEpoch, Offset, ProducerId, TimestampMs};

use crate::format::record::{Entry, Record};
use crate::partition::{Inner, Partition, PendingBatch};
use crate::producers::{Produced, ProducerError, Verdict};
use crate::shard::Shard;
use crate::{Durability, LogFailed};

/// What an append returns at once: its place in the order. Not yet an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an append is not durable until its ticket says so"]
pub struct Appended {
    /// Offset of the batch's first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Exchange it for durability with [`crate::PartitionLog::durable`].
    pub ticket: Ticket,
    /// An idempotent producer sent the batches again: they are in the log already, at these offsets.
    pub is_duplicate: bool,
}

/// A place in a partition's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) end: Offset,
}

/// Everything up to a ticket is on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    /// The durable end of the partition now: at or above the ticket.
    pub durable_end: Offset,
}

/// Why a batch got no offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The bound on batches in flight or on unflushed bytes is reached. Retry after some have become durable.
    #[error("the log's queue is full: {queued_bytes} bytes wait for the disk")]
    Full {
        /// Bytes accepted and not yet durable.
        queued_bytes: u64,
    },
    /// Free disk space is below its mark. Retry after space was made; reads go on.
    #[error("the disk is full: {free_bytes} bytes are left")]
    DiskFull {
        /// Free bytes at the last look.
        free_bytes: u64,
    },
    /// A truncation of this partition is under way.
    #[error("the partition is being truncated")]
    Truncating,
    /// What an idempotent producer sends does not follow what it sent before.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// The partition is deleted.
    #[error("the partition is deleted")]
    Deleted,
    /// The log is being closed.
    #[error("the log is closing")]
    Closing,
    /// The shard's storage failed.
    #[error(transparent)]
    Failed(#[from] LogFailed),
}

impl AppendError {
    /// Whether the same append may succeed later on this shard.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::DiskFull { .. } | Self::Truncating => true,
            Self::Producer(_) | Self::Deleted | Self::Closing | Self::Failed(_) => false,
        }
    }
}

/// Gives `batches` (each whole and verified, with its header) the next offsets of `partition`, back to back: all of them, or none. Batches of an
/// idempotent producer that the log holds already get the offsets that they have.
pub(crate) fn append_all(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    batches: &[(BatchHeader, Shared)],
    epoch: LeaderEpoch,
    append_time: Option<TimestampMs>,
) -> Result<Appended, AppendError> {
    assert!(!batches.is_empty(), "an append is of at least one batch");
    for (header, bytes) in batches {
        assert_eq!(bytes.len(), header.total_length_bytes as usize, "the batch is as long as its header says");
        assert!(bytes.len().is_multiple_of(16), "batches are multiples of 16 bytes");
        assert!(header.record_count > 0, "a padding batch takes no offsets and is not appended");
    }
    let length = batches.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let is_produced = batches.iter().any(|(header, _)| header.producer_id != ProducerId::NONE);
    if !is_produced {
        shard.admit(length, partition.uses_reserve.get())?;
    }
    let mut inner = partition.inner.borrow_mut();
    if inner.deleted {
        return Err(AppendError::Deleted);
    }
    if inner.truncating {
        return Err(AppendError::Truncating);
    }

    let produced = if is_produced {
        let now_ms = clock::wall_ms();
        let place = match judge(shard, &inner, batches, now_ms)? {
            Verdict::New(place) => place,
            Verdict::Duplicate { base_offset, last_offset } => {
                let ticket = Ticket { end: last_offset.plus(1) };
                return Ok(Appended { base_offset, last_offset, ticket, is_duplicate: true });
            }
        };
        // A duplicate takes no room, so that only what is new has to wait for it.
        shard.admit(length, partition.uses_reserve.get())?;
        Some((place, now_ms))
    } else {
        None
    };

    // From here on nothing refuses.
    if !inner.is_open() {
        inner.open_since_ms = clock::wall_ms();
    }
    let base = inner.marks.appended_end;
    if let Some((place, now_ms)) = produced {
        let offsets = batches.iter().scan(base, |end, (header, _)| {
            let base_offset = *end;
            *end = end.plus(u64::from(header.last_offset_delta) + 1);
            Some((Produced::of(header)?, base_offset))
        });
        let count = inner.producers.len();
        inner.producers.appended(place, offsets, now_ms, shard.producers_max(count));
        shard.producers_changed(count, inner.producers.len());
    }
    let newest = inner.epochs.latest().map(|start| start.epoch);
    if newest != Some(epoch) {
        assert!(newest < Some(epoch), "epochs only grow: {newest:?} then {epoch:?}");
        inner.epochs.begin(epoch, base);
        shard.note(Record { key: partition.key, entry: Entry::EpochStart { epoch, start: base } });
    }
    let mut end = base;
    for (header, bytes) in batches {
        let batch = stamped(header, bytes, end, epoch, append_time);
        end = Offset(batch.last + 1);
        inner.pending.push_back(batch);
    }
    inner.pending_bytes += length;
    let durability = inner.options.durability;
    inner.marks.set(durability, |marks| marks.appended_end = end);
    let pending_bytes = inner.pending_bytes;
    let threshold = shard.options.direct_write_threshold_bytes;
    // Enough for a write of its own now. A batch that is enough by itself is told of in any case: it must not follow little ones into a group,
    // which it could make larger than recovery reads.
    let grown = pending_bytes >= threshold && (pending_bytes - length < threshold || has_large(batches, threshold));
    let first = !std::mem::replace(&mut inner.queued, true);
    drop(inner);

    shard.queued(batches.len() as u64, length);
    match durability {
        Durability::Stable if first || grown => shard.make_ready(partition),
        // Waits for its bound, unless it has just gathered enough.
        Durability::Relaxed if grown => shard.make_relaxed_ready(partition),
        Durability::Relaxed if first => shard.make_ready_later(partition),
        Durability::Stable | Durability::Relaxed => {}
    }
    Ok(Appended { base_offset: base, last_offset: Offset(end.0 - 1), ticket: Ticket { end }, is_duplicate: false })
}

/// What is to become of batches of which one at least names a producer.
fn judge(shard: &Shard, inner: &Inner, batches: &[(BatchHeader, Shared)], now_ms: i64) -> Result<Verdict, AppendError> {
    // A failed or closing log answers nothing, not even what it has.
    shard.failure.check()?;
    if shard.closing.get() {
        return Err(AppendError::Closing);
    }
    let produced = batches.iter().map(|(header, _)| Produced::of(header));
    let verdict = inner.producers.judge(produced, shard.producer_idle_before_ms(now_ms));
    shard.counters.add(|stats| match verdict {
        Ok(Verdict::New(_)) => {}
        Ok(Verdict::Duplicate { .. }) => stats.duplicate_appends += 1,
        Err(_) => stats.producer_refusals += 1,
    });
    Ok(verdict?)
}

fn has_large(batches: &[(BatchHeader, Shared)], threshold: u64) -> bool {
    batches.iter().any(|(_, bytes)| bytes.len() as u64 >= threshold)
}

fn stamped(
    header: &BatchHeader,
    bytes: &Shared,
    base: Offset,
    epoch: LeaderEpoch,
    append_time: Option<TimestampMs>,
) -> PendingBatch {
    let mut header = *header;
    header.stamp(base, epoch, append_time);
    let mut stamped = [0; HEADER_BYTES];
    header.encode(&mut stamped);
    PendingBatch {
        base: base.0,
        last: base.0 + u64::from(header.last_offset_delta),
        max_timestamp_ms: header.max_timestamp_ms.0,
        header: stamped,
        bytes: bytes.clone(),
    }
}
