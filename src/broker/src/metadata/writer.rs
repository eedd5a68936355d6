//! The one thread that changes the catalog.

use super::{
    catalog::{Catalog, Change, NewTopic, Refusal},
    store::{MetadataError, Store},
    topic::Topic,
};
use crate::{config::Limits, mail::Mail};
use shards::{
    ShardId, clock,
    mesh::{PostError, Remote},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, mpsc::Receiver, mpsc::RecvTimeoutError},
    time::Duration,
};
use uuid::Uuid;
use wire::{InitProducerRequest, ProducerIdentity, TopicConfig, TopicConfigChanges, TopicId};

/// Requests journalled with one sync.
const GROUP_MAX: usize = 256;
/// A shard whose queue was full is tried again after this.
const POST_AGAIN: Duration = Duration::from_millis(2);

/// What the writer is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client's request.
    Request {
        /// The shard to answer.
        shard: ShardId,
        /// Its number for the request.
        ticket: u64,
        /// What is asked.
        request: Request,
    },
    /// A shard has applied the broadcast that ends with `version`.
    Applied {
        /// The version of its last change.
        version: u64,
    },
    /// Every shard has opened, with the partitions of deleted topics removed.
    Opened,
    /// End.
    Stop,
}

/// What a client wants.
#[derive(Debug)]
pub(crate) enum Request {
    /// A change of topics.
    Topic(TopicRequest),
    /// An identity.
    Producer(InitProducerRequest),
}

/// What a request came to.
#[derive(Debug)]
pub(crate) enum Answered {
    /// The topic as it is now.
    Topic(Arc<Topic>),
    /// The identity.
    Producer(ProducerIdentity),
}

/// A change of topics that a client wants.
#[derive(Debug)]
pub(crate) enum TopicRequest {
    /// A new topic.
    Create { name: String, config: TopicConfig, validate_only: bool },
    /// Another configuration.
    Alter { name: String, changes: TopicConfigChanges, validate_only: bool },
    /// No topic.
    Delete { name: String },
}

/// The writer's state.
pub(crate) struct Writer {
    store: Store,
    catalog: Catalog,
    limits: Limits,
    remotes: Vec<Remote<Mail>>,
    /// For each shard what could not be posted yet, in order. Bounded by the requests in progress.
    outboxes: Vec<VecDeque<Mail>>,
    /// Broadcasts that not every shard has applied, by their last version.
    outstanding: BTreeMap<u64, Outstanding>,
    /// Deleted topics that no shard holds any more.
    purged: Vec<TopicId>,
}

struct Outstanding {
    missing: usize,
    answers: Vec<(ShardId, u64, Answered)>,
    deleted: Vec<TopicId>,
}

impl Writer {
    /// A writer for the opened store.
    pub(crate) fn new(store: Store, catalog: Catalog, limits: Limits, remotes: Vec<Remote<Mail>>) -> Self {
        let outboxes = remotes.iter().map(|_| VecDeque::new()).collect();
        Writer { store, catalog, limits, remotes, outboxes, outstanding: BTreeMap::new(), purged: Vec::new() }
    }

    /// Runs until told to stop. An error means that what is on disk is unknown: the process must end.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) -> Result<(), MetadataError> {
        loop {
            let unposted = self.outboxes.iter().any(|outbox| !outbox.is_empty());
            let first = if unposted {
                match commands.recv_timeout(POST_AGAIN) {
                    Ok(command) => Some(command),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            } else {
                match commands.recv() {
                    Ok(command) => Some(command),
                    Err(_) => return Ok(()),
                }
            };
            let group: Vec<Command> = first.into_iter().chain(commands.try_iter().take(GROUP_MAX - 1)).collect();
            let stop = group.iter().any(|command| matches!(command, Command::Stop));
            self.handle(group)?;
            self.post();
            if stop {
                return Ok(());
            }
        }
    }

    /// Decides on a group of commands, makes the changes durable with one sync, then lets them be seen.
    fn handle(&mut self, group: Vec<Command>) -> Result<(), MetadataError> {
        let first_version = self.catalog.version() + 1;
        let mut changes = Vec::new();
        let mut answers = Vec::new();
        for command in group {
            match command {
                Command::Request { shard, ticket, request } => match self.decide(&request) {
                    Ok(Decision::Changes(made, answer)) => {
                        // Applied at once, so that the next request of the group sees them; nobody else does before the sync.
                        made.iter().for_each(|change| self.catalog.apply(change));
                        changes.extend(made);
                        answers.push((shard, ticket, answer));
                    }
                    // Posted after the sync, like all of the group: it may rest on a change before it.
                    Ok(Decision::Nothing(answer)) => self.answer(shard, ticket, Ok(answer)),
                    Err(refusal) => self.answer(shard, ticket, Err(refusal)),
                },
                Command::Applied { version } => self.applied(version),
                Command::Opened => self.purged.extend(self.catalog.deleting().map(|topic| topic.id)),
                Command::Stop => {}
            }
        }
        for id in std::mem::take(&mut self.purged) {
            let change = Change::Purged(id);
            self.catalog.apply(&change);
            changes.push(change);
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.store.append(&changes)?;
        self.broadcast(first_version, changes, answers);
        self.store.compact(&self.catalog)
    }

    fn decide(&mut self, request: &Request) -> Result<Decision, Refusal> {
        match request {
            Request::Topic(request) => self.decide_topic(request),
            Request::Producer(request) => {
                let (identity, changes) = self.catalog.producers.init(request, clock::wall_ms())?;
                let answer = Answered::Producer(identity);
                Ok(if changes.is_empty() { Decision::Nothing(answer) } else { Decision::Changes(changes, answer) })
            }
        }
    }

    fn decide_topic(&self, request: &TopicRequest) -> Result<Decision, Refusal> {
        let (change, validate_only) = match request {
            TopicRequest::Create { name, config, validate_only } => {
                let id = TopicId(Uuid::new_v4().into_bytes());
                let new = NewTopic { id, name, config, created_ms: clock::wall_ms() };
                (self.catalog.create(new, &self.limits)?, *validate_only)
            }
            TopicRequest::Alter { name, changes, validate_only } => {
                (self.catalog.alter(name, changes, &self.limits)?, *validate_only)
            }
            TopicRequest::Delete { name } => (self.catalog.delete(name)?, false),
        };
        let topic = match &change {
            Change::Put(topic) | Change::Deleting(topic) => Arc::clone(topic),
            other => unreachable!("a request about topics came to {other:?}"),
        };
        let answer = Answered::Topic(topic);
        Ok(if validate_only { Decision::Nothing(answer) } else { Decision::Changes(vec![change], answer) })
    }

    fn broadcast(&mut self, version: u64, changes: Vec<Change>, answers: Vec<(ShardId, u64, Answered)>) {
        let deleted = changes.iter().filter_map(|change| match change {
            Change::Deleting(topic) => Some(topic.id),
            _ => None,
        });
        let outstanding = Outstanding { missing: self.remotes.len(), answers, deleted: deleted.collect() };
        self.outstanding.insert(self.catalog.version(), outstanding);
        let changes: Arc<[Change]> = changes.into();
        for outbox in &mut self.outboxes {
            outbox.push_back(Mail::Metadata { version, changes: Arc::clone(&changes) });
        }
    }

    fn applied(&mut self, version: u64) {
        let Some(outstanding) = self.outstanding.get_mut(&version) else { return };
        outstanding.missing -= 1;
        if outstanding.missing > 0 {
            return;
        }
        let done = self.outstanding.remove(&version).expect("it was there");
        self.purged.extend(done.deleted);
        for (shard, ticket, answer) in done.answers {
            self.answer(shard, ticket, Ok(answer));
        }
    }

    fn answer(&mut self, shard: ShardId, ticket: u64, result: Result<Answered, Refusal>) {
        self.outboxes[shard.index()].push_back(Mail::MetadataAnswer { ticket, result });
    }

    /// Posts what waits, each shard in order, as far as their queues take it.
    fn post(&mut self) {
        for (remote, outbox) in self.remotes.iter().zip(&mut self.outboxes) {
            while let Some(mail) = outbox.pop_front() {
                match remote.post(mail) {
                    Ok(()) => {}
                    Err(PostError::Full(mail)) => {
                        outbox.push_front(mail);
                        break;
                    }
                    // The shard has ended: the process is stopping.
                    Err(PostError::Gone(_)) => outbox.clear(),
                }
            }
        }
    }
}

enum Decision {
    /// These, and the answer when every shard has applied them.
    Changes(Vec<Change>, Answered),
    /// No change.
    Nothing(Answered),
}
