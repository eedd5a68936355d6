//! The durable half of an append: the commit loop of a shard.
//!
//! ```text
//!   append, append, append            the loop, whenever it is told of something:
//!        └────┬──────┘                  1. the queue `much`: partitions with enough for a write of their own  ──► direct.rs
//!      much │ ready │ relaxed           2. the queue `ready`: all others, when a group may go out             ──► group.rs
//!                                       3. quiet for some milliseconds after a commit                         ──► one trailer block
//!
//!   in flight:  [group 7 done] [group 8 writing] [group 9 done]      durable = through group 7
//! ```
//!
//! A lone append leaves at once, and under load a group is what gathered while the groups before it were written. A group beside others
//! waits until it is worth a write. Relaxed partitions have a timer: they come into the other queues within the stated bound. So has the trailer,
//! which is as much work for the disk as a group, and would be half of all writes if each lone group had one.

use std::rc::Rc;
use std::time::Duration;

use shards::buffer::Shared;
use shards::clock::{self, Monotonic};
use shards::disk::File;
use shards::executor;
use shards::sync::OneshotSender;
use wire::Offset;

use crate::direct::{self, Start};
use crate::flush::FLUSH_BYTES_MAX;
use crate::group::{self, Group};
use crate::partition::Partition;
use crate::shard::{Committed, Shard};

/// A group aims at this size: large enough for full speed of the disk with a few in flight, small enough that the first batch in it does not wait
/// long for the last.
pub(crate) const GROUP_BYTES_TARGET: usize = 1 << 20;

/// A group beside others in flight is worth a write of its own from this size on. Below it more gathers: a small write ends soon, and the
/// device flushes one at a time anyway.
const GROUP_BESIDE_BYTES_MIN: u64 = 256 << 10;

/// So long after the last write the log counts as quiet.
const TRAILER_AFTER: Duration = Duration::from_millis(5);

/// A group that is being written.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    pub(crate) done: bool,
    pub(crate) block: u64,
    /// The partitions in it, each with the end and the bytes of its batches.
    pub(crate) parts: Vec<(Rc<Partition>, u64, u64)>,
    /// Bytes of all those batches.
    pub(crate) batch_bytes: u64,
    /// Whoever waits for structural records in it.
    pub(crate) records: Vec<OneshotSender<()>>,
    pub(crate) is_trailer: bool,
}

impl InFlight {
    /// Whether batches of `partition` are in it.
    pub(crate) fn holds(&self, partition: &Partition) -> bool {
        self.parts.iter().any(|(other, ..)| std::ptr::eq(&**other, partition))
    }
}

/// Runs until the shard fails or is closed, which waits for everything accepted.
pub(crate) async fn run(shard: Rc<Shard>) {
    loop {
        if shard.failure.get().is_some() || shard.closed.get() {
            return;
        }
        let work = shard.work.notified();
        if !take_work(&shard) {
            if shard.closing.get() {
                // A partition may have left the queues because a direct write took what it had: no completion tells whoever waits for the last.
                shard.progress.notify_waiters();
            }
            work.await;
        }
    }
}

/// Nothing pending, nothing in flight.
pub(crate) fn is_idle(shard: &Shard) -> bool {
    let queue = shard.queue.borrow();
    let quiet = queue.records.is_empty() && queue.ready.is_empty() && queue.much.is_empty() && queue.relaxed.is_empty();
    quiet && queue.in_flight.is_empty() && queue.direct_in_flight == 0 && !shard.wal.borrow().trailer_due
}

/// Starts whatever can start now. False when there is nothing to do but wait.
fn take_work(shard: &Rc<Shard>) -> bool {
    start_direct_writes(shard);
    if !is_time_for_a_group(shard) {
        return false;
    }
    let Some(group) = group::take(shard) else { return false };
    start_group(shard, group);
    true
}

/// Gives each partition with much pending a write of its own.
fn start_direct_writes(shard: &Rc<Shard>) {
    let much = std::mem::take(&mut shard.queue.borrow_mut().much);
    for partition in much {
        {
            let mut inner = partition.inner.borrow_mut();
            inner.much = false;
            if inner.direct.is_full() {
                // The one that completes next requeues it.
                continue;
            }
        }
        let start = direct::start(shard, &partition);
        let mut inner = partition.inner.borrow_mut();
        let mut queue = shard.queue.borrow_mut();
        inner.behind = start == Start::Behind;
        match start {
            Start::Begun => {}
            Start::Soon => {
                inner.much = true;
                queue.much.push_back(partition.clone());
            }
            Start::Behind => {
                if !std::mem::replace(&mut inner.ready, true) {
                    queue.ready.push_back(partition.clone());
                }
            }
        }
    }
}

/// Whether another group may go out: none is in flight, or one of a good size can be made and the bound is not reached.
fn is_time_for_a_group(shard: &Shard) -> bool {
    let queue = shard.queue.borrow();
    if queue.in_flight.is_empty() {
        return true;
    }
    let in_groups: u64 = queue.in_flight.iter().map(|group| group.batch_bytes).sum();
    // First what is cheap to know: with thousands of partitions ready, the loop wakes far more often than there is enough of them.
    let is_enough_queued = shard.queue_bytes.get() - in_groups >= GROUP_BESIDE_BYTES_MIN;
    let mut bytes = 0;
    is_enough_queued
        && queue.in_flight.len() < shard.options.commit_groups_in_flight as usize
        && queue.ready.iter().any(|partition| {
            bytes += partition.inner.borrow().pending_bytes;
            bytes >= GROUP_BESIDE_BYTES_MIN
        })
}

fn start_group(shard: &Rc<Shard>, group: Group) {
    let Group { file, position, buffer, mut in_flight } = group;
    let mut queue = shard.queue.borrow_mut();
    in_flight.number = queue.next_group;
    queue.next_group += 1;
    let number = in_flight.number;
    queue.in_flight.push_back(in_flight);
    drop(queue);
    executor::spawn(write_group(shard.clone(), number, file, position, buffer)).detach();
}

async fn write_group(shard: Rc<Shard>, number: u64, file: Rc<File>, position: u64, buffer: Shared) {
    let started = clock::monotonic();
    let bytes = buffer.len() as u64;
    match file.write_at(position, buffer).await {
        Ok(()) => complete(&shard, number, bytes, started),
        Err(error) => {
            shard.fail(&error);
        }
    }
}

/// Notes that a group is written; what is now a prefix without a hole is durable.
fn complete(shard: &Rc<Shard>, number: u64, bytes: u64, started: Monotonic) {
    if shard.failure.get().is_some() {
        // Acknowledging after a failed write would acknowledge a hole.
        return;
    }
    shard.counters.group(bytes, started.elapsed());
    let mut committed = Vec::new();
    for group in take_durable(shard, number) {
        let durable_before = std::mem::replace(&mut shard.wal.borrow_mut().durable_block, group.block);
        assert!(group.block > durable_before, "groups become durable in order");
        if !group.is_trailer {
            trailer_later(shard);
        }
        for (partition, end, bytes) in group.parts {
            shard.unqueued(bytes);
            let is_round = {
                let mut inner = partition.inner.borrow_mut();
                if !inner.deleted && inner.durable_up_to(end) {
                    committed.push(Committed { key: partition.key, durable_end: Offset(end) });
                }
                inner.unflushed_bytes >= FLUSH_BYTES_MAX as u64
            };
            if is_round {
                // Waiting longer would make no write of its flush larger, only the memory held.
                shard.want_flush(&partition);
            }
        }
        for waiter in group.records {
            // Nobody may be waiting any more: the record is durable all the same.
            let _ = waiter.send(());
        }
    }
    shard.report(&committed);
    shard.work.notify_waiters();
    shard.progress.notify_waiters();
    shard.housekeep();
}

fn take_durable(shard: &Shard, number: u64) -> Vec<InFlight> {
    let mut queue = shard.queue.borrow_mut();
    let group = queue.in_flight.iter_mut().find(|group| group.number == number).expect("a completed group was in flight");
    assert!(!group.done, "a group completes once");
    group.done = true;
    for (partition, end, _) in &group.parts {
        let mut inner = partition.inner.borrow_mut();
        if !inner.deleted {
            let durability = inner.options.durability;
            inner.marks.set(durability, |marks| marks.written_end = marks.written_end.max(Offset(*end)));
        }
    }
    let count = queue.in_flight.iter().take_while(|group| group.done).count();
    queue.in_flight.drain(..count).collect()
}

/// Has a trailer written when nothing has been for a while, or at close.
pub(crate) fn trailer_later(shard: &Rc<Shard>) {
    shard.wal.borrow_mut().trailer_due = true;
    shard.is_quiet.set(false);
    if shard.trailer_timer.replace(true) {
        return;
    }
    let watched = Rc::downgrade(shard);
    executor::spawn(async move {
        let mut written = None;
        loop {
            {
                let Some(shard) = watched.upgrade() else { return };
                let now = Some((shard.wal.borrow().next_block(), shard.counters.get().direct_bytes));
                if std::mem::replace(&mut written, now) == now {
                    shard.trailer_timer.set(false);
                    shard.is_quiet.set(true);
                    shard.work.notify_waiters();
                    return;
                }
            }
            clock::sleep(TRAILER_AFTER).await;
        }
    })
    .detach();
}

/// Makes relaxed partitions ready half the stated bound after the first of them got a batch; the other half is for the disk.
pub(crate) fn release_relaxed_later(shard: &Rc<Shard>) {
    let shard = shard.clone();
    executor::spawn(async move {
        clock::sleep(Duration::from_millis(shard.options.relaxed_flush_ms_max / 2)).await;
        release_relaxed(&shard);
    })
    .detach();
}

/// Makes relaxed partitions ready now.
pub(crate) fn release_relaxed(shard: &Shard) {
    shard.relaxed_timer.set(false);
    let relaxed = std::mem::take(&mut shard.queue.borrow_mut().relaxed);
    relaxed.iter().for_each(|partition| shard.make_ready(partition));
}
