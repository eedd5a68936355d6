//! Who waits for due records, and which answer was the last one given to whom.

use std::collections::{BTreeMap, BTreeSet};

use wire::PartitionKey;

use crate::MemberId;

/// A member's wish for due records of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPoll {
    /// What the driver knows the request by.
    pub request: u64,
    /// The member.
    pub member: MemberId,
    /// Its number of this poll.
    pub poll: u64,
    /// The partitions it has begun with; those it owns are asked, the others passed over.
    pub partitions: BTreeSet<PartitionKey>,
    /// Records in the answer at most.
    pub records_max: usize,
    /// By when to answer with none, by the steady clock.
    pub deadline_steady_ms: u64,
}

/// The polls of one group.
#[derive(Debug, Default)]
pub(super) struct Polls {
    waiting: BTreeMap<MemberId, RetryPoll>,
    /// The number of the last poll of each member.
    last: BTreeMap<MemberId, u64>,
}

/// What a poll is, beside those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollKind {
    New,
    /// Its answer was lost.
    Repeated,
    /// A later one has been here: this one comes too late.
    Late,
}

impl Polls {
    /// Notes the number of a poll.
    pub(super) fn begin(&mut self, poll: &RetryPoll) -> PollKind {
        match self.last.get(&poll.member) {
            Some(last) if poll.poll < *last => PollKind::Late,
            Some(last) if poll.poll == *last => PollKind::Repeated,
            _ => {
                self.last.insert(poll.member.clone(), poll.poll);
                PollKind::New
            }
        }
    }

    /// Lets a poll wait; the one of the same member that waited before is returned, nobody listens for its answer.
    pub(super) fn wait(&mut self, poll: RetryPoll) -> Option<RetryPoll> {
        self.waiting.insert(poll.member.clone(), poll)
    }

    pub(super) fn take_waiting(&mut self, member: &MemberId) -> Option<RetryPoll> {
        self.waiting.remove(member)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &RetryPoll> {
        self.waiting.values()
    }

    /// The member is gone for good.
    pub(super) fn forget(&mut self, member: &MemberId) -> Option<RetryPoll> {
        self.last.remove(member);
        self.waiting.remove(member)
    }
}
