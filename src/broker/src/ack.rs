//! Acknowledgements: the high watermark moves, and whoever waits below it is answered, in order.
//!
//! ```text
//!  produce of partitions p, q ──► Pending { p: -, q: - } ◄── one slot for each partition
//!       p: waiter (end 12) in p's queue        commit reports p durable to 12 ─► slot p filled
//!       q: on another shard                    its answer arrives            ─► slot q filled, the last: reply leaves
//! ```
//!
//! Nothing here awaits: a commit of a thousand appends answers them in one pass, and their replies leave each connection in one write.

use crate::{
    calls,
    connection::ReplyTo,
    mail::{Answer, Mail},
    partition::Partition,
    shard::{Shard, retention},
};
use commit_log::Committed;
use shards::{
    ShardId,
    clock::Monotonic,
    sync::{Notify, OneshotSender},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};
use wire::{AckLevel, ErrorCode, Offset, PartitionKey, ProducePartitionReply, ProduceReply, TimestampMs};

/// A produce request that is not yet answered.
#[derive(Debug)]
pub(crate) struct Pending {
    shard: Weak<Shard>,
    replies: RefCell<Vec<Option<ProducePartitionReply>>>,
    open: Cell<usize>,
    to: RefCell<Option<To>>,
    /// Its place among the deadlines, when it has one.
    deadline: Cell<Option<(Monotonic, u64)>>,
}

/// Where the answer goes.
#[derive(Debug)]
pub(crate) enum To {
    /// To a client of this shard.
    Client(ReplyTo),
    /// To the shard that forwarded the append.
    Shard {
        /// That shard.
        shard: ShardId,
        /// The id of its call.
        id: u64,
    },
    /// To a task of this shard: the broker's own append, to one partition.
    Task(OneshotSender<ProducePartitionReply>),
}

/// The answer for one partition of a [`Pending`] request: filled once.
#[derive(Debug)]
pub(crate) struct Slot {
    pending: Rc<Pending>,
    index: usize,
}

/// An append that waits for stable storage.
#[derive(Debug)]
pub(crate) struct Waiter {
    end: Offset,
    slot: Slot,
    reply: ProducePartitionReply,
}

impl Pending {
    /// A request for so many partitions.
    pub(crate) fn new(shard: &Rc<Shard>, partitions: usize, to: To) -> Rc<Self> {
        Rc::new(Pending {
            shard: Rc::downgrade(shard),
            replies: RefCell::new((0..partitions).map(|_| None).collect()),
            open: Cell::new(partitions),
            to: RefCell::new(Some(to)),
            deadline: Cell::new(None),
        })
    }

    /// The slot of the partition at `index`. Each is taken once.
    pub(crate) fn slot(self: &Rc<Self>, index: usize) -> Slot {
        Slot { pending: Rc::clone(self), index }
    }

    /// Sends the answer once every slot is filled. Also called for a request that names no partition.
    pub(crate) fn send_if_complete(&self) {
        if self.open.get() > 0 {
            return;
        }
        let Some(to) = self.to.borrow_mut().take() else { return };
        let Some(shard) = self.shard.upgrade() else { return };
        if let Some(deadline) = self.deadline.take() {
            shard.deadlines.remove(deadline);
        }
        let partitions = self.replies.take().into_iter().map(|reply| reply.expect("every slot is filled"));
        match to {
            To::Client(reply_to) => reply_to.send(&ProduceReply { partitions: partitions.collect() }),
            To::Shard { shard: target, id } => {
                for reply in partitions {
                    calls::send_now(&shard, target, Mail::Answer { id, answer: Answer::Append(reply) });
                }
            }
            To::Task(sender) => {
                let mut partitions = partitions;
                if let Some(reply) = partitions.next() {
                    // Who waited may have ended.
                    let _ended = sender.send(reply);
                }
            }
        }
    }

    /// Answers what is still open with "timed out". What was appended stays, and may become durable yet.
    fn time_out(&self, keys: impl Fn(usize) -> PartitionKey) {
        for (index, reply) in self.replies.borrow_mut().iter_mut().enumerate() {
            reply.get_or_insert_with(|| refused(keys(index), ErrorCode::TimedOut, None));
        }
        self.open.set(0);
        self.send_if_complete();
    }
}

impl Slot {
    /// Gives the answer for this partition; the last one sends the reply.
    pub(crate) fn fill(self, reply: ProducePartitionReply) {
        let pending = &self.pending;
        if pending.to.borrow().is_none() {
            // Timed out: the client has its answer.
            return;
        }
        let before = pending.replies.borrow_mut()[self.index].replace(reply);
        assert!(before.is_none(), "a slot is filled once");
        pending.open.set(pending.open.get() - 1);
        pending.send_if_complete();
    }

    /// Answers that nothing was appended.
    pub(crate) fn refuse(self, key: PartitionKey, code: ErrorCode, message: Option<String>) {
        self.fill(refused(key, code, message));
    }
}

/// The answer for a partition to which nothing was appended.
pub(crate) fn refused(key: PartitionKey, error: ErrorCode, message: Option<String>) -> ProducePartitionReply {
    ProducePartitionReply {
        topic: key.topic,
        partition: key.partition,
        error,
        message,
        base_offset: Offset::ZERO,
        last_offset: Offset::ZERO,
        log_start: Offset::ZERO,
        append_time_ms: TimestampMs(-1),
        level: AckLevel::Stable,
        replicas_durable: 0,
    }
}

/// The offsets that the batches of one request have in a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Of the first record.
    pub(crate) first: Offset,
    /// Of the last record.
    pub(crate) last: Offset,
}

/// Takes over an append that has its offsets, or had them before: answered at once in a relaxed topic, when durable in a stable one.
pub(crate) fn appended(shard: &Shard, partition: &Partition, placed: Placed, append_time: Option<TimestampMs>, slot: Slot) {
    let relaxed = partition.log.options().durability == commit_log::Durability::Relaxed;
    let end = placed.last.plus(1);
    let reply = ProducePartitionReply {
        topic: partition.key.topic,
        partition: partition.key.partition,
        error: ErrorCode::None,
        message: None,
        base_offset: placed.first,
        last_offset: placed.last,
        log_start: partition.log.watermarks().log_start,
        append_time_ms: append_time.unwrap_or(TimestampMs(-1)),
        level: if relaxed { AckLevel::Relaxed } else { AckLevel::Stable },
        replicas_durable: u8::from(!relaxed),
    };
    if relaxed {
        show(shard, partition, end);
        slot.fill(reply);
        return;
    }
    if end <= partition.log.watermarks().durable_end {
        // Sent again, and durable since.
        slot.fill(reply);
        return;
    }
    let mut waiters = partition.waiters.borrow_mut();
    // Mostly the last. What is sent again stands among those that wait, beside the one that was sent first.
    let place = waiters.partition_point(|waiter| waiter.end <= end);
    waiters.insert(place, Waiter { end, slot, reply });
}

/// The log's report after each commit: everything below `durable_end` is on stable storage.
pub(crate) fn committed(shard: &Shard, committed: &[Committed]) {
    for Committed { key, durable_end } in committed {
        let partition = shard.partitions.borrow().get(key).cloned();
        let Some(partition) = partition else { continue };
        show(shard, &partition, *durable_end);
        retention::appended(shard, &partition);
        loop {
            let waiter = {
                let mut waiters = partition.waiters.borrow_mut();
                if waiters.front().is_none_or(|waiter| waiter.end > *durable_end) {
                    break;
                }
                waiters.pop_front().expect("the front was there")
            };
            waiter.slot.fill(waiter.reply);
        }
    }
}

/// Moves the high watermark and wakes consumers here and on other shards.
pub(crate) fn show(shard: &Shard, partition: &Partition, end: Offset) {
    partition.show_up_to(end, |target, id| calls::send_now(shard, target, Mail::Wake { id }));
}

/// Refuses everybody who waits for this partition: it was deleted, or its storage failed.
pub(crate) fn refuse_waiters(partition: &Partition, code: ErrorCode, message: &str) {
    for waiter in std::mem::take(&mut *partition.waiters.borrow_mut()) {
        waiter.slot.refuse(partition.key, code, Some(message.to_owned()));
    }
}

/// A request and the partitions that it waits for.
type Waiting = (Weak<Pending>, Rc<[PartitionKey]>);

/// The deadlines of produce requests, earliest first.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<(Monotonic, u64), Waiting>>,
    /// When somebody looks again; nothing when nobody is going to.
    looks_at: Cell<Option<Monotonic>>,
    sooner: Notify,
}

impl Deadlines {
    /// `pending` is answered "timed out" at `at` if it is not answered by then. A request that is answered already has none.
    pub(crate) fn add(&self, at: Monotonic, pending: &Rc<Pending>, keys: Rc<[PartitionKey]>) {
        if pending.to.borrow().is_none() {
            return;
        }
        let place = (at, self.next.replace(self.next.get() + 1));
        pending.deadline.set(Some(place));
        self.waiting.borrow_mut().insert(place, (Rc::downgrade(pending), keys));
        if self.looks_at.get().is_none_or(|looks_at| at < looks_at) {
            self.looks_at.set(Some(at));
            self.sooner.notify_waiters();
        }
    }

    /// Completes when, after this call, a deadline is added that comes before the time that [`Deadlines::expire`] gives.
    pub(crate) fn sooner(&self) -> impl Future<Output = ()> + use<> {
        self.sooner.notified()
    }

    fn remove(&self, place: (Monotonic, u64)) {
        self.waiting.borrow_mut().remove(&place);
    }

    /// Answers what is due; gives the time of the next deadline. Most requests are answered long before theirs, so a look finds nothing due more
    /// often than not, but there is no more than one for each deadline that was once the next.
    pub(crate) fn expire(&self, now: Monotonic) -> Option<Monotonic> {
        loop {
            let (pending, keys) = {
                let mut waiting = self.waiting.borrow_mut();
                let next = waiting.first_key_value().map(|((at, _), _)| *at);
                self.looks_at.set(next);
                if next.is_none_or(|at| at > now) {
                    return next;
                }
                waiting.pop_first().expect("the first was just seen").1
            };
            if let Some(pending) = pending.upgrade() {
                pending.deadline.set(None);
                pending.time_out(|index| keys[index]);
            }
        }
    }
}
