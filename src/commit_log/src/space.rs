//! Watches the free space of the disk, so that producers get a clear answer before a write fails.

use std::rc::Rc;
use std::time::Duration;

use shards::{clock, disk};

use crate::shard::Shard;

/// Between two looks. At 2 GB/s, twice the measured disk, the lower mark of 1 GiB is half a second: the log's own files are allocated ahead,
/// so that what is accepted in that time finds its place.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs until the log is closed.
pub(crate) async fn watch(shard: Rc<Shard>) {
    while !shard.closed.get() && shard.failure.get().is_none() {
        look(&shard).await;
        clock::sleep(LOOK_INTERVAL).await;
    }
}

/// Looks once and sets or clears the mark.
pub(crate) async fn look(shard: &Shard) {
    let free_bytes = match disk::free_space(shard.directory.disk()).await {
        Ok(space) => space.available_bytes,
        Err(error) => {
            tracing::warn!(%error, "the free space of the disk cannot be read");
            return;
        }
    };
    shard.free_bytes.set(free_bytes);
    let full = shard.disk_full.get();
    if !full && free_bytes < shard.options.free_bytes_min {
        tracing::error!(disk = %shard.directory.disk().display(), free_bytes, "the disk is nearly full: appends are refused, reads go on");
        shard.disk_full.set(true);
    } else if full && free_bytes >= shard.options.free_bytes_resume {
        tracing::info!(disk = %shard.directory.disk().display(), free_bytes, "the disk has room again: appends are accepted");
        shard.disk_full.set(false);
    }
}
