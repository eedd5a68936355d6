//! Retention: whole sealed segments that a topic keeps no longer are given up, oldest first.

use super::Shard;
use crate::partition::Partition;
use commit_log::SegmentInfo;
use shards::{clock, executor};
use std::{rc::Rc, time::Duration};
use wire::{Offset, TopicConfig};

/// How often every partition is looked at.
const PERIOD: Duration = Duration::from_secs(30);

/// Runs until the shard ends, in the background.
pub(super) async fn run(shard: Rc<Shard>) {
    loop {
        clock::sleep(PERIOD).await;
        let partitions: Vec<Rc<Partition>> = shard.partitions.borrow().values().cloned().collect();
        for partition in partitions {
            let config = shard.topics.borrow().get(partition.key.topic).map(|entry| entry.topic.config.clone());
            let Some(config) = config.filter(|config| config.cleanup.deletes()) else { continue };
            let segments = partition.log.segments();
            let marks = partition.log.watermarks();
            if let Some(start) = new_start(&segments, partition.log.size_bytes(), &config, clock::wall_ms())
                && start > marks.log_start
                && start <= marks.high_watermark
                && let Err(error) = partition.log.set_log_start(start).await
            {
                tracing::error!(partition = %partition.key, "retention stopped: {error}");
                return;
            }
            executor::yield_if_needed().await;
        }
    }
}

/// Where the log starts when what is too old or too much has gone; `None` when nothing goes.
fn new_start(segments: &[SegmentInfo], size_bytes: u64, config: &TopicConfig, now_ms: i64) -> Option<Offset> {
    let mut left = size_bytes;
    let mut start = None;
    for segment in segments {
        let too_old = config.retention_ms.is_some_and(|kept| segment.max_timestamp.0 < now_ms.saturating_sub(kept));
        // A segment goes when the log is still large enough without it.
        let too_much = config.retention_bytes.is_some_and(|kept| left.saturating_sub(segment.bytes) >= kept);
        if !too_old && !too_much {
            break;
        }
        left = left.saturating_sub(segment.bytes);
        start = Some(segment.end_offset);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::TimestampMs;

    fn segments() -> Vec<SegmentInfo> {
        (0..4_u64)
            .map(|n| SegmentInfo {
                base_offset: Offset(n * 10),
                end_offset: Offset(n * 10 + 10),
                bytes: 100,
                max_timestamp: TimestampMs(i64::try_from(n).unwrap() * 1000),
            })
            .collect()
    }

    fn check(retention_ms: Option<i64>, retention_bytes: Option<u64>, expected: Option<u64>) {
        let config = TopicConfig { retention_ms, retention_bytes, ..TopicConfig::default() };
        assert_eq!(new_start(&segments(), 450, &config, 5000), expected.map(Offset));
    }

    #[test]
    fn what_is_too_old_or_too_much_goes_by_whole_segments() {
        check(None, None, None);
        check(Some(3500), None, Some(20));
        check(Some(10_000), None, None);
        check(Some(0), None, Some(40));
        check(None, Some(250), Some(20));
        check(None, Some(450), None);
        check(Some(4500), Some(250), Some(20));
    }
}
