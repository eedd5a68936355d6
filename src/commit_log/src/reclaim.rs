//! Space of removed segments, given back in small steps.
//!
//! ```text
//!   name removed ─► cut by 4 MiB from the end ─► pause as long ─► cut … ─► closed
//! ```
//!
//! Freeing the space of a large file at once holds the file system's journal, and the thread on which all calls of the shard run that may wait, for as
//! long as half a second. In steps, whoever opens a file or gives it space meanwhile waits for one step. The name goes first: a crash between leaves
//! nothing behind, and whoever still reads the file finds that the segment is gone and looks again.

use std::path::Path;

use shards::clock;
use shards::disk::{self, DiskError, File, OpenOptions};

use crate::segment_file::Allocate;
use crate::shard::Shard;

/// Bytes freed in one step: some milliseconds on a slow file system that discards what it frees.
const STEP_BYTES: u64 = 4 << 20;

/// With so many partitions waiting there is no pause between the steps: appends must not fill the disk faster than it is emptied.
const WAITING_MAX: usize = 8;

/// A file without a name that still has its space.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    bytes: u64,
}

/// Removes the name of a file. `None` when nothing is left to do: it was small, or not there.
pub(crate) async fn unname(path: &Path) -> Result<Option<Unnamed>, DiskError> {
    let file = match File::open(path, OpenOptions::writing()).await {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.len()?;
    match disk::remove_file(path).await {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    if bytes <= STEP_BYTES {
        file.close().await?;
        return Ok(None);
    }
    Ok(Some(Unnamed { file, bytes }))
}

impl Unnamed {
    /// Gives the space back.
    pub(crate) async fn give_back(self, shard: &Shard) -> Result<(), DiskError> {
        let count = |change: i64| shard.reclaiming_bytes.set(shard.reclaiming_bytes.get().saturating_add_signed(change));
        let Self { file, mut bytes } = self;
        count(bytes.cast_signed());
        while bytes > 0 && !shard.closed.get() && shard.failure.get().is_none() {
            let started = clock::monotonic();
            let step = bytes.min(STEP_BYTES);
            let cut = file.truncate(bytes - step).await;
            if let Err(error) = cut {
                count(-bytes.cast_signed());
                return Err(error);
            }
            bytes -= step;
            count(-step.cast_signed());
            if is_time(shard) {
                clock::sleep(started.elapsed()).await;
            }
        }
        // The log has ended meanwhile: the system frees the rest when the file is closed.
        count(-bytes.cast_signed());
        file.close().await
    }
}

/// Whether nothing waits for the space, nor for the removal itself as a checkpoint does when a partition is deleted.
fn is_time(shard: &Shard) -> bool {
    shard.trims.borrow().len() < WAITING_MAX && shard.allocate() == Allocate::Ahead && shard.removals.get() == 0
}
