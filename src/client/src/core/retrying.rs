//! A group member's decisions about records that fail: which to deliver, which to hold back, what to tell the coordinator.
//!
//! ```text
//!   log ──offer──► ready ──next──► handling ──done──────────────► the commit may pass
//!                    │                └─fail──► failed ─┐
//!                    ├─ its key is being handled: later │ settle
//!                    └─ its key is parked: later ───────┴────────► the coordinator holds them: the commit may pass
//!
//!   poll ──► due again ──fetch──► ready ──next──► handling ──done │ fail──► settle
//! ```
//!
//! Invariants:
//! - Of a key one record is handled at a time, in the order of the log; while one is parked, later ones are not delivered.
//! - The commit that is asked for passes only records that were handled, or that the same request gives to the coordinator.
//! - At most one settle request is under way; what it said is said again until it is answered. To say it twice is harmless.
//! - A record in hand is bounded: `in_flight_max` a partition, and none beyond the window of the coordinator.
//! - What was begun under an assignment ends with it: a partition that comes back is another assignment.

mod assigned;
mod keys;
mod mark;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::{Duration, Instant};

use wire::limits::{FAILED_PER_REQUEST_MAX, PARTITIONS_PER_SETTLE_MAX, PARTITIONS_PER_TAKE_MAX, SETTLED_PER_REQUEST_MAX};
use wire::{
    DueRecord, FetchedOffset, LeaderEpoch, Offset, PartitionIndex, PartitionKey, SettlePartition, SettlePartitionReply, TopicId,
};

use self::assigned::{Assigned, RetryTaken};
pub(crate) use self::mark::{Mark, Progress};

/// How long to wait until the coordinator is asked again whether it has room, unless a retry has made some.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Before all others.
const PARTITION_FIRST: PartitionKey = PartitionKey::new(TopicId([0; 16]), PartitionIndex(0));

/// The state of a member that retries. `T` is what stands for a record.
#[derive(Debug)]
pub(crate) struct RetryingCore<T> {
    partitions: BTreeMap<PartitionKey, Assigned<T>>,
    /// Partitions with something to deliver, each once.
    runnable: VecDeque<PartitionKey>,
    /// Records of one partition that are offered and not yet settled.
    in_flight_max: usize,
    assignment_next: u64,
    settling: bool,
    /// Where the next settle request begins: what did not fit the last one comes first.
    settle_from: PartitionKey,
    /// Commits are to move, and were not all said.
    commits_due: bool,
    /// A request without an answer: it is said again as it was, so that a copy that comes late says nothing else.
    unanswered: Option<SettlePlan>,
    /// Where the next poll begins: of more partitions than fit one they are named in turn.
    poll_from: PartitionKey,
    /// Number of the last poll sent.
    poll: u64,
    /// Number of the last poll whose answer is here, with nothing left out.
    received: u64,
    /// The answer to the last poll is to come.
    polling: bool,
    /// The poll under way does not name all partitions.
    poll_is_stale: bool,
    /// The last answer had records that could not be taken: they are to be given again.
    poll_again: bool,
}

/// Names a partition for as long as it is assigned without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Assignment {
    pub(crate) partition: PartitionKey,
    number: u64,
}

/// A record to hand to the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Delivery<T> {
    pub(crate) assignment: Assignment,
    pub(crate) offset: Offset,
    /// 1 for the first delivery.
    pub(crate) attempt: u32,
    pub(crate) record: T,
}

/// A record to read from the log, since it is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryFetch {
    pub(crate) assignment: Assignment,
    pub(crate) offset: Offset,
}

/// A settle request to send, and to bring back with its answer.
#[derive(Debug)]
pub(crate) struct SettlePlan {
    assignments: Vec<Assignment>,
    pub(crate) partitions: Vec<SettlePartition>,
}

/// A poll to send, and to bring back with its answer.
#[derive(Debug)]
pub(crate) struct PollPlan {
    pub(crate) poll: u64,
    pub(crate) received: u64,
    assignments: Vec<Assignment>,
}

impl PollPlan {
    /// The partitions to name in it.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.assignments.iter().map(|assignment| assignment.partition)
    }
}

/// What still fits one settle request.
#[derive(Debug)]
struct Room {
    settled: usize,
    failed: usize,
}

impl<T> RetryingCore<T> {
    pub(crate) fn new(in_flight_max: usize) -> Self {
        Self {
            partitions: BTreeMap::new(),
            runnable: VecDeque::new(),
            in_flight_max: in_flight_max.max(1),
            assignment_next: 0,
            settling: false,
            settle_from: PARTITION_FIRST,
            commits_due: false,
            unanswered: None,
            poll_from: PARTITION_FIRST,
            poll: 0,
            received: 0,
            polling: false,
            poll_is_stale: false,
            poll_again: false,
        }
    }

    /// Begins with a partition at `start`, which is the committed offset where there is one; `fetched` is what the coordinator says of it.
    pub(crate) fn assign(&mut self, fetched: &FetchedOffset, start: Offset) -> Assignment {
        let partition = PartitionKey::new(fetched.topic, fetched.partition);
        self.unassign(partition);
        let assignment = Assignment { partition, number: self.assignment_next };
        self.assignment_next += 1;
        self.partitions.insert(partition, Assigned::new(assignment, fetched, start));
        self.poll_is_stale = true;
        assignment
    }

    /// Ends with a partition. What is in hand of it will be delivered by its next owner, unless it was settled.
    pub(crate) fn unassign(&mut self, partition: PartitionKey) {
        if self.partitions.remove(&partition).is_some() {
            self.runnable.retain(|runnable| *runnable != partition);
        }
    }

    /// Delivers nothing more of a partition that is to be given up. What is in hand can still be settled.
    pub(crate) fn stop(&mut self, partition: PartitionKey) {
        if let Some(assigned) = self.partitions.get_mut(&partition) {
            assigned.stop();
        }
    }

    /// Whether nothing of the partition is in hand, and the coordinator knows all there is to know.
    pub(crate) fn is_settled(&self, partition: PartitionKey) -> bool {
        self.partitions.get(&partition).is_none_or(Assigned::is_settled)
    }

    /// Whether an assignment goes on.
    pub(crate) fn is_assigned(&self, assignment: Assignment) -> bool {
        self.partitions.get(&assignment.partition).is_some_and(|assigned| assigned.assignment == assignment)
    }

    /// Where the commit stands, as the coordinator said.
    pub(crate) fn committed(&self, partition: PartitionKey) -> Option<Offset> {
        self.partitions.get(&partition)?.committed()
    }

    /// Whether more records of the log are wanted; if not, the partition is to be paused.
    pub(crate) fn wants(&self, partition: PartitionKey) -> bool {
        self.partitions.get(&partition).is_some_and(|assigned| assigned.wants(self.in_flight_max))
    }

    /// Takes a record of the log; one that was offered already is not taken again.
    pub(crate) fn offer(
        &mut self,
        assignment: Assignment,
        offset: Offset,
        leader_epoch: LeaderEpoch,
        key: Option<&[u8]>,
        record: T,
    ) {
        let Some(assigned) = self.get(assignment) else { return };
        assigned.offer(offset, leader_epoch, key, record);
        self.make_runnable(assignment.partition);
    }

    /// Everything of the log below `next` has been offered: also where no record is left.
    pub(crate) fn passed(&mut self, assignment: Assignment, next: Offset) {
        if let Some(assigned) = self.get(assignment) {
            assigned.passed(next);
        }
    }

    /// The next record to handle: retries first, then the partitions in turn.
    pub(crate) fn next(&mut self) -> Option<Delivery<T>> {
        while let Some(partition) = self.runnable.pop_front() {
            let assigned = self.partitions.get_mut(&partition).expect("unassigning takes it out of the queue");
            assigned.is_queued = false;
            let delivery = assigned.next();
            self.make_runnable(partition);
            if delivery.is_some() {
                return delivery;
            }
        }
        None
    }

    /// A delivered record was handled. False when that is of no interest any more: the partition has gone.
    pub(crate) fn done(&mut self, assignment: Assignment, offset: Offset) -> bool {
        let known = self.get(assignment).is_some_and(|assigned| assigned.done(offset));
        self.make_runnable(assignment.partition);
        known
    }

    /// A delivered record could not be handled. False when that is of no interest any more: the partition has gone.
    pub(crate) fn fail(&mut self, assignment: Assignment, offset: Offset, reason: &str) -> bool {
        self.get(assignment).is_some_and(|assigned| assigned.fail(offset, reason))
    }

    /// Up to where everything is handled or held by the coordinator: what is to be committed.
    pub(crate) fn position(&self, partition: PartitionKey) -> Option<Offset> {
        Some(self.partitions.get(&partition)?.position())
    }

    /// What to tell the coordinator now. `with_commits` also moves commits, where there is nothing else to say too: those that do not fit now
    /// come with the next requests.
    pub(crate) fn next_settle(&mut self, now: Instant, with_commits: bool) -> Option<SettlePlan> {
        self.commits_due |= with_commits;
        if self.settling {
            return None;
        }
        if let Some(plan) = self.unanswered.take().and_then(|plan| self.still_assigned(plan)) {
            self.settling = true;
            return Some(plan);
        }
        let mut room = Room { settled: SETTLED_PER_REQUEST_MAX, failed: FAILED_PER_REQUEST_MAX };
        let mut plan = SettlePlan { assignments: Vec::new(), partitions: Vec::new() };
        let (from, with_commits) = (self.settle_from, self.commits_due);
        self.settle_from = PARTITION_FIRST;
        self.commits_due = false;
        for in_turn in [(Included(from), Unbounded), (Unbounded, Excluded(from))] {
            for (partition, assigned) in self.partitions.range_mut(in_turn) {
                if plan.partitions.len() == PARTITIONS_PER_SETTLE_MAX {
                    self.settle_from = *partition;
                    self.commits_due = with_commits;
                    break;
                }
                if let Some(part) = assigned.next_settle(now, with_commits, &mut room) {
                    plan.assignments.push(assigned.assignment);
                    plan.partitions.push(part);
                }
            }
            if self.settle_from != PARTITION_FIRST {
                break;
            }
        }
        self.settling = !plan.partitions.is_empty();
        self.settling.then_some(plan)
    }

    fn still_assigned(&mut self, plan: SettlePlan) -> Option<SettlePlan> {
        let said = plan.assignments.into_iter().zip(plan.partitions);
        let (assignments, partitions): (Vec<_>, Vec<_>) = said.filter(|(assignment, _)| self.get(*assignment).is_some()).unzip();
        (!partitions.is_empty()).then_some(SettlePlan { assignments, partitions })
    }

    /// When [`RetryingCore::next_settle`] may have something to say though nothing has happened.
    pub(crate) fn next_settle_at(&self) -> Option<Instant> {
        self.partitions.values().filter_map(Assigned::settle_at).min()
    }

    /// The answer to a settle request, in the order of its partitions.
    pub(crate) fn settled(&mut self, now: Instant, plan: &SettlePlan, replies: &[SettlePartitionReply]) {
        self.settling = false;
        for ((assignment, part), reply) in plan.assignments.iter().zip(&plan.partitions).zip(replies) {
            if let Some(assigned) = self.get(*assignment) {
                assigned.settled(now, part, reply);
                self.make_runnable(assignment.partition);
            }
        }
    }

    /// No answer came to a settle request, or one that concerns all of it: the next one is the same.
    pub(crate) fn settle_lost(&mut self, plan: SettlePlan) {
        self.settling = false;
        self.unanswered = Some(plan);
    }

    /// The poll to send now. It replaces one that is under way.
    pub(crate) fn next_poll(&mut self) -> Option<PollPlan> {
        // What could not be taken is taken when the request that speaks of it has its answer.
        let waits = self.poll_again && self.settling;
        if self.partitions.is_empty() || waits || (self.polling && !self.poll_is_stale) {
            return None;
        }
        self.polling = true;
        self.poll_is_stale = false;
        self.poll += 1;
        self.partitions.values_mut().for_each(Assigned::polled);
        let in_turn = self.partitions.range(self.poll_from..).chain(self.partitions.range(..self.poll_from));
        let mut going_on = in_turn.map(|(_, assigned)| assigned).filter(|assigned| !assigned.is_ending());
        let assignments = going_on.by_ref().take(PARTITIONS_PER_TAKE_MAX).map(|assigned| assigned.assignment).collect();
        self.poll_from = going_on.next().map_or(PARTITION_FIRST, |assigned| assigned.assignment.partition);
        Some(PollPlan { poll: self.poll, received: self.received, assignments })
    }

    /// The answer to a poll. Returns what to read from the log. Of an earlier poll than the last it is not used: what it gave is given again.
    pub(crate) fn polled(&mut self, plan: &PollPlan, records: &[DueRecord]) -> Vec<RetryFetch> {
        if plan.poll != self.poll {
            return Vec::new();
        }
        let mut fetches = Vec::new();
        let mut all_taken = true;
        for record in records {
            let partition = PartitionKey::new(record.topic, record.partition);
            let named = plan.assignments.iter().find(|assignment| assignment.partition == partition);
            let taken = named.and_then(|assignment| Some((*assignment, self.get(*assignment)?.take_retry(record))));
            match taken {
                Some((assignment, RetryTaken::Fetch)) => fetches.push(RetryFetch { assignment, offset: record.offset }),
                Some((_, RetryTaken::InHand)) => self.make_runnable(partition),
                Some((_, RetryTaken::NotNow)) | None => all_taken = false,
            }
        }
        self.polling = false;
        self.poll_again = !all_taken;
        if all_taken {
            self.received = plan.poll;
        }
        fetches
    }

    /// No answer came to a poll.
    pub(crate) fn poll_lost(&mut self, plan: &PollPlan) {
        if plan.poll == self.poll {
            self.polling = false;
        }
    }

    /// A record that is due again was read.
    pub(crate) fn fetched(&mut self, fetch: RetryFetch, record: T) {
        if let Some(assigned) = self.get(fetch.assignment) {
            assigned.retry_fetched(fetch.offset, record);
            self.make_runnable(fetch.assignment.partition);
        }
    }

    /// A record that is due again cannot be read any more: that is a failure like others, and ends as the policy says.
    pub(crate) fn fetch_failed(&mut self, fetch: RetryFetch, reason: &str) {
        if let Some(assigned) = self.get(fetch.assignment) {
            assigned.retry_unreadable(fetch.offset, reason);
        }
    }

    fn get(&mut self, assignment: Assignment) -> Option<&mut Assigned<T>> {
        self.partitions.get_mut(&assignment.partition).filter(|assigned| assigned.assignment == assignment)
    }

    fn make_runnable(&mut self, partition: PartitionKey) {
        let Some(assigned) = self.partitions.get_mut(&partition) else { return };
        if !assigned.is_queued && assigned.has_next() {
            assigned.is_queued = true;
            self.runnable.push_back(partition);
        }
    }
}
