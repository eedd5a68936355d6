//! Where a shard's log goes on after recovery.

use std::path::Path;
use std::sync::Arc;

use shards::disk::{self, DiskError, File, OpenOptions};
use shards::random;

use crate::directory::{segment_folder_names, segments_path};
use crate::format::FormatError;
use crate::format::checkpoint::{self, Checkpoint};
use crate::format::file_header::{self, PreviousFile};
use crate::format::superblock::{SUPERBLOCK_NAME, Superblock};
use crate::limits::CHECKPOINT_BYTES_MAX;
use crate::wal::WalStart;
use crate::{LogOptions, PartitionState, ShardDirectory};

/// Why a shard directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory says whose it is in a way that cannot be read. Without its storage id its log cannot be told from another's.
    #[error("{path}: {error}")]
    Superblock {
        /// The file.
        path: String,
        /// What is wrong.
        error: FormatError,
    },
    /// It belongs to another cluster or broker.
    #[error("{path} belongs to broker {broker_id} of another cluster, or to another broker of this one")]
    Foreign {
        /// The file.
        path: String,
        /// Broker in the file.
        broker_id: u32,
    },
    /// No checkpoint of it can be read.
    #[error("{path}: none of {count} checkpoints can be read: {error}")]
    Checkpoint {
        /// The folder.
        path: String,
        /// Checkpoints found.
        count: usize,
        /// What is wrong with the newest.
        error: FormatError,
    },
    /// Segments stand in another data directory, which is not there.
    #[error("{path} holds segments of partitions and is not there: mount it")]
    DiskMissing {
        /// The data directory.
        path: String,
    },
    /// Files that it always has are gone, and with them what was acknowledged.
    #[error("{path} has lost its {missing}: acknowledged messages may be missing; bring it back as it was")]
    Incomplete {
        /// The folder.
        path: String,
        /// What is not there.
        missing: &'static str,
    },
    /// Its write-ahead log was not replayed.
    #[error("{path} holds a write-ahead log that was not recovered: recover the directory before it is opened")]
    NotRecovered {
        /// The folder.
        path: String,
    },
}

/// What a folder says.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) superblock: Option<Superblock>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// A newer one is there and cannot be read: what it said beyond `checkpoint` is lost.
    pub(crate) newer_unreadable: bool,
    /// Write-ahead files by sequence, ascending.
    pub(crate) files: Vec<u64>,
    pub(crate) checkpoint_number: u64,
}

/// What the log starts with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) wal: WalStart,
    pub(crate) spare: Vec<u64>,
    /// Files that cannot be written over, because a setting was changed or a crash came while one was made: removed when another is there.
    pub(crate) unfit: Vec<u64>,
    pub(crate) checkpoint_number: u64,
    /// The partitions that its checkpoint names.
    pub(crate) partitions: Vec<PartitionState>,
}

/// Reads a shard's folder; an absent one is empty. The superblock is there before any file of the log, and one of those before any checkpoint: a
/// folder in which it is the other way round has lost something.
pub(crate) async fn look(directory: &ShardDirectory) -> Result<Found, StartError> {
    let mut found =
        Found { superblock: None, checkpoint: None, newer_unreadable: false, files: Vec::new(), checkpoint_number: 0 };
    let folder = directory.path();
    let entries = match disk::list_dir(&folder).await {
        Ok(entries) => entries,
        Err(error) if error.is_not_found() => return Ok(found),
        Err(error) => return Err(error.into()),
    };
    let mut checkpoints = Vec::new();
    for entry in &entries {
        found.files.extend(file_header::parse_file_name(&entry.name));
        checkpoints.extend(checkpoint::parse_file_name(&entry.name));
    }
    found.files.sort_unstable();
    checkpoints.sort_unstable_by(|a, b| b.cmp(a));
    found.checkpoint_number = checkpoints.first().copied().unwrap_or(0);
    if entries.iter().any(|entry| entry.name == SUPERBLOCK_NAME) {
        let path = folder.join(SUPERBLOCK_NAME);
        let bytes = disk::read_file(&path, crate::format::BLOCK_BYTES as u64).await?;
        let superblock = Superblock::decode(&bytes);
        let superblock = superblock.map_err(|error| StartError::Superblock { path: path.display().to_string(), error })?;
        found.superblock = Some(superblock);
        found.checkpoint = read_checkpoint(directory, superblock.storage_id, &checkpoints).await?;
        if found.checkpoint.is_some() && found.files.is_empty() {
            return Err(incomplete(&folder, "write-ahead log"));
        }
        found.newer_unreadable = found.checkpoint.as_ref().is_some_and(|read| read.sequence < found.checkpoint_number);
    } else if !found.files.is_empty() || !checkpoints.is_empty() {
        return Err(incomplete(&folder, SUPERBLOCK_NAME));
    }
    Ok(found)
}

pub(crate) fn incomplete(folder: &Path, missing: &'static str) -> StartError {
    StartError::Incomplete { path: folder.display().to_string(), missing }
}

/// The newest checkpoint, or the one before it if the newest cannot be read.
async fn read_checkpoint(directory: &ShardDirectory, storage_id: u64, numbers: &[u64]) -> Result<Option<Checkpoint>, StartError> {
    let disk: Arc<Path> = Arc::from(directory.disk());
    let mut first_error = None;
    for number in numbers {
        let path = directory.path().join(checkpoint::file_name(*number));
        let bytes = disk::read_file(&path, CHECKPOINT_BYTES_MAX).await?;
        match Checkpoint::decode(&bytes, storage_id, *number, &disk) {
            Ok(checkpoint) => return Ok(Some(checkpoint)),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "a checkpoint cannot be read");
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        None => Ok(None),
        Some(error) => Err(StartError::Checkpoint { path: directory.path().display().to_string(), count: numbers.len(), error }),
    }
}

/// Prepares an opened log: folders, superblock, and where blocks and files go on.
pub(crate) async fn prepare(directory: &ShardDirectory, options: &LogOptions) -> Result<Start, StartError> {
    let folder = directory.path();
    disk::create_dir_all(&folder).await?;
    create_segment_folders(directory.disk()).await?;
    let found = look(directory).await?;
    let storage_id = write_superblock(directory, options, found.superblock).await?;
    let (next_block, next_file) = match &found.checkpoint {
        Some(checkpoint) => (checkpoint.replay_from.block_sequence, checkpoint.replay_from.file_sequence),
        None => (1, 1),
    };
    if found.files.iter().any(|sequence| *sequence >= next_file) {
        return Err(StartError::NotRecovered { path: folder.display().to_string() });
    }
    let (spare, unfit) = divide_files(&folder, &found.files, options.wal_file_bytes).await?;
    let wal = WalStart {
        storage_id,
        file_bytes: options.wal_file_bytes,
        next_block,
        next_file_sequence: next_file,
        previous: PreviousFile { file_sequence: next_file - 1, end_position: 0, end_block_sequence: next_block },
    };
    let partitions = found.checkpoint.map_or_else(Vec::new, |checkpoint| checkpoint.partitions);
    Ok(Start { wal, spare, unfit, checkpoint_number: found.checkpoint_number, partitions })
}

/// Makes the folders that are missing. The names of all of them are on stable storage when it returns, whoever made them.
async fn create_segment_folders(disk: &Path) -> Result<(), DiskError> {
    let segments = segments_path(disk);
    disk::create_dir_all(&segments).await?;
    let there = disk::list_dir(&segments).await?;
    let mut missing = segment_folder_names();
    missing.retain(|name| there.iter().all(|entry| entry.name != *name));
    disk::create_dirs(&segments, &missing).await?;
    disk::sync_dir(&segments).await?;
    disk::sync_dir(disk).await
}

async fn write_superblock(
    directory: &ShardDirectory,
    options: &LogOptions,
    found: Option<Superblock>,
) -> Result<u64, StartError> {
    let path = directory.path().join(SUPERBLOCK_NAME);
    if let Some(found) = found
        && (found.cluster_id != options.cluster_id || found.broker_id != options.broker_id)
    {
        return Err(StartError::Foreign { path: path.display().to_string(), broker_id: found.broker_id });
    }
    let superblock = Superblock {
        cluster_id: options.cluster_id,
        broker_id: options.broker_id,
        shard: directory.number(),
        storage_id: found.map_or_else(random::u64, |found| found.storage_id),
        boot: options.boot,
    };
    disk::write_file_atomically(&path, &superblock.encode()).await?;
    disk::sync_dir(directory.disk()).await?;
    Ok(superblock.storage_id)
}

/// Files that can be written over, and those of another size.
async fn divide_files(folder: &Path, files: &[u64], file_bytes: u64) -> Result<(Vec<u64>, Vec<u64>), DiskError> {
    let (mut usable, mut unfit) = (Vec::new(), Vec::new());
    for sequence in files {
        let file = File::open(&folder.join(file_header::file_name(*sequence)), OpenOptions::reading()).await?;
        let length = file.len()?;
        file.close().await?;
        if length == file_bytes { usable.push(*sequence) } else { unfit.push(*sequence) }
    }
    Ok((usable, unfit))
}
