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
mod counts;
mod dead_letters;
mod due;
mod entry;
pub mod limits;
mod partition;
mod policies;
mod polls;
mod queue;
mod replay;
mod settled;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use wire::{Offset, PartitionKey, RetryPolicy, SettlePartition};

pub use self::counts::RetryCounts;
pub use self::dead_letters::{DeadLetter, RetryAction, RetryEvent};
pub use self::due::RetryAnswer;
pub use self::entry::{
    DeadLetterProducer, DeadLetterValue, ExhaustedValue, LaneValue, ParkedValue, RetryEntry, RetryKey, RetryPart, RetryValue,
    SettledBits,
};
pub use self::limits::RetryLimits;
pub use self::partition::{NoPositionError, SettledRecords};
pub use self::policies::TooManyPoliciesError;
pub use self::polls::RetryPoll;
pub use self::replay::RetryRestoreError;
pub use self::view::{RetryDescription, RetryView};

use self::dead_letters::Origin;
use self::entry::Changes;
use self::partition::{PartitionRetries, SettleAt};
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
