//! The state that all parts of one shard's log share. One thread, so cells instead of locks; nothing here awaits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use shards::sync::{Notify, OneshotReceiver, OneshotSender, Semaphore, oneshot};
use wire::{Offset, PartitionKey};

use crate::commit::InFlight;
use crate::compaction::superseded::Superseded;
use crate::failure::Failure;
use crate::file_cache::FileCache;
use crate::format::record::{Entry, Record};
use crate::partition::{Inner, Partition};
use crate::read_cache::ReadCache;
use crate::seal::Sealing;
use crate::segment_file::Allocate;
use crate::segment_index::IndexCache;
use crate::stats::Counters;
use crate::tail_cache::TailCache;
use crate::wal::Wal;
use crate::{AppendError, LogFailed, LogOptions, PartitionOptions, PartitionState, ShardDirectory};

/// A partition's durable end has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Which partition.
    pub key: PartitionKey,
    /// Everything below is on stable storage.
    pub durable_end: Offset,
}

type OnCommit = Rc<dyn Fn(&[Committed])>;

/// A structural record waiting for its group, and what waits for it.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    pub(crate) record: Record<'static>,
    pub(crate) waiters: Vec<OneshotSender<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Structural records: they go out before the batches of the same group.
    pub(crate) records: VecDeque<PendingRecord>,
    /// Partitions with little pending, in the order in which they became so; and some that have nothing or much by now.
    pub(crate) ready: VecDeque<Rc<Partition>>,
    /// Partitions with enough pending for a write of their own.
    pub(crate) much: VecDeque<Rc<Partition>>,
    /// Relaxed partitions with pending batches: they become ready together, within the stated bound.
    pub(crate) relaxed: Vec<Rc<Partition>>,
    /// Committed ends of direct writes that no block names yet.
    pub(crate) direct_ends: Vec<Record<'static>>,
    /// Partitions whose high watermark moved since the last hint.
    pub(crate) hints: Vec<Rc<Partition>>,
    /// Groups being written, oldest first.
    pub(crate) in_flight: VecDeque<InFlight>,
    pub(crate) next_group: u64,
    pub(crate) direct_in_flight: u32,
}

pub(crate) struct Shard {
    pub(crate) directory: ShardDirectory,
    /// The data directory, as segments name it.
    pub(crate) disk: Arc<Path>,
    pub(crate) options: LogOptions,
    pub(crate) storage_id: u64,
    pub(crate) partitions: RefCell<HashMap<PartitionKey, Rc<Partition>>>,
    /// Partitions that belong to other directories from this start on, by key: named by every checkpoint until those name them too.
    pub(crate) moved: RefCell<Vec<PartitionState>>,
    pub(crate) queue: RefCell<Queue>,
    /// There is something for the commit loop.
    pub(crate) work: Notify,
    /// A group or a direct write is done, or a lock on a partition's segments is free.
    pub(crate) progress: Notify,
    /// There is something for the background: a file to make ready, buffers to flush.
    pub(crate) background: Notify,
    /// There may be a reason for a checkpoint.
    pub(crate) checkpoint_work: Notify,
    /// Partitions with much pending that are flushed before others.
    pub(crate) flushes_wanted: RefCell<VecDeque<Rc<Partition>>>,
    /// Room for flushes on their way to the disk.
    pub(crate) flush_blocks: Semaphore,
    /// One checkpoint at a time.
    pub(crate) checkpoint_turn: Semaphore,
    pub(crate) wal: RefCell<Wal>,
    pub(crate) failure: Failure,
    pub(crate) tail: TailCache,
    pub(crate) files: FileCache,
    pub(crate) reads: ReadCache,
    pub(crate) indexes: IndexCache,
    /// Files of segments that compaction has replaced, or that the log start has passed, and that recovery may still have to look at.
    pub(crate) superseded: RefCell<Superseded>,
    /// One compaction at a time.
    pub(crate) compaction_turn: Semaphore,
    /// Closed segments whose index is not in their file yet.
    pub(crate) sealing: RefCell<VecDeque<Sealing>>,
    /// There is something in `sealing`, or the log ends.
    pub(crate) seal_work: Notify,
    /// One index at a time.
    pub(crate) seal_turn: Semaphore,
    pub(crate) counters: Counters,
    pub(crate) queue_bytes: Cell<u64>,
    /// Idempotent producers remembered, of all partitions.
    pub(crate) producers: Cell<usize>,
    pub(crate) free_bytes: Cell<u64>,
    pub(crate) disk_full: Cell<bool>,
    /// Appends are refused; what was accepted still becomes durable.
    pub(crate) closing: Cell<bool>,
    /// Nothing is left to do: the tasks end.
    pub(crate) closed: Cell<bool>,
    /// Removals of files that a checkpoint has to wait for.
    pub(crate) removals: Cell<u32>,
    /// Partitions whose files are being removed: none of their names begins again before that is done.
    pub(crate) removing: RefCell<HashSet<PartitionKey>>,
    /// Partitions with segments below their log start, oldest decision first.
    pub(crate) trims: RefCell<VecDeque<Rc<Partition>>>,
    /// There is something in `trims`, or the log ends.
    pub(crate) trim_work: Notify,
    /// Bytes of segments that are not named any more and whose space is not given back yet.
    pub(crate) reclaiming_bytes: Cell<u64>,
    /// Partitions that have closed a segment since somebody asked.
    pub(crate) rolled: RefCell<Vec<PartitionKey>>,
    /// Told when one has.
    pub(crate) rolls: Notify,
    pub(crate) checkpoint_wanted: Cell<bool>,
    pub(crate) checkpoint_number: Cell<u64>,
    pub(crate) relaxed_timer: Cell<bool>,
    /// Somebody looks whether the log has become quiet.
    pub(crate) trailer_timer: Cell<bool>,
    /// The log has been quiet for long enough for a trailer.
    pub(crate) is_quiet: Cell<bool>,
    pub(crate) callbacks: RefCell<Vec<OnCommit>>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Shard {
    /// Has a checkpoint written soon. A log that is being closed writes its last one in any case.
    pub(crate) fn want_checkpoint(&self) {
        if !self.closing.get() {
            self.checkpoint_wanted.set(true);
            self.checkpoint_work.notify_waiters();
        }
    }

    /// Whether an append of `bytes` may enter the queue; one that `uses_reserve` also when the disk is full for others.
    pub(crate) fn admit(&self, bytes: u64, uses_reserve: bool) -> Result<(), AppendError> {
        let refused = if let Some(failed) = self.failure.get() {
            AppendError::Failed(failed)
        } else if self.closing.get() {
            AppendError::Closing
        } else if self.disk_full.get() && !(uses_reserve && self.free_bytes.get() >= self.options.free_bytes_reserved()) {
            AppendError::DiskFull { free_bytes: self.free_bytes.get() }
        } else if self.queue_full(bytes) {
            AppendError::Full { queued_bytes: self.queue_bytes.get() }
        } else {
            return Ok(());
        };
        self.counters.add(|stats| stats.appends_refused += 1);
        Err(refused)
    }

    /// Which space segments get before they are written into. What lies between the marks is kept for appends that are accepted.
    pub(crate) fn allocate(&self) -> Allocate {
        if self.free_bytes.get() < self.options.free_bytes_resume { Allocate::Needed } else { Allocate::Ahead }
    }

    /// Both bounds, on what waits for the disk and on what is held in memory. A batch larger than the first is let into an empty queue.
    fn queue_full(&self, bytes: u64) -> bool {
        let queued = self.queue_bytes.get();
        let queue_full = queued > 0 && queued + bytes > self.options.append_queue_bytes_max;
        // Half as much again: the background flush starts at half of the bound, and this is where appends must wait for it.
        let held_full = self.tail.bytes() > self.options.unflushed_bytes_max + self.options.unflushed_bytes_max / 2;
        queue_full || held_full
    }

    /// Counts accepted batches.
    pub(crate) fn queued(&self, batches: u64, bytes: u64) {
        self.queue_bytes.set(self.queue_bytes.get() + bytes);
        self.counters.add(|stats| {
            stats.appended_batches += batches;
            stats.appended_bytes += bytes;
        });
    }

    /// Counts batches that left the queue: durable, or dropped with their partition.
    pub(crate) fn unqueued(&self, bytes: u64) {
        let queued = self.queue_bytes.get();
        assert!(queued >= bytes, "more bytes left the queue than entered it");
        self.queue_bytes.set(queued - bytes);
    }

    /// Notes how many producers a partition remembers now.
    pub(crate) fn producers_changed(&self, before: usize, after: usize) {
        self.producers.set(self.producers.get() - before + after);
    }

    /// How many a partition that remembers `count` may remember with one more.
    pub(crate) fn producers_max(&self, count: usize) -> usize {
        let of_partition = self.options.producers_per_partition_max;
        if self.producers.get() < self.options.producers_max { of_partition } else { count.clamp(1, of_partition) }
    }

    /// A producer that has not appended since is not known any more.
    pub(crate) fn producer_idle_before_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub_unsigned(self.options.producer_idle_ms_max)
    }

    /// Tells the commit loop of a partition's pending batches, if there are any.
    pub(crate) fn make_ready(&self, partition: &Rc<Partition>) {
        let mut inner = partition.inner.borrow_mut();
        inner.queued = !inner.pending.is_empty();
        if !inner.queued {
            return;
        }
        let mut queue = self.queue.borrow_mut();
        if inner.pending_bytes >= self.options.direct_write_threshold_bytes {
            if !std::mem::replace(&mut inner.much, true) {
                queue.much.push_back(partition.clone());
            }
        } else if !std::mem::replace(&mut inner.ready, true) {
            queue.ready.push_back(partition.clone());
        }
        self.work.notify_waiters();
    }

    /// Has the background flush a partition before others.
    pub(crate) fn want_flush(&self, partition: &Rc<Partition>) {
        if !std::mem::replace(&mut partition.inner.borrow_mut().flush_wanted, true) {
            self.flushes_wanted.borrow_mut().push_back(partition.clone());
            self.background.notify_waiters();
        }
    }

    /// [`Shard::make_ready`] for one that may still wait for the relaxed bound.
    pub(crate) fn make_relaxed_ready(&self, partition: &Rc<Partition>) {
        let mut queue = self.queue.borrow_mut();
        if let Some(place) = queue.relaxed.iter().position(|other| Rc::ptr_eq(other, partition)) {
            queue.relaxed.swap_remove(place);
        }
        drop(queue);
        self.make_ready(partition);
    }

    /// Makes a partition ready within the relaxed bound.
    pub(crate) fn make_ready_later(self: &Rc<Self>, partition: &Rc<Partition>) {
        self.queue.borrow_mut().relaxed.push(partition.clone());
        if !self.relaxed_timer.replace(true) {
            crate::commit::release_relaxed_later(self);
        }
    }

    /// Adds a structural record to the next group. The receiver resolves when it is durable, and fails if the shard does.
    pub(crate) fn push_record(&self, record: Record<'static>) -> OneshotReceiver<()> {
        let (sender, receiver) = oneshot();
        self.queue.borrow_mut().records.push_back(PendingRecord { record, waiters: vec![sender] });
        self.work.notify_waiters();
        receiver
    }

    /// Adds a structural record for which nobody waits.
    pub(crate) fn note(&self, record: Record<'static>) {
        self.queue.borrow_mut().records.push_back(PendingRecord { record, waiters: Vec::new() });
        self.work.notify_waiters();
    }

    /// Waits for a structural record.
    pub(crate) async fn record_durable(&self, receiver: OneshotReceiver<()>) -> Result<(), LogFailed> {
        if receiver.await.is_ok() {
            return Ok(());
        }
        Err(self.failure.get().unwrap_or_else(|| LogFailed { cause: "the log was closed".into() }))
    }

    /// Adds a record and waits until it is durable.
    pub(crate) async fn log(&self, record: Record<'static>) -> Result<(), LogFailed> {
        self.failure.check()?;
        let receiver = self.push_record(record);
        self.record_durable(receiver).await
    }

    /// Stops the shard's log: every waiter is answered, no write is retried.
    pub(crate) fn fail(&self, cause: &dyn std::fmt::Display) -> LogFailed {
        let first = self.failure.get().is_none();
        let failed = self.failure.set(cause);
        if first {
            tracing::error!(shard = self.directory.number(), cause = %failed.cause, "stable storage failed: nothing more is acknowledged");
            let mut queue = self.queue.borrow_mut();
            queue.records.clear();
            queue.ready.clear();
            queue.much.clear();
            queue.relaxed.clear();
            // Dropping the senders answers whoever waits.
            for group in &mut queue.in_flight {
                group.records.clear();
            }
            drop(queue);
            // In the order of the keys: who is woken first must not depend on a hash.
            for partition in crate::checkpoint::all(self) {
                partition.inner.borrow_mut().waiters.clear();
            }
        }
        self.work.notify_waiters();
        self.progress.notify_waiters();
        self.background.notify_waiters();
        self.checkpoint_work.notify_waiters();
        self.trim_work.notify_waiters();
        self.seal_work.notify_waiters();
        failed
    }

    /// Resolves when all structural records pushed before are durable.
    pub(crate) async fn barrier(&self) -> Result<(), LogFailed> {
        self.failure.check()?;
        let receiver = {
            let mut queue = self.queue.borrow_mut();
            let (sender, receiver) = oneshot();
            // With the last record that waits; else with the last group in flight, since groups become durable in order.
            if let Some(last) = queue.records.back_mut() {
                last.waiters.push(sender);
            } else if let Some(group) = queue.in_flight.back_mut() {
                group.records.push(sender);
            } else {
                return Ok(());
            }
            receiver
        };
        self.record_durable(receiver).await
    }

    /// Lets the tail cache go down to its bound, and wakes the background if there is something for it.
    pub(crate) fn housekeep(&self) {
        self.tail.shrink_to(self.options.tail_cache_bytes_max);
        if self.tail.bytes() > self.options.unflushed_bytes_max / 2 || self.wal.borrow().ready.is_none() {
            self.background.notify_waiters();
        }
        if self.wal.borrow().live_bytes() > self.options.wal_bytes_max / 3 {
            self.checkpoint_work.notify_waiters();
        }
    }

    /// Queues a closed segment for its index.
    pub(crate) fn seal_later(&self, sealing: Sealing) {
        self.sealing.borrow_mut().push_back(sealing);
        self.seal_work.notify_waiters();
    }

    /// Notes that a partition has closed a segment, for whoever decides what is kept.
    pub(crate) fn rolled(&self, key: PartitionKey, inner: &mut Inner) {
        if !std::mem::replace(&mut inner.rolled, true) {
            self.rolled.borrow_mut().push(key);
            self.rolls.notify_waiters();
        }
    }

    /// Reports moved durable ends.
    pub(crate) fn report(&self, committed: &[Committed]) {
        if committed.is_empty() {
            return;
        }
        // Cloned, so that a callback may add another.
        let callbacks: Vec<OnCommit> = self.callbacks.borrow().clone();
        for callback in callbacks {
            callback(committed);
        }
    }

    /// Takes the lock on a partition's segments, waiting for its holder. Direct writes, which could follow each other for ever, make way.
    pub(crate) async fn lock_segments(self: &Rc<Self>, partition: &Rc<Partition>) -> SegmentsLock {
        if let Some(lock) = self.try_lock_segments(partition) {
            return lock;
        }
        let _waiting = WaitingForSegments::new(self, partition);
        loop {
            self.progress.notified().await;
            if let Some(lock) = self.try_lock_segments(partition) {
                return lock;
            }
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock_segments(self: &Rc<Self>, partition: &Rc<Partition>) -> Option<SegmentsLock> {
        if partition.segments_locked.replace(true) {
            return None;
        }
        Some(SegmentsLock { shard: Rc::downgrade(self), partition: Rc::downgrade(partition) })
    }

    /// Changes a partition's settings, durably.
    pub(crate) async fn alter(&self, partition: &Rc<Partition>, options: PartitionOptions) -> Result<(), LogFailed> {
        // A high watermark of a relaxed partition may stand above its durable end: it has to be caught up with before the promise changes.
        loop {
            {
                let mut inner = partition.inner.borrow_mut();
                if inner.deleted {
                    return Ok(());
                }
                if inner.marks.high_watermark <= inner.marks.durable_end {
                    inner.options = options;
                    break;
                }
            }
            self.failure.check()?;
            self.progress.notified().await;
        }
        self.log(Record { key: partition.key, entry: Entry::Options(options) }).await
    }
}

/// One of those who wait for the lock on a partition's segments.
struct WaitingForSegments<'a> {
    shard: &'a Shard,
    partition: &'a Partition,
}

impl<'a> WaitingForSegments<'a> {
    fn new(shard: &'a Shard, partition: &'a Partition) -> Self {
        partition.segments_wanted.set(partition.segments_wanted.get() + 1);
        Self { shard, partition }
    }
}

impl Drop for WaitingForSegments<'_> {
    fn drop(&mut self) {
        self.partition.segments_wanted.set(self.partition.segments_wanted.get() - 1);
        // A direct write may have made way.
        self.shard.work.notify_waiters();
    }
}

/// The right to write, cut or remove segments of one partition. A partition keeps it itself while direct writes run, so it holds nothing alive.
#[derive(Debug)]
pub(crate) struct SegmentsLock {
    shard: Weak<Shard>,
    partition: Weak<Partition>,
}

impl Drop for SegmentsLock {
    fn drop(&mut self) {
        let (Some(shard), Some(partition)) = (self.shard.upgrade(), self.partition.upgrade()) else { return };
        partition.segments_locked.set(false);
        shard.progress.notify_waiters();
        // A direct write may have found it taken.
        shard.work.notify_waiters();
    }
}
