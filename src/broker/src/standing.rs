//! Where partitions start and end, as their owners say: what the lag of groups is measured by.

use crate::{
    mail::{Answer, Call},
    partition::Partition,
    scatter::Question,
    shard::Shard,
};
use wire::{ErrorCode, Offset, PartitionKey};

/// Asks where a partition starts and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandingOf(pub(crate) PartitionKey);

/// The records of a partition that consumers see: from `log_start` on, below `high_watermark`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) log_start: Offset,
    pub(crate) high_watermark: Offset,
}

impl Standing {
    /// Records from `committed` on: of those that are kept.
    pub(crate) fn lag(&self, committed: Offset) -> u64 {
        self.high_watermark.0.saturating_sub(committed.max(self.log_start).0)
    }
}

impl Question for StandingOf {
    /// `None`: nobody serves the partition now.
    type Reply = Option<Standing>;

    fn key(&self) -> PartitionKey {
        self.0
    }

    async fn answer(&self, _shard: &Shard, partition: &Partition) -> Option<Standing> {
        let marks = partition.log.watermarks();
        Some(Standing { log_start: marks.log_start, high_watermark: marks.high_watermark })
    }

    fn failed(&self, _code: ErrorCode) -> Option<Standing> {
        None
    }

    fn into_call(questions: Vec<Self>) -> Call {
        Call::Standing(questions)
    }

    fn into_answer(replies: Vec<Option<Standing>>) -> Answer {
        Answer::Standing(replies)
    }

    fn from_answer(answer: Answer) -> Option<Vec<Option<Standing>>> {
        match answer {
            Answer::Standing(replies) => Some(replies),
            _ => None,
        }
    }
}
