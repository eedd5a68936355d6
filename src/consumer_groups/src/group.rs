//! One group: its members, its offsets, what it tries again, and its settings.

use std::collections::BTreeSet;

use wire::{GroupState, PartitionKey, TimestampMs, TopicId};

use crate::ids::{GroupId, MemberId};
use crate::membership::Membership;
use crate::now::Now;
use crate::offsets::Offsets;
use crate::state::{GroupValue, RetentionValue, StateError, StateKey, StatePart, StateRecord, StateValue};

/// The state of one group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub membership: Membership,
    pub offsets: Offsets,
    pub offsets_retention: RetentionValue,
    /// When its last member went.
    pub empty_since: Option<TimestampMs>,
    /// What is stored of the group itself differs from what it is.
    pub is_changed: bool,
    /// Something of it is stored.
    pub is_stored: bool,
    /// When it is looked at next; not stored.
    pub wake_at_ms: Option<u64>,
}

impl Group {
    pub(crate) fn state(&self) -> GroupState {
        match &self.membership {
            membership if membership.is_empty() => GroupState::Empty,
            membership if membership.is_stable() => GroupState::Stable,
            _ => GroupState::Reconciling,
        }
    }

    /// Nothing would be lost with it.
    pub(crate) fn is_nothing(&self) -> bool {
        self.membership.is_empty() && self.offsets.is_empty() && self.offsets_retention == RetentionValue::Default
    }

    /// Every partition of which it knows something.
    pub(crate) fn partitions(&self) -> BTreeSet<PartitionKey> {
        let committed = self.offsets.iter().map(|(partition, _)| partition);
        committed.chain(self.membership.held()).collect()
    }

    /// Forgets what it knows of a topic that is gone; true when it knew something.
    pub(crate) fn drop_topic(&mut self, topic: TopicId) -> bool {
        let of_topic = self.offsets.iter().map(|(partition, _)| partition).filter(|partition| partition.topic == topic);
        let of_topic: Vec<PartitionKey> = of_topic.collect();
        of_topic.iter().for_each(|&partition| _ = self.offsets.remove(partition));
        !of_topic.is_empty()
    }

    /// A tombstone of each of its records, the group's own last: what is left of a group that is half gone belongs to it still.
    pub(crate) fn tombstones(&self, id: &GroupId) -> Vec<StateRecord> {
        let tombstone = |part| StateRecord::new(&StateKey { group: id.as_str().to_owned(), part }, None);
        let mut tombstones: Vec<StateRecord> = self.parts_from(None).map(tombstone).collect();
        tombstones.rotate_left(1);
        tombstones
    }

    /// Notes since when it has no members.
    pub(crate) fn note_emptiness(&mut self, now: Now) {
        let empty_since = self.membership.is_empty().then(|| self.empty_since.unwrap_or(now.wall));
        if empty_since != self.empty_since {
            self.empty_since = empty_since;
            self.is_changed = true;
        }
    }

    /// When it is forgotten, if nobody comes back. `retention_ms` holds when it has none of its own.
    pub(crate) fn expires_at(&self, retention_ms: u64) -> Option<TimestampMs> {
        let retention_ms = self.retention_ms(retention_ms)?;
        let last_sign = self.empty_since?.max(self.offsets.last_commit().unwrap_or_default());
        Some(TimestampMs(last_sign.0.saturating_add(retention_ms as i64)))
    }

    pub(crate) fn retention_ms(&self, default_ms: u64) -> Option<u64> {
        match self.offsets_retention {
            RetentionValue::Default => Some(default_ms),
            RetentionValue::Ms(retention_ms) => Some(retention_ms),
            RetentionValue::Forever => None,
        }
    }

    /// Writes what has changed as records: whole values, and tombstones of what is gone.
    pub(crate) fn write_changes(&mut self, id: &GroupId, changes: &crate::membership::Changes, records: &mut Vec<StateRecord>) {
        if std::mem::take(&mut self.is_changed) || changes.epoch {
            records.push(self.record(id, StatePart::Group));
        }
        records.extend(changes.members.iter().map(|member| self.record(id, StatePart::Member(member.as_str().to_owned()))));
        let offsets = self.offsets.take_changes();
        records.extend(offsets.into_iter().map(|partition| self.record(id, StatePart::Offset(partition))));
        self.is_stored = true;
    }

    /// The parts that have a value, in order, from `first` on.
    pub(crate) fn parts_from(&self, first: Option<&StatePart>) -> impl Iterator<Item = StatePart> {
        let members = self.membership.members().keys().map(|member| StatePart::Member(member.as_str().to_owned()));
        let offsets = self.offsets.iter().map(|(partition, _)| StatePart::Offset(partition));
        let first = first.cloned();
        let parts = [StatePart::Group].into_iter().chain(members).chain(offsets);
        parts.skip_while(move |part| first.as_ref().is_some_and(|first| part < first))
    }

    /// The record of a part: an upsert, or a tombstone when there is no such part any more.
    pub(crate) fn record(&self, id: &GroupId, part: StatePart) -> StateRecord {
        let value = match &part {
            StatePart::Group => Some(StateValue::Group(GroupValue {
                epoch: self.membership.epoch(),
                empty_since: self.empty_since,
                offsets_retention: self.offsets_retention,
            })),
            StatePart::Member(member) => {
                self.membership.members().get(member.as_str()).map(|member| StateValue::Member(member.into()))
            }
            StatePart::Offset(partition) => self.offsets.get(*partition).map(|committed| StateValue::Offset(committed.into())),
        };
        StateRecord::new(&StateKey { group: id.as_str().to_owned(), part }, value.as_ref())
    }

    /// Puts back one part as it was stored.
    ///
    /// # Errors
    /// The value is of another kind than the part.
    pub(crate) fn restore(&mut self, part: StatePart, value: Option<StateValue>) -> Result<(), StateError> {
        self.is_stored = true;
        match (part, value) {
            (StatePart::Group, Some(StateValue::Group(value))) => {
                self.membership.restore_epoch(value.epoch);
                self.empty_since = value.empty_since;
                self.offsets_retention = value.offsets_retention;
            }
            (StatePart::Member(member), None) => self.membership.restore(MemberId::from(member.as_str()), None),
            (StatePart::Member(member), Some(StateValue::Member(value))) => {
                self.membership.restore(MemberId::from(member.as_str()), Some(value.into()));
            }
            (StatePart::Offset(partition), None) => self.offsets.restore(partition, None),
            (StatePart::Offset(partition), Some(StateValue::Offset(value))) => {
                self.offsets.restore(partition, Some(value.into()));
            }
            _ => return Err(StateError::Mismatch),
        }
        Ok(())
    }
}
