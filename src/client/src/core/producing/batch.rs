//! A closed batch on its way.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use wire::BatchBuilder;

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
        if let Payload::Building(builder) = &mut self.payload {
            self.payload = Payload::Built(Bytes::from_owner(builder.build()));
        }
        match &self.payload {
            Payload::Built(bytes) => bytes.clone(),
            Payload::Building(_) => unreachable!("it was just built"),
        }
    }
}
