//! Questions to other shards: sent in order, answered by id.

use crate::{
    ack::Slot,
    mail::{Answer, Call, Mail},
    shard::Shard,
};
use hashbrown::HashMap;
use shards::{
    ShardId, TICK, clock,
    mesh::MeshFull,
    sync::{Notify, OneshotSender, oneshot},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
};

/// The calls of one shard that are not yet answered.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    next_id: Cell<u64>,
    waiting: RefCell<HashMap<u64, Waiting>>,
    watches: RefCell<HashMap<u64, Weak<Notify>>>,
    /// Messages that must not be lost and found their outbox full. Bounded by the calls and watches of the other shards in flight.
    unsent: RefCell<VecDeque<(ShardId, Mail)>>,
    /// Told when there is such a message.
    kept: Notify,
    hops: Cell<u64>,
    /// The mesh is closed: the shard ends, and what is still sent goes nowhere.
    closed: Cell<bool>,
}

#[derive(Debug)]
enum Waiting {
    /// An append: its answer goes straight into the reply to the producer.
    Append(Slot),
    Task(OneshotSender<Answer>),
}

impl Calls {
    fn new_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// Requests and answers sent to other shards.
    pub(crate) fn hops(&self) -> u64 {
        self.hops.get()
    }

    /// Messages whose outbox was full.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.borrow().len()
    }

    /// From here on nothing is sent.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        drop(self.waiting.take());
    }

    /// Calls not yet answered.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}

/// Asks `target` and waits for the answer.
pub(crate) async fn ask(shard: &Rc<Shard>, target: ShardId, call: Call) -> Option<Answer> {
    let (sender, receiver) = oneshot();
    let id = shard.calls.new_id();
    shard.calls.waiting.borrow_mut().insert(id, Waiting::Task(sender));
    send(shard, target, Mail::Call { id, call }).await;
    receiver.await.ok()
}

/// Sends an append to `target`; the answer fills `slot`. Returns when it stands in the outbox, so that the next append of the same
/// connection comes after it.
pub(crate) async fn append(shard: &Rc<Shard>, target: ShardId, call: Call, slot: Slot) {
    let id = shard.calls.new_id();
    shard.calls.waiting.borrow_mut().insert(id, Waiting::Append(slot));
    send(shard, target, Mail::Call { id, call }).await;
}

/// Asks `target` to wake `notify` once, when one of the partitions shows more.
pub(crate) async fn watch(shard: &Rc<Shard>, target: ShardId, notify: &Rc<Notify>, watch: impl FnOnce(u64) -> Mail) {
    let id = shard.calls.new_id();
    shard.calls.watches.borrow_mut().insert(id, Rc::downgrade(notify));
    send(shard, target, watch(id)).await;
}

/// Sends, waiting while the outbox is full: the pressure goes back to the connection that asks.
async fn send(shard: &Rc<Shard>, target: ShardId, mut mail: Mail) {
    shard.calls.hops.set(shard.calls.hops.get() + 1);
    if shard.calls.closed.get() {
        return;
    }
    while let Err(MeshFull(unsent)) = shard.mesh.send(target, mail) {
        mail = unsent;
        clock::sleep(TICK).await;
        if shard.calls.closed.get() {
            return;
        }
    }
}

/// Sends from a place that cannot wait. When the outbox is full the message is kept and goes out later.
pub(crate) fn send_now(shard: &Shard, target: ShardId, mail: Mail) {
    shard.calls.hops.set(shard.calls.hops.get() + 1);
    if shard.calls.closed.get() {
        return;
    }
    let mut unsent = shard.calls.unsent.borrow_mut();
    if !unsent.is_empty() {
        unsent.push_back((target, mail));
        return;
    }
    if let Err(MeshFull(mail)) = shard.mesh.send(target, mail) {
        unsent.push_back((target, mail));
        shard.calls.kept.notify_waiters();
    }
}

/// Sends what was kept, until the shard ends. Sleeps while there is nothing.
pub(crate) async fn run(shard: Rc<Shard>) {
    loop {
        let kept = shard.calls.kept.notified();
        send_unsent(&shard);
        if shard.calls.unsent() == 0 {
            kept.await;
        }
        clock::sleep(TICK).await;
    }
}

fn send_unsent(shard: &Shard) {
    if shard.calls.closed.get() {
        return;
    }
    let mut unsent = shard.calls.unsent.borrow_mut();
    while let Some((target, mail)) = unsent.pop_front() {
        if let Err(MeshFull(mail)) = shard.mesh.send(target, mail) {
            unsent.push_front((target, mail));
            return;
        }
    }
}

/// An answer has arrived.
pub(crate) fn answered(shard: &Shard, id: u64, answer: Answer) {
    let waiting = shard.calls.waiting.borrow_mut().remove(&id);
    match (waiting, answer) {
        (Some(Waiting::Append(slot)), Answer::Append(reply)) => slot.fill(reply),
        (Some(Waiting::Append(_)), other) => unreachable!("an append is answered by an append, not {other:?}"),
        // Who asked may be gone with its connection: then nobody wants the answer.
        (Some(Waiting::Task(sender)), answer) => drop(sender.send(answer)),
        (None, _) => {}
    }
}

/// A watch has fired.
pub(crate) fn woken(shard: &Shard, id: u64) {
    let notify = shard.calls.watches.borrow_mut().remove(&id).and_then(|notify| notify.upgrade());
    if let Some(notify) = notify {
        notify.notify_waiters();
    }
}

/// Forgets watches whose fetch has ended. Called by the sweeper.
pub(crate) fn forget_watches(shard: &Shard) {
    shard.calls.watches.borrow_mut().retain(|_, notify| notify.strong_count() > 0);
}
