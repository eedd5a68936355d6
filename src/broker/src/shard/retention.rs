//! Retention: what topics keep no longer goes, a little at a time.
//!
//! ```text
//!   append to a partition at rest ─┐
//!   a segment was closed ──────────┼─► schedule: partition → time ─► due ─► the log closes what is old, gives up what is not kept
//!   the topic was altered ─────────┤                 ▲                                    │
//!   a start ───────────────────────┘                 └────────────── next time ◄──────────┘
//! ```
//!
//! Only partitions that are due are looked at: a hundred thousand at rest cost nothing until something in them becomes old. Sizes grow only when a
//! segment is closed, and the log tells of that.

mod schedule;

pub(crate) use schedule::Schedule;

use super::{Shard, trust::HOLD};
use crate::partition::Partition;
use commit_log::{LogFailed, Retention};
use futures_util::{
    future::select,
    stream::{self, StreamExt},
};
use shards::{clock, executor};
use std::{pin::pin, rc::Rc, time::Duration};
use wire::{Cleanup, PartitionKey, TopicConfig};

/// Partitions looked at side by side: their log starts become durable with one group, and a thousand that are due at the same time do not fill the queue.
const LOOKS_AT_ONCE: usize = 16;

/// Partitions taken from the schedule in one go.
const DUE_AT_ONCE: usize = 256;

/// Between two looks at a partition, unless something happens there.
const LOOK_AGAIN_MS_MIN: i64 = 1000;

/// The longest sleep: the wall clock, which the schedule is in, may jump.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Runs until the shard ends, in the background.
pub(super) async fn run(shard: Rc<Shard>) {
    plan_all(&shard).await;
    loop {
        let (rolled, sooner) = (shard.log.rolled(), shard.retention.sooner());
        for key in shard.log.take_rolled() {
            shard.retention.plan(key, 0);
        }
        let now_ms = clock::wall_ms();
        let due = shard.retention.take_due(now_ms, DUE_AT_ONCE);
        if due.is_empty() {
            let left_ms = shard.retention.next_ms().map_or(i64::MAX, |next_ms| next_ms.saturating_sub(now_ms));
            let sleep = Duration::from_millis(left_ms.max(1).unsigned_abs()).min(SLEEP_MAX);
            select(select(pin!(rolled), pin!(sooner)), pin!(clock::sleep(sleep))).await;
            continue;
        }
        let is_trusted = shard.clock_trust.borrow_mut().look(now_ms, clock::monotonic());
        let mut looks = stream::iter(due.into_iter().map(|key| look(&shard, key, is_trusted))).buffer_unordered(LOOKS_AT_ONCE);
        while let Some(looked) = looks.next().await {
            if let Err(failed) = looked {
                tracing::error!("retention stopped: {failed}");
                return;
            }
            executor::yield_if_needed().await;
        }
    }
}

/// After a start anything may be due.
async fn plan_all(shard: &Shard) {
    let partitions: Vec<Rc<Partition>> = shard.partitions.borrow().values().cloned().collect();
    for partition in partitions {
        partition.retention_planned.set(true);
        shard.retention.plan(partition.key, 0);
        executor::yield_if_needed().await;
    }
}

/// A partition has something that was appended: it is looked at when that may be due.
pub(crate) fn appended(shard: &Shard, partition: &Partition) {
    if !partition.retention_planned.replace(true) {
        shard.retention.plan(partition.key, clock::wall_ms() + LOOK_AGAIN_MS_MIN);
    }
}

/// The topic keeps something else from now on.
pub(crate) fn altered(shard: &Shard, partition: &Partition) {
    partition.retention_planned.set(true);
    shard.retention.plan(partition.key, 0);
}

async fn look(shard: &Shard, key: PartitionKey, is_trusted: bool) -> Result<(), LogFailed> {
    let partition = shard.partitions.borrow().get(&key).cloned();
    let config = shard.topics.borrow().get(key.topic).map(|entry| retention(&entry.topic.config));
    let (Some(partition), Some(mut retention)) = (partition, config) else { return Ok(()) };
    if !is_trusted {
        retention.age_ms = None;
    }
    let now_ms = clock::wall_ms();
    let retained = partition.log.retain(retention, now_ms).await?;
    partition.counters.expired(retained.segments, retained.bytes);
    shard.counters.expired(retained.segments, retained.bytes);
    let next_ms = if is_trusted { retained.next_ms } else { Some(now_ms.saturating_add(hold_ms())) };
    match next_ms {
        Some(next_ms) => shard.retention.plan(key, next_ms.max(now_ms + LOOK_AGAIN_MS_MIN)),
        // Altered meanwhile, perhaps.
        None => partition.retention_planned.set(shard.retention.is_planned(key)),
    }
    Ok(())
}

fn hold_ms() -> i64 {
    i64::try_from(HOLD.as_millis()).unwrap_or(i64::MAX)
}

/// What the log is to keep of a topic. One that is only compacted keeps the latest of each key, however old.
pub(crate) fn retention(config: &TopicConfig) -> Retention {
    match config.cleanup {
        Cleanup::Compact => Retention::default(),
        Cleanup::Delete | Cleanup::CompactAndDelete => {
            let age_ms = config.retention_ms.map(|age_ms| u64::try_from(age_ms).unwrap_or(0));
            Retention { age_ms, bytes: config.retention_bytes }
        }
    }
}
