use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::MeshFull;
use super::lane::{End, Wires};
use crate::{MESH_OUTBOX_MESSAGES_MAX, ShardId, run};

/// The state of one end of the mesh: touched by its own shard only.
pub(super) struct Local<M> {
    shard: ShardId,
    wires: Arc<Wires<M>>,
    /// One per shard; the own one stays empty.
    outboxes: RefCell<Box<[Vec<M>]>>,
    /// Received, not yet given out.
    arrived: RefCell<VecDeque<(ShardId, M)>>,
    /// An empty list whose memory goes round with the batches.
    spare: RefCell<Vec<M>>,
    flusher: RefCell<Option<Waker>>,
    flush_wanted: Cell<bool>,
    receiver: RefCell<Option<Waker>>,
    /// The other shards that have closed their end.
    sources_closed: RefCell<Box<[bool]>>,
    closing: Cell<bool>,
    /// The shard has failed: tasks that have not heard of it yet send into the void.
    failed: Cell<bool>,
    /// The lanes to the others have been closed.
    closed: Cell<bool>,
    /// Those who wait for that.
    closers: RefCell<Vec<Waker>>,
}

impl<M> Local<M> {
    pub(super) fn new(wires: Arc<Wires<M>>, shard: ShardId) -> Local<M> {
        let shard_count = usize::from(wires.shard_count());
        assert!(shard.index() < shard_count);
        let mut sources_closed = vec![false; shard_count].into_boxed_slice();
        sources_closed[shard.index()] = true;
        Local {
            shard,
            wires,
            outboxes: RefCell::new((0..shard_count).map(|_| Vec::new()).collect()),
            arrived: RefCell::default(),
            spare: RefCell::default(),
            flusher: RefCell::default(),
            flush_wanted: Cell::new(false),
            receiver: RefCell::default(),
            sources_closed: RefCell::new(sources_closed),
            closing: Cell::new(false),
            failed: Cell::new(false),
            closed: Cell::new(false),
            closers: RefCell::default(),
        }
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(super) fn shard_count(&self) -> u16 {
        self.wires.shard_count()
    }

    pub(super) fn wires(&self) -> Arc<Wires<M>> {
        Arc::clone(&self.wires)
    }

    pub(super) fn outbox_messages(&self, target: ShardId) -> usize {
        self.outboxes.borrow()[target.index()].len()
    }

    pub(super) fn send(&self, target: ShardId, message: M) -> Result<(), MeshFull<M>> {
        if self.failed.get() {
            return Ok(());
        }
        assert!(!self.closing.get(), "a message was sent after the mesh was closed");
        if target == self.shard {
            return self.send_to_self(message);
        }
        {
            let mut outboxes = self.outboxes.borrow_mut();
            let outbox = &mut outboxes[target.index()];
            if outbox.len() >= MESH_OUTBOX_MESSAGES_MAX {
                return Err(MeshFull(message));
            }
            outbox.push(message);
        }
        self.want_flush();
        Ok(())
    }

    fn send_to_self(&self, message: M) -> Result<(), MeshFull<M>> {
        {
            let mut arrived = self.arrived.borrow_mut();
            if arrived.len() >= MESH_OUTBOX_MESSAGES_MAX {
                return Err(MeshFull(message));
            }
            arrived.push_back((self.shard, message));
        }
        self.wake_receiver();
        Ok(())
    }

    fn wake_receiver(&self) {
        let waker = self.receiver.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn want_flush(&self) {
        if !self.flush_wanted.replace(true)
            && let Some(waker) = &*self.flusher.borrow()
        {
            waker.wake_by_ref();
        }
    }

    pub(super) fn close(&self) {
        if !self.closing.replace(true) {
            self.want_flush();
            self.wake_receiver();
        }
    }

    pub(super) fn fail(&self) {
        self.failed.set(true);
        self.close();
    }

    /// The flusher: one task per mesh. Moves every outbox as far as it goes.
    pub(super) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<()> {
        self.flush_wanted.set(false);
        let mut left = false;
        for (target, outbox) in self.outboxes.borrow_mut().iter_mut().enumerate() {
            if outbox.is_empty() {
                continue;
            }
            let inbox = self.wires.inbox(ShardId(u16::try_from(target).expect("there are at most u16::MAX shards")));
            let (moved, receiver_end) = inbox.lane(self.shard.index()).push_batch(outbox, context.waker());
            if receiver_end != End::Open {
                run::fatal(&format!("{}: shard {target} has left the mesh while it was sent messages", self.shard));
            }
            if moved {
                inbox.signal();
            }
            left |= !outbox.is_empty();
        }
        if self.closing.get() && !left {
            self.end_sources(End::Closed);
            return Poll::Ready(());
        }
        let mut flusher = self.flusher.borrow_mut();
        match &*flusher {
            Some(present) if present.will_wake(context.waker()) => {}
            _ => *flusher = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    pub(super) fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.closed.get() {
            return Poll::Ready(());
        }
        self.closers.borrow_mut().push(context.waker().clone());
        Poll::Pending
    }

    fn end_sources(&self, end: End) {
        if self.closed.replace(true) {
            return;
        }
        for target in (0..self.shard_count()).map(ShardId).filter(|target| *target != self.shard) {
            let inbox = self.wires.inbox(target);
            inbox.lane(self.shard.index()).end_source(end);
            inbox.signal();
        }
        self.wake_receiver();
        let closers = std::mem::take(&mut *self.closers.borrow_mut());
        closers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn try_recv(&self) -> Option<(ShardId, M)> {
        if self.arrived.borrow().is_empty() && self.wires.inbox(self.shard).look() {
            self.gather();
        }
        self.arrived.borrow_mut().pop_front()
    }

    pub(super) fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<(ShardId, M)>> {
        let inbox = self.wires.inbox(self.shard);
        loop {
            if let Some(message) = self.try_recv() {
                return Poll::Ready(Some(message));
            }
            if self.closed.get() && self.sources_closed.borrow().iter().all(|closed| *closed) {
                return Poll::Ready(None);
            }
            inbox.receiver().set(context.waker());
            *self.receiver.borrow_mut() = Some(context.waker().clone());
            // A signal between our look and setting the waker woke nobody.
            if !inbox.is_signalled() {
                return Poll::Pending;
            }
        }
    }

    /// Takes the batches of all lanes.
    fn gather(&self) {
        let mut arrived = self.arrived.borrow_mut();
        let mut batch = self.spare.borrow_mut();
        let outside = self.wires.outside_lane();
        for (source, lane) in self.wires.inbox(self.shard).lanes() {
            let source_end = lane.take_batch(&mut batch);
            let from = if source == outside {
                ShardId::OUTSIDE
            } else {
                ShardId(u16::try_from(source).expect("there are at most u16::MAX shards"))
            };
            arrived.extend(batch.drain(..).map(|message| (from, message)));
            match source_end {
                End::Open => {}
                End::Closed => self.sources_closed.borrow_mut()[source] = true,
                End::Broken => run::fatal(&format!("{}: {from} has left the mesh without closing it", self.shard)),
            }
        }
    }
}

impl<M> Drop for Local<M> {
    fn drop(&mut self) {
        let end = if self.closing.get() { End::Closed } else { End::Broken };
        self.end_sources(end);
        let inbox = self.wires.inbox(self.shard);
        inbox.receiver().clear();
        for (_, lane) in inbox.lanes() {
            lane.end_receiver(end);
        }
        for target in (0..self.shard_count()).map(ShardId) {
            // The flusher's waker must be dropped on this shard.
            self.wires.inbox(target).lane(self.shard.index()).end_source(end);
        }
    }
}
