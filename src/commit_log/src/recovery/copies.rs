//! Moves batches of which nobody was told that they are on stable storage into files of their own.
//!
//! ```text
//!   <target>.seg.new written ─► synced ─► renamed over <target>.seg
//! ```
//!
//! The source is not touched before the rename, and a crash after it leaves the same batches under either name: the next recovery comes to the same
//! end.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::buffer;
use shards::disk::{self, DiskError, File, OpenOptions};
use shards::executor;
use wire::PartitionKey;

use crate::directory::{segment_path, unfinished_segment_path};
use crate::format::BLOCK_BYTES;
use crate::format::segment::SegmentHeader;
use crate::replay::{Copy, Plan};
use crate::segment_files;

/// One read and one write.
const PIECE_BYTES: u64 = 1 << 20;

/// Files copied at the same time. Each ends with a sync of its own.
const COPIES_AT_ONCE: usize = 16;

/// Makes all copies of the plan. Their names are not synced.
pub(super) async fn make_all(storage_id: u64, plan: &Plan) -> Result<(), DiskError> {
    let wanted = plan.partitions.iter().flat_map(|(key, partition)| partition.copies.iter().map(|copy| (*key, copy)));
    let copies = wanted.map(|(key, copy)| make(storage_id, key, copy));
    stream::iter(copies).buffer_unordered(COPIES_AT_ONCE).try_collect().await
}

async fn make(storage_id: u64, key: PartitionKey, copy: &Copy) -> Result<(), DiskError> {
    let source = File::open(&segment_path(&copy.disk, key, copy.source.0, 0), OpenOptions::reading()).await?;
    let path = segment_path(&copy.disk, key, copy.target.0, 0);
    let unfinished = unfinished_segment_path(&copy.disk, key, copy.target.0);
    let target = segment_files::create(&unfinished).await?;
    let mut header = buffer::allocate(BLOCK_BYTES);
    SegmentHeader { partition: key, base_offset: copy.target, storage_id, incarnation: copy.incarnation }.encode(&mut header);
    target.write_at(0, header.freeze()).await?;
    let mut done = 0;
    while done < copy.length {
        let length = PIECE_BYTES.min(copy.length - done) as usize;
        let bytes = source.read_at(copy.position + done, length).await?;
        let mut piece = buffer::allocate(length);
        piece[..bytes.len()].copy_from_slice(&bytes);
        piece[bytes.len()..].fill(0);
        target.write_at(BLOCK_BYTES as u64 + done, piece.freeze()).await?;
        done += length as u64;
        executor::yield_if_needed().await;
    }
    target.fdatasync().await?;
    target.close().await?;
    source.close().await?;
    disk::rename(&unfinished, &path).await
}
