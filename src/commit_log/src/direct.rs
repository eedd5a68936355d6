//! Much pending for one partition: straight into its segment, one sync of that file, then acknowledged.
//!
//! ```text
//!   note durable (first time since a checkpoint) ─► writes, several at a time ─► fdatasync ─► durable end moves
//! ```
//!
//! Everything of the partition that is not in a segment goes along, so that the segment holds its offsets without a hole and a direct
//! write is durable by itself, whatever became of the groups in flight. Large batches are written from where they landed, the others from a
//! copy. Two may run at a time, so that the disk writes the one while it syncs the other; they complete in order, and what comes meanwhile
//! collects. None begins while somebody waits for the partition's segments: the load of one partition must not keep checkpoints, sealing and
//! retention from their turn.

use std::iter;
use std::rc::Rc;

use shards::buffer::Shared;
use shards::sync::OneshotReceiver;
use shards::{clock, executor};
use wire::Offset;

use crate::format::record::{Entry, Record, SegmentEnd};
use crate::partition::{CachedBatch, Inner, Partition, PendingBatch};
use crate::segment_file::Allocate;
use crate::segment_fill::{self, Piece};
use crate::segments::{self, Place, Placed};
use crate::shard::{Committed, SegmentsLock, Shard};
use crate::{LogFailed, commit, flush};

/// One direct write takes at most about this much: a sync of a millisecond is small against it, and the buffer can be let go as a whole.
const DIRECT_BYTES_MAX: usize = 8 << 20;

/// Direct writes under way on one shard. They run side by side; more would only queue in the disk.
const DIRECT_WRITES_MAX: u32 = 32;

/// Direct writes of one partition under way.
const DIRECT_WRITES_OF_PARTITION_MAX: u64 = 2;

/// The direct writes of a partition.
#[derive(Debug, Default)]
pub(crate) struct DirectWrites {
    begun: u64,
    completed: u64,
    /// Held from the first of them to the last.
    lock: Option<SegmentsLock>,
}

impl DirectWrites {
    pub(crate) fn in_flight(&self) -> u64 {
        self.begun - self.completed
    }

    /// Whether one more has to wait for one of them to complete.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight() >= DIRECT_WRITES_OF_PARTITION_MAX
    }
}

/// What of a partition is not in segments goes along with a direct write. With more than this it would be late for its own batches: the background
/// flushes it first.
const EARLIER_BYTES_MAX: u64 = 1 << 20;

/// Whether a direct write has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Begun,
    /// It can begin as soon as another one completes.
    Soon,
    /// Not soon: what is pending goes in groups.
    Behind,
}

struct Job {
    number: u64,
    place: Place,
    buffers: Vec<Shared>,
    end: u64,
    /// Batches that leave the append queue with it.
    queued_bytes: u64,
    note: Option<OneshotReceiver<()>>,
}

/// Takes what is pending for `partition` and writes it in a task of its own. The caller has seen that there is enough.
pub(crate) fn start(shard: &Rc<Shard>, partition: &Rc<Partition>) -> Start {
    if shard.queue.borrow().direct_in_flight >= DIRECT_WRITES_MAX {
        return Start::Soon;
    }
    let now_ms = clock::wall_ms();
    if partition.inner.borrow().direct.in_flight() == 0 {
        let fits_groups = fits_groups(shard, &partition.inner.borrow());
        if fits_groups && partition.inner.borrow().unflushed_bytes > EARLIER_BYTES_MAX {
            shard.want_flush(partition);
            return Start::Behind;
        }
        let is_others_turn = partition.segments_wanted.get() > 0;
        let lock = if is_others_turn { None } else { shard.try_lock_segments(partition) };
        match lock {
            Some(lock) => partition.inner.borrow_mut().direct.lock = Some(lock),
            None if fits_groups => return Start::Behind,
            None => return Start::Soon,
        }
    } else if partition.segments_wanted.get() > 0 || begins_segment(&partition.inner.borrow(), now_ms) {
        // The one before it is the last for now, or of its segment.
        return Start::Soon;
    }
    let job = take(shard, partition, now_ms);
    shard.queue.borrow_mut().direct_in_flight += 1;
    executor::spawn(run(shard.clone(), partition.clone(), job)).detach();
    Start::Begun
}

/// Every pending batch is small enough for a group.
fn fits_groups(shard: &Shard, inner: &Inner) -> bool {
    let threshold = shard.options.direct_write_threshold_bytes;
    inner.pending.iter().all(|batch| (batch.bytes.len() as u64) < threshold)
}

async fn run(shard: Rc<Shard>, partition: Rc<Partition>, job: Job) {
    let started = clock::monotonic();
    let (number, end) = (job.number, job.place.end(job.end));
    let (queued_bytes, bytes) = (job.queued_bytes, job.place.reservation.bytes);
    let written = write(&shard, &partition, job).await;
    shard.queue.borrow_mut().direct_in_flight -= 1;
    let lock = {
        let mut inner = partition.inner.borrow_mut();
        let is_last = written.is_err() || inner.direct.begun == number + 1;
        inner.direct.completed = number + 1;
        if is_last { inner.direct.lock.take() } else { None }
    };
    if written.is_err() {
        return;
    }
    shard.counters.direct_write(bytes, started.elapsed());
    complete(&shard, &partition, end, queued_bytes);
    drop(lock);
    shard.progress.notify_waiters();
    shard.make_ready(&partition);
    shard.housekeep();
    shard.checkpoint_work.notify_waiters();
}

fn complete(shard: &Rc<Shard>, partition: &Partition, end: SegmentEnd, queued_bytes: u64) {
    shard.unqueued(queued_bytes);
    let moved = {
        let mut inner = partition.inner.borrow_mut();
        !inner.deleted && inner.durable_up_to(end.offset.0)
    };
    if moved {
        shard.queue.borrow_mut().direct_ends.push(Record { key: partition.key, entry: Entry::DirectEnd(end) });
        commit::trailer_later(shard);
        shard.report(&[Committed { key: partition.key, durable_end: end.offset }]);
        shard.work.notify_waiters();
    }
}

async fn write(shard: &Rc<Shard>, partition: &Partition, job: Job) -> Result<(), LogFailed> {
    if let Some(note) = job.note {
        shard.record_durable(note).await?;
    }
    let file = &job.place.file;
    let written = file.write(&shard.files, &shard.options, job.place.reservation, job.buffers, shard.allocate()).await;
    written.map_err(|error| shard.fail(&error))?;
    file.written_before(&shard.failure, job.place.reservation).await?;
    file.sync(&shard.files).await.map_err(|error| shard.fail(&error))?;
    completed_before(shard, partition, job.number).await?;
    flush::complete(partition, &job.place, job.end);
    if shard.allocate() != Allocate::Ahead {
        return Ok(());
    }
    let ahead = (shard.clone(), file.clone());
    executor::spawn_background(async move {
        let (shard, file) = ahead;
        if let Err(error) = file.allocate_ahead(&shard.files).await {
            // No space ahead of need is not yet a failure: the write that needs it will tell, and the marks on free space act first.
            tracing::warn!(%error, "no space could be given to a segment ahead of need");
        }
    })
    .detach();
    Ok(())
}

/// Waits until the direct writes of the partition that began before `number` are complete.
async fn completed_before(shard: &Shard, partition: &Partition, number: u64) -> Result<(), LogFailed> {
    loop {
        let progress = shard.progress.notified();
        shard.failure.check()?;
        if partition.inner.borrow().direct.completed == number {
            return Ok(());
        }
        progress.await;
    }
}

/// Whether what is pending would begin a new segment.
fn begins_segment(inner: &Inner, now_ms: i64) -> bool {
    let earlier = inner.cached.range(inner.first_unreserved()..).map(|batch| batch.bytes.len());
    let (count, _) = pending_count(inner);
    let pending = inner.pending.iter().take(count).map(|batch| batch.bytes.len());
    let padded_max: usize = earlier.chain(pending).map(segment_fill::padded_bytes).sum();
    segments::begins(inner, padded_max as u64, now_ms)
}

fn take(shard: &Rc<Shard>, partition: &Rc<Partition>, now_ms: i64) -> Job {
    let mut inner = partition.inner.borrow_mut();
    assert!(!inner.deleted, "a deleted partition has nothing pending");
    assert!(!inner.direct.is_full(), "the bound on direct writes of a partition");
    let number = inner.direct.begun;
    inner.direct.begun += 1;

    let first = inner.first_unreserved();
    let (count, queued_bytes) = pending_count(&inner);
    let mut placed: Vec<Placed> = inner.cached.range(first..).map(CachedBatch::placed).collect();
    let earlier_count = placed.len();
    placed.extend(inner.pending.iter().take(count).map(PendingBatch::placed));
    let first_offset = placed.first().expect("a direct write has batches").base;
    let end = placed.last().expect("a direct write has batches").last + 1;
    let epoch = inner.epochs.latest().expect("a partition with batches has an epoch").epoch;
    let lengths: Vec<usize> = placed.iter().map(|batch| batch.stride as usize).collect();
    let in_place_min = shard.options.in_place_bytes_min;
    let landed = inner.pending.iter().map(|batch| batch.bytes.len() >= in_place_min && segment_fill::has_landed(&batch.bytes));
    let landed = iter::repeat_n(false, earlier_count).chain(landed);
    let chunks = segment_fill::chunks(lengths.iter().copied().zip(landed));
    let padded = segments::spread(&mut placed, &chunks);
    let place = segments::reserve(shard, partition, &mut inner, &placed, padded, now_ms);

    let mut buffers = Vec::with_capacity(chunks.len());
    let mut taken = 0;
    for chunk in chunks {
        let range = taken..taken + chunk.count;
        taken = range.end;
        let next = placed.get(taken).map_or(end, |batch| batch.base);
        let buffer = if chunk.landed {
            let batch = &mut inner.pending[range.start - earlier_count];
            let bytes = std::mem::replace(&mut batch.bytes, Shared::empty());
            segment_fill::complete_landed(bytes, &batch.header, chunk, Offset(next), epoch)
        } else {
            let earlier = inner.cached.range(first..).map(|batch| Piece { header: None, bytes: &batch.bytes });
            let pending = inner.pending.iter().map(|batch| Piece { header: Some(&batch.header), bytes: &batch.bytes });
            let pieces = earlier.take(earlier_count).chain(pending).skip(range.start).take(chunk.count);
            segment_fill::fill(pieces, chunk, Offset(next), epoch)
        };
        shard.tail.hold(buffer.len() as u64, vec![(partition.clone(), next)]);
        buffers.push((buffer, range));
    }
    cache_pending(&mut inner, queued_bytes, earlier_count, &lengths, &buffers);
    let active = inner.active.as_mut().expect("the place is in the active segment");
    active.noted = true;
    // The one that may be under way has perhaps taken this partition's state already.
    active.known_by = shard.checkpoint_number.get() + 2;
    let note = place
        .unnoted
        .then(|| shard.push_record(Record { key: partition.key, entry: Entry::DirectStart(place.start(first_offset)) }));
    let buffers = buffers.into_iter().map(|(buffer, _)| buffer).collect();
    Job { number, place, buffers, end, queued_bytes, note }
}

/// How many pending batches go along, and their bytes.
fn pending_count(inner: &Inner) -> (usize, u64) {
    let mut bytes = 0;
    let mut count = 0;
    for batch in &inner.pending {
        let length = batch.bytes.len();
        if count > 0 && bytes + length > DIRECT_BYTES_MAX {
            break;
        }
        bytes += length;
        count += 1;
    }
    (count, bytes as u64)
}

/// The pending batches now live in the buffers: each holds the batches of a range, of which the first `earlier_count` were cached before.
fn cache_pending(
    inner: &mut Inner,
    bytes: u64,
    earlier_count: usize,
    lengths: &[usize],
    buffers: &[(Shared, std::ops::Range<usize>)],
) {
    for (buffer, range) in buffers {
        let mut position = 0;
        for index in range.clone() {
            let slice = buffer.slice(position..position + lengths[index]);
            position += lengths[index];
            if index < earlier_count {
                continue;
            }
            let batch = inner.pending.pop_front().expect("counted before");
            inner.cached.push_back(CachedBatch {
                base: batch.base,
                last: batch.last,
                max_timestamp_ms: batch.max_timestamp_ms,
                wal_block: u64::MAX,
                bytes: slice,
            });
        }
    }
    inner.pending_bytes -= bytes;
    inner.unflushed_bytes += bytes;
}
