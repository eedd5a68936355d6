//! Segments that others stand for now: their files stay for some checkpoints more.
//!
//! ```text
//!   checkpoint   7 begun ──── switch ──── 7 written      8 written      9 written: the file goes
//!                does not know it         knows it?      knows it       with 8, the two that are kept know it
//! ```
//!
//! The one before the newest checkpoint is kept for the case that the newest cannot be read. Its segments are then what there is of the partition, so
//! that they must be there.

use std::collections::VecDeque;
use std::rc::Rc;

use shards::{disk, executor};

use crate::failure::LogFailed;
use crate::partition::{Inner, Partition, SealedSegment};
use crate::shard::Shard;

/// Checkpoints to be written after a switch before the old files go: one may have been begun before, and two are kept.
const CHECKPOINTS: u64 = 3;

#[derive(Debug)]
struct Entry {
    partition: Rc<Partition>,
    segment: SealedSegment,
    /// The number of the newest checkpoint when it was superseded.
    checkpoint: u64,
}

/// The files of a shard that wait for checkpoints, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    entries: VecDeque<Entry>,
}

impl Superseded {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Leaves the file of a segment that another stands for.
pub(crate) fn leave(shard: &Shard, partition: &Rc<Partition>, segment: SealedSegment) {
    shard.reads.forget(segment.key);
    shard.indexes.forget(segment.key);
    shard.files.forget(segment.key);
    let checkpoint = shard.checkpoint_number.get();
    shard.superseded.borrow_mut().entries.push_back(Entry { partition: partition.clone(), segment, checkpoint });
}

/// Removes the files that have waited for long enough. To be called after a checkpoint was written.
pub(crate) async fn remove_due(shard: &Rc<Shard>) -> Result<(), LogFailed> {
    let written = shard.checkpoint_number.get();
    loop {
        let entry = {
            let entries = &mut shard.superseded.borrow_mut().entries;
            entries.pop_front_if(|entry| entry.checkpoint + CHECKPOINTS <= written)
        };
        let Some(Entry { partition, segment, .. }) = entry else { return Ok(()) };
        let _lock = shard.lock_segments(&partition).await;
        if is_needless(&partition.inner.borrow(), &segment) {
            shard.files.forget(segment.key);
            match disk::remove_file(&segment.path()).await {
                Err(error) if !error.is_not_found() => return Err(shard.fail(&error)),
                _ => {}
            }
        }
        executor::yield_if_needed().await;
    }
}

/// After a cut the name may be used again; and a deleted partition's files go with their folder, where another one may be by now.
fn is_needless(inner: &Inner, segment: &SealedSegment) -> bool {
    let is_sealed = inner.sealed.iter().any(|other| other.key == segment.key);
    let is_active = inner.active.as_ref().is_some_and(|active| active.file.key == segment.key);
    !inner.deleted && !is_sealed && !is_active
}
