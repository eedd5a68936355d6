//! The coordinator's core with a driver: a journal that is durable up to a point, and a topic for dead letters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use consumer_groups::retry::{
    DeadLetterProducer, GroupRetries, RetryAction, RetryEntry, RetryEvent, RetryKey, RetryLimits, RetryOutcome, RetryPart,
    RetryPoll, RetryValue, SettleContext,
};
use consumer_groups::{GroupId, MemberId, Now};
use wire::{
    CommittedOffset, DueRecord, ErrorCode, FetchedOffset, Offset, ParkedKey, PartitionIndex, PartitionKey, ProducerEpoch,
    ProducerId, RetryPolicy, SettleOutcome, SettlePartition, SettlePartitionReply, TimestampMs,
};

use super::oracle::{Oracle, Place};
use crate::core::random::Random;

/// A member's process: it never comes back under the same number.
pub(super) type Process = u64;

/// What the coordinator sends.
#[derive(Debug)]
pub(super) enum Reply {
    Fetched(Process, FetchedOffset),
    Settled(Process, u64, Vec<SettlePartitionReply>),
    Polled(Process, u64, Vec<DueRecord>),
}

/// State of one event: all of it or nothing is there after a crash.
struct Batch {
    entries: Vec<RetryEntry>,
    commits: Vec<(PartitionKey, Offset)>,
    given_up: Vec<Place>,
}

/// The log of dead letters, as the broker keeps producers: the last five sequences of each.
#[derive(Default)]
struct DeadLetterLog {
    producers: BTreeMap<ProducerId, VecDeque<i32>>,
}

impl DeadLetterLog {
    /// Whether it is new. `None`: nothing is known of the producer.
    fn append(&mut self, producer: ProducerId, sequence: i32) -> Option<bool> {
        let last = self.producers.entry(producer).or_default();
        if last.contains(&sequence) {
            return Some(false);
        }
        match last.back() {
            None if sequence != 0 => return None,
            Some(before) => assert_eq!(sequence, before + 1, "the log would refuse it as out of order"),
            None => {}
        }
        last.push_back(sequence);
        if last.len() > 5 {
            last.pop_front();
        }
        Some(true)
    }
}

pub(super) struct Coordinator {
    pub(super) retries: GroupRetries,
    limits: RetryLimits,
    pub(super) committed: BTreeMap<PartitionKey, Offset>,
    /// Membership is not what is tested: it survives all crashes.
    pub(super) owners: BTreeMap<PartitionKey, Process>,
    journal: Vec<Batch>,
    durable: usize,
    given_up: BTreeSet<Place>,
    held_back: VecDeque<(usize, Reply)>,
    held_actions: VecDeque<(usize, RetryAction)>,
    actions: VecDeque<RetryAction>,
    polls: BTreeMap<u64, (Process, u64)>,
    dead_letters: DeadLetterLog,
    producer_next: i64,
    request_next: u64,
    /// What has happened how often, so that a run in which nothing does is not taken for a proof.
    pub(super) seen: BTreeMap<&'static str, u64>,
}

pub(super) fn now(ms: u64) -> Now {
    Now { steady_ms: ms, wall: TimestampMs(1_000_000 + ms as i64) }
}

fn member(process: Process) -> MemberId {
    MemberId::from(process.to_string().as_str())
}

impl Coordinator {
    pub(super) fn new(policy: RetryPolicy, limits: RetryLimits) -> Coordinator {
        let mut coordinator = Coordinator {
            retries: GroupRetries::new(GroupId::from("g"), limits),
            limits,
            committed: BTreeMap::new(),
            owners: BTreeMap::new(),
            journal: Vec::new(),
            durable: 0,
            given_up: BTreeSet::new(),
            held_back: VecDeque::new(),
            held_actions: VecDeque::new(),
            actions: VecDeque::new(),
            polls: BTreeMap::new(),
            dead_letters: DeadLetterLog::default(),
            producer_next: 0,
            request_next: 0,
            seen: BTreeMap::new(),
        };
        coordinator.set_policy(policy);
        coordinator.durable = coordinator.journal.len();
        coordinator
    }

    pub(super) fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(super) fn set_policy(&mut self, policy: RetryPolicy) {
        let mut out = RetryOutcome::default();
        self.retries.set_policy(None, Some(policy), &mut out).expect("one is allowed");
        self.write(out, Vec::new(), Vec::new());
    }

    pub(super) fn resume(&mut self, now_ms: u64) {
        let partitions: Vec<PartitionKey> = self.retries.partitions().collect();
        for partition in partitions {
            let mut out = RetryOutcome::default();
            self.retries.resume(partition, now(now_ms), &mut out);
            self.write(out, Vec::new(), Vec::new());
        }
    }

    /// Gives a partition to a process and tells it where to begin.
    pub(super) fn own(&mut self, partition: PartitionKey, process: Process) {
        self.disown(partition);
        self.owners.insert(partition, process);
    }

    pub(super) fn disown(&mut self, partition: PartitionKey) {
        self.owners.remove(&partition);
        self.retries.release_partition(partition);
    }

    pub(super) fn gone(&mut self, process: Process) {
        self.owners.retain(|_, owner| *owner != process);
        let mut out = RetryOutcome::default();
        self.retries.release_member(&member(process), &mut out);
        self.write(out, Vec::new(), Vec::new());
    }

    pub(super) fn fetch(&mut self, partition: PartitionKey) {
        let Some(owner) = self.owners.get(&partition) else { return };
        let committed = self.committed.get(&partition).copied();
        let view = self.retries.view(partition, committed);
        let position = |offset| CommittedOffset { offset, leader_epoch: None, metadata: None };
        let fetched = FetchedOffset {
            topic: partition.topic,
            partition: partition.partition,
            committed: committed.map(position),
            parked: view.parked.into_iter().map(|(key, head)| ParkedKey { key, head }).collect(),
            held: view.held,
            stopped: view.stopped,
        };
        self.held_back.push_back((self.journal.len(), Reply::Fetched(*owner, fetched)));
    }

    pub(super) fn settle(
        &mut self,
        process: Process,
        request: u64,
        parts: &[SettlePartition],
        now_ms: u64,
        random: u64,
        oracle: &Oracle,
    ) {
        let replies = parts.iter().map(|part| self.settle_one(process, part, now_ms, random, oracle)).collect();
        self.held_back.push_back((self.journal.len(), Reply::Settled(process, request, replies)));
        self.answer_polls(now_ms);
    }

    fn settle_one(
        &mut self,
        process: Process,
        part: &SettlePartition,
        now_ms: u64,
        random: u64,
        oracle: &Oracle,
    ) -> SettlePartitionReply {
        part.validate().expect("a member keeps the limits");
        let partition = PartitionKey::new(part.topic, part.partition);
        let committed = self.committed.get(&partition).copied();
        let mut reply = SettlePartitionReply {
            topic: part.topic,
            partition: part.partition,
            error: ErrorCode::None,
            message: None,
            outcomes: Vec::new(),
            released: Vec::new(),
            full_from: None,
            committed,
        };
        if self.owners.get(&partition) != Some(&process) {
            reply.error = ErrorCode::PartitionNotOwned;
            self.see("settled by one that is no longer the owner");
            return reply;
        }
        if part.commit.as_ref().is_some_and(|commit| Some(commit.offset) < committed) {
            reply.error = ErrorCode::CommitBehind;
            self.see("a commit that came late");
            return reply;
        }
        let mut out = RetryOutcome::default();
        let context = SettleContext { partition, topic: "t", committed, now: now(now_ms), random };
        let settled = self.retries.settle(context, part, &mut out).expect("a member sends a position along");
        let outcomes = part.failed.iter().zip(&settled.outcomes);
        let skipped = outcomes.filter(|(_, outcome)| **outcome == SettleOutcome::Skipped);
        let given_up: Vec<Place> = skipped.map(|(failed, _)| (partition, failed.offset)).collect();
        let commits: Vec<_> = settled.commit.map(|commit| (partition, commit)).into_iter().collect();
        self.committed.extend(commits.iter().copied());
        reply.committed = committed.max(settled.commit);
        for outcome in &settled.outcomes {
            self.see(match outcome {
                SettleOutcome::Parked { attempts: 0, .. } => "failed behind another",
                SettleOutcome::Parked { .. } => "parked",
                SettleOutcome::DeadLettered => "dead-lettered",
                SettleOutcome::Skipped => "skipped",
                SettleOutcome::Stopped => "stopped",
                SettleOutcome::Full => "failed without room",
                SettleOutcome::Settled => "settled before",
            });
        }
        if settled.full_from.is_some() {
            self.see("deferred without room");
        }
        reply.outcomes = settled.outcomes;
        reply.released = settled.released;
        reply.full_from = settled.full_from;
        self.write(out, commits, given_up);
        let held = self.retries.view(partition, None).held;
        if let Some(commit) = reply.committed {
            oracle.check_commit(partition, commit, &self.given_up, &held);
        }
        let description = self.retries.describe(partition);
        assert!(description.parked_records + description.dead_letters_pending <= self.limits.records_max);
        reply
    }

    pub(super) fn poll(
        &mut self,
        process: Process,
        poll: u64,
        received: u64,
        partitions: BTreeSet<PartitionKey>,
        now_ms: u64,
        wait_ms: u64,
    ) {
        let request = self.request_next;
        self.request_next += 1;
        self.polls.insert(request, (process, poll));
        let poll = RetryPoll {
            request,
            member: member(process),
            poll,
            received,
            partitions,
            records_max: 3,
            deadline_steady_ms: now_ms + wait_ms,
        };
        let mut out = RetryOutcome::default();
        let owners = &self.owners;
        let owns = |_: &MemberId, partition| owners.get(&partition) == Some(&process);
        self.retries.poll(now(now_ms), poll, owns, &mut out);
        self.write(out, Vec::new(), Vec::new());
    }

    pub(super) fn answer_polls(&mut self, now_ms: u64) {
        let mut out = RetryOutcome::default();
        let owners = &self.owners;
        let owns = |who: &MemberId, partition| owners.get(&partition).is_some_and(|owner| member(*owner) == *who);
        self.retries.answer_polls(now(now_ms), owns, &mut out);
        self.write(out, Vec::new(), Vec::new());
    }

    /// One batch a event; what comes of it waits until it is durable.
    fn write(&mut self, out: RetryOutcome, commits: Vec<(PartitionKey, Offset)>, given_up: Vec<Place>) {
        let mut given_up = given_up;
        for entry in &out.entries {
            if let (RetryKey::Partition(partition, RetryPart::DeadLetter(_)), Some(RetryValue::DeadLetter(letter))) =
                (&entry.key, &entry.value)
            {
                given_up.push((*partition, letter.offset));
            }
        }
        self.given_up.extend(given_up.iter().copied());
        if !out.entries.is_empty() || !commits.is_empty() || !given_up.is_empty() {
            self.journal.push(Batch { entries: out.entries, commits, given_up });
        }
        self.held_actions.extend(out.actions.into_iter().map(|action| (self.journal.len(), action)));
        for answer in out.answers {
            if let Some((process, poll)) = self.polls.remove(&answer.request) {
                self.held_back.push_back((self.journal.len(), Reply::Polled(process, poll, answer.records)));
            }
        }
    }

    /// More of the journal is durable; returns the replies that may leave.
    pub(super) fn flush(&mut self, up_to: usize, oracle: &mut Oracle) -> Vec<Reply> {
        let before = self.durable;
        self.durable = up_to.clamp(before, self.journal.len());
        for batch in &self.journal[before..self.durable] {
            oracle.given_up.extend(batch.given_up.iter().copied());
        }
        while self.held_actions.front().is_some_and(|(needs, _)| *needs <= self.durable) {
            self.actions.extend(self.held_actions.pop_front().map(|(_, action)| action));
        }
        let ready = self.held_back.iter().take_while(|(needs, _)| *needs <= self.durable).count();
        self.held_back.drain(..ready).map(|(_, reply)| reply).collect()
    }

    pub(super) fn flush_some(&mut self, random: &mut Random, oracle: &mut Oracle) -> Vec<Reply> {
        let up_to = self.durable + random.below(self.journal.len() - self.durable + 1);
        self.flush(up_to, oracle)
    }

    /// The driver does the next thing about dead letters; `forget` says that the log has forgotten its producers meanwhile, as it does when
    /// they were idle for days: far longer than anything stays undurable.
    pub(super) fn act(&mut self, oracle: &mut Oracle, forget: bool) -> bool {
        let is_idle = self.durable == self.journal.len() && self.retries.counts().dead_letters_pending == 0;
        if forget && is_idle {
            self.dead_letters.producers.clear();
        }
        let Some(action) = self.actions.pop_front() else { return false };
        let event = match action {
            RetryAction::OpenLane { group, origin, topic } => {
                let id = ProducerId(self.producer_next);
                self.producer_next += 1;
                let producer = DeadLetterProducer { id, epoch: ProducerEpoch(0), partition: PartitionIndex(0) };
                RetryEvent::LaneOpened { group, origin, topic, producer }
            }
            RetryAction::AppendDeadLetter(letter) => match self.dead_letters.append(letter.producer.id, letter.sequence.0) {
                None => {
                    self.see("a lane lost");
                    RetryEvent::LaneLost { group: letter.group, origin: letter.origin, producer: letter.producer }
                }
                Some(is_new) => {
                    self.see(if is_new { "a dead letter appended" } else { "a dead letter appended again" });
                    if is_new {
                        oracle.dead_letter((letter.origin, letter.letter.offset), letter.letter.attempts);
                    }
                    {
                        let (group, origin, producer, number) = (letter.group, letter.origin, letter.producer, letter.number);
                        RetryEvent::DeadLetterAppended { group, origin, producer, number }
                    }
                }
            },
        };
        let mut out = RetryOutcome::default();
        self.retries.dead_letter(&event, &mut out);
        self.write(out, Vec::new(), Vec::new());
        true
    }

    /// The process dies: of what is not durable any number of batches is lost. The next one replays the journal.
    pub(super) fn crash(&mut self, random: &mut Random, now_ms: u64) {
        let cut = self.durable + random.below(self.journal.len() - self.durable + 1);
        if cut < self.journal.len() {
            self.see("a crash that loses state");
        }
        let live = (cut == self.journal.len()).then(|| self.snapshot());
        self.journal.truncate(cut);
        self.held_back.clear();
        self.held_actions.clear();
        self.actions.clear();
        self.polls.clear();
        self.retries = GroupRetries::new(GroupId::from("g"), self.limits);
        self.committed.clear();
        self.given_up.clear();
        for batch in &self.journal {
            batch.entries.iter().for_each(|entry| self.retries.restore(entry.clone()).expect("it was written by the same"));
            self.committed.extend(batch.commits.iter().copied());
            self.given_up.extend(batch.given_up.iter().copied());
        }
        let mut out = RetryOutcome::default();
        self.retries.restored(now(now_ms), &mut out).expect("every cut is whole");
        self.write(out, Vec::new(), Vec::new());
        if let Some(live) = live {
            assert_eq!(self.snapshot(), live, "replay gives what was there");
        }
    }

    fn snapshot(&self) -> Vec<RetryEntry> {
        self.retries.keys().map(|key| RetryEntry { value: self.retries.value(&key), key }).collect()
    }

    /// Nothing is left to do.
    pub(super) fn is_quiet(&self, ends: &BTreeMap<PartitionKey, Offset>) -> bool {
        let counts = self.retries.counts();
        let is_durable = self.durable == self.journal.len();
        is_durable && counts.parked_records == 0 && counts.dead_letters_pending == 0 && self.committed == *ends
    }
}
