//! A shard directory that no shard opens any more: there are fewer shards now, or its shard writes to another disk.

use std::path::Path;
use std::sync::Arc;

use shards::disk;

use crate::ShardDirectory;
use crate::format::checkpoint::{self, Checkpoint};
use crate::start::{self, StartError};

/// Makes a recovered directory forget its partitions, which others have now: kept, its word on one of them would bring it back after it was deleted.
/// To be called when the logs of all shards are open; a crash before that finds each partition in at least one directory.
///
/// # Errors
/// A failed read or write, or files that cannot be understood. The directory is as before, or retired.
pub async fn retire(directory: &ShardDirectory) -> Result<(), StartError> {
    let found = start::look(directory).await?;
    let Some(old) = found.checkpoint.filter(|old| !old.partitions.is_empty()) else { return Ok(()) };
    if found.files.iter().any(|sequence| *sequence >= old.replay_from.file_sequence) {
        return Err(StartError::NotRecovered { path: directory.path().display().to_string() });
    }
    let own: Arc<Path> = Arc::from(directory.disk());
    let sequence = found.checkpoint_number + 1;
    let empty = Checkpoint { sequence, partitions: Vec::new(), ..old };
    disk::write_file_atomically(&directory.path().join(checkpoint::file_name(sequence)), &empty.encode(&own)).await?;
    for entry in disk::list_dir(&directory.path()).await? {
        if checkpoint::parse_file_name(&entry.name).is_some_and(|number| number < sequence) {
            disk::remove_file(&directory.path().join(&entry.name)).await?;
        }
    }
    Ok(())
}
