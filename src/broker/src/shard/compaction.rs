//! Compaction: which partition of the compacted topics is next. What a pass does is the log's matter.
//!
//! A partition is due when so much of it is not clean that cleaning pays: a pass reads, and partly writes, all of it. One that never gets there is due
//! when something in it has waited for long, or when tombstones have had their time.

use super::Shard;
use crate::partition::Partition;
use commit_log::{CompactError, CompactionNeed, CompactionTerms};
use hashbrown::HashSet;
use shards::{clock, executor};
use std::rc::Rc;
use wire::{PartitionKey, TopicConfig};

/// With this share of a partition not clean a pass is due, in hundredths. At a half each byte that is written again makes room for one.
const DIRTY_PERCENT_DUE: u64 = 50;

/// What may be cleaned is cleaned within this time, however little it is, and tombstones go within it after their time: a pass over a large
/// partition for the sake of a few records, once a day.
const WAIT_MS_MAX: i64 = 24 * 3600 * 1000;

/// How far behind compaction is on a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompactionLevels {
    /// Bytes that could be cleaned.
    pub(crate) dirty_bytes: u64,
    /// For how long the oldest of them could.
    pub(crate) behind_ms: u64,
}

/// Runs until the shard ends, in the background.
pub(super) async fn run(shard: Rc<Shard>) {
    loop {
        clock::sleep(shard.config.log.compaction_interval.0).await;
        // Those that a pass got on with are not looked at again before the next round, whatever it left.
        let mut done = HashSet::new();
        while let Some((partition, terms)) = next(&shard, &done).await {
            match partition.log.compact(terms).await {
                Ok(compacted) => {
                    let (bytes, removed) = (compacted.bytes, compacted.removed_records);
                    tracing::debug!(partition = %partition.key, bytes, removed, "compacted");
                    if compacted.is_complete {
                        done.insert(partition.key);
                    }
                }
                Err(error @ (CompactError::NoRoom(_) | CompactError::NotReadBack(_))) => {
                    tracing::warn!(partition = %partition.key, "compaction ended early: {error}");
                    done.insert(partition.key);
                }
                Err(CompactError::Deleted) => drop(done.insert(partition.key)),
                Err(error @ (CompactError::Closing | CompactError::Failed(_))) => {
                    tracing::debug!("compaction ends: {error}");
                    return;
                }
            }
        }
        if shard.log.has_superseded() && shard.log.checkpoint().await.is_err() {
            // The log has said so, and the shard is ending.
            return;
        }
    }
}

/// The partition with the most to gain, of those that are due; and how far behind all are.
async fn next(shard: &Rc<Shard>, done: &HashSet<PartitionKey>) -> Option<(Rc<Partition>, CompactionTerms)> {
    let partitions: Vec<Rc<Partition>> = shard.partitions.borrow().values().cloned().collect();
    let mut levels = CompactionLevels::default();
    let mut best: Option<(u64, PartitionKey, Rc<Partition>, CompactionTerms)> = None;
    for partition in partitions {
        let terms = shard.topics.borrow().get(partition.key.topic).and_then(|entry| terms(&entry.topic.config));
        let Some(terms) = terms else { continue };
        let (need, now_ms) = (partition.log.compaction_need(terms), clock::wall_ms());
        levels.dirty_bytes += need.dirty_bytes;
        let behind_ms = need.dirty_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        levels.behind_ms = levels.behind_ms.max(u64::try_from(behind_ms).unwrap_or(0));
        let key = partition.key;
        if is_due(&need, now_ms)
            && !done.contains(&key)
            && best.as_ref().is_none_or(|(percent, best, ..)| (dirty_percent(&need), key) > (*percent, *best))
        {
            best = Some((dirty_percent(&need), key, partition, terms));
        }
        executor::yield_if_needed().await;
    }
    shard.compaction.set(levels);
    best.map(|(_, _, partition, terms)| (partition, terms))
}

/// `None`: the topic is not compacted.
fn terms(config: &TopicConfig) -> Option<CompactionTerms> {
    let terms = CompactionTerms { lag_ms: config.compaction_lag_ms, tombstone_retention_ms: config.tombstone_retention_ms };
    config.cleanup.compacts().then_some(terms)
}

fn dirty_percent(need: &CompactionNeed) -> u64 {
    (need.dirty_bytes * 100).checked_div(need.clean_bytes + need.dirty_bytes).unwrap_or(0)
}

fn is_due(need: &CompactionNeed, now_ms: i64) -> bool {
    let has_waited = |since_ms: i64| now_ms.saturating_sub(since_ms) >= WAIT_MS_MAX;
    dirty_percent(need) >= DIRTY_PERCENT_DUE
        || need.dirty_since_ms.is_some_and(has_waited)
        || need.tombstones_due_ms.is_some_and(has_waited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Cleanup;

    #[test]
    fn a_partition_is_due_by_share_or_by_time() {
        let now_ms = 10 * WAIT_MS_MAX;
        let due = |clean_bytes, dirty_bytes, dirty_since_ms, tombstones_due_ms| {
            is_due(&CompactionNeed { clean_bytes, dirty_bytes, dirty_since_ms, tombstones_due_ms }, now_ms)
        };
        assert!(!due(0, 0, None, None));
        assert!(due(0, 1, Some(now_ms), None));
        assert!(due(100, 100, Some(now_ms), None));
        assert!(!due(101, 99, Some(now_ms), None));
        assert!(!due(101, 1, Some(now_ms - WAIT_MS_MAX + 1), None));
        assert!(due(101, 1, Some(now_ms - WAIT_MS_MAX), None));
        assert!(!due(101, 0, None, Some(now_ms - WAIT_MS_MAX + 1)));
        assert!(due(101, 0, None, Some(now_ms - WAIT_MS_MAX)));
    }

    #[test]
    fn only_topics_that_ask_for_it_are_compacted() {
        let of = |cleanup| terms(&TopicConfig { cleanup, compaction_lag_ms: 5, ..TopicConfig::default() });
        assert_eq!(of(Cleanup::Delete), None);
        assert_eq!(of(Cleanup::CompactAndDelete).map(|terms| terms.lag_ms), Some(5));
        assert!(of(Cleanup::Compact).is_some());
    }
}
