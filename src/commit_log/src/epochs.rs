//! Where each leader epoch starts in a partition.

use wire::{LeaderEpoch, Offset};

use crate::limits::EPOCHS_PER_PARTITION_MAX;

/// Where an epoch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// First offset appended under it.
    pub start: Offset,
}

/// The epochs of a partition. Invariant: epochs ascend strictly, starts never fall.
///
/// ```text
///  start    0          120          120          400
///           ├─ epoch 3 ─┼─ (4 empty) ─┼─ epoch 7 ─┼─ epoch 8 …
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Epochs {
    starts: Vec<EpochStart>,
}

impl Epochs {
    /// From stored entries; `None` if they break the invariant.
    pub fn from_entries(starts: Vec<EpochStart>) -> Option<Self> {
        let ascending = starts.windows(2).all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start <= pair[1].start);
        (ascending && starts.len() <= EPOCHS_PER_PARTITION_MAX as usize).then_some(Self { starts })
    }

    /// Notes that `epoch` starts at `start`. Nothing changes when it is the latest already, or an older one (a replayed record).
    pub fn begin(&mut self, epoch: LeaderEpoch, start: Offset) {
        if let Some(last) = self.starts.last() {
            if epoch <= last.epoch {
                return;
            }
            assert!(start >= last.start, "an epoch starts at or after the one before");
        }
        if self.starts.len() == EPOCHS_PER_PARTITION_MAX as usize {
            self.starts.remove(0);
        }
        self.starts.push(EpochStart { epoch, start });
    }

    /// Forgets the epochs that start at `end` or after: they have no batch left. An epoch whose batches were all cut goes too.
    pub fn truncate(&mut self, end: Offset) {
        let kept = self.starts.partition_point(|entry| entry.start < end);
        self.starts.truncate(kept);
    }

    /// Forgets the epochs that ended at or before `log_start`.
    pub fn trim(&mut self, log_start: Offset) {
        let after = self.starts.partition_point(|entry| entry.start <= log_start);
        // The one that holds `log_start` stays.
        self.starts.drain(..after.saturating_sub(1));
    }

    /// The latest epoch.
    pub fn latest(&self) -> Option<EpochStart> {
        self.starts.last().copied()
    }

    /// The epoch of `offset`: the last that starts at or before it.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.starts.partition_point(|entry| entry.start <= offset);
        self.starts[..after].last().map(|entry| entry.epoch)
    }

    /// For a follower that asks where `epoch` ended: the latest known epoch that is not greater, and the offset at which the next one starts
    /// (`log_end` for the latest). `None` if all known epochs are greater.
    pub fn end_of(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        let after = self.starts.partition_point(|entry| entry.epoch <= epoch);
        let found = self.starts[..after].last()?;
        let end = self.starts.get(after).map_or(log_end, |next| next.start);
        Some((found.epoch, end))
    }

    /// All entries, ascending.
    pub fn entries(&self) -> &[EpochStart] {
        &self.starts
    }
}
