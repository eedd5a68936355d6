//! Before a log is opened: the files of its partitions, against what their states name.
//!
//! ```text
//!   named and there      the partition
//!   named, not there     a lost range: the record that removed it is lost, or somebody else removed it
//!   there, not named     a leftover of a crash (of what a cut, the log start or a recovery left): removed, unless the partition is lossy, because
//!                        then it may be what is missing (but for what compaction has put into another file); one below the log start in the
//!                        background, since that may take long
//! ```
//!
//! It is done when the states of all directories are known: an older directory may name a partition that has moved since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shards::disk::{self, DiskError};
use wire::{Offset, PartitionKey};

use crate::StartError;
use crate::directory::{SegmentName, segments_path};
use crate::partition_state::{OffsetRange, PartitionState, SegmentState};
use crate::segment_files::{self, Found};

/// A file below the log start of its partition.
#[derive(Debug)]
pub(crate) struct Expired {
    pub(crate) key: PartitionKey,
    pub(crate) base: Offset,
    pub(crate) path: PathBuf,
}

/// Compares all of `states`, whose new segments stand on `own`; returns them without what is not there, and what is to be removed later.
pub(crate) async fn take(own: &Path, mut states: Vec<PartitionState>) -> Result<(Vec<PartitionState>, Vec<Expired>), StartError> {
    let mut disks: BTreeSet<Arc<Path>> =
        states.iter().flat_map(|state| &state.segments).map(|segment| segment.disk.clone()).collect();
    for disk in &disks {
        if !disk::exists(&segments_path(disk)).await? {
            // Not a loss yet: nothing is marked that a mount will bring back.
            return Err(StartError::DiskMissing { path: disk.display().to_string() });
        }
    }
    disks.insert(own.into());
    let keys: BTreeSet<PartitionKey> = states.iter().map(|state| state.key).collect();
    let mut files: BTreeMap<PartitionKey, Vec<(Arc<Path>, Found)>> = BTreeMap::new();
    for disk in disks {
        for found in segment_files::list(&disk, &keys).await? {
            files.entry(found.name.key).or_default().push((disk.clone(), found));
        }
    }
    let mut expired = Vec::new();
    for state in &mut states {
        expired.extend(compare(state, files.remove(&state.key).unwrap_or_default()).await?);
    }
    Ok((states, expired))
}

async fn compare(state: &mut PartitionState, files: Vec<(Arc<Path>, Found)>) -> Result<Vec<Expired>, DiskError> {
    let mut there = BTreeSet::new();
    let mut leftovers = Vec::new();
    for (disk, Found { path, name }) in files {
        // Whatever the disk: two paths may lead to one folder.
        let is_it = |segment: &SegmentState| (segment.base, segment.generation) == (name.base, name.generation);
        if name.is_finished && state.segments.iter().any(is_it) {
            there.insert((disk, name.base));
        } else {
            // What compaction has put together is not missing, whatever else is.
            let is_superseded = state.segments.iter().any(|segment| supersedes(segment, name));
            leftovers.push((name.base, path, is_superseded));
        }
    }
    let is_there = |segment: &SegmentState| there.contains(&(segment.disk.clone(), segment.base));
    let (kept, missing): (Vec<_>, Vec<_>) = state.segments.drain(..).partition(is_there);
    state.segments = kept;
    for segment in missing {
        tracing::error!(partition = %state.key, base = segment.base.0, end = segment.end.0, "the file of a segment is gone");
        state.lossy = true;
        state.add_lost(OffsetRange { start: segment.base.max(state.log_start), end: segment.end });
    }
    let mut expired = Vec::new();
    for (base, path, is_superseded) in leftovers {
        let is_left = state.lossy && !is_superseded;
        if base < state.log_start && !is_left {
            expired.push(Expired { key: state.key, base, path });
        } else {
            leave_or_remove(&path, state.key, is_left).await?;
        }
    }
    Ok(expired)
}

/// Whether what stood in a file of this name stands in `segment` now.
fn supersedes(segment: &SegmentState, name: SegmentName) -> bool {
    segment.generation > name.generation && (segment.base..segment.end).contains(&name.base)
}

async fn leave_or_remove(path: &Path, partition: PartitionKey, is_left: bool) -> Result<(), DiskError> {
    let path_text = path.display();
    if is_left {
        tracing::warn!(%partition, path = %path_text, "a file that no state names is left: it may hold what the partition has lost");
        return Ok(());
    }
    tracing::info!(%partition, path = %path_text, "the leftover of a crash is removed");
    segment_files::remove(path).await
}
