//! Reads what nobody reads: sealed segments are checked one after the other, at a bounded rate, so that damage at rest is found while there is still
//! another copy.
//!
//! ```text
//!   pause ─► each partition ─► each sealed segment: read, check every batch, wait for the rate ─► pause …
//! ```
//!
//! Damage marks the partition and is counted and logged; the range stays an error for whoever reads it. Nothing is repaired here.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use shards::clock;
use shards::disk::{DiskError, File, OpenOptions};
use wire::Offset;

use crate::checkpoint;
use crate::format::BLOCK_BYTES;
use crate::format::segment::{SegmentScan, SegmentTail};
use crate::partition::{Partition, SealedSegment};
use crate::partition_state::OffsetRange;
use crate::shard::Shard;

/// One read: after it the rate is waited for, so that a pass never takes the disk for longer than this.
const READ_BYTES: usize = 256 << 10;

/// Runs until the log is closed or fails.
pub(crate) async fn run(shard: Rc<Shard>) {
    if shard.options.scrub_bytes_per_second == 0 {
        return;
    }
    let between_passes = Duration::from_millis(shard.options.scrub_pause_ms);
    while pause(&shard, between_passes).await {
        pass(&shard).await;
    }
}

async fn pass(shard: &Rc<Shard>) {
    for partition in checkpoint::all(shard) {
        let sealed = partition.inner.borrow().sealed.clone();
        for segment in sealed {
            if shard.closed.get() || shard.failure.get().is_some() {
                return;
            }
            check(shard, &partition, &segment).await;
        }
    }
    shard.counters.add(|stats| stats.scrub_passes += 1);
}

async fn check(shard: &Rc<Shard>, partition: &Rc<Partition>, segment: &SealedSegment) {
    let found = scan(shard, segment).await;
    let damaged = match &found {
        Ok(Some(tail)) => missing(segment, tail),
        // The log is being closed.
        Ok(None) => return,
        Err(error) => {
            tracing::error!(segment = ?segment.key, %error, "a segment cannot be read");
            vec![OffsetRange { start: Offset(segment.key.base), end: Offset(segment.end) }]
        }
    };
    let mut inner = partition.inner.borrow_mut();
    // A cut or the log start may have taken the segment meanwhile; what was lost before is known.
    let is_kept = !inner.deleted && inner.sealed.contains(segment);
    let is_news = |range: &&OffsetRange| !inner.lost.iter().any(|lost| lost.start <= range.start && range.end <= lost.end);
    let damaged: Vec<&OffsetRange> = damaged.iter().filter(is_news).collect();
    if !is_kept || damaged.is_empty() {
        return;
    }
    for range in &damaged {
        tracing::error!(segment = ?segment.key, start = range.start.0, end = range.end.0, "stored batches are damaged");
    }
    shard.counters.add(|stats| stats.scrub_damaged_ranges += damaged.len() as u64);
    inner.lossy = true;
}

/// Offsets of the segment that no whole batch holds.
fn missing(segment: &SealedSegment, tail: &SegmentTail) -> Vec<OffsetRange> {
    let mut ranges = Vec::new();
    let mut due = Offset(segment.key.base);
    for run in &tail.runs {
        ranges.push(OffsetRange { start: due, end: run.start });
        due = run.end;
    }
    ranges.push(OffsetRange { start: due, end: Offset(segment.end) });
    ranges.retain(|range| !range.is_empty());
    ranges
}

/// Reads a whole segment. `None` when the log is closed before the end.
async fn scan(shard: &Shard, segment: &SealedSegment) -> Result<Option<SegmentTail>, DiskError> {
    // A handle of its own: the files that others read stay open.
    let file = File::open(&segment.path(), OpenOptions::reading()).await?;
    let mut scan = SegmentScan::new(BLOCK_BYTES as u64, Offset(segment.key.base), Offset(segment.end), segment.bytes);
    let mut wanted = READ_BYTES;
    loop {
        let left = segment.bytes.saturating_sub(scan.position());
        let length = usize::try_from(left).map_or(wanted, |left| left.min(wanted));
        let bytes = file.read_at(scan.position(), length).await?;
        let last = scan.position() + bytes.len() as u64 >= segment.bytes || bytes.len() < length;
        let read = bytes.len() as u64;
        let before = scan.position();
        let step = scan.feed(&bytes, last);
        shard.counters.add(|stats| stats.scrubbed_bytes += read);
        if !pause(shard, Duration::from_nanos(read * 1_000_000_000 / shard.options.scrub_bytes_per_second)).await {
            return Ok(None);
        }
        match step {
            ControlFlow::Break(()) => break,
            ControlFlow::Continue(_) if last && scan.position() == before => break,
            ControlFlow::Continue(needed) => wanted = needed.max(READ_BYTES),
        }
    }
    file.close().await?;
    Ok(Some(scan.finish().0))
}

/// Waits; false when the log is closed or has failed meanwhile.
pub(crate) async fn pause(shard: &Shard, duration: Duration) -> bool {
    let started = clock::monotonic();
    loop {
        if shard.closed.get() || shard.failure.get().is_some() {
            return false;
        }
        let Some(left) = duration.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) else { return true };
        let wake = std::pin::pin!(shard.background.notified());
        select(std::pin::pin!(clock::sleep(left)), wake).await;
    }
}
