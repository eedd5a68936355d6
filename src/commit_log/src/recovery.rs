//! First phase of a start: a shard directory, as a crash left it, becomes partitions with all their batches in segments and nothing to replay.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shards::disk::{self, DiskError};
use wire::PartitionKey;

use crate::ShardDirectory;
use crate::format::FormatError;
use crate::partition_state::PartitionState;
use crate::start::{self, StartError};

/// What recovery found in one directory.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The partitions named by it. The same partition may be named by another directory too: see [`newest`].
    pub partitions: Vec<PartitionState>,
    /// Highest boot number in it: the next start has to be above those of all directories.
    pub boot_max: u64,
    /// What was done.
    pub report: RecoveryReport,
}

/// What a recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Blocks of the write-ahead log that were replayed.
    pub replayed_blocks: u64,
    /// Bytes of them.
    pub replayed_bytes: u64,
    /// Batches that were in the log only.
    pub replayed_batches: u64,
    /// Batches found in segments, written there without passing through the log.
    pub direct_batches: u64,
    /// Partitions that may have lost acknowledged data, with the reason.
    pub lossy: Vec<(PartitionKey, String)>,
}

/// Why a directory cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The files of the folder cannot be understood.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file of the log cannot be read by this program.
    #[error("{path}: {error}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        error: FormatError,
    },
}

/// Keeps, for each partition, the entry of the highest boot: an older directory may still name a partition that has moved since.
pub fn newest(states: impl IntoIterator<Item = PartitionState>) -> Vec<PartitionState> {
    let mut kept: BTreeMap<PartitionKey, PartitionState> = BTreeMap::new();
    for state in states {
        match kept.get(&state.key) {
            Some(other) if other.boot >= state.boot => {}
            _ => {
                kept.insert(state.key, state);
            }
        }
    }
    kept.into_values().collect()
}

/// Recovers one shard directory; an absent one recovers to nothing. Everything it returns is on stable storage.
pub async fn recover(directory: &ShardDirectory) -> Result<Recovered, RecoverError> {
    let found = start::look(directory).await?;
    let Some(superblock) = found.superblock else { return Ok(Recovered::default()) };
    let checkpoint = found.checkpoint;
    let boot_max = superblock.boot.max(checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.boot));
    let partitions = checkpoint.map_or_else(Vec::new, |checkpoint| checkpoint.partitions);
    Ok(Recovered { partitions, boot_max, report: RecoveryReport::default() })
}
