//! What failed and is tried again, in the order of each key: parked keys, due times, dead letters.
//!
//! ```text
//!   failed(offset, key) ──► parked[key]: head, attempts, due ── queue: later records of the key, held back
//!                              │ due: leased to the member that owns the partition
//!                              ├─ done ─────────────► the next of the queue is due at once; none: the key flows again
//!                              ├─ failed again ─────► due later, by the policy's pause
//!                              └─ attempts used up ─► dead letter (intent, append, done) │ skip │ stop the partition
//! ```
//!
//! Invariants:
//! - A commit never passes a record that is neither handled, nor parked, nor held back: where there is no room, it ends.
//! - Of a key only the head is given away, to one member at a time, and only while that member owns the partition.
//! - What is said twice counts once: reports name the attempt, answers tell how things stand.
//! - What was settled beyond the commit is remembered until the commit has passed it, so that who begins there does not handle it again.
//! - Whatever is remembered of a partition has a named bound ([`limits`], `SETTLE_WINDOW_OFFSETS`).
//! - The state is entries, each an upsert of a whole value or a tombstone; entries of one event are appended together.
//!
//! Absent on purpose: membership. The caller asks on behalf of a member only about partitions that it owns.

mod backoff;
mod dead_letters;
mod entry;
pub mod limits;
mod partition;
mod policies;
mod polls;
mod queue;
mod settled;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use wire::{DueRecord, Offset, PartitionKey, RetryPolicy, SettlePartition};

pub use self::dead_letters::{DeadLetter, RetryAction, RetryEvent};
pub use self::entry::{
    DeadLetterProducer, DeadLetterValue, ExhaustedValue, LaneValue, ParkedValue, RetryEntry, RetryKey, RetryPart, RetryValue,
    SettledBits,
};
pub use self::limits::RetryLimits;
pub use self::partition::{NoPositionError, SettledRecords};
pub use self::policies::TooManyPoliciesError;
pub use self::polls::RetryPoll;
pub use self::view::{RetryDescription, RetryView};

use self::dead_letters::Origin;
use self::entry::Changes;
use self::partition::{Lease, PartitionRetries, SettleAt};
use self::policies::Policies;
use self::polls::Polls;
use crate::{GroupId, MemberId, Now};

/// What an event leads to.
#[derive(Debug, Default)]
pub struct RetryOutcome {
    /// Changes of state, to append together and before anything else is done.
    pub entries: Vec<RetryEntry>,
    /// What to do once they are durable.
    pub actions: Vec<RetryAction>,
    /// Polls to answer once they are durable.
    pub answers: Vec<RetryAnswer>,
}

/// The answer to a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryAnswer {
    /// See [`RetryPoll::request`].
    pub request: u64,
    /// The records, now leased to the member; none when there were none in time, or nobody listens any more.
    pub records: Vec<DueRecord>,
}

/// Where and when a member settles records.
#[derive(Clone, Copy, Debug)]
pub struct SettleContext<'a> {
    /// The partition; the member owns it.
    pub partition: PartitionKey,
    /// Name of its topic.
    pub topic: &'a str,
    /// Where the group's commit stands.
    pub committed: Option<Offset>,
    /// The time.
    pub now: Now,
    /// Any number; it spreads retries.
    pub random: u64,
}

/// Entries of the log that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryRestoreError {
    /// A value is of another kind than its key, or none that is ever written.
    #[error("group state: the value of {0:?} breaks the rules")]
    Value(RetryKey),
    /// What belongs together is not all there.
    #[error("group state: the retries of partition {0} do not fit together")]
    Incomplete(PartitionKey),
}

/// The retries of one group.
#[derive(Debug)]
pub struct GroupRetries {
    group: GroupId,
    limits: RetryLimits,
    policies: Policies,
    partitions: BTreeMap<PartitionKey, PartitionRetries>,
    polls: Polls,
}

impl GroupRetries {
    /// Those of a group that has none yet.
    pub fn new(group: GroupId, limits: RetryLimits) -> Self {
        GroupRetries { group, limits, policies: Policies::default(), partitions: BTreeMap::new(), polls: Polls::default() }
    }

    /// The policy that holds for a topic.
    pub fn policy(&self, topic: &str) -> &RetryPolicy {
        self.policies.of(topic)
    }

    /// The policy of the group, which holds where a topic has none.
    pub fn group_policy(&self) -> &RetryPolicy {
        self.policies.group()
    }

    /// Topics with a policy of their own, by name.
    pub fn topic_policies(&self) -> impl Iterator<Item = (&str, &RetryPolicy)> {
        self.policies.topics()
    }

    /// Whether a policy was set, of the group or of a topic.
    pub fn has_policies(&self) -> bool {
        self.policies.keys().next().is_some()
    }

    /// Sets the policy of the group or of a topic, or removes it. Records that are parked follow it from their next failure on.
    ///
    /// # Errors
    /// There are as many topics with a policy as may be.
    pub fn set_policy(
        &mut self,
        topic: Option<&str>,
        policy: Option<RetryPolicy>,
        out: &mut RetryOutcome,
    ) -> Result<(), TooManyPoliciesError> {
        self.policies.set(topic, policy)?;
        let key = RetryKey::Policy(topic.map(str::to_owned));
        out.entries.push(RetryEntry { value: self.value(&key), key });
        Ok(())
    }

    /// Settles records of one partition: what is parked changes and the commit may move, both or neither.
    ///
    /// # Errors
    /// Records are to be parked and there is no committed offset; nothing is changed then.
    pub fn settle(
        &mut self,
        context: SettleContext<'_>,
        part: &SettlePartition,
        out: &mut RetryOutcome,
    ) -> Result<SettledRecords, NoPositionError> {
        let SettleContext { partition, topic, committed, now, random } = context;
        let policy = self.policies.of(topic);
        let dead_letter_topic = policy.dead_letter_topic_or_default(topic, self.group.as_str());
        let at = SettleAt {
            origin: Origin { group: &self.group, partition },
            now,
            random,
            committed,
            limits: self.limits,
            policy,
            dead_letter_topic: &dead_letter_topic,
        };
        let mut changes = Changes::new();
        let retries = self.partitions.entry(partition).or_default();
        let settled = retries.settle(&at, part, &mut changes, &mut out.actions);
        self.finish(partition, &changes, out);
        settled
    }

    /// The commit moved by other ways than [`GroupRetries::settle`].
    pub fn committed(&mut self, partition: PartitionKey, commit: Offset, out: &mut RetryOutcome) {
        self.change(partition, out, |retries, changes, _| retries.committed(commit, changes));
    }

    /// Whether anything is parked in a partition: then its commit is not moved by hand, unless that is cleared too.
    pub fn has_parked(&self, partition: PartitionKey) -> bool {
        self.partitions.get(&partition).is_some_and(|retries| retries.parked_keys() > 0)
    }

    /// Forgets what is parked in a partition and what was settled beyond its commit, which is about to be moved by hand. Dead letters that
    /// are decided are still delivered.
    pub fn clear(&mut self, partition: PartitionKey, out: &mut RetryOutcome) {
        self.change(partition, out, |retries, changes, _| retries.clear(changes));
    }

    /// Forgets all about a partition: its topic, or the group, is deleted.
    pub fn forget(&mut self, partition: PartitionKey, out: &mut RetryOutcome) {
        let Some(retries) = self.partitions.remove(&partition) else { return };
        let tombstone = |part| RetryEntry { key: RetryKey::Partition(partition, part), value: None };
        out.entries.extend(retries.parts().map(tombstone));
    }

    /// Partitions of which there is state.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.partitions.keys().copied()
    }

    /// Lets a stopped partition go on; whether it was stopped.
    pub fn resume(&mut self, partition: PartitionKey, now: Now, out: &mut RetryOutcome) -> bool {
        let stopped = self.partitions.get(&partition).is_some_and(PartitionRetries::is_stopped);
        if stopped {
            self.change(partition, out, |retries, changes, _| retries.resume(now, changes));
        }
        stopped
    }

    /// A member asks for due records. `owns` says whether it owns a partition.
    pub fn poll(&mut self, now: Now, poll: RetryPoll, owns: impl Fn(&MemberId, PartitionKey) -> bool, out: &mut RetryOutcome) {
        if !self.polls.begin(&poll) {
            out.answers.push(RetryAnswer { request: poll.request, records: Vec::new() });
            return;
        }
        let was_lost = |lease: &Lease| lease.member == poll.member && lease.poll > poll.received;
        self.partitions.values_mut().for_each(|retries| retries.release(was_lost));
        let records = self.take(now, &poll, &owns);
        let superseded = if records.is_empty() && now.steady_ms < poll.deadline_steady_ms {
            self.polls.wait(poll)
        } else {
            let superseded = self.polls.take_waiting(&poll.member);
            out.answers.push(RetryAnswer { request: poll.request, records });
            superseded
        };
        out.answers.extend(superseded.map(|poll| RetryAnswer { request: poll.request, records: Vec::new() }));
    }

    /// Answers the polls that can be answered now: to be called after each event that concerns the group, and when it is time.
    pub fn answer_polls(&mut self, now: Now, owns: impl Fn(&MemberId, PartitionKey) -> bool, out: &mut RetryOutcome) {
        let any_due = self.partitions.values().filter_map(PartitionRetries::next_due_steady_ms).any(|due| due <= now.steady_ms);
        let waiting = self.polls.waiting();
        let ready: Vec<MemberId> =
            waiting.filter(|poll| any_due || poll.deadline_steady_ms <= now.steady_ms).map(|poll| poll.member.clone()).collect();
        for member in ready {
            let poll = self.polls.take_waiting(&member).expect("it was just there");
            let records = self.take(now, &poll, &owns);
            if records.is_empty() && now.steady_ms < poll.deadline_steady_ms {
                self.polls.wait(poll);
            } else {
                out.answers.push(RetryAnswer { request: poll.request, records });
            }
        }
    }

    /// When [`GroupRetries::answer_polls`] has something to do even if nothing happens, by the steady clock.
    /// `owns` is that of [`GroupRetries::poll`]: what a poll names and its member does not own is no reason to wake up.
    pub fn next_wake_steady_ms(&self, owns: impl Fn(&MemberId, PartitionKey) -> bool) -> Option<u64> {
        let of_poll = |poll: &RetryPoll| {
            let due = |(partition, retries): (&PartitionKey, &PartitionRetries)| {
                retries.next_due_steady_ms().filter(|_| poll.partitions.contains(partition) && owns(&poll.member, *partition))
            };
            self.partitions.iter().filter_map(due).min().map_or(poll.deadline_steady_ms, |due| due.min(poll.deadline_steady_ms))
        };
        self.polls.waiting().map(of_poll).min()
    }

    /// A member no longer owns a partition: what it was given there goes to the next one.
    pub fn release_partition(&mut self, partition: PartitionKey) {
        if let Some(retries) = self.partitions.get_mut(&partition) {
            retries.release(|_| true);
        }
    }

    /// A member is gone: what it was given goes to the next owners.
    pub fn release_member(&mut self, member: &MemberId, out: &mut RetryOutcome) {
        self.partitions.values_mut().for_each(|retries| retries.release(|lease| lease.member == *member));
        let waiting = self.polls.forget(member);
        out.answers.extend(waiting.map(|poll| RetryAnswer { request: poll.request, records: Vec::new() }));
    }

    /// A dead letter has come a step further.
    pub fn dead_letter(&mut self, event: &RetryEvent, out: &mut RetryOutcome) {
        self.change(event.origin(), out, |retries, changes, actions| retries.dead_letter(event, changes, actions));
    }

    /// What a member must know that begins with a partition at `commit`.
    pub fn view(&self, partition: PartitionKey, commit: Option<Offset>) -> RetryView {
        self.partitions.get(&partition).map_or_else(RetryView::default, |retries| view::view(retries, commit.unwrap_or_default()))
    }

    /// What people are told about a partition.
    pub fn describe(&self, partition: PartitionKey) -> RetryDescription {
        self.partitions.get(&partition).map_or_else(RetryDescription::default, view::describe)
    }

    /// The present value of an entry; `None` when there is no such entry.
    pub fn value(&self, key: &RetryKey) -> Option<RetryValue> {
        match key {
            RetryKey::Policy(topic) => self.policies.own(topic.as_deref()).cloned().map(RetryValue::Policy),
            RetryKey::Partition(partition, part) => self.partitions.get(partition)?.value(*part),
        }
    }

    /// Every entry there is, for a snapshot: an entry that changes while it is written is appended again behind it.
    pub fn keys(&self) -> impl Iterator<Item = RetryKey> + '_ {
        let partitions = self.partitions.iter();
        let parts = partitions.flat_map(|(partition, retries)| retries.parts().map(|part| RetryKey::Partition(*partition, part)));
        self.policies.keys().chain(parts)
    }

    /// Applies an entry while the log is replayed; nothing else may be called before [`GroupRetries::restored`].
    ///
    /// # Errors
    /// The value is not one of this key.
    pub fn restore(&mut self, entry: RetryEntry) -> Result<(), RetryRestoreError> {
        let fits = match (&entry.key, entry.value) {
            (RetryKey::Policy(topic), None) => self.policies.restore(topic.as_deref(), None),
            (RetryKey::Policy(topic), Some(RetryValue::Policy(policy))) => self.policies.restore(topic.as_deref(), Some(policy)),
            (RetryKey::Policy(_), Some(_)) => false,
            (RetryKey::Partition(partition, part), value) => self.partitions.entry(*partition).or_default().restore(*part, value),
        };
        if fits { Ok(()) } else { Err(RetryRestoreError::Value(entry.key)) }
    }

    /// The whole log is replayed: what was under way is to be done again.
    ///
    /// # Errors
    /// The entries do not fit together.
    pub fn restored(&mut self, now: Now, out: &mut RetryOutcome) -> Result<(), RetryRestoreError> {
        self.partitions.retain(|_, retries| !retries.is_empty());
        let pause_ms_max = self.policies.pause_ms_max();
        for (partition, retries) in &mut self.partitions {
            if !retries.restored(Origin { group: &self.group, partition: *partition }, now, pause_ms_max, &mut out.actions) {
                return Err(RetryRestoreError::Incomplete(*partition));
            }
        }
        Ok(())
    }

    fn take(&mut self, now: Now, poll: &RetryPoll, owns: &impl Fn(&MemberId, PartitionKey) -> bool) -> Vec<DueRecord> {
        let lease = Lease { member: poll.member.clone(), poll: poll.poll };
        let due: Vec<PartitionKey> = self
            .partitions
            .iter()
            .filter(|(_, retries)| retries.next_due_steady_ms().is_some_and(|due| due <= now.steady_ms))
            .map(|(partition, _)| *partition)
            .filter(|partition| poll.partitions.contains(partition) && owns(&poll.member, *partition))
            .collect();
        let mut records = Vec::new();
        // Each gets a share first, so that none waits behind a partition with many; then what is left goes in order.
        let share = poll.records_max.checked_div(due.len()).unwrap_or(0).max(1);
        for share in [share, poll.records_max] {
            for partition in &due {
                let room = (poll.records_max - records.len()).min(share);
                let retries = self.partitions.get_mut(partition).expect("it was just there");
                retries.take(*partition, now, &lease, room, &mut records);
            }
        }
        records
    }

    fn change(
        &mut self,
        partition: PartitionKey,
        out: &mut RetryOutcome,
        change: impl FnOnce(&mut PartitionRetries, &mut Changes, &mut Vec<RetryAction>),
    ) {
        let Some(retries) = self.partitions.get_mut(&partition) else { return };
        let mut changes = Changes::new();
        change(retries, &mut changes, &mut out.actions);
        self.finish(partition, &changes, out);
    }

    /// Says what has changed, and drops a partition of which nothing is left.
    fn finish(&mut self, partition: PartitionKey, changes: &Changes, out: &mut RetryOutcome) {
        let retries = &self.partitions[&partition];
        let entry = |part: &RetryPart| RetryEntry { key: RetryKey::Partition(partition, *part), value: retries.value(*part) };
        out.entries.extend(changes.iter().map(entry));
        if retries.is_empty() {
            self.partitions.remove(&partition);
        }
    }
}

/// The counts of one group, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Records parked and held back.
    pub parked_records: u64,
    /// Dead letters decided and not yet durable.
    pub dead_letters_pending: u64,
    /// Dead letters decided so far.
    pub dead_lettered: u64,
    /// Records skipped so far.
    pub skipped: u64,
    /// Partitions stopped.
    pub stopped_partitions: u64,
}

impl GroupRetries {
    /// Records parked and held back, of each partition that has any.
    pub(crate) fn parked_records(&self) -> impl Iterator<Item = (PartitionKey, u64)> + '_ {
        let counts = self.partitions.iter().map(|(partition, retries)| (*partition, retries.parked_records() as u64));
        counts.filter(|(_, records)| *records > 0)
    }

    /// The sum over all partitions.
    pub fn counts(&self) -> RetryCounts {
        let mut counts = RetryCounts::default();
        for retries in self.partitions.values() {
            counts.parked_records += retries.parked_records() as u64;
            counts.dead_letters_pending += retries.dead_letters_pending() as u64;
            counts.dead_lettered += retries.dead_lettered();
            counts.skipped += retries.skipped();
            counts.stopped_partitions += u64::from(retries.is_stopped());
        }
        counts
    }
}
