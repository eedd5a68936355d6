//! Members, a coordinator, and a network that loses, delays and reorders.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use consumer_groups::retry::RetryLimits;
use wire::{Exhausted, LeaderEpoch, Offset, PartitionIndex, PartitionKey, RetryPolicy, SettlePartition, TopicId};

use super::super::{Assignment, Delivery, Mark, PollPlan, Progress, RetryFetch, RetryingCore, SettlePlan};
use super::coordinator::{Coordinator, Process, Reply};
use super::oracle::{Oracle, Place};
use crate::core::random::Random;

const IN_FLIGHT_MAX: usize = 12;

/// What a member sends.
#[derive(Clone)]
enum Request {
    Settle(Process, u64, Vec<SettlePartition>),
    Poll(Process, u64, u64, BTreeSet<PartitionKey>),
}

struct Member {
    process: Process,
    core: RetryingCore<()>,
    assignments: BTreeMap<PartitionKey, Assignment>,
    handling: Vec<Delivery<()>>,
    fetches: Vec<RetryFetch>,
    settle: Option<(u64, SettlePlan)>,
    polls: Vec<PollPlan>,
    /// What it said of its records that a retry remembers: the attempt, or `u32::MAX` for one that was handled.
    said: Vec<(Place, u32)>,
    /// What it waits for until the coordinator knows it.
    mark: Option<(Mark, Vec<(Place, u32)>)>,
}

impl Member {
    fn new(process: Process) -> Member {
        Member {
            process,
            core: RetryingCore::new(IN_FLIGHT_MAX),
            assignments: BTreeMap::new(),
            handling: Vec::new(),
            fetches: Vec::new(),
            settle: None,
            polls: Vec::new(),
            said: Vec::new(),
            mark: None,
        }
    }

    fn unassign(&mut self, partition: PartitionKey) {
        self.core.unassign(partition);
        self.assignments.remove(&partition);
        self.said.retain(|((said, _), _)| *said != partition);
    }
}

pub(super) struct World {
    random: Random,
    oracle: Oracle,
    coordinator: Coordinator,
    members: Vec<Member>,
    partitions: Vec<PartitionKey>,
    requests: Vec<Request>,
    /// Copies of requests whose connection broke: they may still arrive.
    late: Vec<Request>,
    replies: Vec<Reply>,
    process_next: Process,
    request_next: u64,
    origin: Instant,
    now_ms: u64,
    policy: RetryPolicy,
    /// Nothing more goes wrong.
    is_healed: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let partition_count = 1 + random.below(3);
        let partitions: Vec<_> =
            (0..partition_count as u32).map(|number| PartitionKey::new(TopicId([7; 16]), PartitionIndex(number))).collect();
        let policy = RetryPolicy {
            attempts_max: 1 + random.below(4) as u32,
            backoff_first_ms: random.below(300) as u32,
            backoff_factor_percent: 200,
            backoff_max_ms: 1000,
            jitter_percent: 30,
            exhausted: [Exhausted::DeadLetter, Exhausted::DeadLetter, Exhausted::Skip, Exhausted::Stop][random.below(4)],
            dead_letter_topic: None,
        };
        let records = 20 + random.below(80) as u64;
        let oracle = Oracle::new(&mut random, &partitions, records, &policy);
        let records_max = [1, 2, 5, 8192][random.below(4)];
        let limits = RetryLimits { records_max, ..RetryLimits::default() };
        let coordinator = Coordinator::new(policy.clone(), limits);
        let members = 1 + random.below(3);
        let mut world = World {
            random,
            oracle,
            coordinator,
            members: Vec::new(),
            partitions,
            requests: Vec::new(),
            late: Vec::new(),
            replies: Vec::new(),
            process_next: 1,
            request_next: 0,
            origin: Instant::now(),
            now_ms: 0,
            policy,
            is_healed: false,
        };
        for _ in 0..members {
            let member = world.new_member();
            world.members.push(member);
        }
        world
    }

    fn new_member(&mut self) -> Member {
        let process = self.process_next;
        self.process_next += 1;
        Member::new(process)
    }

    fn instant(&self) -> Instant {
        self.origin + Duration::from_millis(self.now_ms)
    }

    /// Random steps with faults, then none until all is done. Returns what has happened how often.
    pub(super) fn run(mut self) -> BTreeMap<&'static str, u64> {
        let steps = self.random.below(6000);
        let per_thousand = [2, 10, 40][self.random.below(3)];
        for _ in 0..steps {
            self.work();
            if self.random.below(1000) < per_thousand {
                self.fault();
            }
        }
        self.heal();
        for _ in 0..20_000 {
            if self.coordinator.is_quiet(&self.oracle.ends) {
                self.oracle.check_end(self.policy.exhausted == Exhausted::DeadLetter);
                return self.coordinator.seen;
            }
            (0..20).for_each(|_| self.work());
            if self.random.percent(5) {
                self.coordinator.resume(self.now_ms);
            }
        }
        let cores: Vec<_> =
            self.members.iter().map(|member| (member.process, &member.handling, &member.fetches, &member.core)).collect();
        panic!("nothing goes on: {:#?}, {:?}", self.coordinator.retries, cores);
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.requests.clear();
        self.late.clear();
        for at in 0..self.members.len() {
            self.lose_all(at);
        }
        if self.policy.exhausted == Exhausted::Stop {
            // An operator must decide: what stopped the group is skipped.
            self.policy.exhausted = Exhausted::Skip;
            self.coordinator.set_policy(self.policy.clone());
        }
    }

    /// Whatever is under way of a member is lost, as it finds out by its timeouts.
    fn lose_all(&mut self, at: usize) {
        let process = self.members[at].process;
        let of = |reply: &Reply| match reply {
            Reply::Settled(to, ..) | Reply::Polled(to, ..) => *to == process,
            Reply::Fetched(..) => false,
        };
        self.replies.retain(|reply| !of(reply));
        let member = &mut self.members[at];
        if let Some((_, plan)) = member.settle.take() {
            self.coordinator.see("a settle without an answer");
            member.core.settle_lost(plan);
        }
        for plan in member.polls.drain(..) {
            member.core.poll_lost(&plan);
        }
    }

    fn work(&mut self) {
        let at = self.random.below(self.members.len());
        match self.random.below(13) {
            0 | 1 => self.offer(at),
            2 => {
                let delivery = self.members[at].core.next();
                self.members[at].handling.extend(delivery);
            }
            3 | 4 => self.handle(at),
            5 => self.fetch_retry(at),
            6 => {
                self.commit(at);
                self.send_settle(at);
            }
            7 => self.send_poll(at),
            8 => {
                if let Some(request) = self.random.take(&mut self.requests) {
                    self.arrive(request);
                }
            }
            9 | 10 => {
                let replies = self.coordinator.flush_some(&mut self.random, &mut self.oracle);
                self.replies.extend(replies);
                let acted = self.random.percent(30) && self.coordinator.act(&mut self.oracle, false);
                // What was done last is not yet written down when the coordinator dies.
                if acted && !self.is_healed && self.random.percent(25) {
                    self.crash_coordinator();
                }
            }
            11 => {
                if let Some(reply) = self.random.take(&mut self.replies) {
                    self.reply(reply);
                }
            }
            _ => {
                self.now_ms += self.random.below(60) as u64;
                self.coordinator.answer_polls(self.now_ms);
                self.balance();
            }
        }
    }

    fn fault(&mut self) {
        let at = self.random.below(self.members.len());
        match self.random.below(10) {
            // A connection breaks: requests are lost, or come late.
            0 | 1 => {
                let process = self.members[at].process;
                let broken = std::mem::take(&mut self.requests);
                for request in broken {
                    let (Request::Settle(from, ..) | Request::Poll(from, ..)) = &request;
                    if *from != process {
                        self.requests.push(request);
                    } else if self.random.percent(80) {
                        self.late.push(request);
                    }
                }
                self.lose_all(at);
            }
            2 | 3 => {
                if let Some(request) = self.random.take(&mut self.late) {
                    self.coordinator.see(match request {
                        Request::Settle(..) => "a settle that came late",
                        Request::Poll(..) => "a poll that came late",
                    });
                    self.arrive(request);
                }
            }
            4 => {
                let process = self.members[at].process;
                self.members[at] = self.new_member();
                self.coordinator.gone(process);
            }
            5 => self.crash_coordinator(),
            // A partition moves: its owner has given it up, or does not know yet.
            6 | 7 => {
                let partition = self.partitions[self.random.below(self.partitions.len())];
                let knows = self.random.percent(50);
                self.coordinator.disown(partition);
                if knows {
                    self.members.iter_mut().for_each(|member| member.unassign(partition));
                }
            }
            8 => self.coordinator.resume(self.now_ms),
            _ => {
                self.coordinator.act(&mut self.oracle, true);
            }
        }
    }

    fn crash_coordinator(&mut self) {
        self.coordinator.crash(&mut self.random, self.now_ms);
        (0..self.members.len()).for_each(|at| self.lose_all(at));
        self.replies.clear();
    }

    /// Each partition gets an owner, who asks where to begin; who is no longer one finds out.
    fn balance(&mut self) {
        for partition in self.partitions.clone() {
            let owner = self.coordinator.owners.get(&partition).copied();
            for member in &mut self.members {
                if owner != Some(member.process) && member.assignments.contains_key(&partition) && self.random.percent(50) {
                    member.unassign(partition);
                }
            }
            match owner {
                None => {
                    let at = self.random.below(self.members.len());
                    // It asks when it has learnt that it was not the owner for a while.
                    self.members[at].unassign(partition);
                    self.coordinator.own(partition, self.members[at].process);
                }
                Some(owner) => {
                    let asks = self.members.iter().any(|it| it.process == owner && !it.assignments.contains_key(&partition));
                    if asks {
                        self.coordinator.fetch(partition);
                    }
                }
            }
        }
    }

    fn offer(&mut self, at: usize) {
        let member = &mut self.members[at];
        let assignments: Vec<Assignment> = member.assignments.values().copied().collect();
        if assignments.is_empty() {
            return;
        }
        let assignment = assignments[self.random.below(assignments.len())];
        let partition = assignment.partition;
        for _ in 0..self.random.below(6) {
            if !member.core.wants(partition) {
                return;
            }
            let next = member.core.partitions[&partition].next_offset();
            let Some((&(_, offset), key)) = self.oracle.log.range((partition, next)..(partition, Offset(u64::MAX))).next() else {
                return member.core.passed(assignment, self.oracle.ends[&partition]);
            };
            let key = key.map(|key| [key]);
            member.core.offer(assignment, offset, LeaderEpoch(1), key.as_ref().map(|key| key.as_slice()), ());
        }
    }

    fn handle(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(delivery) = self.random.take(&mut member.handling) else { return };
        let place = (delivery.assignment.partition, delivery.offset);
        if self.oracle.work(place, delivery.attempt) {
            if member.core.done(delivery.assignment, delivery.offset) && delivery.attempt > 1 {
                member.said.push((place, u32::MAX));
            }
        } else if member.core.fail(delivery.assignment, delivery.offset, "it failed") {
            member.said.push((place, delivery.attempt));
        }
    }

    /// The program asks that everything be committed, and relies on it when it is told so.
    fn commit(&mut self, at: usize) {
        let member = &mut self.members[at];
        let (mark, said) = member.mark.get_or_insert_with(|| (member.core.mark(), member.said.clone()));
        match member.core.progress(mark) {
            Progress::Open => return,
            Progress::Told => {
                said.drain(..).for_each(|(place, attempt)| self.oracle.tell(place, attempt));
                self.coordinator.see("a commit is told");
            }
            Progress::NoRoom => self.coordinator.see("a commit without room"),
            Progress::Lost => self.coordinator.see("a commit that is lost"),
        }
        member.mark = None;
    }

    fn fetch_retry(&mut self, at: usize) {
        let member = &mut self.members[at];
        if let Some(fetch) = self.random.take(&mut member.fetches) {
            member.core.fetched(fetch, ());
        }
    }

    fn send_settle(&mut self, at: usize) {
        let now = self.instant();
        let with_commits = self.random.percent(70);
        let member = &mut self.members[at];
        let Some(plan) = member.core.next_settle(now, with_commits) else { return };
        self.requests.push(Request::Settle(member.process, self.request_next, plan.partitions.clone()));
        member.settle = Some((self.request_next, plan));
        self.request_next += 1;
    }

    fn send_poll(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(plan) = member.core.next_poll() else { return };
        self.requests.push(Request::Poll(member.process, plan.poll, plan.received, plan.partitions().collect()));
        member.polls.push(plan);
    }

    fn arrive(&mut self, request: Request) {
        let random = self.random.next();
        match request {
            Request::Settle(process, number, parts) => {
                self.coordinator.settle(process, number, &parts, self.now_ms, random, &self.oracle);
            }
            Request::Poll(process, poll, received, partitions) => {
                let wait_ms = random % 100;
                self.coordinator.poll(process, poll, received, partitions, self.now_ms, wait_ms);
            }
        }
    }

    fn reply(&mut self, reply: Reply) {
        let now = self.instant();
        let (Reply::Fetched(to, _) | Reply::Settled(to, ..) | Reply::Polled(to, ..)) = &reply;
        let Some(member) = self.members.iter_mut().find(|member| member.process == *to) else { return };
        match reply {
            Reply::Fetched(_, fetched) => {
                let partition = PartitionKey::new(fetched.topic, fetched.partition);
                // An answer from before the partition moved is of no use: the real member asks with an epoch.
                let is_owner = self.coordinator.owners.get(&partition) == Some(&member.process);
                if is_owner && !member.assignments.contains_key(&partition) {
                    let start = fetched.committed.as_ref().map_or(Offset(0), |committed| committed.offset);
                    if !fetched.held.is_empty() {
                        self.coordinator.see("begun where records are held beyond the commit");
                    }
                    let assignment = member.core.assign(&fetched, start);
                    member.assignments.insert(partition, assignment);
                }
            }
            Reply::Settled(_, number, replies) => {
                if let Some((_, plan)) = member.settle.take_if(|(waits, _)| *waits == number) {
                    member.core.settled(now, &plan, &replies);
                }
            }
            Reply::Polled(_, poll, records) => {
                let Some(at) = member.polls.iter().position(|plan| plan.poll == poll) else { return };
                let plan = member.polls.remove(at);
                let fetches = member.core.polled(&plan, &records);
                member.fetches.extend(fetches);
            }
        }
    }
}
