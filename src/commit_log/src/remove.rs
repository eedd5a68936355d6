//! Removing what is not kept: whole segments below the log start, whole partitions.
//!
//! The decision is durable before the first file goes; the files go in the background, one by one.

use std::rc::Rc;

use shards::{disk, executor};
use wire::{Offset, PartitionKey};

use crate::compaction::superseded;
use crate::directory::partition_path;
use crate::failure::LogFailed;
use crate::format::record::{Entry, Record};
use crate::partition::Partition;
use crate::shard::Shard;
use crate::truncate::remove_segment;

pub(crate) async fn set_log_start(shard: &Rc<Shard>, partition: &Rc<Partition>, to: Offset) -> Result<(), LogFailed> {
    {
        let mut inner = partition.inner.borrow_mut();
        if inner.deleted || to <= inner.marks.log_start {
            return Ok(());
        }
        let durability = inner.options.durability;
        inner.marks.set(durability, |marks| marks.log_start = to);
        inner.epochs.trim(to);
    }
    shard.log(Record { key: partition.key, entry: Entry::LogStart(to) }).await?;
    let (shard, partition) = (shard.clone(), partition.clone());
    shard.removals.set(shard.removals.get() + 1);
    executor::spawn_background(async move {
        // A failure stops the shard, which reports it.
        let _ = remove_below(&shard, &partition, to).await;
        shard.removals.set(shard.removals.get() - 1);
        shard.progress.notify_waiters();
    })
    .detach();
    Ok(())
}

/// Removes the segments below `to`, which is durable: the log start in memory may be further, and not be durable yet.
async fn remove_below(shard: &Rc<Shard>, partition: &Rc<Partition>, to: Offset) -> Result<(), LogFailed> {
    loop {
        let _lock = shard.lock_segments(partition).await;
        let segment = {
            let mut inner = partition.inner.borrow_mut();
            match inner.sealed.first() {
                Some(first) if first.end <= to.0 && !inner.deleted => inner.sealed.remove(0),
                _ => return Ok(()),
            }
        };
        let is_scanned = segment.known_by > shard.checkpoint_number.get() && !partition.inner.borrow().producers.is_empty();
        if is_scanned {
            // What its batches say of their producers stands nowhere else yet, and a producer is remembered longer than its batches.
            superseded::leave_until(shard, partition, segment.known_by, segment);
        } else {
            remove_segment(shard, partition, &segment).await?;
        }
        executor::yield_if_needed().await;
    }
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
        crate::segments::seal(shard, partition, &mut inner);
        std::mem::take(&mut inner.sealed)
    };
    let mut disks = vec![shard.disk.clone()];
    for segment in &segments {
        if remove_segment(shard, partition, segment).await.is_err() {
            return;
        }
        if !disks.contains(&segment.disk) {
            disks.push(segment.disk.clone());
        }
        executor::yield_if_needed().await;
    }
    for disk in disks {
        // The topic's folder stays, if only empty: another partition may be making its own in it at this moment, also on another shard.
        if let Err(error) = disk::remove_dir_all(&partition_path(&disk, partition.key)).await
            && !error.is_not_found()
        {
            tracing::warn!(%error, "the folder of a deleted partition stays: remove it by hand");
        }
    }
}
