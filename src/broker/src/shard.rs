//! One shard: its log, its partitions, its connections, and what it knows of the others.
//!
//! Only its own thread touches it. Futures hold it by `Rc`; no borrow of a cell lives across an await.

pub(crate) mod compaction;
pub(crate) mod relief;
pub(crate) mod retention;
pub(crate) mod serve;
mod sweeper;
mod topics_change;
pub(crate) mod trust;

use crate::{
    ack::Deadlines,
    admission::Gate,
    append::WaitingLine,
    calls::Calls,
    config::Config,
    connection::Connection,
    counters::{ShardCounters, TopicCounters},
    groups::Coordinators,
    mail::Mail,
    metadata::{Answered, Refusal},
    metrics::GroupLevels,
    partition::Partition,
    process::Process,
    producers::Fences,
    topics::Topics,
};
use commit_log::ShardLog;
use hashbrown::HashMap;
use relief::Relief;
use shards::{
    ShardId,
    mesh::Mesh,
    sync::{Notify, OneshotSender},
};
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    sync::Arc,
};
use wire::{PartitionKey, TopicId};

/// Everything one shard has.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) count: u16,
    pub(crate) config: Arc<Config>,
    pub(crate) process: Arc<Process>,
    pub(crate) mesh: Mesh<Mail>,
    pub(crate) log: ShardLog,
    pub(crate) topics: RefCell<Topics>,
    /// The latest instances of named producers.
    pub(crate) fences: RefCell<Fences>,
    pub(crate) partitions: RefCell<HashMap<PartitionKey, Rc<Partition>>>,
    pub(crate) topic_counters: RefCell<HashMap<TopicId, Rc<TopicCounters>>>,
    pub(crate) coordinators: Coordinators,
    pub(crate) calls: Calls,
    pub(crate) deadlines: Deadlines,
    /// Appends that wait for room in the log.
    pub(crate) appends_waiting: WaitingLine,
    /// Whether what is kept for a time is deleted by the wall clock.
    pub(crate) clock_trust: RefCell<trust::Trust>,
    /// When retention looks at which partition.
    pub(crate) retention: retention::Schedule,
    /// Requests in memory.
    pub(crate) in_flight: Gate,
    /// Replies in memory.
    pub(crate) reply_bytes: Gate,
    pub(crate) relief: Relief,
    pub(crate) connections: RefCell<Connections>,
    pub(crate) counters: ShardCounters,
    pub(crate) compaction: Cell<compaction::CompactionLevels>,
    /// The groups whose coordinators are here, as last looked at; `None` before that.
    pub(crate) group_levels: RefCell<Option<Arc<GroupLevels>>>,
    /// Requests of clients that the metadata thread has not answered.
    pub(crate) asked: RefCell<HashMap<u64, OneshotSender<Asked>>>,
    next_ticket: Cell<u64>,
    stopping: Cell<bool>,
    /// Told when the broker begins to stop.
    pub(crate) stop: Notify,
    open_requests: Cell<usize>,
    /// Of them, those that came before the broker began to stop.
    open_before_stop: Cell<usize>,
    /// Told when the last of those is answered.
    quiet: Notify,
}

/// What the metadata thread answers.
pub(crate) type Asked = Result<Answered, Refusal>;

/// Requests of one shard that the metadata thread may have waiting.
pub(crate) const ASKED_MAX: usize = 256;

impl Shard {
    pub(crate) fn new(
        id: ShardId,
        count: u16,
        config: Arc<Config>,
        process: Arc<Process>,
        mesh: Mesh<Mail>,
        log: ShardLog,
        topics: Topics,
    ) -> Rc<Self> {
        let share = |bytes: crate::config::ByteSize| (bytes.as_usize() / usize::from(count)).max(1);
        // A frame must always fit, however many shards share the bound.
        let in_flight = share(config.memory.in_flight_bytes_max).max(config.limits.frame_bytes_max.as_usize());
        let reply_bytes = share(config.memory.reply_bytes_max).max(config.limits.fetch_bytes_max.as_usize());
        Rc::new(Shard {
            id,
            count,
            process,
            mesh,
            log,
            topics: RefCell::new(topics),
            fences: RefCell::default(),
            partitions: RefCell::default(),
            topic_counters: RefCell::default(),
            coordinators: Coordinators::default(),
            calls: Calls::default(),
            deadlines: Deadlines::default(),
            appends_waiting: WaitingLine::default(),
            clock_trust: RefCell::default(),
            retention: retention::Schedule::default(),
            in_flight: Gate::new(in_flight),
            reply_bytes: Gate::new(reply_bytes),
            relief: Relief::default(),
            connections: RefCell::default(),
            counters: ShardCounters::default(),
            compaction: Cell::default(),
            group_levels: RefCell::default(),
            asked: RefCell::default(),
            next_ticket: Cell::new(0),
            stopping: Cell::new(false),
            stop: Notify::new(),
            open_requests: Cell::new(0),
            open_before_stop: Cell::new(0),
            quiet: Notify::new(),
            config,
        })
    }

    /// Whether new requests are refused.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// A number for a request to the metadata thread.
    pub(crate) fn new_ticket(&self) -> u64 {
        self.next_ticket.replace(self.next_ticket.get() + 1)
    }

    /// Requests not yet answered.
    pub(crate) fn open_requests(&self) -> usize {
        self.open_requests.get()
    }

    /// The counters of a topic on this shard.
    pub(crate) fn counters_of(&self, topic: TopicId) -> Rc<TopicCounters> {
        Rc::clone(self.topic_counters.borrow_mut().entry(topic).or_default())
    }
}

/// A request between its admission and the writing of its reply.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    shard: Weak<Shard>,
    before_stop: bool,
}

impl OpenRequest {
    pub(crate) fn new(shard: &Rc<Shard>) -> Self {
        let before_stop = !shard.is_stopping();
        shard.open_requests.set(shard.open_requests.get() + 1);
        shard.open_before_stop.set(shard.open_before_stop.get() + usize::from(before_stop));
        OpenRequest { shard: Rc::downgrade(shard), before_stop }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(shard) = self.shard.upgrade() {
            shard.open_requests.set(shard.open_requests.get() - 1);
            shard.open_before_stop.set(shard.open_before_stop.get() - usize::from(self.before_stop));
            if self.before_stop && shard.open_before_stop.get() == 0 {
                shard.quiet.notify_waiters();
            }
        }
    }
}

/// The connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    next: u64,
    open: HashMap<u64, Rc<Connection>>,
}

impl Connections {
    pub(crate) fn add(&mut self, connection: &Rc<Connection>) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Rc::clone(connection));
        self.next
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.open.remove(&number);
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<Connection>> {
        self.open.values()
    }

    /// All of them, for a walk during which some may close.
    pub(crate) fn all(&self) -> Vec<Rc<Connection>> {
        self.open.values().cloned().collect()
    }
}
