//! One group: its members, its offsets, what it tries again, and its settings.

use std::collections::BTreeSet;

use wire::{GroupState, PartitionKey, TimestampMs, TopicId};

use crate::ids::{GroupId, MemberId};
use crate::limits::START_GRACE_MS;
use crate::membership::Membership;
use crate::now::Now;
use crate::offsets::Offsets;
use crate::outcome::Outcome;
use crate::retry::{GroupRetries, RetryEntry, RetryLimits, RetryOutcome};
use crate::state::{GroupValue, RetentionValue, StateError, StateKey, StatePart, StateRecord, StateValue};

/// The state of one group.
#[derive(Debug)]
pub(crate) struct Group {
    pub membership: Membership,
    pub offsets: Offsets,
    pub retries: GroupRetries,
    /// What the retries want of this event, until it is finished.
    pub retried: RetryOutcome,
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
    /// A group of which nothing is known.
    pub(crate) fn new(id: GroupId, limits: RetryLimits) -> Group {
        Group {
            membership: Membership::default(),
            offsets: Offsets::default(),
            retries: GroupRetries::new(id, limits),
            retried: RetryOutcome::default(),
            offsets_retention: RetentionValue::Default,
            empty_since: None,
            is_changed: false,
            is_stored: false,
            wake_at_ms: None,
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        match &self.membership {
            membership if membership.is_empty() => GroupState::Empty,
            membership if membership.is_stable() => GroupState::Stable,
            _ => GroupState::Reconciling,
        }
    }

    /// Nothing would be lost with it.
    pub(crate) fn is_nothing(&self) -> bool {
        self.membership.is_empty() && self.has_no_positions() && !self.has_settings()
    }

    /// An operator has set something of it.
    pub(crate) fn has_settings(&self) -> bool {
        self.offsets_retention != RetentionValue::Default || self.retries.has_policies()
    }

    /// It has come nowhere, and tries nothing again.
    fn has_no_positions(&self) -> bool {
        self.offsets.is_empty() && self.retries.partitions().next().is_none()
    }

    /// Forgets how far it has come.
    pub(crate) fn forget_positions(&mut self) {
        for partition in self.partitions() {
            self.offsets.remove(partition);
            self.retries.forget(partition, &mut self.retried);
        }
    }

    /// Every partition of which it knows something.
    pub(crate) fn partitions(&self) -> BTreeSet<PartitionKey> {
        let committed = self.offsets.iter().map(|(partition, _)| partition);
        committed.chain(self.membership.held()).chain(self.retries.partitions()).collect()
    }

    /// Forgets what it knows of a topic that is gone; true when it knew something.
    pub(crate) fn drop_topic(&mut self, topic: TopicId) -> bool {
        let of_topic = self.offsets.iter().map(|(partition, _)| partition).filter(|partition| partition.topic == topic);
        let of_topic: Vec<PartitionKey> = of_topic.collect();
        of_topic.iter().for_each(|&partition| _ = self.offsets.remove(partition));
        let retried: Vec<PartitionKey> = self.retries.partitions().filter(|partition| partition.topic == topic).collect();
        retried.iter().for_each(|&partition| self.retries.forget(partition, &mut self.retried));
        !(of_topic.is_empty() && retried.is_empty())
    }

    /// A tombstone of each of its records, the group's own last: what is left of a group that is half gone belongs to it still.
    pub(crate) fn tombstones(&self, id: &GroupId) -> Vec<StateRecord> {
        let tombstone = |part| StateRecord::new(&StateKey { group: id.as_str().to_owned(), part }, None);
        let mut tombstones: Vec<StateRecord> = self.parts_from(None).map(tombstone).collect();
        tombstones.rotate_left(1);
        tombstones
    }

    /// When a poll for retries can be answered, if nothing happens.
    pub(crate) fn next_retry_ms(&self) -> Option<u64> {
        self.retries.next_wake_steady_ms(|member, partition| self.membership.is_owner(member, partition))
    }

    /// Notes since when it has no members.
    pub(crate) fn note_emptiness(&mut self, now: Now) {
        let empty_since = self.membership.is_empty().then(|| self.empty_since.unwrap_or(now.wall));
        if empty_since != self.empty_since {
            self.empty_since = empty_since;
            self.is_changed = true;
        }
    }

    /// When its offsets are forgotten, if nobody comes back. `retention_ms` holds when it has none of its own.
    pub(crate) fn expires_at(&self, retention_ms: u64, loaded_at: TimestampMs) -> Option<TimestampMs> {
        let retention_ms = self.retention_ms(retention_ms)?;
        let last_sign = self.empty_since?.max(self.offsets.last_commit().unwrap_or_default());
        let counts = self.retries.counts();
        if counts.dead_letters_pending > 0 || counts.parked_records > 0 {
            // The first are decided, and will be delivered. The commit has passed the second: without the group nobody sees them again.
            return None;
        }
        if self.has_settings() && self.has_no_positions() {
            return None;
        }
        let at = TimestampMs(last_sign.0.saturating_add(retention_ms as i64));
        Some(at.max(grace_end(loaded_at, retention_ms)))
    }

    pub(crate) fn retention_ms(&self, default_ms: u64) -> Option<u64> {
        match self.offsets_retention {
            RetentionValue::Default => Some(default_ms),
            RetentionValue::Ms(retention_ms) => Some(retention_ms),
            RetentionValue::Forever => None,
        }
    }

    /// Writes what has changed as records: whole values, and tombstones of what is gone.
    pub(crate) fn write_changes(&mut self, id: &GroupId, changes: &crate::membership::Changes, outcome: &mut Outcome) {
        let Outcome { records, memberships, .. } = outcome;
        let is_group_changed = std::mem::take(&mut self.is_changed) || changes.epoch;
        if is_group_changed || !changes.members.is_empty() {
            memberships.push(id.clone());
        }
        if is_group_changed {
            records.push(self.record(id, StatePart::Group));
        }
        records.extend(changes.members.iter().map(|member| self.record(id, StatePart::Member(member.as_str().to_owned()))));
        let offsets = self.offsets.take_changes();
        records.extend(offsets.into_iter().map(|partition| self.record(id, StatePart::Offset(partition))));
        for RetryEntry { key, value } in self.retried.entries.drain(..) {
            let key = StateKey { group: id.as_str().to_owned(), part: StatePart::Retry(key) };
            records.push(StateRecord::new(&key, value.map(StateValue::Retry).as_ref()));
        }
        self.is_stored = true;
    }

    /// The parts that have a value, in order, from `first` on.
    pub(crate) fn parts_from(&self, first: Option<&StatePart>) -> impl Iterator<Item = StatePart> {
        let members = self.membership.members().keys().map(|member| StatePart::Member(member.as_str().to_owned()));
        let offsets = self.offsets.iter().map(|(partition, _)| StatePart::Offset(partition));
        let retries = self.retries.keys().map(StatePart::Retry);
        let first = first.cloned();
        let parts = [StatePart::Group].into_iter().chain(members).chain(offsets).chain(retries);
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
            StatePart::Retry(key) => self.retries.value(key).map(StateValue::Retry),
        };
        StateRecord::new(&StateKey { group: id.as_str().to_owned(), part }, value.as_ref())
    }

    /// What of the replayed state cannot be: later events rely on it.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let is_retention_sound = match self.offsets_retention {
            RetentionValue::Ms(retention_ms) => retention_ms <= wire::limits::OFFSETS_RETENTION_MS_MAX,
            RetentionValue::Default | RetentionValue::Forever => true,
        };
        if is_retention_sound { self.membership.contradiction() } else { Some("a retention beyond its limit") }
    }

    /// Puts back one part as it was stored.
    ///
    /// # Errors
    /// The value is of another kind than the part, or breaks its rules.
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
            (StatePart::Retry(key), None) => self.retries.restore(RetryEntry { key, value: None })?,
            (StatePart::Retry(key), Some(StateValue::Retry(value))) => {
                self.retries.restore(RetryEntry { key, value: Some(value) })?;
            }
            _ => return Err(StateError::Mismatch),
        }
        Ok(())
    }
}

/// Before this nothing expires that is kept so long: nobody could use it while the broker was down.
pub(crate) fn grace_end(loaded_at: TimestampMs, retention_ms: u64) -> TimestampMs {
    TimestampMs(loaded_at.0.saturating_add(retention_ms.min(START_GRACE_MS) as i64))
}
