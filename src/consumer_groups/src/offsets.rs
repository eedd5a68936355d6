//! How far a group has come in each partition.
//!
//! Invariants:
//! - What a member commits never goes back: it is refused. An operator moves an offset back, while nobody owns the partition.
//! - Who has no membership, in a group without members, answers for itself: its commits are taken as they come.

use std::collections::{BTreeMap, BTreeSet};

use wire::{CommittedOffset, ErrorCode, PartitionKey, TimestampMs};

/// The committed offsets of one group.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    committed: BTreeMap<PartitionKey, Committed>,
    changed: BTreeSet<PartitionKey>,
}

/// A position and when it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub position: CommittedOffset,
    pub at: TimestampMs,
}

impl Offsets {
    pub(crate) fn get(&self, partition: PartitionKey) -> Option<&Committed> {
        self.committed.get(&partition)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartitionKey, &Committed)> {
        self.committed.iter().map(|(&partition, committed)| (partition, committed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.committed.is_empty()
    }

    /// Whether a member may commit `position` there.
    ///
    /// # Errors
    /// [`ErrorCode::CommitBehind`].
    pub(crate) fn check(&self, partition: PartitionKey, position: &CommittedOffset) -> Result<(), ErrorCode> {
        let is_behind = self.get(partition).is_some_and(|before| position.offset < before.position.offset);
        if is_behind { Err(ErrorCode::CommitBehind) } else { Ok(()) }
    }

    /// Sets the position, whatever it was. A commit of what is committed already is stored again when it is newer by `renewal_ms`, so
    /// that it does not expire while it is in use, and an idle member that commits each second writes nothing.
    pub(crate) fn set(&mut self, now: TimestampMs, partition: PartitionKey, position: CommittedOffset, renewal_ms: u64) {
        if let Some(before) = self.committed.get(&partition)
            && before.position == position
            && now.0.saturating_sub(before.at.0) < renewal_ms as i64
        {
            return;
        }
        self.committed.insert(partition, Committed { position, at: now });
        self.changed.insert(partition);
    }

    /// Forgets the position; true when there was one.
    pub(crate) fn remove(&mut self, partition: PartitionKey) -> bool {
        let was_there = self.committed.remove(&partition).is_some();
        if was_there {
            self.changed.insert(partition);
        }
        was_there
    }

    /// When the last commit was.
    pub(crate) fn last_commit(&self) -> Option<TimestampMs> {
        self.committed.values().map(|committed| committed.at).max()
    }

    /// The partitions whose position has changed since this was last asked for.
    pub(crate) fn take_changes(&mut self) -> BTreeSet<PartitionKey> {
        std::mem::take(&mut self.changed)
    }

    /// Puts back what was stored.
    pub(crate) fn restore(&mut self, partition: PartitionKey, committed: Option<Committed>) {
        match committed {
            Some(committed) => self.committed.insert(partition, committed),
            None => self.committed.remove(&partition),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::Offsets;
    use wire::{CommittedOffset, ErrorCode, Offset, PartitionIndex, PartitionKey, TimestampMs, TopicId};

    fn at(offset: u64) -> CommittedOffset {
        CommittedOffset { offset: Offset(offset), leader_epoch: None, metadata: None }
    }

    #[test]
    fn a_commit_does_not_go_back_and_a_repeated_one_is_not_stored_again() {
        let partition = PartitionKey::new(TopicId([1; 16]), PartitionIndex(0));
        let mut offsets = Offsets::default();
        offsets.set(TimestampMs(0), partition, at(7), 3_600_000);
        assert_eq!(offsets.take_changes().len(), 1);
        assert_eq!(offsets.check(partition, &at(6)), Err(ErrorCode::CommitBehind));
        assert_eq!(offsets.check(partition, &at(7)), Ok(()));
        offsets.set(TimestampMs(1000), partition, at(7), 3_600_000);
        assert!(offsets.take_changes().is_empty());
        offsets.set(TimestampMs(4_000_000), partition, at(7), 3_600_000);
        assert_eq!(offsets.take_changes().len(), 1, "so that it does not expire while it is in use");
        let with_metadata = CommittedOffset { metadata: Some("x".into()), ..at(7) };
        offsets.set(TimestampMs(4_000_001), partition, with_metadata, 3_600_000);
        assert_eq!(offsets.take_changes().len(), 1);
        assert!(offsets.remove(partition) && !offsets.remove(partition));
    }
}
