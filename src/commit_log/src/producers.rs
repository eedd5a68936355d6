//! What the idempotent producers of a partition appended last: so that a batch sent again is stored once, and none is left out.
//!
//! ```text
//!   producer 7, epoch 2, sequences:   … │ 40..44 │ 45..45 │ 46..52 │ next: 53
//!                                  first offset 900      910      911
//!
//!   53..60  follows             appended
//!   46..52  is known            the answer it had, when that is durable: offsets 911..917
//!   60..61  leaves a gap        refused: out of order
//!   epoch 1                     refused: a later instance of the producer has appended
//!   producer 8                  from sequence 0 on it begins; from another one it is unknown here
//! ```
//!
//! Invariants:
//! - The decision and the change of state are one step with the order of the log: [`Producers::judge`] and [`Producers::appended`] have no await
//!   between them.
//! - The batches remembered of a producer are its newest in the log, of one epoch, without a gap in their sequences.
//! - What is forgotten (idle for long, above a bound, cut) makes a later append fail as unknown. It never makes a duplicate look new, but for the very
//!   first batch of an epoch: a producer that starts at sequence 0 is believed.
//!
//! A truncation takes back what stood at and above the cut. Since a producer has at most [`PRODUCER_BATCHES`] batches in flight and twice as many are
//! kept, the cut of everything that nobody was promised leaves those that a retry may name. When all that was kept is cut, the producer is forgotten.
//!
//! Idle time counts from the broker's clock at the append; for batches that only recovery has seen, from the recovery. Timestamps of records
//! do not matter. Checkpoints store the state; recovery adds what the log and the segments hold beyond it ([`Seen`]).

mod producer;
mod seen;
#[cfg(test)]
mod tests;

use wire::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence};

pub use producer::{Producer, ProducerBatch};
pub(crate) use seen::Recovering;
pub use seen::Seen;

use crate::limits::PRODUCER_BATCHES_KEPT;

#[cfg(doc)]
use crate::limits::PRODUCER_BATCHES;

/// What a batch says of its producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// The producer.
    pub id: ProducerId,
    /// Its instance.
    pub epoch: ProducerEpoch,
    /// Sequence of the batch's first record.
    pub base_sequence: Sequence,
    /// Sequences that it takes, at least one: as many as offsets.
    pub length: u32,
}

impl Produced {
    /// `None` for a batch without a producer.
    pub fn of(header: &BatchHeader) -> Option<Self> {
        // Not the count of records: a compacted batch keeps the sequences of those it has lost.
        let length = header.last_offset_delta + 1;
        let (id, epoch, base_sequence) = (header.producer_id, header.producer_epoch, header.base_sequence);
        (id != ProducerId::NONE).then_some(Self { id, epoch, base_sequence, length })
    }

    /// The sequence of the batch that follows.
    pub fn next_sequence(self) -> Sequence {
        self.base_sequence.plus(self.length)
    }
}

/// The reverse of [`Sequence::plus`].
fn sequence_before(sequence: Sequence, count: u32) -> Sequence {
    Sequence((sequence.0.cast_unsigned().wrapping_sub(count) & i32::MAX.cast_unsigned()).cast_signed())
}

/// What is to be done with the batches of one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They follow: append them.
    New(Place),
    /// They are in the log, at these offsets.
    Duplicate {
        /// Of the first record.
        base_offset: Offset,
        /// Of the last.
        last_offset: Offset,
    },
}

/// Where a producer is, or is to be, among those of its partition. Good until the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(Result<usize, usize>);

/// Why batches of an idempotent producer are not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// Batches before them are missing, or they are older than what is remembered.
    #[error("producer {producer_id} sends sequence {found}, and {expected} is due")]
    OutOfOrder {
        /// The producer.
        producer_id: ProducerId,
        /// Sequence of the first record of the batch.
        found: Sequence,
        /// Sequence that would follow.
        expected: Sequence,
    },
    /// A later instance of the producer has appended.
    #[error("producer {producer_id} sends with epoch {found}; its epoch is {current}")]
    Fenced {
        /// The producer.
        producer_id: ProducerId,
        /// Epoch of the batch.
        found: ProducerEpoch,
        /// The latest known.
        current: ProducerEpoch,
    },
    /// Nothing is known of the producer, or of this epoch of it, and the batch is not its first.
    #[error("producer {producer_id}, epoch {epoch}, is not known here, and its batch begins at sequence {found}")]
    Unknown {
        /// The producer.
        producer_id: ProducerId,
        /// Epoch of the batch.
        epoch: ProducerEpoch,
        /// Sequence of the first record of the batch.
        found: Sequence,
    },
    /// The first of several batches are in the log and the others are not, or they do not stand together. Each by itself can be judged.
    #[error("some of these batches of producer {producer_id} are stored already: they must be sent one by one")]
    PartlyStored {
        /// The producer.
        producer_id: ProducerId,
    },
    /// Batches of one append are of several producers.
    #[error("the batches are of several producers: they must be sent one by one")]
    Mixed,
    /// Negative where it must not be.
    #[error("producer {producer_id} with epoch {epoch} and sequence {base_sequence}: none may be negative")]
    Invalid {
        /// The producer.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// The sequence.
        base_sequence: Sequence,
    },
}

/// The producers of one partition. Without any it has nothing on the heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Producers {
    /// Ascending by id.
    known: Vec<Producer>,
}

impl Producers {
    /// From stored ones; `None` if they do not ascend.
    pub fn from_known(known: Vec<Producer>) -> Option<Self> {
        known.windows(2).all(|pair| pair[0].id() < pair[1].id()).then_some(Self { known })
    }

    /// All of them, ascending by id.
    pub fn known(&self) -> &[Producer] {
        &self.known
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Decides on the batches of one append, in order. A producer that has not appended since `idle_before_ms` is not known any more.
    ///
    /// # Errors
    /// Why they cannot be appended.
    ///
    /// # Panics
    /// Without any batch.
    pub(crate) fn judge(
        &self,
        batches: impl Iterator<Item = Option<Produced>> + Clone,
        idle_before_ms: i64,
    ) -> Result<Verdict, ProducerError> {
        let first = check_together(batches.clone())?;
        let found = self.known.binary_search_by_key(&first.id, Producer::id);
        let known = found.ok().map(|at| &self.known[at]).filter(|known| known.last_append_ms() >= idle_before_ms);
        let (producer_id, epoch, sequence) = (first.id, first.epoch, first.base_sequence);
        let fits = match known {
            Some(known) if known.epoch() > epoch => {
                return Err(ProducerError::Fenced { producer_id, found: epoch, current: known.epoch() });
            }
            Some(known) if known.epoch() == epoch => {
                if let Some(at) = known.position(first) {
                    return duplicate(known, at, batches.flatten());
                }
                let expected = known.next_sequence();
                if sequence != expected {
                    return Err(ProducerError::OutOfOrder { producer_id, found: sequence, expected });
                }
                true
            }
            _ => sequence == Sequence::ZERO,
        };
        if fits { Ok(Verdict::New(Place(found))) } else { Err(ProducerError::Unknown { producer_id, epoch, found: sequence }) }
    }

    /// Notes batches of one producer that were judged new and have their offsets now. A new producer takes the place of those whose last append is
    /// the longest ago, in the order of the log, while there are `producers_max`.
    pub(crate) fn appended(
        &mut self,
        place: Place,
        batches: impl Iterator<Item = (Produced, Offset)>,
        now_ms: i64,
        producers_max: usize,
    ) {
        let mut at = place.0;
        for (produced, base_offset) in batches {
            let index = match at {
                Ok(index) => {
                    self.known[index].push(produced, base_offset, now_ms);
                    index
                }
                Err(_) => self.insert(Producer::new(produced, base_offset, now_ms), producers_max),
            };
            at = Ok(index);
        }
    }

    fn insert(&mut self, producer: Producer, producers_max: usize) -> usize {
        self.keep_latest(producers_max.saturating_sub(1));
        let index = self.known.partition_point(|known| known.id() < producer.id());
        if self.known.len() == self.known.capacity() && self.known.len() < 4 {
            // Most partitions have one or two.
            self.known.reserve_exact(1);
        }
        self.known.insert(index, producer);
        index
    }

    /// Forgets all but those that appended last.
    pub(crate) fn keep_latest(&mut self, producers_max: usize) {
        while self.known.len() > producers_max {
            let oldest = self.known.iter().enumerate().min_by_key(|(_, known)| known.newest_offset());
            let (index, _) = oldest.expect("there are more than the bound");
            self.known.remove(index);
        }
    }

    /// Forgets those that have not appended since.
    pub(crate) fn forget_idle(&mut self, idle_before_ms: i64) {
        self.known.retain(|known| known.last_append_ms() >= idle_before_ms);
        if self.known.is_empty() {
            self.known = Vec::new();
        }
    }

    /// Takes back what stands at and above `to`. Gives the producers of which nothing is left.
    pub(crate) fn truncate(&mut self, to: Offset) -> Vec<ProducerId> {
        let mut forgotten = Vec::new();
        self.known.retain_mut(|known| {
            let is_left = known.truncate(to);
            if !is_left {
                forgotten.push(known.id());
            }
            is_left
        });
        forgotten
    }

    fn remove(&mut self, id: ProducerId) {
        if let Ok(at) = self.known.binary_search_by_key(&id, Producer::id) {
            self.known.remove(at);
        }
    }

    /// A copy without what stands at and above `end`.
    pub(crate) fn below(&self, end: Offset) -> Self {
        let mut copy = self.clone();
        copy.truncate(end);
        copy
    }
}

/// Whether the batches of one append are of one producer and follow each other; gives the first.
fn check_together(mut batches: impl Iterator<Item = Option<Produced>>) -> Result<Produced, ProducerError> {
    let first = batches.next().expect("an append is of at least one batch").ok_or(ProducerError::Mixed)?;
    let Produced { id: producer_id, epoch, base_sequence, .. } = first;
    if producer_id.0 < 0 || epoch.0 < 0 || base_sequence.0 < 0 {
        return Err(ProducerError::Invalid { producer_id, epoch, base_sequence });
    }
    let mut expected = first.next_sequence();
    for batch in batches {
        let same = batch.filter(|batch| (batch.id, batch.epoch) == (producer_id, epoch)).ok_or(ProducerError::Mixed)?;
        if same.base_sequence != expected {
            return Err(ProducerError::OutOfOrder { producer_id, found: same.base_sequence, expected });
        }
        expected = same.next_sequence();
    }
    Ok(first)
}

/// The first of `batches` is the one at `at`: whether all are known, back to back.
fn duplicate(known: &Producer, at: usize, batches: impl Iterator<Item = Produced>) -> Result<Verdict, ProducerError> {
    let mut stored = known.batches().skip(at);
    let mut range: Option<(Offset, Offset)> = None;
    for batch in batches {
        let found =
            stored.next().filter(|found| found.is(batch)).filter(|found| range.is_none_or(|(_, end)| found.base_offset == end));
        let Some(found) = found else { return Err(ProducerError::PartlyStored { producer_id: known.id() }) };
        let start = range.map_or(found.base_offset, |(start, _)| start);
        range = Some((start, found.next_offset()));
    }
    let (base_offset, end) = range.expect("an append is of at least one batch");
    Ok(Verdict::Duplicate { base_offset, last_offset: Offset(end.0 - 1) })
}

const _: () = assert!(
    size_of::<Producer>() <= 32 + 12 * PRODUCER_BATCHES_KEPT,
    "what one producer costs in each partition that it appends to"
);
