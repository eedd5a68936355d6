//! A closed batch on its way.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use wire::{AlignedVec, BatchBuilder, BatchHeader};

use super::sequences::Stamp;

use crate::producer::BatchOutcome;

/// Bytes of the producer's memory, given back when dropped.
pub(crate) type Reservation = OwnedSemaphorePermit;

/// A batch that takes no more records.
pub(crate) struct Batch {
    /// Grows; the order within the partition.
    pub(crate) number: u64,
    pub(crate) payload: Payload,
    pub(crate) records: u32,
    pub(crate) outcome: Arc<BatchOutcome>,
    /// When it is too late to try again.
    pub(crate) deadline: Instant,
    /// Requests that contained it.
    pub(crate) attempts: u32,
    /// Goes by itself, because a request that contained it with others was refused.
    pub(crate) alone: bool,
    /// Given finished: it goes as it is.
    pub(crate) is_prebuilt: bool,
    /// Its place among the batches of an idempotent producer, from when it is first sent.
    pub(crate) stamp: Option<Stamp>,
    /// What stands in the finished bytes.
    pub(crate) built_stamp: Option<Stamp>,
    /// A request that contained it had no answer, or one that leaves open whether it is stored.
    pub(crate) is_uncertain: bool,
    /// Held, not read: memory is given back with the batch.
    pub(crate) _reservation: Option<Reservation>,
}

/// The bytes of a batch, or what will become them.
pub(crate) enum Payload {
    /// Records; compressed and checksummed by the driver, outside the lock.
    Building(Box<BatchBuilder>),
    /// The finished bytes, kept for retries.
    Built(Bytes),
}

impl Batch {
    /// Its size in a request; before it is built, an upper bound.
    pub(crate) fn bytes(&self) -> usize {
        match &self.payload {
            Payload::Building(builder) => builder.len_bytes(),
            Payload::Built(bytes) => bytes.len(),
        }
    }

    /// The finished bytes. The first call builds them.
    pub(crate) fn build(&mut self) -> Bytes {
        let bytes = match &mut self.payload {
            Payload::Building(builder) => {
                if let Some(Stamp { identity, base_sequence }) = self.stamp {
                    builder.set_producer(identity.id, identity.epoch, base_sequence);
                }
                Bytes::from_owner(builder.build())
            }
            Payload::Built(bytes) => match self.stamp {
                Some(stamp) if self.built_stamp != Some(stamp) => restamped(bytes, stamp),
                _ => return bytes.clone(),
            },
        };
        self.built_stamp = self.stamp;
        self.payload = Payload::Built(bytes.clone());
        bytes
    }
}

/// The same batch at another place of its producer: what was built before may still be under way in an earlier request.
fn restamped(bytes: &Bytes, stamp: Stamp) -> Bytes {
    let mut copy = AlignedVec::with_capacity(bytes.len());
    copy.extend_from_slice(bytes);
    let mut header = BatchHeader::decode(&copy).expect("it was built here");
    (header.producer_id, header.producer_epoch) = (stamp.identity.id, stamp.identity.epoch);
    header.base_sequence = stamp.base_sequence;
    header.encode(copy.first_chunk_mut().expect("a batch has a header"));
    Bytes::from_owner(copy)
}
