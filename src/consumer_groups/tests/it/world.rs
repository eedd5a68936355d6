//! A coordinator with its log, its topics, and the way between it and its clients.

mod promises;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use consumer_groups::retry::{DeadLetter, DeadLetterProducer, RetryAction, RetryEvent};
use consumer_groups::{
    Coordinator, Event, Now, Options, Outcome, Reply, Request, SnapshotPosition, StateRecord, Token, Topic, Topics,
};
use wire::{
    AlterOffsetsRequest, AlterPartition, CommitOffsetsRequest, CommitPartition, CommittedOffset, DeferredRecord, DoneRecord,
    DueRecord, ErrorCode, FailedRecord, FetchOffsetsRequest, GroupHeartbeatRequest, MemberEpoch, Offset, PartitionIndex,
    PartitionKey, ProducerEpoch, ProducerId, SettlePartition, SettleRequest, TakeRetriesRequest, TimestampMs, TopicId,
};

use crate::client::Client;
use requests::Sent;

/// The topics there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog(pub(crate) BTreeMap<String, (TopicId, u32)>);

impl Topics for Catalog {
    fn by_name(&self, name: &str) -> Option<Topic<'_>> {
        self.0.get_key_value(name).map(|(name, &(id, partitions))| Topic { id, name, partitions })
    }

    fn by_id(&self, id: TopicId) -> Option<Topic<'_>> {
        let found = self.0.iter().find(|(_, (topic, _))| *topic == id);
        found.map(|(name, &(id, partitions))| Topic { id, name, partitions })
    }
}

/// What the way does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    RequestLost,
    ReplyLost,
    /// Another copy of it arrives later.
    Twice,
}

/// Whose reply it is, and whether it arrives.
#[derive(Clone, Copy, Debug)]
struct Addressee {
    client: usize,
    is_lost: bool,
}

pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) catalog: Catalog,
    topics_made: u8,
    pub(crate) coordinator: Coordinator,
    wake_at_ms: Option<u64>,
    /// Batches of state records, by their position since ever; those trimmed are empty.
    pub(crate) log: Vec<Vec<StateRecord>>,
    pub(crate) durable: usize,
    held: Vec<(usize, Token, Reply)>,
    /// Work for dead letters, likewise held until so many batches are durable.
    actions: Vec<(usize, RetryAction)>,
    /// Requests without an answer so far.
    unanswered: BTreeSet<Token>,
    /// So many batches hold all that was said of members.
    memberships: usize,
    addressees: BTreeMap<Token, Addressee>,
    late: Vec<(usize, Sent)>,
    pub(crate) clients: Vec<Client>,
    tokens: u64,
    lanes: i64,
    snapshot: Option<(usize, Option<SnapshotPosition>)>,
    /// What was committed, as far as an answer said so; and whatever was the last value seen.
    answered: BTreeMap<PartitionKey, Offset>,
    seen: BTreeMap<PartitionKey, Offset>,
    commits: BTreeMap<Token, Vec<(PartitionKey, Offset)>>,
}

pub(crate) fn options() -> Options {
    Options { offsets_retention_ms: 60 * 60 * 1000, ..Options::default() }
}

impl World {
    pub(crate) fn new() -> World {
        let mut world = World {
            now: Now { steady_ms: 1_000, wall: TimestampMs(1_764_000_000_000) },
            catalog: Catalog::default(),
            topics_made: 0,
            coordinator: Coordinator::new(options()),
            wake_at_ms: None,
            log: Vec::new(),
            durable: 0,
            held: Vec::new(),
            actions: Vec::new(),
            unanswered: BTreeSet::new(),
            memberships: 0,
            addressees: BTreeMap::new(),
            late: Vec::new(),
            clients: Vec::new(),
            tokens: 0,
            lanes: 0,
            snapshot: None,
            answered: BTreeMap::new(),
            seen: BTreeMap::new(),
            commits: BTreeMap::new(),
        };
        world.handle(Event::Loaded);
        world
    }

    pub(crate) fn handle(&mut self, event: Event) {
        if let Event::Request { token, .. } = &event {
            self.unanswered.insert(*token);
        }
        let mut outcome = Outcome::default();
        self.coordinator.handle(self.now, &self.catalog, event, &mut outcome);
        for (token, _) in &outcome.replies {
            assert!(self.unanswered.remove(token), "{token:?} is answered once");
        }
        if !outcome.records.is_empty() {
            self.log.push(outcome.records);
        }
        let needs = self.log.len();
        if !outcome.memberships.is_empty() {
            self.memberships = needs;
        }
        self.held.extend(outcome.replies.into_iter().map(|(token, reply)| {
            // What is said of a group's members does not wait for its commits.
            let needs = if matches!(reply, Reply::Heartbeat(_)) { self.memberships } else { needs };
            (needs, token, reply)
        }));
        self.actions.extend(outcome.retry_actions.into_iter().map(|action| (needs, action)));
        self.wake_at_ms = outcome.wake_at_ms;
    }

    pub(crate) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// The reply to that request, if it has been given.
    pub(crate) fn take_reply(&mut self, token: Token) -> Option<Reply> {
        let place = self.held.iter().position(|(_, of, _)| *of == token)?;
        Some(self.held.remove(place).2)
    }

    /// Makes the log durable up to so many batches, and delivers what waited for it.
    pub(crate) fn make_durable(&mut self, batches: usize) {
        self.durable = batches.clamp(self.durable, self.log.len());
        let (ready, held): (Vec<_>, Vec<_>) = self.held.drain(..).partition(|(needs, ..)| *needs <= self.durable);
        self.held = held;
        ready.into_iter().for_each(|(_, token, reply)| self.deliver(token, &reply));
    }

    pub(crate) fn make_all_durable(&mut self) {
        self.make_durable(self.log.len());
    }

    fn deliver(&mut self, token: Token, reply: &Reply) {
        let Some(addressee) = self.addressees.remove(&token) else { return };
        if let Reply::CommitOffsets(reply) = reply {
            let committed = self.commits.remove(&token).unwrap_or_default();
            for (answer, (partition, offset)) in reply.partitions.iter().zip(committed) {
                if answer.error == ErrorCode::None && self.catalog.has(partition) {
                    self.answered.insert(partition, offset.max(self.answered.get(&partition).copied().unwrap_or_default()));
                }
            }
        }
        if let Reply::Settle(reply) = reply {
            for answer in &reply.partitions {
                let partition = PartitionKey::new(answer.topic, answer.partition);
                if let Some(committed) = answer.committed.filter(|_| self.catalog.has(partition)) {
                    self.answered.insert(partition, committed.max(self.answered.get(&partition).copied().unwrap_or_default()));
                }
            }
        }
        if addressee.is_lost {
            return;
        }
        if let Reply::TakeRetries(reply) = reply {
            let client = &mut self.clients[addressee.client];
            client.received = client.received.max(token.0);
            client.retrying.extend(reply.records.iter().cloned());
        }
        if let Reply::Heartbeat(reply) = reply {
            self.clients[addressee.client].receive(self.now.steady_ms, token.0, reply);
        }
    }

    /// Lets time pass; whatever falls due meanwhile happens in its order, clients first.
    pub(crate) fn advance(&mut self, ms: u64) {
        let end_ms = self.now.steady_ms + ms;
        loop {
            let clients = self.clients.iter().filter_map(Client::next_deadline_ms);
            let next_ms = clients.chain(self.wake_at_ms).min().map_or(end_ms, |at_ms| at_ms.clamp(self.now.steady_ms, end_ms));
            let passed_ms = next_ms - self.now.steady_ms;
            self.now.steady_ms = next_ms;
            self.now.wall.0 += passed_ms as i64;
            self.clients.iter_mut().for_each(|client| client.pass_time(next_ms));
            if self.wake_at_ms.is_some_and(|at_ms| at_ms <= next_ms) {
                self.handle(Event::Tick { is_wall_trusted: true });
                assert!(self.wake_at_ms.is_none_or(|at_ms| at_ms > next_ms), "a tick leaves nothing due");
            }
            self.check();
            if next_ms == end_ms {
                return;
            }
        }
    }

    /// Does what is to be done for dead letters, as far as it may be done.
    pub(crate) fn deliver_dead_letters(&mut self) {
        let (ready, held): (Vec<_>, Vec<_>) = self.actions.drain(..).partition(|(needs, _)| *needs <= self.durable);
        self.actions = held;
        for (_, action) in ready {
            let event = match action {
                RetryAction::OpenLane { group, origin, topic } => {
                    self.lanes += 1;
                    let partition = PartitionIndex(0);
                    let producer = DeadLetterProducer { id: ProducerId(self.lanes), epoch: ProducerEpoch(0), partition };
                    RetryEvent::LaneOpened { group, origin, topic, producer }
                }
                RetryAction::AppendDeadLetter(letter) => {
                    let DeadLetter { group, origin, producer, number, .. } = letter;
                    RetryEvent::DeadLetterAppended { group, origin, producer, number }
                }
            };
            self.handle(Event::Retry(event));
        }
    }

    pub(crate) fn create_or_grow(&mut self, name: &str, partitions: u32) {
        match self.catalog.0.get_mut(name) {
            Some((_, count)) => *count = partitions.max(*count),
            None => {
                self.topics_made += 1;
                self.catalog.0.insert(name.to_owned(), (TopicId([self.topics_made; 16]), partitions));
            }
        }
        self.handle(Event::TopicsChanged { names: vec![name.to_owned()] });
    }

    pub(crate) fn delete_topic(&mut self, name: &str) {
        let Some((id, _)) = self.catalog.0.remove(name) else { return };
        self.answered.retain(|partition, _| partition.topic != id);
        self.seen.retain(|partition, _| partition.topic != id);
        self.handle(Event::TopicDeleted { id, name: name.to_owned() });
    }

    /// An operator moves one offset.
    pub(crate) fn alter(&mut self, name: &str, partition: u32, offset: Option<Offset>) {
        let Some(&(topic, _)) = self.catalog.0.get(name) else { return };
        let partition = PartitionIndex(partition);
        let request = AlterOffsetsRequest {
            group: "g".to_owned(),
            clear_parked: true,
            partitions: vec![AlterPartition { topic, partition, offset }],
        };
        let token = self.token();
        self.handle(Event::Request { token, request: Request::AlterOffsets(request) });
        let key = PartitionKey::new(topic, partition);
        let is_altered =
            matches!(&self.held.last().unwrap().2, Reply::AlterOffsets(reply) if reply.partitions[0].error == ErrorCode::None);
        if is_altered {
            let owner = self.clients.iter().find(|client| client.belief.contains_key(&key));
            assert!(owner.is_none(), "{key} was moved under {owner:?}");
            // A crash must not bring back what the operator has seen changed.
            self.make_all_durable();
            self.seen.remove(&key);
            self.answered.remove(&key);
        }
    }

    /// The coordinator dies, and comes back with the log cut somewhere behind what is durable.
    pub(crate) fn crash(&mut self, cut: usize) {
        let end = self.durable + cut % (self.log.len() - self.durable + 1);
        self.log.truncate(end);
        self.durable = end;
        self.memberships = self.memberships.min(end);
        self.held.clear();
        self.actions.clear();
        self.unanswered.clear();
        self.addressees.clear();
        self.commits.clear();
        self.snapshot = None;
        self.coordinator = self.replayed();
        self.seen = self.answered.clone();
        self.handle(Event::Loaded);
    }

    /// A coordinator with the state of the whole log.
    fn replayed(&self) -> Coordinator {
        let mut coordinator = Coordinator::new(options());
        for record in self.log.iter().flatten() {
            coordinator.replay(&record.key, record.value.as_deref()).unwrap();
        }
        coordinator.finish_replay(self.now).unwrap();
        coordinator
    }

    /// One step of a snapshot; at its end, once durable, the log begins with it.
    pub(crate) fn snapshot_step(&mut self, bytes: usize) {
        let (begin, from) = self.snapshot.take().unwrap_or((self.log.len(), None));
        let slice = self.coordinator.snapshot(from.as_ref(), bytes);
        if !slice.records.is_empty() {
            self.log.push(slice.records);
        }
        if slice.next.is_some() {
            self.snapshot = Some((begin, slice.next));
            return;
        }
        self.make_all_durable();
        self.log[..begin].iter_mut().for_each(Vec::clear);
    }
}

/// The whole state, in order.
pub(crate) fn everything(coordinator: &Coordinator) -> Vec<StateRecord> {
    coordinator.snapshot(None, usize::MAX).records
}

pub(crate) fn commit_partition(partition: PartitionKey, offset: Offset) -> CommitPartition {
    CommitPartition {
        topic: partition.topic,
        partition: partition.partition,
        commit: CommittedOffset { offset, leader_epoch: None, metadata: None },
    }
}
