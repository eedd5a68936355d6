//! Scans the segments that hold batches which bypassed the log.

use std::ops::ControlFlow;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::disk::{DiskError, File, OpenOptions};
use shards::executor;

use crate::directory::segment_path;
use crate::format::BLOCK_BYTES;
use crate::format::segment::{SegmentHeader, SegmentScan, SegmentTail};
use crate::replay::SegmentToScan;

/// One read. A segment's tail is seldom longer than what was written since the last checkpoint.
const READ_BYTES: usize = 1 << 20;

/// Segments scanned at the same time: with thousands of them, each read is small and only many at once fill the disk.
const SCANS_AT_ONCE: usize = 16;

/// What each segment holds; `None` where there is none.
pub(super) async fn scan_all(
    storage_id: u64,
    wanted: Vec<SegmentToScan>,
) -> Result<Vec<(SegmentToScan, Option<SegmentTail>)>, DiskError> {
    let scans = wanted.into_iter().map(|segment| async move {
        let tail = scan(storage_id, &segment).await?;
        Ok::<_, DiskError>((segment, tail))
    });
    stream::iter(scans).buffer_unordered(SCANS_AT_ONCE).try_collect().await
}

async fn scan(storage_id: u64, segment: &SegmentToScan) -> Result<Option<SegmentTail>, DiskError> {
    let path = segment_path(&segment.disk, segment.key, segment.base.0, 0);
    let file = match File::open(&path, OpenOptions::writing()).await {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    // Rule one: what is read is what a second crash would leave.
    file.fdatasync().await?;
    let first = file.read_at(0, BLOCK_BYTES).await?;
    let header = SegmentHeader::decode(&first, segment.key, segment.base);
    let is_meant = match &header {
        Ok(header) => segment.incarnation == 0 || (header.incarnation, header.storage_id) == (segment.incarnation, storage_id),
        // The header is synced with the first direct write: where one was told, this is the file, and its header is damaged. Else the crash tore it.
        Err(_) => segment.incarnation == 0 || segment.committed_position > BLOCK_BYTES as u64,
    };
    if !is_meant {
        // An older file of this name, which a cut had removed: the crash took back its removal, or the creation of the one that is meant.
        file.close().await?;
        return Ok(None);
    }
    let mut scan = SegmentScan::new(segment.from_position, segment.expected, segment.bound, segment.committed_position);
    let length = file.len()?;
    let mut wanted = READ_BYTES;
    loop {
        let bytes = file.read_at(scan.position(), wanted).await?;
        let last = scan.position() + bytes.len() as u64 >= length;
        match scan.feed(&bytes, last) {
            ControlFlow::Break(()) => break,
            ControlFlow::Continue(needed) => wanted = needed.max(READ_BYTES),
        }
        executor::yield_if_needed().await;
    }
    file.close().await?;
    let (tail, _) = scan.finish();
    if let Err(error) = header {
        tracing::error!(path = %path.display(), %error, "the header of a segment is damaged; its batches are whole");
    }
    Ok(Some(tail))
}
