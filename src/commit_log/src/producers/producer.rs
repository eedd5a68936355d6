//! The newest batches of one producer in one partition.

use wire::{Offset, ProducerEpoch, ProducerId, Sequence};

use super::{Produced, sequence_before};
use crate::limits::PRODUCER_BATCHES_KEPT;

/// One producer: at least one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    id: ProducerId,
    last_append_ms: i64,
    /// Offsets of the first records of its batches, oldest first.
    base_offsets: [u64; PRODUCER_BATCHES_KEPT],
    /// How many offsets, and sequences, each takes.
    lengths: [u32; PRODUCER_BATCHES_KEPT],
    /// Follows the newest batch: with the lengths it gives the sequences of all.
    next_sequence: Sequence,
    epoch: ProducerEpoch,
    count: u8,
    /// The log has, or had, batches of it before these.
    is_trimmed: bool,
}

/// A batch that is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerBatch {
    /// Sequence of its first record.
    pub base_sequence: Sequence,
    /// Sequences, and offsets, that it takes.
    pub length: u32,
    /// Offset of its first record.
    pub base_offset: Offset,
}

impl ProducerBatch {
    /// The offset behind it.
    pub fn next_offset(self) -> Offset {
        Offset(self.base_offset.0 + u64::from(self.length))
    }

    pub(super) fn is(self, produced: Produced) -> bool {
        (self.base_sequence, self.length) == (produced.base_sequence, produced.length)
    }
}

impl Producer {
    /// One whose first batch, as far as is known, this is.
    pub fn new(produced: Produced, base_offset: Offset, now_ms: i64) -> Self {
        let mut new = Self {
            id: produced.id,
            last_append_ms: now_ms,
            base_offsets: [0; PRODUCER_BATCHES_KEPT],
            lengths: [0; PRODUCER_BATCHES_KEPT],
            next_sequence: produced.base_sequence,
            epoch: produced.epoch,
            count: 0,
            is_trimmed: false,
        };
        new.push(produced, base_offset, now_ms);
        new
    }

    /// From stored numbers: `batches` are base offset and length of each, oldest first. `None` when they make no sense.
    pub fn from_stored(
        id: ProducerId,
        epoch: ProducerEpoch,
        next_sequence: Sequence,
        last_append_ms: i64,
        is_trimmed: bool,
        batches: &[(u64, u32)],
    ) -> Option<Self> {
        let is_ascending =
            batches.windows(2).all(|pair| pair[0].0.checked_add(pair[0].1.into()).is_some_and(|end| end <= pair[1].0));
        let is_sound = id.0 >= 0
            && epoch.0 >= 0
            && next_sequence.0 >= 0
            && batches.iter().all(|(base, length)| *base <= i64::MAX as u64 && *length > 0);
        if batches.is_empty() || batches.len() > PRODUCER_BATCHES_KEPT || !is_ascending || !is_sound {
            return None;
        }
        let (mut base_offsets, mut lengths) = ([0; PRODUCER_BATCHES_KEPT], [0; PRODUCER_BATCHES_KEPT]);
        for (at, (base, length)) in batches.iter().enumerate() {
            (base_offsets[at], lengths[at]) = (*base, *length);
        }
        let count = u8::try_from(batches.len()).expect("a handful");
        Some(Self { id, last_append_ms, base_offsets, lengths, next_sequence, epoch, count, is_trimmed })
    }

    /// Its id.
    pub fn id(&self) -> ProducerId {
        self.id
    }

    /// The epoch of its batches.
    pub fn epoch(&self) -> ProducerEpoch {
        self.epoch
    }

    /// The sequence that is due.
    pub fn next_sequence(&self) -> Sequence {
        self.next_sequence
    }

    /// When it appended last, by the broker's clock; when it was recovered, if only recovery has seen that.
    pub fn last_append_ms(&self) -> i64 {
        self.last_append_ms
    }

    /// Whether the log has, or had, batches of it before those that are remembered.
    pub fn is_trimmed(&self) -> bool {
        self.is_trimmed
    }

    /// Its newest batches, oldest first.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = ProducerBatch> + ExactSizeIterator + '_ {
        let count = usize::from(self.count);
        (0..count).map(move |at| {
            let from_here: u32 = self.lengths[at..count].iter().fold(0, |sum, length| sum.wrapping_add(*length));
            ProducerBatch {
                base_sequence: sequence_before(self.next_sequence, from_here),
                length: self.lengths[at],
                base_offset: Offset(self.base_offsets[at]),
            }
        })
    }

    pub(super) fn newest_offset(&self) -> u64 {
        self.base_offsets[usize::from(self.count) - 1]
    }

    /// Which of its batches this is.
    pub(super) fn position(&self, produced: Produced) -> Option<usize> {
        self.batches().position(|batch| batch.is(produced))
    }

    /// The next batch. One that does not follow, because the epoch is a new one or what came between is not known, is the first of a new row.
    pub(super) fn push(&mut self, produced: Produced, base_offset: Offset, now_ms: i64) {
        debug_assert_eq!(produced.id, self.id, "a batch of this producer");
        let follows = (produced.epoch, produced.base_sequence) == (self.epoch, self.next_sequence);
        let mut count = usize::from(self.count);
        if count > 0 {
            assert!(base_offset.0 > self.base_offsets[count - 1], "batches come in the order of the log");
        }
        if !follows {
            self.is_trimmed |= count > 0;
            self.base_offsets[..count].fill(0);
            self.lengths[..count].fill(0);
            count = 0;
        } else if count == PRODUCER_BATCHES_KEPT {
            self.is_trimmed = true;
            self.base_offsets.copy_within(1.., 0);
            self.lengths.copy_within(1.., 0);
            count -= 1;
        }
        self.base_offsets[count] = base_offset.0;
        self.lengths[count] = produced.length;
        self.count = count as u8 + 1;
        self.epoch = produced.epoch;
        self.next_sequence = produced.next_sequence();
        self.last_append_ms = now_ms;
    }

    /// It has batches before those that are remembered.
    pub(super) fn trimmed(&mut self) {
        self.is_trimmed = true;
    }

    /// Takes back what stands at and above `to`; false when nothing is left.
    pub(super) fn truncate(&mut self, to: Offset) -> bool {
        while self.count > 0 && self.newest_offset() >= to.0 {
            let at = usize::from(self.count) - 1;
            self.next_sequence = sequence_before(self.next_sequence, self.lengths[at]);
            (self.base_offsets[at], self.lengths[at]) = (0, 0);
            self.count -= 1;
        }
        self.count > 0
    }
}
