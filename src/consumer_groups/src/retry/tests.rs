//! The retries of a group, by scenario.

mod leases;
mod letters;
mod parking;
mod state;

use std::collections::BTreeSet;

use wire::{
    CommittedOffset, DeferredRecord, DoneRecord, DueRecord, FailedRecord, Offset, PartitionIndex, PartitionKey, RetryPolicy,
    SettlePartition, TimestampMs, TopicId,
};

use super::*;

const TOPIC: &str = "orders";

fn partition(number: u32) -> PartitionKey {
    PartitionKey::new(TopicId([1; 16]), PartitionIndex(number))
}

fn member(name: &str) -> MemberId {
    MemberId::from(name)
}

fn now(ms: u64) -> Now {
    Now { steady_ms: ms, wall: TimestampMs(1_000_000 + ms as i64) }
}

/// Three attempts, pauses of exactly 100 and 200 ms.
fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts_max: 3,
        backoff_first_ms: 100,
        backoff_factor_percent: 200,
        backoff_max_ms: 1000,
        jitter_percent: 0,
        ..RetryPolicy::default()
    }
}

/// A group under test, its commits, and the last outcome.
struct World {
    retries: GroupRetries,
    committed: Option<Offset>,
    out: RetryOutcome,
    now_ms: u64,
}

impl World {
    fn new() -> World {
        World::with_limits(RetryLimits::default())
    }

    fn with_limits(limits: RetryLimits) -> World {
        let mut retries = GroupRetries::new(GroupId::from("billing"), limits);
        let mut out = RetryOutcome::default();
        retries.set_policy(None, Some(policy()), &mut out).unwrap();
        World { retries, committed: Some(Offset(0)), out, now_ms: 0 }
    }

    /// Settles records of partition 0; the commit moves as far as it may.
    fn settle(&mut self, part: &SettlePartition) -> SettledRecords {
        self.out = RetryOutcome::default();
        let context =
            SettleContext { partition: partition(0), topic: TOPIC, committed: self.committed, now: now(self.now_ms), random: 7 };
        let settled = self.retries.settle(context, part, &mut self.out).unwrap();
        self.committed = self.committed.max(settled.commit);
        settled
    }

    fn fail(&mut self, key: &str, offset: u64, attempt: u32) -> wire::SettleOutcome {
        self.settle(&Part::default().failed(key, offset, attempt).0).outcomes[0]
    }

    /// What a member that owns all partitions is given now.
    fn take(&mut self, poll: u64) -> Vec<(u64, u32)> {
        self.out = RetryOutcome::default();
        let poll = self.poll("m", poll, 0);
        self.retries.poll(now(self.now_ms), poll, |_, _| true, &mut self.out);
        given(&self.out.answers[0].records)
    }

    fn poll(&self, name: &str, poll: u64, wait_ms: u64) -> RetryPoll {
        RetryPoll {
            request: poll,
            member: member(name),
            poll,
            partitions: BTreeSet::from([partition(0), partition(1)]),
            records_max: 10,
            deadline_steady_ms: self.now_ms + wait_ms,
        }
    }

    fn held(&self) -> Vec<u64> {
        self.retries.view(partition(0), self.committed).held.iter().map(|offset| offset.0).collect()
    }
}

fn given(records: &[DueRecord]) -> Vec<(u64, u32)> {
    records.iter().map(|record| (record.offset.0, record.attempt)).collect()
}

/// What a member says of a partition.
struct Part(SettlePartition);

impl Default for Part {
    fn default() -> Part {
        Part(SettlePartition {
            topic: partition(0).topic,
            partition: partition(0).partition,
            deferred: Vec::new(),
            done: Vec::new(),
            failed: Vec::new(),
            commit: None,
        })
    }
}

impl Part {
    /// An empty key stands for none.
    fn failed(mut self, key: &str, offset: u64, attempt: u32) -> Part {
        let key = (!key.is_empty()).then(|| key.as_bytes().to_vec());
        self.0.failed.push(FailedRecord { offset: Offset(offset), key, attempt, reason: format!("reason {offset}") });
        self
    }

    fn deferred(mut self, key: &str, offset: u64) -> Part {
        self.0.deferred.push(DeferredRecord { key: key.as_bytes().to_vec(), offset: Offset(offset) });
        self
    }

    fn done(mut self, key: &str, offset: u64) -> Part {
        let key = (!key.is_empty()).then(|| key.as_bytes().to_vec());
        self.0.done.push(DoneRecord { key, offset: Offset(offset) });
        self
    }

    fn commit(mut self, offset: u64) -> Part {
        self.0.commit = Some(CommittedOffset { offset: Offset(offset), leader_epoch: None, metadata: None });
        self
    }
}
