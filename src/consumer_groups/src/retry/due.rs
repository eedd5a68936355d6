//! Records that are due, given to the members that ask for them.

use wire::{DueRecord, PartitionKey};

use super::partition::{Lease, PartitionRetries};
use super::{GroupRetries, RetryOutcome, RetryPoll};
use crate::{MemberId, Now};

/// The answer to a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryAnswer {
    /// See [`RetryPoll::request`].
    pub request: u64,
    /// The records, now leased to the member; none when there were none in time, or nobody listens any more.
    pub records: Vec<DueRecord>,
}

impl GroupRetries {
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
}
