//! The batches that stand for the batches of a part of the log. Pure.
//!
//! ```text
//!   before   │ a │ b │ c │ d │ e │ f │        each stays, becomes smaller, or goes
//!   after    │ a │ (b c) │ d'│(e)│ f'│        what went is an empty batch, so that offsets stand without a hole
//! ```
//!
//! So whatever walks batches (readers, recovery, the index, the check at rest) sees a log like any other. Neighbours that went become one empty
//! batch while they are of one epoch: where epochs begin can still be read from the batches.

use wire::batch::{BatchHeader, empty_batch};
use wire::limits::OFFSET_DELTA_MAX;
use wire::{AlignedVec, LeaderEpoch, Offset};

/// Batches that went, and that no empty batch stands for yet.
#[derive(Debug, Clone, Copy)]
struct Gap {
    base: Offset,
    last: Offset,
    epoch: LeaderEpoch,
}

impl Gap {
    fn takes(&self, header: &BatchHeader) -> bool {
        self.epoch == header.leader_epoch && header.last_offset().0 - self.base.0 <= u64::from(OFFSET_DELTA_MAX)
    }
}

/// Puts empty batches where batches went.
#[derive(Debug)]
pub(crate) struct Rewriter {
    gap: Option<Gap>,
    next: Offset,
}

impl Rewriter {
    /// Of a part of the log that begins at `base`.
    pub(crate) fn new(base: Offset) -> Self {
        Self { gap: None, next: base }
    }

    /// The next batch goes. Returns the empty batch for others before it, if one has to be written now.
    pub(crate) fn goes(&mut self, header: &BatchHeader) -> Option<AlignedVec> {
        self.take(header);
        match &mut self.gap {
            Some(gap) if gap.takes(header) => {
                gap.last = header.last_offset();
                None
            }
            _ => {
                let before = self.close();
                let (base, last) = (header.base_offset, header.last_offset());
                self.gap = Some(Gap { base, last, epoch: header.leader_epoch });
                before
            }
        }
    }

    /// The next batch stays, or what is left of it. Returns the empty batch that has to be written before it.
    pub(crate) fn stays(&mut self, header: &BatchHeader) -> Option<AlignedVec> {
        self.take(header);
        self.close()
    }

    /// The empty batch for those that went last, if one has to be written at the end of the part.
    pub(crate) fn close(&mut self) -> Option<AlignedVec> {
        self.gap.take().map(|gap| empty_batch(gap.base, gap.last, gap.epoch))
    }

    fn take(&mut self, header: &BatchHeader) {
        assert_eq!(header.base_offset, self.next, "batches stand without a hole");
        self.next = header.next_offset();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::TimestampMs;
    use wire::batch::{BatchBuilder, BatchView, BuilderOptions};

    use super::*;

    fn header(base: u64, last_offset_delta: u32, epoch: u32) -> BatchHeader {
        let mut builder = BatchBuilder::new(BuilderOptions::default());
        builder.push(TimestampMs(1), Some(b"key"), None, &[]).unwrap();
        let mut header = BatchHeader::decode(&builder.build()).unwrap();
        header.stamp(Offset(base), LeaderEpoch(epoch), None);
        BatchHeader { last_offset_delta, ..header }
    }

    proptest! {
        #[test]
        fn offsets_and_epochs_stand_as_before(batches in prop::collection::vec((any::<bool>(), 0u32..5, 0u32..3), 1..60)) {
            let mut rewriter = Rewriter::new(Offset(7));
            let (mut next, mut epoch) = (7, 1);
            let mut before = Vec::new();
            let mut after = Vec::new();
            for (stays, length, step) in batches {
                epoch += step / 2;
                let header = header(next, length, epoch);
                next += u64::from(length) + 1;
                before.push(header);
                let empty = if stays { rewriter.stays(&header) } else { rewriter.goes(&header) };
                after.extend(empty.map(|bytes| *BatchView::new(&bytes).unwrap().header()));
                after.extend(stays.then_some(header));
            }
            after.extend(rewriter.close().map(|bytes| *BatchView::new(&bytes).unwrap().header()));
            let mut due = 7;
            for header in &after {
                prop_assert_eq!(header.base_offset.0, due);
                due = header.next_offset().0;
                let epochs = |batches: &[BatchHeader]| {
                    let held = batches.iter().filter(|other| other.base_offset < header.next_offset() && header.base_offset < other.next_offset());
                    held.map(|other| other.leader_epoch).collect::<std::collections::BTreeSet<_>>()
                };
                prop_assert_eq!(epochs(&before), [header.leader_epoch].into());
            }
            prop_assert_eq!(due, next);
            prop_assert_eq!(rewriter.next, Offset(next));
        }
    }

    #[test]
    fn one_empty_batch_takes_as_many_offsets_as_it_may() {
        let mut rewriter = Rewriter::new(Offset(0));
        assert!(rewriter.goes(&header(0, OFFSET_DELTA_MAX - 1, 1)).is_none());
        assert!(rewriter.goes(&header(u64::from(OFFSET_DELTA_MAX), 0, 1)).is_none());
        let first = rewriter.goes(&header(u64::from(OFFSET_DELTA_MAX) + 1, 0, 1)).unwrap();
        assert_eq!(BatchHeader::decode(&first).unwrap().last_offset_delta, OFFSET_DELTA_MAX);
        let second = rewriter.close().unwrap();
        assert_eq!(BatchHeader::decode(&second).unwrap().base_offset, Offset(u64::from(OFFSET_DELTA_MAX) + 1));
    }
}
