//! Cutting the end of a partition's log.
//!
//! ```text
//!   quiet: nothing pending, nothing in flight, the segments locked
//!      ─► cut in memory ─► truncate record durable ─► files of cut segments removed ─► appends again
//! ```
//!
//! Appends are refused from the first step to the last, so that no batch after the cut can meet a file from before it.

use std::rc::Rc;

use shards::disk;
use wire::Offset;

use crate::failure::LogFailed;
use crate::format::record::{Entry, Record};
use crate::partition::{Inner, Partition, SealedSegment};
use crate::shard::Shard;
use crate::{commit, segments};

pub(crate) async fn truncate(shard: &Rc<Shard>, partition: &Rc<Partition>, to: Offset) -> Result<(), LogFailed> {
    while partition.inner.borrow().truncating {
        shard.failure.check()?;
        shard.progress.notified().await;
    }
    partition.inner.borrow_mut().truncating = true;
    let result = cut(shard, partition, to).await;
    partition.inner.borrow_mut().truncating = false;
    shard.progress.notify_waiters();
    result
}

async fn cut(shard: &Rc<Shard>, partition: &Rc<Partition>, to: Offset) -> Result<(), LogFailed> {
    quiet(shard, partition).await?;
    let _lock = shard.lock_segments(partition).await;
    let doomed = {
        let mut inner = partition.inner.borrow_mut();
        if inner.deleted || to >= inner.marks.appended_end {
            return Ok(());
        }
        assert!(to >= inner.marks.log_start, "a truncation below the log start");
        cut_in_memory(shard, partition, &mut inner, to)
    };
    shard.log(Record { key: partition.key, entry: Entry::Truncate(to) }).await?;
    for segment in doomed {
        remove_segment(shard, partition, &segment).await?;
    }
    Ok(())
}

/// Waits until everything appended is durable, and nothing of it is being written: a direct write may have made durable what a group in flight holds
/// too.
pub(crate) async fn quiet(shard: &Rc<Shard>, partition: &Partition) -> Result<(), LogFailed> {
    loop {
        shard.failure.check()?;
        let durable = {
            let inner = partition.inner.borrow();
            let is_durable = inner.marks.durable_end == inner.marks.appended_end;
            inner.deleted || (is_durable && inner.direct.in_flight() == 0)
        };
        if durable && !shard.queue.borrow().in_flight.iter().any(|group| group.holds(partition)) {
            return Ok(());
        }
        let progress = shard.progress.notified();
        commit::release_relaxed(shard);
        progress.await;
    }
}

/// Takes everything at and above `to` out of memory; returns the segments that are gone as a whole.
fn cut_in_memory(shard: &Shard, partition: &Rc<Partition>, inner: &mut Inner, to: Offset) -> Vec<SealedSegment> {
    assert!(inner.pending.is_empty(), "the partition is quiet");
    assert!(to >= inner.compacted_end, "compaction goes up to the high watermark, and no cut goes below it: {to}");
    while inner.cached.back().is_some_and(|batch| batch.last >= to.0) {
        let batch = inner.cached.pop_back().expect("just seen");
        assert!(batch.base >= to.0, "a cut falls between batches: {to} is inside {}..={}", batch.base, batch.last);
        if batch.base >= inner.flushed_end {
            inner.unflushed_bytes -= batch.bytes.len() as u64;
        }
    }
    segments::seal(shard, partition, inner);
    let mut doomed = Vec::new();
    while inner.sealed.last().is_some_and(|segment| segment.end > to.0) {
        let last = inner.sealed.last_mut().expect("just seen");
        shard.reads.forget(last.key);
        shard.indexes.forget(last.key);
        if last.key.base < to.0 {
            last.end = to.0;
            break;
        }
        doomed.extend(inner.sealed.pop());
    }
    inner.flushed_end = inner.flushed_end.min(to.0);
    inner.epochs.truncate(to);
    inner.clean_end = inner.clean_end.min(to);
    // Ends of direct writes that no block has told yet: told after the cut they would call lost what it took.
    let told_late = |record: &Record<'_>| match record.entry {
        Entry::DirectEnd(end) => record.key == partition.key && end.offset > to,
        _ => false,
    };
    shard.queue.borrow_mut().direct_ends.retain(|record| !told_late(record));
    let durability = inner.options.durability;
    inner.marks.set(durability, |marks| {
        marks.high_watermark = marks.high_watermark.min(to);
        marks.durable_end = to;
        marks.written_end = to;
        marks.appended_end = to;
    });
    doomed
}

/// Removes a segment's file and what memory knows of it.
pub(crate) async fn remove_segment(shard: &Shard, partition: &Partition, segment: &SealedSegment) -> Result<(), LogFailed> {
    shard.files.forget(segment.key);
    shard.reads.forget(segment.key);
    shard.indexes.forget(segment.key);
    debug_assert_eq!(segment.key.partition, partition.key);
    match disk::remove_file(&segment.path()).await {
        Ok(()) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(shard.fail(&error)),
    }
}
