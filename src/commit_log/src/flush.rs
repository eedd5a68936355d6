//! From memory into segments, in the background and without a sync: the log still holds the batches.

use std::rc::Rc;

use shards::buffer::Shared;
use shards::executor;
use wire::Offset;

use crate::LogFailed;
use crate::format::BLOCK_BYTES;
use crate::partition::{CachedBatch, Inner, Partition};
use crate::segment_file::Allocate;
use crate::segment_fill::{self, Piece};
use crate::segments::{self, Place, Placed};
use crate::shard::Shard;

/// One round of a partition's flush: enough for full speed, little enough to keep memory and latency of others small.
pub(crate) const FLUSH_BYTES_MAX: usize = 1 << 20;

/// Blocks of all flushes on their way to the disk at a time: a commit waits behind them there, whatever share of the processor they have.
pub(crate) const FLUSH_BLOCKS_IN_FLIGHT_MAX: usize = FLUSH_BYTES_MAX / BLOCK_BYTES;

/// What one round of a flush takes: the unflushed durable batches from the first on.
struct Round {
    count: usize,
    padded_bytes: usize,
}

struct Job {
    place: Place,
    buffers: Vec<Shared>,
    end: u64,
}

/// Moves everything durable of `partition` into its segments.
pub(crate) async fn flush(shard: &Rc<Shard>, partition: &Rc<Partition>) -> Result<(), LogFailed> {
    let _lock = shard.lock_segments(partition).await;
    loop {
        shard.failure.check()?;
        let Some(round) = due(&partition.inner.borrow()) else { return Ok(()) };
        // Before the buffers: of flushes that wait here, none takes memory.
        let blocks = (round.padded_bytes / BLOCK_BYTES).min(FLUSH_BLOCKS_IN_FLIGHT_MAX);
        let _on_the_way = shard.flush_blocks.acquire(blocks).await;
        shard.failure.check()?;
        let Some(job) = take(shard, partition, &round) else { return Ok(()) };
        let bytes = job.place.reservation.bytes;
        let is_first = partition.inner.borrow().sealed.last().is_none();
        let allocate = if is_first { Allocate::Nothing } else { shard.allocate() };
        let written = job.place.file.write(&shard.files, &shard.options, job.place.reservation, job.buffers, allocate).await;
        written.map_err(|error| shard.fail(&error))?;
        shard.counters.add(|stats| stats.flushed_bytes += bytes);
        complete(partition, &job.place, job.end);
        executor::yield_if_needed().await;
    }
}

/// Notes that a reservation's batches stand in their segment.
pub(crate) fn complete(partition: &Partition, place: &Place, end: u64) {
    let mut inner = partition.inner.borrow_mut();
    if inner.deleted {
        return;
    }
    if let Some(active) = inner.active.as_mut() {
        assert!(Rc::ptr_eq(&active.file, &place.file), "the lock's holder writes into the active segment");
        active.flushed_position = place.reservation.position + place.reservation.bytes;
    }
    inner.flushed_up_to(end);
}

/// Takes the batches of a round that was [`due`] under the same lock: nobody else has moved any of them since.
fn take(shard: &Shard, partition: &Rc<Partition>, round: &Round) -> Option<Job> {
    let mut inner = partition.inner.borrow_mut();
    if inner.deleted {
        return None;
    }
    let (first, count) = (inner.first_unflushed(), round.count);
    let mut placed: Vec<Placed> = inner.cached.range(first..first + count).map(CachedBatch::placed).collect();
    let end = placed.last().expect("at least one batch is due").last + 1;
    let epoch = inner.epochs.latest().expect("a partition with batches has an epoch").epoch;
    let chunks = segment_fill::chunks(inner.cached.range(first..first + count).map(|batch| (batch.bytes.len(), false)));
    let padded = segments::spread(&mut placed, &chunks);
    assert_eq!(padded, round.padded_bytes as u64, "the room taken is that of the batches");
    let place = segments::reserve(shard, partition, &mut inner, &placed, padded, shards::clock::wall_ms());
    let mut pieces = inner.cached.range(first..first + count).map(|batch| Piece { header: None, bytes: &batch.bytes });
    let mut taken = 0;
    let mut buffers = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        taken += chunk.count;
        let next = placed.get(taken).map_or(end, |batch| batch.base);
        buffers.push(segment_fill::fill(pieces.by_ref().take(chunk.count), chunk, Offset(next), epoch));
    }
    Some(Job { place, buffers, end })
}

/// The next round; `None` when there is nothing that could be flushed.
fn due(inner: &Inner) -> Option<Round> {
    if inner.deleted {
        return None;
    }
    let first = inner.first_unflushed();
    let mut length = 0;
    let mut count = 0;
    for batch in inner.cached.range(first..) {
        let durable = batch.last < inner.marks.durable_end.0;
        if !durable || (count > 0 && length + batch.bytes.len() > FLUSH_BYTES_MAX) {
            break;
        }
        length += batch.bytes.len();
        count += 1;
    }
    let chunks = segment_fill::chunks(inner.cached.range(first..first + count).map(|batch| (batch.bytes.len(), false)));
    (count > 0).then(|| Round { count, padded_bytes: chunks.iter().map(|chunk| chunk.padded).sum() })
}
