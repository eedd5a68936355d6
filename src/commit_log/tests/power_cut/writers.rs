//! Idempotent writers: what each of them sent, what it has to send again, and what a log must remember of it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use commit_log::{Produced, Producers};
use wire::{PartitionKey, ProducerEpoch, ProducerId, Sequence};

use crate::oracle::Batch;

/// Batches of one writer in one partition that are not acknowledged.
const IN_FLIGHT_MAX: usize = 5;

/// Batches that a log remembers for sure.
const REMEMBERED_MIN: usize = 5;

/// One writer, as it counts itself.
pub(crate) struct Writer {
    pub(crate) epoch: ProducerEpoch,
    pub(crate) next_sequence: Sequence,
    /// Not acknowledged before a crash, oldest first: sent again before anything else.
    pub(crate) again: VecDeque<(Produced, Rc<[u8]>)>,
}

impl Writer {
    pub(crate) fn new(epoch: i16) -> Self {
        Self { epoch: ProducerEpoch(epoch), next_sequence: Sequence::ZERO, again: VecDeque::new() }
    }

    pub(crate) fn begin_epoch(&mut self) {
        *self = Self::new(self.epoch.0 + 1);
    }
}

/// The writers of one partition.
#[derive(Default)]
pub(crate) struct Writers {
    pub(crate) writers: BTreeMap<ProducerId, Writer>,
    /// The log may have forgotten one, because of a cut or of the bound.
    pub(crate) may_be_forgotten: bool,
    /// More writers than are remembered: also the first batch of an epoch may be taken for a new one when it is sent again.
    pub(crate) are_bounded: bool,
}

impl Writers {
    /// Whether a writer may send one batch more.
    pub(crate) fn has_room(&self, id: ProducerId, batches: &[Batch], acknowledged_end: u64) -> bool {
        let unanswered = batches.iter().filter(|batch| batch.is_by(id) && batch.next > acknowledged_end);
        unanswered.count() < IN_FLIGHT_MAX
    }

    /// Power is back: what was not acknowledged is sent again.
    pub(crate) fn restart(&mut self, batches: &[Batch], acknowledged_end: u64) {
        for (id, writer) in &mut self.writers {
            let unanswered = batches.iter().filter(|batch| batch.is_by(*id) && batch.next > acknowledged_end);
            let first: Vec<_> = unanswered.filter_map(|batch| Some((batch.produced?, batch.bytes.clone()))).collect();
            first.into_iter().rev().for_each(|sent| writer.again.push_front(sent));
        }
    }

    /// After a cut to what `batches` are, writers go on behind what is left of them.
    pub(crate) fn cut(&mut self, batches: &[Batch]) {
        self.may_be_forgotten = true;
        for (id, writer) in &mut self.writers {
            match batches.iter().rev().find(|batch| batch.is_by(*id)).and_then(|batch| batch.produced) {
                Some(newest) => {
                    *writer = Writer { epoch: newest.epoch, next_sequence: newest.next_sequence(), again: VecDeque::new() };
                }
                None => writer.begin_epoch(),
            }
        }
    }

    /// What the log remembers is what `batches`, all that it holds, imply.
    pub(crate) fn check(&self, key: PartitionKey, batches: &[Batch], found: &Producers) {
        let mut rows: BTreeMap<ProducerId, Vec<(Produced, u64)>> = BTreeMap::new();
        for (produced, base) in batches.iter().filter_map(|batch| Some((batch.produced?, batch.base))) {
            let row = rows.entry(produced.id).or_default();
            let follows = row
                .last()
                .is_some_and(|(last, _)| (last.epoch, last.next_sequence()) == (produced.epoch, produced.base_sequence));
            if !follows {
                row.clear();
            }
            row.push((produced, base));
        }
        for known in found.known() {
            let row = rows.get(&known.id()).unwrap_or_else(|| panic!("{key:?}: producer {} came from nowhere", known.id()));
            let count = known.batches().len();
            let story = format!("{key:?}: producer {known:?} is remembered; the log holds {row:?}");
            assert!(count <= row.len(), "{story}");
            assert!(self.may_be_forgotten || count >= row.len().min(REMEMBERED_MIN), "{story}");
            for (known_batch, (produced, base)) in known.batches().zip(&row[row.len() - count..]) {
                let place = (known_batch.base_sequence, known_batch.length, known_batch.base_offset.0);
                assert_eq!(place, (produced.base_sequence, produced.length, *base), "{story}");
                assert_eq!(known.epoch(), produced.epoch, "{story}");
            }
            rows.remove(&known.id());
        }
        assert!(self.may_be_forgotten || rows.is_empty(), "{key:?}: forgotten: {:?}", rows.keys());
    }
}
