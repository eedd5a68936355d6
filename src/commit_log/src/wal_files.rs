//! Makes write-ahead files ready before they are needed: zero-filled when the disk has time for it, later only renamed.

use std::path::Path;
use std::rc::Rc;

use shards::disk::{self, DiskError, File, OpenOptions};

use crate::format::file_header::file_name;
use crate::shard::Shard;
use crate::wal::ReadyFile;

/// Keeps one file ready, until the log is closed.
pub(crate) async fn run(shard: Rc<Shard>) {
    while !shard.closed.get() && shard.failure.get().is_none() {
        let wake = shard.background.notified();
        match prepare(&shard).await {
            Ok(true) => shard.work.notify_waiters(),
            Ok(false) => wake.await,
            // Without a next file the log cannot go on; with ENOSPC neither, and the marks on free space have failed to keep it away.
            Err(error) => {
                shard.fail(&error);
            }
        }
    }
}

/// With this part of the append queue waiting for the disk its bandwidth is the bound and groups are large: they gain little from a file
/// that was written over before, and that would take bandwidth from them. The file comes back written.
const SATURATED_SHARE: u64 = 8;

/// Makes a file ready if none is and the size of the log allows it.
pub(crate) async fn prepare(shard: &Shard) -> Result<bool, DiskError> {
    let (sequence, spare) = {
        let mut wal = shard.wal.borrow_mut();
        if wal.ready.is_some() {
            return Ok(false);
        }
        if wal.file_count() >= shard.options.wal_files_max() {
            // A checkpoint has to let some go first. It waits for the locks on segments, and their holders may wait for a record (a direct-start
            // note, a truncation): for those there is one file more.
            shard.checkpoint_wanted.set(true);
            shard.checkpoint_work.notify_waiters();
            let records_wait = !shard.queue.borrow().records.is_empty();
            if !records_wait || wal.file_count() > shard.options.wal_files_max() {
                return Ok(false);
            }
        }
        let sequence = wal.next_file_sequence;
        wal.next_file_sequence += 1;
        (sequence, wal.spare.pop())
    };
    let folder = shard.directory.path();
    let file = match spare {
        Some(old) => recycle(&folder, old, sequence).await?,
        None => {
            let is_saturated = shard.queue_bytes.get() > shard.options.append_queue_bytes_max / SATURATED_SHARE;
            create(&folder, sequence, shard.options.wal_file_bytes, !is_saturated).await?
        }
    };
    shard.wal.borrow_mut().ready = Some(ReadyFile { sequence, file: Rc::new(file) });
    Ok(true)
}

/// Gives an old file a new name. Its old blocks bear the old sequence, so that they do not pass for new ones.
async fn recycle(folder: &Path, old: u64, sequence: u64) -> Result<File, DiskError> {
    let path = folder.join(file_name(sequence));
    disk::rename(&folder.join(file_name(old)), &path).await?;
    disk::sync_dir(folder).await?;
    open(&path).await
}

/// A new file. Zeros written over it beforehand make small writes several times faster, because they change no metadata.
async fn create(folder: &Path, sequence: u64, bytes: u64, zeroed: bool) -> Result<File, DiskError> {
    let path = folder.join(file_name(sequence));
    let file = File::open(&path, OpenOptions::creating_new()).await?;
    file.fallocate(0, bytes).await?;
    if zeroed {
        file.write_zeroes(0, bytes).await?;
    }
    file.fdatasync().await?;
    file.close().await?;
    disk::sync_dir(folder).await?;
    open(&path).await
}

async fn open(path: &Path) -> Result<File, DiskError> {
    File::open(path, OpenOptions::writing().with_dsync()).await
}
