//! What runs behind the appends, under the background share: flushing what fills the memory, sealing beside it, checkpoints.

use std::rc::Rc;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::checkpoint::{self, Reach};
use crate::failure::LogFailed;
use crate::flush;
use crate::seal;
use crate::shard::Shard;

/// Partitions flushed in one step, before the next look at what is most needed.
const FLUSH_PARTITIONS_MAX: usize = 64;

/// Partitions flushed at the same time: small writes into different files, so that the latency of one does not bound the rate of all.
pub(crate) const FLUSHES_IN_FLIGHT_MAX: usize = 16;

/// Bytes written straight into segments after which a checkpoint is due: a restart scans the tails of those segments, at about the speed of the
/// disk, so that this is a second or two of the time until it serves.
pub(crate) const DIRECT_BYTES_PER_CHECKPOINT: u64 = 2 << 30;

/// Flushes until the log is closed.
pub(crate) async fn run(shard: Rc<Shard>) {
    while !shard.closed.get() && shard.failure.get().is_none() {
        let wake = shard.background.notified();
        match step(&shard).await {
            Ok(true) => {}
            Ok(false) => wake.await,
            // The failure is latched; whoever waits was told.
            Err(LogFailed { .. }) => return,
        }
    }
}

/// Flushes what is most needed; false when nothing could be done now.
async fn step(shard: &Rc<Shard>) -> Result<bool, LogFailed> {
    if flush_wanted(shard).await? {
        return Ok(true);
    }
    let soft_max = shard.options.unflushed_bytes_max / 2;
    let held = shard.tail.bytes();
    if held <= soft_max {
        return Ok(false);
    }
    // What is not yet durable cannot be flushed: without progress, wait for the next commit.
    let before = shard.counters.get().flushed_bytes;
    let oldest = shard.tail.oldest_unflushed(held - soft_max, FLUSH_PARTITIONS_MAX);
    let flushes = oldest.iter().map(|partition| flush::flush(shard, partition));
    let mut flushes = stream::iter(flushes).buffer_unordered(FLUSHES_IN_FLIGHT_MAX);
    while flushes.try_next().await?.is_some() {}
    shard.tail.shrink_to(shard.options.tail_cache_bytes_max);
    // Appends may wait for this memory, and no commit comes that could tell them.
    shard.progress.notify_waiters();
    Ok(shard.counters.get().flushed_bytes > before)
}

/// Flushes the partition that has waited longest for it, so that its direct writes can begin.
async fn flush_wanted(shard: &Rc<Shard>) -> Result<bool, LogFailed> {
    let Some(partition) = shard.flushes_wanted.borrow_mut().pop_front() else { return Ok(false) };
    flush::flush(shard, &partition).await?;
    partition.inner.borrow_mut().flush_wanted = false;
    Ok(true)
}

/// Seals until the log is closed: beside the flushes, which appends wait for, and which under load never end.
pub(crate) async fn run_seals(shard: Rc<Shard>) {
    while !shard.closed.get() && shard.failure.get().is_none() {
        let wake = shard.seal_work.notified();
        match seal_one(&shard).await {
            Ok(true) => {}
            Ok(false) => wake.await,
            // The failure is latched; whoever waits was told.
            Err(LogFailed { .. }) => return,
        }
    }
}

/// Writes the end of one sealed segment; false when there is none. Returns when nobody else is writing one.
pub(crate) async fn seal_one(shard: &Rc<Shard>) -> Result<bool, LogFailed> {
    let _turn = shard.seal_turn.acquire(1).await;
    let Some(sealing) = shard.sealing.borrow_mut().pop_front() else { return Ok(false) };
    seal::finish(shard, sealing).await.map_err(|error| shard.fail(&error))?;
    Ok(true)
}

/// Writes checkpoints when the log has grown, until it is closed.
pub(crate) async fn run_checkpoints(shard: Rc<Shard>) {
    let (mut logged_at, mut direct_at) = (0, 0);
    while !shard.closed.get() && shard.failure.get().is_none() {
        let wake = shard.checkpoint_work.notified();
        let stats = shard.counters.get();
        let grown = shard.wal.borrow().live_bytes() > shard.options.wal_bytes_max / 3;
        let logged = grown && stats.group_bytes - logged_at >= shard.options.wal_file_bytes / 2;
        let due = logged || stats.direct_bytes - direct_at >= DIRECT_BYTES_PER_CHECKPOINT;
        if !due && !shard.checkpoint_wanted.get() {
            wake.await;
            continue;
        }
        shard.checkpoint_wanted.set(false);
        (logged_at, direct_at) = (stats.group_bytes, stats.direct_bytes);
        // The failure is latched; whoever waits was told.
        let _ = checkpoint::run(&shard, Reach::Due).await;
    }
}
