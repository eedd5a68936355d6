//! The files of segments by their names: made, listed, removed. The folders hold those of many partitions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::disk::{self, DiskError, File, OpenOptions};
use wire::PartitionKey;

use crate::directory::{SegmentName, segment_folder_path};

/// Folders listed at the same time: each is a system call that may wait for the disk.
const LISTS_AT_ONCE: usize = 16;

/// Files removed at the same time.
const REMOVALS_AT_ONCE: usize = 16;

/// A file with the name of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) name: SegmentName,
}

/// Makes a file that is not there. One of its name can only be a leftover: of batches that the log has cut or will write again, or of a
/// recovery that a crash ended.
pub(crate) async fn create(path: &Path) -> Result<File, DiskError> {
    match File::open(path, OpenOptions::creating_new()).await {
        Err(error) if error.is_already_there() => disk::remove_file(path).await?,
        other => return other,
    }
    File::open(path, OpenOptions::creating_new()).await
}

/// The files of these partitions on a disk, each folder read once. A folder that is not there has none.
pub(crate) async fn list(disk: &Path, keys: &BTreeSet<PartitionKey>) -> Result<Vec<Found>, DiskError> {
    let folders: BTreeSet<PathBuf> = keys.iter().map(|key| segment_folder_path(disk, *key)).collect();
    let lists = folders.into_iter().map(|folder| list_folder(folder, keys));
    let found: Vec<Vec<Found>> = stream::iter(lists).buffered(LISTS_AT_ONCE).try_collect().await?;
    Ok(found.concat())
}

async fn list_folder(folder: PathBuf, keys: &BTreeSet<PartitionKey>) -> Result<Vec<Found>, DiskError> {
    let entries = match disk::list_dir(&folder).await {
        Ok(entries) => entries,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let found = entries.iter().filter_map(|entry| {
        let name = SegmentName::parse(&entry.name).filter(|name| keys.contains(&name.key))?;
        Some(Found { path: folder.join(&entry.name), name })
    });
    Ok(found.collect())
}

/// Removes a file, or finds it gone.
pub(crate) async fn remove(path: &Path) -> Result<(), DiskError> {
    match disk::remove_file(path).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Removes every file of these partitions from a disk.
pub(crate) async fn remove_all(disk: &Path, keys: &BTreeSet<PartitionKey>) -> Result<(), DiskError> {
    let found = list(disk, keys).await?;
    let removals = found.iter().map(|file| remove(&file.path));
    stream::iter(removals).buffer_unordered(REMOVALS_AT_ONCE).try_collect().await
}
