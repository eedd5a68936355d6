//! The moment at which a made segment stands for others.
//!
//! ```text
//!   made, synced, read back ─► the segments locked ─► still there? ─► record durable ─► the list in memory ─► unlocked ─► … the old files go
//! ```
//!
//! The record is the switch: a crash before it finds the old segments and a file that nobody names, a crash after it the new one. The old files stay
//! until no checkpoint names them that may still be read ([`super::superseded`]), and readers that hold them open read on.

use std::rc::Rc;

use wire::Offset;

use super::output::Made;
use super::superseded;
use crate::failure::LogFailed;
use crate::format::record::{CompactedSegment, Entry, Record};
use crate::partition::{Inner, Partition, SealedSegment};
use crate::shard::Shard;

/// Whether it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switched {
    Done,
    /// The segments are not those any more: the log start has passed one, or the partition is deleted.
    Changed,
}

/// The segment that was made, as the partition lists it.
pub(crate) fn sealed(made: &Made, sealed_ms: i64, tombstones_since_ms: Option<i64>) -> SealedSegment {
    SealedSegment {
        key: made.key,
        disk: made.disk.clone(),
        end: made.end.0,
        bytes: made.end_position,
        max_timestamp_ms: made.index.max_timestamp_ms(),
        sealed_ms,
        tombstones_since_ms,
        known_by: 0,
        incarnation: 0,
    }
}

/// Puts `made` in the place of `sources`, durably.
pub(crate) async fn switch(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    sources: &[SealedSegment],
    made: Made,
    since_ms: Option<i64>,
) -> Result<Switched, LogFailed> {
    let lock = shard.lock_segments(partition).await;
    let at = place(&partition.inner.borrow(), sources);
    // A log that is being closed has written its last record.
    let Some(at) = at.filter(|_| !shard.closing.get()) else {
        made.abandon().await;
        return Ok(Switched::Changed);
    };
    // The age of what was put together counts from the youngest of it.
    let sealed_ms = sources.iter().map(|source| source.sealed_ms).max().expect("something was put together");
    let segment = sealed(&made, sealed_ms, since_ms);
    shard.log(Record { key: partition.key, entry: Entry::Compacted(named(&segment)) }).await?;
    shard.indexes.insert(segment.key, made.index, segment.end);
    let mut inner = partition.inner.borrow_mut();
    inner.compacted_end = inner.compacted_end.max(made.end);
    let old: Vec<SealedSegment> = inner.sealed.splice(at..at + sources.len(), [segment]).collect();
    drop(inner);
    drop(lock);
    for segment in old {
        superseded::leave(shard, partition, segment);
    }
    Ok(Switched::Done)
}

/// Notes since when the tombstones of a segment are clean, durably.
pub(crate) async fn note(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    segment: &SealedSegment,
    since_ms: Option<i64>,
) -> Result<Switched, LogFailed> {
    let _lock = shard.lock_segments(partition).await;
    let at = place(&partition.inner.borrow(), std::slice::from_ref(segment));
    let Some(at) = at.filter(|_| !shard.closing.get()) else { return Ok(Switched::Changed) };
    let noted = SealedSegment { tombstones_since_ms: since_ms, ..segment.clone() };
    shard.log(Record { key: partition.key, entry: Entry::Compacted(named(&noted)) }).await?;
    partition.inner.borrow_mut().sealed[at] = noted;
    Ok(Switched::Done)
}

/// Notes that everything below `end` is clean, durably.
pub(crate) async fn cleaned(shard: &Rc<Shard>, partition: &Rc<Partition>, end: Offset) -> Result<(), LogFailed> {
    let _lock = shard.lock_segments(partition).await;
    if shard.closing.get() || partition.inner.borrow().deleted {
        return Ok(());
    }
    shard.log(Record { key: partition.key, entry: Entry::CleanEnd(end) }).await?;
    let mut inner = partition.inner.borrow_mut();
    inner.clean_end = inner.clean_end.max(end);
    Ok(())
}

/// Where the sources stand, if they stand there as they were.
fn place(inner: &Inner, sources: &[SealedSegment]) -> Option<usize> {
    let at = inner.sealed.iter().position(|segment| segment.key == sources[0].key)?;
    let there = inner.sealed.get(at..at + sources.len())?;
    (!inner.deleted && there == sources).then_some(at)
}

fn named(segment: &SealedSegment) -> CompactedSegment {
    CompactedSegment {
        base: Offset(segment.key.base),
        end: Offset(segment.end),
        generation: segment.key.generation,
        end_position: segment.bytes,
        max_timestamp_ms: segment.max_timestamp_ms,
        tombstones_since_ms: segment.tombstones_since_ms,
    }
}
