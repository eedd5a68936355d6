//! The checkpoint: what a restart begins with, so that old write-ahead files can be written over.
//!
//! ```text
//!   flush due partitions ─► note the next block N ─► state of each partition ─► syncfs ─► checkpoint file ─► files below the replay go
//! ```
//!
//! The states are taken one after the other while appends go on. Each is true at or after block N, and the replay begins at N or before, so
//! that whatever a state misses is replayed; what it already has is recognised by its offset. Each is taken under the partition's segments
//! lock and forgets the direct-start note: the next direct write puts a new one into a block after N.

use std::rc::Rc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::{disk, executor};

use crate::background::FLUSHES_IN_FLIGHT_MAX;
use crate::compaction::superseded;
use crate::failure::LogFailed;
use crate::flush;
use crate::format::checkpoint::{self, CheckpointWriter, ReplayStart};
use crate::partition::Partition;
use crate::shard::Shard;

/// A partition with this much unflushed is flushed by every checkpoint: it pays for the write.
const DUE_BYTES: u64 = 256 << 10;

/// Which partitions a checkpoint flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those with much unflushed, and those that keep the oldest third of the log.
    Due,
    /// All: at close, nothing is left to replay.
    Everything,
}

pub(crate) async fn run(shard: &Rc<Shard>, reach: Reach) -> Result<(), LogFailed> {
    let _turn = shard.checkpoint_turn.acquire(1).await;
    flush_due(shard, reach).await?;
    while shard.removals.get() > 0 {
        let progress = shard.progress.notified();
        shard.failure.check()?;
        progress.await;
    }
    let first_block = shard.wal.borrow().next_block();
    let States { writer, oldest_block, is_deleting } = states(shard).await?;
    let replay_block = first_block.min(oldest_block);
    if is_deleting {
        // A deletion began meanwhile, and a replay from here must come to the record of it.
        shard.barrier().await?;
    }

    disk::syncfs(shard.directory.disk()).await.map_err(|error| shard.fail(&error))?;
    shard.failure.check()?;
    let replay_from = shard.wal.borrow().replay_start(replay_block);
    // A log that was closed meanwhile has its last checkpoint.
    let Some(replay_from) = replay_from else { return Ok(()) };
    write(shard, writer, replay_from).await?;

    // A checkpoint lets about a third of the files go: half of them are enough to start with, and the others' space is given back.
    let spare_max = (shard.options.wal_files_max() / 2).max(1);
    let removed = shard.wal.borrow_mut().recycle_below(replay_block, spare_max);
    shard.background.notify_waiters();
    for sequence in removed {
        let path = shard.directory.path().join(crate::format::file_header::file_name(sequence));
        disk::remove_file(&path).await.map_err(|error| shard.fail(&error))?;
    }
    shard.counters.add(|stats| stats.checkpoints += 1);
    superseded::remove_due(shard).await
}

async fn flush_due(shard: &Rc<Shard>, reach: Reach) -> Result<(), LogFailed> {
    let old_block = shard.wal.borrow().old_block();
    let mut due = Vec::new();
    for partition in all(shard) {
        if is_due(&partition, reach, old_block) {
            due.push(partition);
        }
        executor::yield_if_needed().await;
    }
    let flushes = due.iter().map(|partition| flush::flush(shard, partition));
    let mut flushes = stream::iter(flushes).buffer_unordered(FLUSHES_IN_FLIGHT_MAX);
    while flushes.try_next().await?.is_some() {}
    Ok(())
}

fn is_due(partition: &Partition, reach: Reach, old_block: u64) -> bool {
    let inner = partition.inner.borrow();
    let old = inner.oldest_block().is_some_and(|block| block <= old_block);
    inner.unflushed_bytes > 0 && (old || reach == Reach::Everything || inner.unflushed_bytes >= DUE_BYTES)
}

struct States {
    writer: CheckpointWriter,
    /// The oldest block that one of them needs.
    oldest_block: u64,
    /// A partition was left out because its deletion was asked for; its record may not be durable.
    is_deleting: bool,
}

/// Takes the state of each partition.
async fn states(shard: &Rc<Shard>) -> Result<States, LogFailed> {
    let mut writer = CheckpointWriter::new(&shard.disk);
    let mut oldest_block = u64::MAX;
    let mut is_deleting = false;
    let mut moved = shard.moved.borrow().clone().into_iter().peekable();
    for partition in all(shard) {
        while let Some(state) = moved.next_if(|state| state.key < partition.key) {
            writer.add(&state);
        }
        let _lock = shard.lock_segments(&partition).await;
        shard.failure.check()?;
        {
            let mut inner = partition.inner.borrow_mut();
            if inner.deleted {
                is_deleting = true;
                continue;
            }
            if let Some(active) = inner.active.as_mut() {
                active.noted = false;
            }
            if let Some(block) = inner.oldest_block() {
                oldest_block = oldest_block.min(block);
            }
            writer.add(&inner.state(partition.key, shard));
        }
        executor::yield_if_needed().await;
    }
    moved.for_each(|state| writer.add(&state));
    Ok(States { writer, oldest_block, is_deleting })
}

async fn write(shard: &Shard, writer: CheckpointWriter, replay_from: ReplayStart) -> Result<(), LogFailed> {
    let number = shard.checkpoint_number.get() + 1;
    let bytes = writer.finish(shard.storage_id, number, shard.options.boot, replay_from);
    let folder = shard.directory.path();
    let written = disk::write_file_atomically(&folder.join(checkpoint::file_name(number)), &bytes).await;
    written.map_err(|error| shard.fail(&error))?;
    shard.checkpoint_number.set(number);
    // The one before stays, for the case that this one turns out unreadable; its log files may be gone, but its segments are not.
    if let Some(old) = number.checked_sub(2) {
        match disk::remove_file(&folder.join(checkpoint::file_name(old))).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(shard.fail(&error)),
        }
    }
    Ok(())
}

/// All partitions in the order of their keys.
pub(crate) fn all(shard: &Shard) -> Vec<Rc<Partition>> {
    let mut partitions: Vec<Rc<Partition>> = shard.partitions.borrow().values().cloned().collect();
    partitions.sort_unstable_by_key(|partition| partition.key);
    partitions
}
