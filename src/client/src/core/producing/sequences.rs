//! The numbers by which a broker recognises what is sent again: one row for each partition.
//!
//! ```text
//!   live    batches take the next sequences as they are sent; the oldest few are under way, and go out again with the numbers that they have
//!     │ a batch that had a sequence has failed for good, perhaps stored
//!     ▼
//!   broken  nothing new gets a sequence. What is under way goes on: it follows if the failed one is stored
//!     │ the broker says that it does not follow
//!     ▼
//!   dead    nothing of this epoch can be stored any more, but copies on their way. What a broker has refused each time it was sent is numbered
//!     │     anew; of the rest nobody knows, and it fails
//!     │ nothing is under way
//!     ▼
//!   live    the next epoch, from sequence 0
//! ```
//!
//! A producer without a name counts the epochs of each partition by itself, since nobody else has its id.

use std::collections::BTreeSet;

use wire::limits::PRODUCER_BATCHES_IN_FLIGHT_MAX;
use wire::{ProducerEpoch, ProducerIdentity, Sequence};

/// What a batch says of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) identity: ProducerIdentity,
    pub(crate) base_sequence: Sequence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Live,
    Broken,
    Dead,
}

/// The sequences of one partition.
#[derive(Debug)]
pub(super) struct Sequences {
    /// Before the first batch: none.
    identity: Option<ProducerIdentity>,
    next: Sequence,
    row: Row,
    /// Numbers of the batches that have a sequence and no outcome.
    under_way: BTreeSet<u64>,
}

/// What a refusal of the broker for a batch that does not follow, or whose producer it does not know, means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// An older batch has no outcome yet: in its order it will follow.
    TooEarly,
    /// It is not stored, and gets a sequence of the next epoch.
    Again,
    /// It must be told to the caller: what was stored before it is gone, or it may be stored itself.
    Fatal,
}

impl Sequences {
    pub(super) fn new() -> Self {
        Self { identity: None, next: Sequence::ZERO, row: Row::Live, under_way: BTreeSet::new() }
    }

    /// Whether one more batch may get a sequence.
    pub(super) fn has_room(&self) -> bool {
        match self.row {
            Row::Live => self.under_way.len() < PRODUCER_BATCHES_IN_FLIGHT_MAX,
            Row::Broken | Row::Dead => self.under_way.is_empty(),
        }
    }

    /// Gives batch `number` of so many records its sequence; `producer` is the identity of the whole producer. `None`: the epochs are used up, and the
    /// producer needs another id.
    pub(super) fn stamp(&mut self, number: u64, records: u32, producer: ProducerIdentity) -> Option<Stamp> {
        assert!(self.has_room(), "the caller has asked");
        let mut identity = self.identity.filter(|identity| identity.id == producer.id).unwrap_or(producer);
        if self.identity != Some(identity) || self.row != Row::Live {
            if self.identity == Some(identity) {
                // The greatest is the broker's own.
                let next = identity.epoch.0.checked_add(1).filter(|next| *next < i16::MAX)?;
                identity.epoch = ProducerEpoch(next);
            }
            (self.identity, self.next, self.row) = (Some(identity), Sequence::ZERO, Row::Live);
        }
        let base_sequence = self.next;
        self.next = base_sequence.plus(records);
        self.under_way.insert(number);
        Some(Stamp { identity, base_sequence })
    }

    /// Whether the next batch to get a sequence begins another epoch than the first.
    pub(super) fn needs_epoch(&self) -> bool {
        self.row != Row::Live
    }

    /// Batch `number` is stored.
    pub(super) fn stored(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// Batch `number`, which had a sequence, failed for good.
    pub(super) fn failed(&mut self, number: u64) {
        self.under_way.remove(&number);
        if self.row == Row::Live {
            self.row = Row::Broken;
        }
    }

    /// The sequence of batch `number` is taken back: it will get another.
    pub(super) fn taken_back(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// Nothing of the epoch can be stored any more.
    pub(super) fn is_dead(&self) -> bool {
        self.row == Row::Dead
    }

    /// The broker has refused batch `number` as one that does not follow, or (`is_unknown`) because it knows nothing of the producer. `is_certain`:
    /// each time it was sent, the broker has answered that it did not take it. `may_lose`: what is acknowledged here may be lost, which explains a gap.
    pub(super) fn refused(&mut self, number: u64, is_unknown: bool, is_certain: bool, may_lose: bool) -> Meaning {
        let is_oldest = self.under_way.first() == Some(&number);
        if !is_oldest && self.row != Row::Dead {
            return Meaning::TooEarly;
        }
        let was_live = self.row == Row::Live;
        self.row = Row::Dead;
        // In a live row everything before it was acknowledged: when the broker expects something else, that is gone.
        let is_explained = !was_live || is_unknown;
        if may_lose || (is_explained && is_certain) { Meaning::Again } else { Meaning::Fatal }
    }
}

#[cfg(test)]
mod tests {
    use wire::ProducerId;

    use super::*;

    const PRODUCER: ProducerIdentity = ProducerIdentity { id: ProducerId(9), epoch: ProducerEpoch(0) };

    fn stamped(sequences: &mut Sequences, number: u64, records: u32) -> (i16, i32) {
        let stamp = sequences.stamp(number, records, PRODUCER).unwrap();
        (stamp.identity.epoch.0, stamp.base_sequence.0)
    }

    #[test]
    fn as_many_are_under_way_as_a_broker_recognises() {
        let mut sequences = Sequences::new();
        for number in 0..PRODUCER_BATCHES_IN_FLIGHT_MAX as u64 {
            assert!(sequences.has_room());
            assert_eq!(stamped(&mut sequences, number, 3), (0, 3 * number as i32));
        }
        assert!(!sequences.has_room());
        sequences.stored(0);
        assert!(sequences.has_room());
    }

    #[test]
    fn behind_a_failed_batch_the_next_epoch_begins_when_nothing_is_under_way() {
        let mut sequences = Sequences::new();
        for number in 0..3 {
            assert_eq!(stamped(&mut sequences, number, 1), (0, number as i32));
        }
        sequences.failed(0);
        assert!(!sequences.has_room());
        assert_eq!(sequences.refused(2, false, true, false), Meaning::TooEarly);
        assert_eq!(sequences.refused(1, false, true, false), Meaning::Again);
        sequences.taken_back(1);
        assert!(!sequences.has_room(), "the third is under way yet");
        assert_eq!(sequences.refused(2, false, false, false), Meaning::Fatal, "a copy of it may be on its way");
        sequences.failed(2);
        assert_eq!(stamped(&mut sequences, 1, 1), (1, 0));
    }

    #[test]
    fn a_gap_that_nothing_explains_is_fatal_and_a_producer_that_was_forgotten_goes_on() {
        let mut sequences = Sequences::new();
        assert_eq!(stamped(&mut sequences, 0, 1), (0, 0));
        sequences.stored(0);
        assert_eq!(stamped(&mut sequences, 1, 1), (0, 1));
        assert_eq!(sequences.refused(1, false, true, false), Meaning::Fatal);
        sequences.failed(1);
        assert_eq!(stamped(&mut sequences, 2, 1), (1, 0));
        sequences.stored(2);
        assert_eq!(stamped(&mut sequences, 3, 1), (1, 1));
        assert_eq!(sequences.refused(3, true, true, false), Meaning::Again);
        sequences.taken_back(3);
        assert_eq!(stamped(&mut sequences, 3, 1), (2, 0));
        assert_eq!(sequences.refused(3, true, false, false), Meaning::Fatal);
        sequences.failed(3);
        assert_eq!(stamped(&mut sequences, 4, 1), (3, 0));
        assert_eq!(sequences.refused(4, false, false, true), Meaning::Again, "a relaxed topic has lost its end");
    }

    #[test]
    fn used_up_epochs_need_another_id() {
        let mut sequences = Sequences::new();
        let last = ProducerIdentity { epoch: ProducerEpoch(i16::MAX - 1), ..PRODUCER };
        assert!(sequences.stamp(0, 1, last).is_some());
        sequences.failed(0);
        assert_eq!(sequences.stamp(1, 1, last), None);
        let other = ProducerIdentity { id: ProducerId(10), epoch: ProducerEpoch(0) };
        assert_eq!(sequences.stamp(1, 1, other), Some(Stamp { identity: other, base_sequence: Sequence::ZERO }));
    }
}
