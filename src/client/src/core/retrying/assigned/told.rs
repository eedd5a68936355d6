//! What was done and failed of a partition up to a moment, and whether the coordinator knows it.

use wire::Offset;

use super::{Assigned, RetryStage, Stage};
use crate::core::retrying::Progress;

/// What the coordinator is to be told of one partition.
#[derive(Debug)]
pub(in crate::core::retrying) struct Untold {
    /// Up to where everything is done or failed.
    position: Offset,
    failed: Vec<Offset>,
    /// Done or failed again, each with its attempt.
    retries: Vec<(Offset, u32)>,
}

impl<T> Assigned<T> {
    /// Everything done and failed so far.
    pub(in crate::core::retrying) fn untold(&self) -> Untold {
        let is_failed = |stage: &Stage<T>| matches!(stage, Stage::Failed(_));
        let open = self.records.iter().find(|(_, offered)| !is_failed(&offered.stage));
        let failed = self.records.iter().filter(|(_, offered)| is_failed(&offered.stage));
        let retries = self.retries.iter().filter(|(_, retry)| is_to_be_told(&retry.stage));
        Untold {
            position: open.map_or(self.next, |(offset, _)| *offset),
            failed: failed.map(|(offset, _)| *offset).collect(),
            retries: retries.map(|(offset, retry)| (*offset, retry.attempt)).collect(),
        }
    }

    /// Whether the coordinator knows it by now.
    pub(in crate::core::retrying) fn progress(&self, untold: &Untold) -> Progress {
        let is_failed = |offset| self.records.get(offset).is_some_and(|offered| matches!(offered.stage, Stage::Failed(_)));
        let is_open = |(offset, attempt): &(Offset, u32)| {
            self.retries.get(offset).is_some_and(|retry| retry.attempt == *attempt && is_to_be_told(&retry.stage))
        };
        if untold.failed.iter().any(is_failed) {
            // It was said, and is to be said again after a pause.
            let is_refused = self.is_full && self.settle_at.is_some() && !self.has_news;
            return if is_refused { Progress::NoRoom } else { Progress::Open };
        }
        let is_committed = self.committed >= Some(untold.position);
        if is_committed && !untold.retries.iter().any(is_open) { Progress::Told } else { Progress::Open }
    }
}

fn is_to_be_told<T>(stage: &RetryStage<T>) -> bool {
    matches!(stage, RetryStage::Done | RetryStage::Failed(_))
}
