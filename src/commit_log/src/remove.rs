//! Removing what is not kept: whole segments below the log start, whole partitions.
//!
//! The decision is durable before the first file goes; the files go in the background, one by one, each in small steps.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use shards::disk::DiskError;
use shards::executor;
use wire::{Offset, PartitionKey};

use crate::compaction::superseded;
use crate::failure::LogFailed;
use crate::format::record::{Entry, Record};
use crate::inventory::Expired;
use crate::partition::{Inner, Partition, SealedSegment};
use crate::segment_files;
use crate::shard::Shard;
use crate::truncate::remove_segment;
use crate::{reclaim, segments};

pub(crate) async fn set_log_start(shard: &Rc<Shard>, partition: &Rc<Partition>, to: Offset) -> Result<(), LogFailed> {
    {
        let mut inner = partition.inner.borrow_mut();
        if inner.deleted || to.0 <= inner.durable_log_start {
            return Ok(());
        }
        // Where it is there already, it may not be durable yet: the record is written once more.
        if to > inner.marks.log_start {
            let durability = inner.options.durability;
            inner.marks.set(durability, |marks| marks.log_start = to);
            inner.epochs.trim(to);
        }
    }
    shard.log(Record { key: partition.key, entry: Entry::LogStart(to) }).await?;
    {
        let mut inner = partition.inner.borrow_mut();
        inner.durable_log_start = inner.durable_log_start.max(to.0);
    }
    trim_later(shard, partition);
    Ok(())
}

/// Has the segments below the durable log start removed in the background.
pub(crate) fn trim_later(shard: &Shard, partition: &Rc<Partition>) {
    if !partition.trimming.replace(true) {
        shard.trims.borrow_mut().push_back(partition.clone());
        shard.trim_work.notify_waiters();
    }
}

/// As [`run`], after the files below the log start that a restart has found.
pub(crate) async fn run_after(shard: Rc<Shard>, found: Vec<Expired>) {
    for Expired { key, base, path } in found {
        // A partition of the same name that was made meanwhile begins at 0.
        let is_below =
            shard.partitions.borrow().get(&key).is_some_and(|partition| base < partition.inner.borrow().marks.log_start);
        if !is_below || shard.closed.get() {
            continue;
        }
        match remove_expired(&shard, &path).await {
            Ok(()) => {
                tracing::info!(partition = %key, base = base.0, "a segment below the log start, left by a crash, is removed")
            }
            Err(error) => {
                shard.fail(&error);
            }
        }
    }
    run(shard).await;
}

async fn remove_expired(shard: &Shard, path: &Path) -> Result<(), DiskError> {
    match reclaim::unname(path).await? {
        Some(unnamed) => unnamed.give_back(shard).await,
        None => Ok(()),
    }
}

/// Removes what is below the log starts, one file after the other, until the log is closed or fails.
async fn run(shard: Rc<Shard>) {
    while !shard.closed.get() && shard.failure.get().is_none() {
        let wake = shard.trim_work.notified();
        let next = shard.trims.borrow_mut().pop_front();
        let Some(partition) = next else {
            wake.await;
            continue;
        };
        // A failure stops the shard, which reports it.
        let _ = trim(&shard, &partition).await;
        shard.progress.notify_waiters();
    }
}

async fn trim(shard: &Rc<Shard>, partition: &Rc<Partition>) -> Result<(), LogFailed> {
    // The lock is held only while the segments are taken out: nobody finds them any more when their files go.
    let segments = {
        let _lock = shard.lock_segments(partition).await;
        let mut inner = partition.inner.borrow_mut();
        // A move of the log start from now on comes here again.
        partition.trimming.set(false);
        take_below(shard, partition, &mut inner)
    };
    // What the batches of a segment say of their producers may stand nowhere else yet, and a producer is remembered longer than its batches.
    let names_producers = !partition.inner.borrow().producers.is_empty();
    let is_scanned = |segment: &SealedSegment| names_producers && segment.known_by > shard.checkpoint_number.get();
    let (scanned, segments): (Vec<_>, Vec<_>) = segments.into_iter().partition(is_scanned);
    scanned.into_iter().for_each(|segment| superseded::leave_until(shard, partition, segment.known_by, segment));
    if segments.is_empty() {
        return Ok(());
    }
    partition.removing.set(true);
    let removed = remove_all(shard, partition, &segments).await;
    partition.removing.set(false);
    removed
}

/// The segments that are wholly below the durable log start; the active one too.
fn take_below(shard: &Shard, partition: &Rc<Partition>, inner: &mut Inner) -> Vec<SealedSegment> {
    if inner.deleted {
        return Vec::new();
    }
    let start = inner.durable_log_start;
    if inner.active.as_ref().is_some_and(|active| active.reserved_end <= start) {
        segments::seal(shard, partition, inner);
    }
    let count = inner.sealed.partition_point(|segment| segment.end <= start);
    inner.sealed.drain(..count).collect()
}

async fn remove_all(shard: &Rc<Shard>, partition: &Partition, segments: &[SealedSegment]) -> Result<(), LogFailed> {
    for segment in segments {
        if let Some(unnamed) = remove_segment(shard, partition, segment).await? {
            unnamed.give_back(shard).await.map_err(|error| shard.fail(&error))?;
        }
        executor::yield_if_needed().await;
    }
    Ok(())
}

/// Takes the partition out of the shard and removes its files once that is durable.
pub(crate) async fn delete(shard: &Rc<Shard>, key: PartitionKey) -> Result<(), LogFailed> {
    let Some(partition) = shard.partitions.borrow_mut().remove(&key) else { return Ok(()) };
    let dropped = {
        let mut inner = partition.inner.borrow_mut();
        inner.deleted = true;
        inner.pending.clear();
        inner.cached.clear();
        inner.unflushed_bytes = 0;
        inner.waiters.clear();
        shard.producers_changed(std::mem::take(&mut inner.producers).len(), 0);
        std::mem::take(&mut inner.pending_bytes)
    };
    shard.unqueued(dropped);
    {
        // Nothing of the partition may follow the record of its end.
        let mut queue = shard.queue.borrow_mut();
        queue.direct_ends.retain(|record| record.key != key);
        queue.hints.retain(|other| !Rc::ptr_eq(other, &partition));
        queue.ready.retain(|other| !Rc::ptr_eq(other, &partition));
        queue.much.retain(|other| !Rc::ptr_eq(other, &partition));
        queue.relaxed.retain(|other| !Rc::ptr_eq(other, &partition));
    }
    shard.removing.borrow_mut().insert(key);
    shard.removals.set(shard.removals.get() + 1);
    shard.log(Record { key, entry: Entry::Deleted }).await?;
    let shard = shard.clone();
    executor::spawn_background(async move {
        remove_files(&shard, &partition).await;
        shard.removing.borrow_mut().remove(&key);
        shard.removals.set(shard.removals.get() - 1);
        shard.progress.notify_waiters();
    })
    .detach();
    Ok(())
}

async fn remove_files(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    // A pass of compaction ends at its next read or write.
    while partition.compacting.get() {
        shard.progress.notified().await;
    }
    // Whoever writes into a segment holds the lock until its writes are done.
    let _lock = shard.lock_segments(partition).await;
    let segments = {
        let mut inner = partition.inner.borrow_mut();
        segments::seal(shard, partition, &mut inner);
        std::mem::take(&mut inner.sealed)
    };
    if remove_all(shard, partition, &segments).await.is_err() {
        return;
    }
    // Of those that retention took before.
    while partition.removing.get() {
        shard.progress.notified().await;
    }
    let mut disks = vec![shard.disk.clone()];
    for segment in &segments {
        if !disks.contains(&segment.disk) {
            disks.push(segment.disk.clone());
        }
    }
    // What a start has left because it may be what is missing, and what compaction has left.
    for disk in disks {
        if let Err(error) = segment_files::remove_all(&disk, &BTreeSet::from([partition.key])).await {
            tracing::warn!(%error, "files of a deleted partition stay: remove them by hand");
        }
    }
}
