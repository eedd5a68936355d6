//! What a partition keeps, by age and by size: whole sealed segments go, oldest first.
//!
//! ```text
//!   open ── old or large enough: closed ──► sealed │ sealed │ sealed        the log start moves behind those that go, durably;
//!                                           └─ go ─┘                       then their files go (remove.rs)
//! ```
//!
//! The age of a segment counts from its greatest timestamp, and at the latest from the moment at which it was closed: producers set the timestamps, and
//! one from the future must not keep a segment for ever. By then all of it had been appended. Where the clock has gone back behind that moment, the
//! age counts from now. What is in no sealed segment is closed by age even when nothing more is appended, so that it can go too.

use std::rc::Rc;

use wire::Offset;

use crate::partition::{Inner, Partition, SealedSegment};
use crate::shard::Shard;
use crate::{LogFailed, flush, remove, segments};

/// What a partition keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Records older than this go; `None`: none do.
    pub age_ms: Option<u64>,
    /// The oldest segments go as long as the partition has so much without them; `None`: none do.
    pub bytes: Option<u64>,
}

/// What went, and when there may be something more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    /// Segments that went.
    pub segments: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Where the log starts, on stable storage.
    pub log_start: Offset,
    /// The time by the wall clock at which something becomes due by age. `None`: nothing will before something is appended.
    pub next_ms: Option<i64>,
}

pub(crate) async fn retain(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    retention: Retention,
    now_ms: i64,
) -> Result<Retained, LogFailed> {
    close_due(shard, partition, now_ms).await?;
    let (kept_from, mut retained) = {
        let mut inner = partition.inner.borrow_mut();
        if inner.deleted {
            return Ok(Retained::default());
        }
        inner.forget_the_future(now_ms);
        let gone = expired(&inner, retention, now_ms);
        (gone.end, Retained { segments: gone.count as u64, bytes: gone.bytes, ..Retained::default() })
    };
    match kept_from {
        Some(offset) => remove::set_log_start(shard, partition, offset).await?,
        None if has_below_start(partition) => remove::trim_later(shard, partition),
        None => {}
    }
    let inner = partition.inner.borrow();
    (retained.log_start, retained.next_ms) = (Offset(inner.durable_log_start), next_ms(&inner, retention));
    Ok(retained)
}

/// Closes what no sealed segment holds, if it is old or large enough.
async fn close_due(shard: &Rc<Shard>, partition: &Rc<Partition>, now_ms: i64) -> Result<(), LogFailed> {
    if !is_due(&partition.inner.borrow(), now_ms) {
        return Ok(());
    }
    flush::flush(shard, partition).await?;
    let _lock = shard.lock_segments(partition).await;
    let mut inner = partition.inner.borrow_mut();
    if is_due(&inner, now_ms) {
        segments::seal(shard, partition, &mut inner);
    }
    Ok(())
}

fn is_due(inner: &Inner, now_ms: i64) -> bool {
    let is_large = inner.active.as_ref().is_some_and(|active| active.file.position() >= inner.options.segment_bytes);
    !inner.deleted && inner.is_open() && (is_large || segments::is_aged(inner, now_ms))
}

/// Whether a segment that was closed late stands below the log start.
fn has_below_start(partition: &Partition) -> bool {
    let inner = partition.inner.borrow();
    inner.sealed.first().is_some_and(|first| first.end <= inner.durable_log_start)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Gone {
    count: usize,
    bytes: u64,
    end: Option<Offset>,
}

/// The segments that go, beside those below the log start, which have gone already.
fn expired(inner: &Inner, retention: Retention, now_ms: i64) -> Gone {
    let below = inner.sealed.partition_point(|segment| segment.end <= inner.marks.log_start.0);
    let (below, sealed) = inner.sealed.split_at(below);
    let size_bytes = inner.size_bytes() - below.iter().map(|segment| segment.bytes).sum::<u64>();
    expired_of(sealed, size_bytes, inner.marks.high_watermark, retention, now_ms)
}

/// Of segments. Never one that consumers have not been shown whole.
fn expired_of(sealed: &[SealedSegment], size_bytes: u64, high_watermark: Offset, retention: Retention, now_ms: i64) -> Gone {
    let mut gone = Gone::default();
    for segment in sealed {
        let is_old = retention.age_ms.is_some_and(|age_ms| due_ms(segment, age_ms) <= now_ms);
        let left = (size_bytes - gone.bytes).saturating_sub(segment.bytes);
        let is_much = retention.bytes.is_some_and(|bytes| left >= bytes);
        if !(is_old || is_much) || segment.end > high_watermark.0 {
            break;
        }
        gone = Gone { count: gone.count + 1, bytes: gone.bytes + segment.bytes, end: Some(Offset(segment.end)) };
    }
    gone
}

/// When a segment becomes too old. A time of 0 and before stands for none: that is what programs leave that set no time.
fn due_ms(segment: &SealedSegment, age_ms: u64) -> i64 {
    let from_ms = if segment.max_timestamp_ms <= 0 { segment.sealed_ms } else { segment.max_timestamp_ms.min(segment.sealed_ms) };
    from_ms.saturating_add_unsigned(age_ms)
}

fn next_ms(inner: &Inner, retention: Retention) -> Option<i64> {
    let oldest = inner.sealed.iter().find(|segment| segment.end > inner.marks.log_start.0);
    let expires = oldest.zip(retention.age_ms).map(|(segment, age_ms)| due_ms(segment, age_ms));
    let closes = inner.is_open().then(|| inner.open_since_ms.saturating_add_unsigned(inner.options.segment_ms));
    [expires, closes].into_iter().flatten().min()
}

impl Inner {
    /// The clock has gone back: ages count from now at the latest.
    fn forget_the_future(&mut self, now_ms: i64) {
        self.open_since_ms = self.open_since_ms.min(now_ms);
        for segment in &mut self.sealed {
            segment.sealed_ms = segment.sealed_ms.min(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use wire::{PartitionIndex, PartitionKey, TopicId};

    use super::*;
    use crate::file_cache::SegmentKey;

    /// Segments of ten records and 100 bytes, sealed at 1000, 2000, …, each with the greatest timestamp given.
    fn sealed(max_timestamps_ms: &[i64]) -> Vec<SealedSegment> {
        let partition = PartitionKey { topic: TopicId([1; 16]), partition: PartitionIndex(0) };
        let disk: Arc<Path> = Arc::from(Path::new("/x"));
        let segment = |(n, max_timestamp_ms): (u64, &i64)| SealedSegment {
            known_by: 0,
            incarnation: 0,
            key: SegmentKey { partition, base: n * 10, generation: 0 },
            disk: disk.clone(),
            end: n * 10 + 10,
            bytes: 100,
            max_timestamp_ms: *max_timestamp_ms,
            sealed_ms: (n as i64 + 1) * 1000,
            tombstones_since_ms: None,
        };
        (0..).zip(max_timestamps_ms).map(segment).collect()
    }

    fn check(max_timestamps_ms: &[i64], age_ms: Option<u64>, bytes: Option<u64>, expected: Option<u64>) {
        let segments = sealed(max_timestamps_ms);
        let size_bytes = segments.len() as u64 * 100 + 50;
        let gone = expired_of(&segments, size_bytes, Offset(1000), Retention { age_ms, bytes }, 5000);
        assert_eq!(gone.end, expected.map(Offset), "{max_timestamps_ms:?}, {age_ms:?}, {bytes:?}");
        assert_eq!(gone.bytes, gone.count as u64 * 100);
        assert_eq!(gone.count as u64 * 10, expected.unwrap_or(0));
    }

    #[test]
    fn what_is_too_old_or_too_much_goes_by_whole_segments() {
        let times = [500, 1500, 2500, 3500];
        check(&times, None, None, None);
        check(&times, Some(3500), None, Some(20));
        check(&times, Some(10_000), None, None);
        check(&times, Some(0), None, Some(40));
        check(&times, None, Some(250), Some(20));
        check(&times, None, Some(450), None);
        check(&times, Some(4500), Some(250), Some(20));
        check(&times, Some(u64::MAX), Some(u64::MAX), None);
    }

    #[test]
    fn a_timestamp_from_the_future_keeps_a_segment_no_longer_than_its_closing_would() {
        check(&[i64::MAX, 1500], Some(4000), None, Some(10));
        check(&[i64::MAX, 1500], Some(4001), None, None);
    }

    #[test]
    fn no_timestamp_counts_from_the_closing() {
        check(&[-1, i64::MIN, 0], Some(3000), None, Some(20));
        check(&[-1, i64::MIN, 0], Some(3001), None, Some(10));
    }

    #[test]
    fn what_consumers_have_not_been_shown_stays() {
        let gone = expired_of(&sealed(&[0, 0, 0]), 300, Offset(19), Retention { age_ms: Some(0), bytes: None }, 5000);
        assert_eq!(gone.end, Some(Offset(10)));
    }
}
