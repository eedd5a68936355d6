//! The end of a sealed segment: its index and trailer, and the space that it did not use given back.

use std::rc::Rc;

use shards::buffer;
use shards::disk::DiskError;
use wire::Offset;

use crate::partition::Partition;
use crate::segment_file::SegmentFile;
use crate::segment_index;
use crate::shard::Shard;

/// A segment that was closed and has no index in its file yet.
#[derive(Debug)]
pub(crate) struct Sealing {
    pub(crate) partition: Rc<Partition>,
    pub(crate) file: Rc<SegmentFile>,
    pub(crate) end: u64,
}

/// Writes the index. Whatever becomes of it, the segment stays readable: a missing index is built again from the batches.
pub(crate) async fn finish(shard: &Rc<Shard>, sealing: Sealing) -> Result<(), DiskError> {
    let Sealing { partition, file: segment, end } = sealing;
    let key = segment.key;
    let is_kept = || {
        let inner = partition.inner.borrow();
        inner.sealed.iter().any(|sealed| (sealed.key, sealed.end, sealed.incarnation) == (key, end, segment.incarnation))
    };
    if !is_kept() {
        return Ok(());
    }
    // Of a segment that was continued after a restart all that was there before is read: appends do not wait for that.
    let index = segment_index::whole(shard, &segment, end).await;
    // Under the lock, nobody removes the file, or puts another of its name in its place; before it, somebody may have.
    let _lock = shard.lock_segments(&partition).await;
    if !is_kept() {
        return Ok(());
    }
    let index = index?;
    let file = segment.open(&shard.files).await?;
    let end_position = segment.position();
    let bytes = index.encode(key.partition, end_position, Offset(end));
    let mut block = buffer::allocate(bytes.len());
    block.copy_from_slice(&bytes);
    let file_end = end_position + bytes.len() as u64;
    // Shortened first: a file that ends in the middle of allocated space would hide its trailer.
    file.truncate(end_position).await?;
    file.write_at(end_position, block.freeze()).await?;
    if file.len()? != file_end {
        tracing::warn!(segment = ?key, "the file does not end with its index: it will be built again from the batches");
    }
    shard.indexes.insert(key, index, end);
    shard.files.forget(key);
    Ok(())
}
