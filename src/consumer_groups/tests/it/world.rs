//! A coordinator with its log, its topics, and the way between it and its clients.

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

#[derive(Clone, Debug)]
enum Sent {
    Heartbeat(GroupHeartbeatRequest),
    Commit(CommitOffsetsRequest),
    Settle(SettleRequest, u64),
    TakeRetries(TakeRetriesRequest),
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

    pub(crate) fn beat(&mut self, client: usize, fate: Fate) {
        if !self.clients[client].is_alive {
            return;
        }
        let token = self.token();
        let request = self.clients[client].heartbeat(self.now.steady_ms, token.0);
        self.send(client, token, Sent::Heartbeat(request), fate);
    }

    pub(crate) fn leave(&mut self, client: usize, epoch: MemberEpoch, fate: Fate) {
        if !self.clients[client].is_alive {
            return;
        }
        let request = self.clients[client].leave(epoch);
        let token = self.token();
        self.send(client, token, Sent::Heartbeat(request), fate);
    }

    pub(crate) fn commit(&mut self, client: usize, pick: usize, step: i64, fate: Fate) {
        let member = &self.clients[client];
        let Some(&partition) = member.belief.keys().nth(pick % member.belief.len().max(1)) else { return };
        let position = self.seen.get(&partition).map_or(0, |offset| offset.0 as i64);
        let offset = Offset((position + step).max(0) as u64);
        let request = CommitOffsetsRequest {
            group: "g".to_owned(),
            member_id: Some(member.member_id()),
            member_epoch: member.epoch,
            partitions: vec![commit_partition(partition, offset)],
        };
        let token = self.token();
        self.send(client, token, Sent::Commit(request), fate);
    }

    /// A member says of some records at its position that they failed, are held back or done.
    pub(crate) fn settle(&mut self, client: usize, pick: usize, seed: u64, fate: Fate) {
        let member = &mut self.clients[client];
        let Some(&partition) = member.belief.keys().nth(pick % member.belief.len().max(1)) else { return };
        let position = self.seen.get(&partition).copied().unwrap_or_default();
        let key = |number: u64| vec![b'k', (number % 3) as u8];
        let mut part = SettlePartition {
            topic: partition.topic,
            partition: partition.partition,
            deferred: Vec::new(),
            done: Vec::new(),
            failed: Vec::new(),
            commit: Some(CommittedOffset { offset: position.plus(4), leader_epoch: None, metadata: None }),
        };
        for number in 0..4 {
            let offset = position.plus(number);
            match seed >> (2 * number) & 3 {
                0 => part.deferred.push(DeferredRecord { offset, key: key(seed >> number) }),
                1 => part.failed.push(failed(offset, (seed & 64 == 0).then(|| key(seed >> number)), 1)),
                _ => {}
            }
        }
        let due: Vec<DueRecord> = member.retrying.drain(..).filter(|due| due.topic == partition.topic).collect();
        for (number, due) in due.into_iter().filter(|due| due.partition == partition.partition).enumerate() {
            match seed >> (8 + number % 32) & 1 {
                0 => part.done.push(DoneRecord { offset: due.offset, key: due.key }),
                _ => part.failed.push(failed(due.offset, due.key, due.attempt)),
            }
        }
        let request = SettleRequest {
            group: "g".to_owned(),
            member_id: member.member_id(),
            member_epoch: member.epoch,
            partitions: vec![part],
        };
        let token = self.token();
        self.send(client, token, Sent::Settle(request, seed), fate);
    }

    pub(crate) fn take_retries(&mut self, client: usize, max_wait_ms: u32, fate: Fate) {
        if !self.clients[client].is_alive {
            return;
        }
        let token = self.token();
        let member = &self.clients[client];
        let request = TakeRetriesRequest {
            group: "g".to_owned(),
            member_id: member.member_id(),
            member_epoch: member.epoch,
            poll: token.0,
            received: member.received,
            partitions: member.belief.keys().copied().collect(),
            max_records: 3,
            max_wait_ms,
        };
        self.send(client, token, Sent::TakeRetries(request), fate);
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

    fn send(&mut self, client: usize, token: Token, sent: Sent, fate: Fate) {
        if fate == Fate::RequestLost {
            return;
        }
        if fate == Fate::Twice {
            self.late.push((client, sent.clone()));
        }
        self.addressees.insert(token, Addressee { client, is_lost: fate == Fate::ReplyLost });
        self.arrive(token, sent);
    }

    fn arrive(&mut self, token: Token, sent: Sent) {
        let request = match sent {
            Sent::Heartbeat(request) => Request::Heartbeat { request, client: Default::default() },
            Sent::Settle(request, random) => Request::Settle { request, random },
            Sent::TakeRetries(request) => Request::TakeRetries(request),
            Sent::Commit(request) => {
                let named = request.partitions.iter();
                let named = named.map(|one| (PartitionKey::new(one.topic, one.partition), one.commit.offset)).collect();
                self.commits.insert(token, named);
                Request::CommitOffsets(request)
            }
        };
        self.handle(Event::Request { token, request });
    }

    /// A copy of something sent earlier arrives now; nobody waits for its reply.
    pub(crate) fn late_copy(&mut self, pick: usize) {
        if self.late.is_empty() {
            return;
        }
        let (client, sent) = self.late.remove(pick % self.late.len());
        let token = self.token();
        self.addressees.insert(token, Addressee { client, is_lost: true });
        self.arrive(token, sent);
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

    pub(crate) fn check_replay(&self) {
        assert_eq!(everything(&self.replayed()), everything(&self.coordinator), "the log gives the state");
    }

    /// From here on offsets may be gone.
    pub(crate) fn let_offsets_go(&mut self) {
        self.seen.clear();
        self.answered.clear();
    }

    /// What must hold at every moment.
    pub(crate) fn check(&mut self) {
        let mut owners: BTreeMap<PartitionKey, u32> = BTreeMap::new();
        for client in &self.clients {
            for &partition in client.belief.keys() {
                let other = owners.insert(partition, client.number);
                assert_eq!(other, None, "{partition} is owned by {:?} and {other:?}", client.member_id());
            }
        }
        let committed = self.committed();
        for (partition, &before) in &self.seen {
            let now = committed.get(partition).copied();
            assert!(now >= Some(before), "{partition} went back from {before} to {now:?}");
        }
        for (partition, &answered) in &self.answered {
            assert!(committed.get(partition) >= Some(&answered), "{partition}: a commit that was answered is lost");
        }
        self.seen = committed;
    }

    pub(crate) fn committed(&mut self) -> BTreeMap<PartitionKey, Offset> {
        let request = FetchOffsetsRequest { group: "g".to_owned(), partitions: None, after: None };
        let mut outcome = Outcome::default();
        let event = Event::Request { token: Token(0), request: Request::FetchOffsets(request) };
        self.coordinator.handle(self.now, &self.catalog, event, &mut outcome);
        let Some((_, Reply::FetchOffsets(reply))) = outcome.replies.pop() else { panic!("a fetch is answered at once") };
        let fetched = reply.partitions.into_iter();
        fetched.filter_map(|one| Some((PartitionKey::new(one.topic, one.partition), one.committed?.offset))).collect()
    }

    /// Nothing is lost any more: after some heartbeats everything that somebody wants is owned.
    pub(crate) fn heal(&mut self) {
        self.late.clear();
        for round in 0..40 {
            self.make_all_durable();
            self.deliver_dead_letters();
            for client in 0..self.clients.len() {
                self.clients[client].give_up();
                self.beat(client, Fate::Arrives);
                self.make_all_durable();
            }
            self.check();
            self.advance(if round % 2 == 0 { 500 } else { 3_000 });
        }
        self.make_all_durable();
        self.check();
        let living: Vec<&Client> = self.clients.iter().filter(|client| client.is_alive).collect();
        let wanted = living.iter().flat_map(|client| client.topics.iter()).filter_map(|name| self.catalog.0.get(name));
        let wanted: BTreeSet<PartitionKey> =
            wanted.flat_map(|&(topic, count)| (0..count).map(move |n| PartitionKey::new(topic, PartitionIndex(n)))).collect();
        let owned: BTreeSet<PartitionKey> = living.iter().flat_map(|client| client.belief.keys().copied()).collect();
        assert_eq!(owned, wanted, "all that is wanted is owned, and nothing else");
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

fn failed(offset: Offset, key: Option<Vec<u8>>, attempt: u32) -> FailedRecord {
    FailedRecord { offset, key, attempt, reason: "no".to_owned() }
}
