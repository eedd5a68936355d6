//! Segments that the partition has no more, because others stand for them or the log start has passed them: their files stay for some checkpoints.
//!
//! ```text
//!   checkpoint   7 begun ──── switch ──── 7 written      8 written      9 written: the file goes
//!                does not know it         knows it?      knows it       with 8, the two that are kept know it
//! ```
//!
//! The one before the newest checkpoint is kept for the case that the newest cannot be read. Its segments are then what there is of the partition, so
//! that they must be there.
//!
//! A segment below the log start is not read any more, but while no checkpoint knows what went straight into it, recovery scans it for the batches of
//! producers. Retention wants its room, so that checkpoints are written for its sake.

use std::rc::Rc;

use shards::executor;

use crate::failure::LogFailed;
use crate::partition::{Inner, Partition, SealedSegment};
use crate::reclaim;
use crate::shard::Shard;

/// Checkpoints to be written after a switch before the old files go: one may have been begun before, and two are kept.
const CHECKPOINTS: u64 = 3;

#[derive(Debug)]
struct Entry {
    partition: Rc<Partition>,
    segment: SealedSegment,
    /// It goes when the checkpoint of this number is written.
    until: u64,
    /// Its room is wanted: checkpoints are written for its sake.
    is_urgent: bool,
}

/// The files of a shard that wait for checkpoints, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    entries: Vec<Entry>,
}

impl Superseded {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Leaves the file of a segment that another stands for.
pub(crate) fn leave(shard: &Shard, partition: &Rc<Partition>, segment: SealedSegment) {
    let until = shard.checkpoint_number.get() + CHECKPOINTS;
    push(shard, Entry { partition: partition.clone(), segment, until, is_urgent: false });
}

/// Leaves the file of a segment below the log start until the checkpoint `until` is written, and has checkpoints written until then.
pub(crate) fn leave_until(shard: &Shard, partition: &Rc<Partition>, until: u64, segment: SealedSegment) {
    push(shard, Entry { partition: partition.clone(), segment, until, is_urgent: true });
    shard.want_checkpoint();
}

fn push(shard: &Shard, entry: Entry) {
    shard.reads.forget(entry.segment.key);
    shard.indexes.forget(entry.segment.key);
    shard.files.forget(entry.segment.key);
    shard.superseded.borrow_mut().entries.push(entry);
}

/// Removes the files that have waited for long enough. To be called after a checkpoint was written.
pub(crate) async fn remove_due(shard: &Rc<Shard>) -> Result<(), LogFailed> {
    let written = shard.checkpoint_number.get();
    let due: Vec<Entry> = {
        let entries = &mut shard.superseded.borrow_mut().entries;
        let (due, left) = std::mem::take(entries).into_iter().partition(|entry| entry.until <= written);
        *entries = left;
        due
    };
    if shard.superseded.borrow().entries.iter().any(|entry| entry.is_urgent) {
        shard.want_checkpoint();
    }
    for Entry { partition, segment, .. } in due {
        let _lock = shard.lock_segments(&partition).await;
        if is_needless(&partition.inner.borrow(), &segment) {
            shard.files.forget(segment.key);
            let unnamed = reclaim::unname(&segment.path()).await.map_err(|error| shard.fail(&error))?;
            if let Some(unnamed) = unnamed {
                let shard = shard.clone();
                executor::spawn_background(async move {
                    if let Err(error) = unnamed.give_back(&shard).await {
                        shard.fail(&error);
                    }
                })
                .detach();
            }
        }
        executor::yield_if_needed().await;
    }
    Ok(())
}

/// After a cut the name may be used again; and a deleted partition's files go with their folder, where another one may be by now.
fn is_needless(inner: &Inner, segment: &SealedSegment) -> bool {
    let is_sealed = inner.sealed.iter().any(|other| other.key == segment.key);
    let is_active = inner.active.as_ref().is_some_and(|active| active.file.key == segment.key);
    !inner.deleted && !is_sealed && !is_active
}
