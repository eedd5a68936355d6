//! Before a log is opened: the files in the folders of its partitions, against what their states name.
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

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::disk::{self, DiskError};
use wire::{Offset, PartitionKey};

use crate::StartError;
use crate::directory::{SegmentName, parse_segment_name, partition_path, topics_path};
use crate::partition_state::{OffsetRange, PartitionState, SegmentState};

/// Folders listed at the same time: ten thousand of them are looked at within a start.
const PARTITIONS_AT_ONCE: usize = 32;

/// A file below the log start of its partition.
#[derive(Debug)]
pub(crate) struct Expired {
    pub(crate) key: PartitionKey,
    pub(crate) base: Offset,
    pub(crate) path: PathBuf,
}

/// Compares all of `states`, whose new segments stand on `own`; returns them without what is not there, and what is to be removed later.
pub(crate) async fn take(own: &Path, states: Vec<PartitionState>) -> Result<(Vec<PartitionState>, Vec<Expired>), StartError> {
    let disks: BTreeSet<&Path> = states.iter().flat_map(|state| &state.segments).map(|segment| &*segment.disk).collect();
    for disk in disks {
        if !disk::exists(&topics_path(disk)).await? {
            // Not a loss yet: nothing is marked that a mount will bring back.
            return Err(StartError::DiskMissing { path: disk.display().to_string() });
        }
    }
    let compared = states.into_iter().map(|state| compare(own, state));
    let compared: Vec<_> = stream::iter(compared).buffered(PARTITIONS_AT_ONCE).try_collect().await?;
    let (states, expired): (Vec<_>, Vec<_>) = compared.into_iter().unzip();
    Ok((states, expired.into_iter().flatten().collect()))
}

async fn compare(own: &Path, mut state: PartitionState) -> Result<(PartitionState, Vec<Expired>), DiskError> {
    let mut disks: BTreeSet<PathBuf> = state.segments.iter().map(|segment| segment.disk.to_path_buf()).collect();
    disks.insert(own.to_path_buf());
    let mut there = BTreeSet::new();
    let mut leftovers = Vec::new();
    for disk in disks {
        let folder = partition_path(&disk, state.key);
        for name in names(&folder).await? {
            let Some(SegmentName { base, generation, is_finished }) = parse_segment_name(&name) else { continue };
            // Whatever the disk: two paths may lead to one folder.
            let is_named = state.segments.iter().any(|segment| (segment.base, segment.generation) == (base, generation));
            if is_finished && is_named {
                there.insert((disk.clone(), base));
            } else {
                // What compaction has put together is not missing, whatever else is.
                let is_superseded = state.segments.iter().any(|segment| supersedes(segment, base, generation));
                leftovers.push((base, folder.join(name), is_superseded));
            }
        }
    }
    let is_there = |segment: &SegmentState| there.contains(&(segment.disk.to_path_buf(), segment.base));
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
    Ok((state, expired))
}

/// Whether what stood in a file of this name stands in `segment` now.
fn supersedes(segment: &SegmentState, base: Offset, generation: u32) -> bool {
    segment.generation > generation && (segment.base..segment.end).contains(&base)
}

async fn names(folder: &Path) -> Result<Vec<String>, DiskError> {
    match disk::list_dir(folder).await {
        Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn leave_or_remove(path: &Path, partition: PartitionKey, is_left: bool) -> Result<(), DiskError> {
    let path_text = path.display();
    if is_left {
        tracing::warn!(%partition, path = %path_text, "a file that no state names is left: it may hold what the partition has lost");
        return Ok(());
    }
    tracing::info!(%partition, path = %path_text, "the leftover of a crash is removed");
    match disk::remove_file(path).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
