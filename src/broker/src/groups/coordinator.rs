//! One coordinator: the core, who waits for its replies, and what the writer has still to append.

use super::{
    dead_letter::{self, Origin},
    unwritten::{Unit, Unwritten},
};
use crate::{admission::within, partition::Partition, shard::Shard};
use consumer_groups::{
    Coordinator as Core, Event, GroupId, GroupStanding, Now, Options, Outcome, Reply, Request, Token, retry::RetryAction,
};
use futures_util::future::select;
use hashbrown::HashMap;
use shards::{
    clock::{self, Monotonic},
    sync::{Notify, OneshotSender, oneshot},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    pin::pin,
    rc::Rc,
    time::Duration,
};
use wire::{ErrorCode, TimestampMs};

/// A request waits this long for a coordinator that is being read back: it takes moments, and an error would take the client longer.
const LOAD_WAIT: Duration = Duration::from_secs(10);

/// The coordinator of the groups of one partition of the internal topic.
#[derive(Debug)]
pub(crate) struct Coordinator {
    partition: Rc<Partition>,
    core: RefCell<Core>,
    phase: Cell<Phase>,
    /// Told when the state has been read back, or cannot be.
    loaded: Notify,
    next_token: Cell<u64>,
    waiting: RefCell<HashMap<Token, Waiter>>,
    unwritten: Unwritten,
    /// There is something to write, or the end has come.
    pub(super) work: Notify,
    wake_at_ms: Cell<Option<u64>>,
    /// The time to wake up at has changed.
    timer: Notify,
    /// What is to be done for dead letters, of each origin in order.
    letters: RefCell<HashMap<Origin, VecDeque<RetryAction>>>,
    /// Bytes of records since the last snapshot began.
    pub(super) written_bytes: Cell<u64>,
    /// Told when they have grown.
    pub(super) grown: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The state is being read back.
    Loading,
    Serving,
    /// Its partition is gone, or its storage failed.
    Ended(ErrorCode),
}

/// Who waits for the reply to a request.
#[derive(Debug)]
struct Waiter {
    group: GroupId,
    sender: OneshotSender<Result<Reply, ErrorCode>>,
}

impl Coordinator {
    pub(super) fn new(shard: &Shard, partition: Rc<Partition>) -> Rc<Coordinator> {
        let groups = &shard.config.groups;
        let options = Options {
            heartbeat_interval_ms: u32::try_from(groups.heartbeat_interval.0.as_millis()).unwrap_or(u32::MAX),
            groups_max: groups.groups_max as usize,
            offsets_retention_ms: u64::try_from(groups.offsets_retention.0.as_millis()).unwrap_or(u64::MAX),
            ..Options::default()
        };
        Rc::new(Coordinator {
            partition,
            core: RefCell::new(Core::new(options)),
            phase: Cell::new(Phase::Loading),
            loaded: Notify::new(),
            next_token: Cell::new(0),
            waiting: RefCell::default(),
            unwritten: Unwritten::default(),
            work: Notify::new(),
            wake_at_ms: Cell::new(None),
            timer: Notify::new(),
            letters: RefCell::default(),
            written_bytes: Cell::new(0),
            grown: Notify::new(),
        })
    }

    /// Its partition of the internal topic.
    pub(super) fn partition(&self) -> &Rc<Partition> {
        &self.partition
    }

    pub(super) fn letters(&self) -> &RefCell<HashMap<Origin, VecDeque<RetryAction>>> {
        &self.letters
    }

    pub(super) fn core(&self) -> &RefCell<Core> {
        &self.core
    }

    /// The state has been read back: requests are taken from now on.
    pub(super) fn begin(&self, shard: &Shard) {
        if self.phase.get() == Phase::Loading {
            self.phase.set(Phase::Serving);
            self.tell(shard, Event::Loaded);
            self.loaded.notify_waiters();
        }
    }

    /// Answers nobody any more: whoever waits gets `code`.
    pub(super) fn end(&self, code: ErrorCode) {
        if !self.has_ended() {
            self.phase.set(Phase::Ended(code));
        }
        // Dropped outside of the borrows: senders wake those who wait.
        drop(self.waiting.take());
        drop(self.unwritten.clear());
        self.loaded.notify_waiters();
        self.work.notify_waiters();
        self.timer.notify_waiters();
        self.grown.notify_waiters();
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase.get(), Phase::Ended(_))
    }

    /// Asks for a reply and waits until it may be sent. Dropped before that, nobody waits any more, and the core is told.
    ///
    /// # Errors
    /// There is none: the state is still being read after [`LOAD_WAIT`], too much waits to be written, or the storage is full or failed. What
    /// was asked for may have been done.
    pub(super) async fn ask(&self, shard: &Rc<Shard>, request: Request) -> Result<Reply, ErrorCode> {
        if self.phase.get() == Phase::Loading {
            let _loaded = within(LOAD_WAIT, self.loaded.notified()).await;
        }
        match self.phase.get() {
            Phase::Serving => {}
            Phase::Loading => return Err(ErrorCode::CoordinatorLoading),
            Phase::Ended(code) => return Err(code),
        }
        self.unwritten.admit(&request)?;
        let token = Token(self.next_token.replace(self.next_token.get() + 1));
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().insert(token, Waiter { group: GroupId::from(request.group()), sender });
        let waiting = Waiting { coordinator: self, shard, token };
        self.tell(shard, Event::Request { token, request });
        let reply = receiver.await;
        drop(waiting);
        reply.unwrap_or_else(|_| match self.phase.get() {
            Phase::Ended(code) => Err(code),
            Phase::Loading | Phase::Serving => Err(ErrorCode::ShuttingDown),
        })
    }

    /// Lets the core take in an event, and queues what comes of it.
    pub(super) fn tell(&self, shard: &Shard, event: Event) {
        if self.phase.get() != Phase::Serving {
            // What is read back is looked at with the topics of then.
            return;
        }
        let mut outcome = Outcome::default();
        self.core.borrow_mut().handle(now(), &*shard.topics.borrow(), event, &mut outcome);
        let Outcome { records, memberships, replies, retry_actions: actions, expired, wake_at_ms } = outcome;
        for group in expired {
            tracing::info!(group = group.as_str(), "nobody used the group for its retention: its offsets are forgotten");
        }
        if self.wake_at_ms.replace(wake_at_ms) != wake_at_ms {
            self.timer.notify_waiters();
        }
        let (ready, replies) = replies.into_iter().partition(|(token, reply)| self.is_ready(*token, reply, &memberships));
        self.send(ready);
        if !records.is_empty() || !replies.is_empty() || !actions.is_empty() {
            self.write(Unit { records, memberships, replies, actions, written: None });
        }
    }

    /// Whether a reply waits for nothing that is still to be written. `memberships` are written with it.
    fn is_ready(&self, token: Token, reply: &Reply, memberships: &[GroupId]) -> bool {
        matches!(reply, Reply::Heartbeat(_))
            && self.waiting.borrow().get(&token).is_some_and(|waiter| {
                !memberships.contains(&waiter.group) && !self.unwritten.changes_members_of(waiter.group.as_str())
            })
    }

    fn send(&self, replies: Vec<(Token, Reply)>) {
        for (token, reply) in replies {
            let waiter = self.waiting.borrow_mut().remove(&token);
            if let Some(waiter) = waiter {
                // Who asked may be gone with its connection.
                let _gone = waiter.sender.send(Ok(reply));
            }
        }
    }

    /// How some of its groups stand, in the order of their names; none while it is not serving. See [`Core::survey`].
    pub(crate) fn survey(&self, after: Option<&GroupId>, partitions_max: usize) -> Vec<GroupStanding> {
        if self.phase.get() == Phase::Serving { self.core.borrow().survey(after, partitions_max) } else { Vec::new() }
    }

    /// Times that members of its groups got new targets.
    pub(crate) fn rebalances(&self) -> u64 {
        self.core.borrow().rebalances()
    }

    /// Queues a unit behind all others.
    pub(super) fn write(&self, unit: Unit) {
        self.unwritten.push(unit);
        self.work.notify_waiters();
    }

    /// The units that go into the next batch: see [`Unwritten::take`].
    pub(super) fn take_units(&self, bytes_max: usize) -> Vec<Unit> {
        self.unwritten.take(bytes_max)
    }

    /// The log has no room for the units that were taken, nor for those behind them: who waits for them is told so.
    pub(super) fn disk_full(&self, taken: &mut [Unit]) {
        for token in self.unwritten.disk_full(taken) {
            let waiter = self.waiting.borrow_mut().remove(&token);
            if let Some(waiter) = waiter {
                // Who asked may be gone with its connection.
                let _gone = waiter.sender.send(Err(ErrorCode::DiskFull));
            }
        }
    }

    /// Sends the replies of a unit, carries out its actions, and tells whoever waits for it. Everything before it, and itself, is durable.
    pub(super) fn written(self: &Rc<Self>, shard: &Rc<Shard>, unit: Unit) {
        self.unwritten.disk_has_room();
        self.unwritten.written(&unit);
        self.send(unit.replies);
        unit.actions.into_iter().for_each(|action| dead_letter::carry_out(shard, self, action));
        if let Some(written) = unit.written {
            // A snapshot that waits may have ended.
            let _ended = written.send(());
        }
    }

    /// Says when time has passed, until the end.
    pub(super) async fn run_timer(&self, shard: &Shard) {
        while !self.has_ended() {
            let changed = self.timer.notified();
            let Some(at_ms) = self.wake_at_ms.get() else {
                changed.await;
                continue;
            };
            let wait_ms = at_ms.saturating_sub(now().steady_ms);
            if wait_ms == 0 {
                let is_wall_trusted = shard.clock_trust.borrow_mut().look(clock::wall_ms(), clock::monotonic());
                self.tell(shard, Event::Tick { is_wall_trusted });
                // The core says when to come again: not at once, or other tasks would never run.
                clock::sleep(shards::TICK).await;
                continue;
            }
            let _either = select(pin!(changed), pin!(clock::sleep(Duration::from_millis(wait_ms)))).await;
        }
    }
}

/// Somebody who waits for a reply.
struct Waiting<'a> {
    coordinator: &'a Coordinator,
    shard: &'a Rc<Shard>,
    token: Token,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.coordinator.waiting.borrow_mut().remove(&self.token).is_some();
        if waited {
            self.coordinator.tell(self.shard, Event::Cancelled { token: self.token });
        }
    }
}

pub(super) fn now() -> Now {
    Now { steady_ms: Monotonic::as_nanos(clock::monotonic()) / 1_000_000, wall: TimestampMs(clock::wall_ms()) }
}
