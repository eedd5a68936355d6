//! The one entry: an event in, an outcome out.
//!
//! ```text
//!   handle ─► the request's own file ─► the group changes ─► finish: news for waiting heartbeats, records, timer
//! ```
//!
//! Invariants:
//! - Every token is answered once, or cancelled by the driver.
//! - An event leaves its records in the outcome; there is no state that is stored later.
//! - Which groups there are, and in what order anything is done, depends on names and times alone.

mod admin;
mod alter;
mod commit;
mod fetch;
mod finish;
mod heartbeat;
mod replay;
mod settle;
mod survey;
mod take_retries;
mod tick;
mod topics_change;

use std::collections::{BTreeMap, BTreeSet};

use wire::limits::OFFSETS_RETENTION_MS_MAX;
use wire::{ErrorCode, TimestampMs};

pub use replay::{SnapshotPosition, SnapshotSlice};
pub use survey::{GroupPartitionStanding, GroupStanding};

use crate::event::{Event, Request};
use crate::group::Group;
use crate::ids::GroupId;
use crate::limits;
use crate::now::Now;
use crate::outcome::{Outcome, Reply, Token};
use crate::retry::{RetryEvent, RetryLimits};
use crate::topics::Topics;

/// What an operator chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How often a member says that it lives, at most.
    pub heartbeat_interval_ms: u32,
    /// Groups of one coordinator.
    pub groups_max: usize,
    /// How long offsets of a group without members are kept, unless the group says otherwise.
    pub offsets_retention_ms: u64,
    /// How much of one partition a group may have parked.
    pub retry: RetryLimits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            heartbeat_interval_ms: limits::HEARTBEAT_INTERVAL_MS_DEFAULT,
            groups_max: limits::GROUPS_MAX_DEFAULT,
            offsets_retention_ms: limits::OFFSETS_RETENTION_MS_DEFAULT,
            retry: RetryLimits::default(),
        }
    }
}

/// The groups of one partition of the internal topic.
///
/// Made empty, it is given every record of the partition ([`Coordinator::replay`]), then [`Event::Loaded`], then whatever happens.
#[derive(Debug)]
pub struct Coordinator {
    options: Options,
    groups: BTreeMap<GroupId, Group>,
    /// When each group is looked at next.
    timers: BTreeSet<(u64, GroupId)>,
    /// The groups of the requests that wait.
    waiting: BTreeMap<Token, GroupId>,
    rebalances: u64,
    /// When the state was read back.
    loaded_at: TimestampMs,
}

impl Coordinator {
    /// Without any group. A retention beyond the protocol's limit counts as that: sums with a time of day must not overflow.
    pub fn new(options: Options) -> Coordinator {
        let offsets_retention_ms = options.offsets_retention_ms.min(OFFSETS_RETENTION_MS_MAX);
        let options = Options { offsets_retention_ms, ..options };
        Coordinator {
            options,
            groups: BTreeMap::new(),
            timers: BTreeSet::new(),
            waiting: BTreeMap::new(),
            rebalances: 0,
            loaded_at: TimestampMs(0),
        }
    }

    /// Takes in what happened; `outcome` gets what is to be done, after what it holds already.
    pub fn handle(&mut self, now: Now, topics: &dyn Topics, event: Event, outcome: &mut Outcome) {
        match event {
            Event::Loaded => self.loaded(now, topics, outcome),
            Event::Request { token, request } => self.request(now, topics, token, request, outcome),
            Event::Cancelled { token } => self.cancel(token),
            Event::TopicsChanged { names } => self.topics_changed(now, topics, &names, outcome),
            Event::TopicDeleted { id, name } => self.topic_deleted(now, topics, id, &name, outcome),
            Event::Retry(event) => self.retry(now, topics, &event, outcome),
            Event::Tick { is_wall_trusted } => self.tick(now, topics, is_wall_trusted, outcome),
        }
        outcome.wake_at_ms = self.timers.first().map(|(at_ms, _)| *at_ms);
    }

    fn request(&mut self, now: Now, topics: &dyn Topics, token: Token, request: Request, outcome: &mut Outcome) {
        let reply = match request {
            Request::Heartbeat { request, client } => {
                let Some(reply) = self.heartbeat(now, topics, token, request, client, outcome) else { return };
                Reply::Heartbeat(reply)
            }
            Request::CommitOffsets(request) => Reply::CommitOffsets(self.commit_offsets(now, topics, request, outcome)),
            Request::FetchOffsets(request) => Reply::FetchOffsets(self.fetch_offsets(&request)),
            Request::ListGroups(request) => Reply::ListGroups(self.list_groups(&request)),
            Request::DescribeGroup(request) => Reply::DescribeGroup(self.describe_group(topics, &request)),
            Request::DeleteGroup(request) => Reply::DeleteGroup(self.delete_group(&request, outcome)),
            Request::AlterOffsets(request) => Reply::AlterOffsets(self.alter_offsets(now, topics, request, outcome)),
            Request::AlterGroup(request) => Reply::AlterGroup(self.alter_group(now, topics, &request, outcome)),
            Request::Settle { request, random } => Reply::Settle(self.settle(now, topics, &request, random, outcome)),
            Request::TakeRetries(request) => {
                let Some(reply) = self.take_retries(now, topics, token, request, outcome) else { return };
                Reply::TakeRetries(reply)
            }
        };
        outcome.replies.push((token, reply));
    }

    fn cancel(&mut self, token: Token) {
        if let Some(group) = self.waiting.remove(&token).and_then(|id| self.groups.get_mut(&id)) {
            group.membership.cancel_waiting(token);
        }
    }

    fn retry(&mut self, now: Now, topics: &dyn Topics, event: &RetryEvent, outcome: &mut Outcome) {
        let id = event.group().clone();
        if let Some(group) = self.groups.get_mut(&id) {
            group.retries.dead_letter(event, &mut group.retried);
            self.finish(now, topics, &id, outcome);
        }
    }

    /// The group of that name, made when there is none.
    ///
    /// # Errors
    /// There are as many as there may be.
    fn group_or_new(&mut self, id: &GroupId) -> Result<&mut Group, ErrorCode> {
        if !self.groups.contains_key(id) && self.groups.len() >= self.options.groups_max {
            return Err(ErrorCode::TooManyGroups);
        }
        let limits = self.options.retry;
        let new = || Group { is_changed: true, ..Group::new(id.clone(), limits) };
        Ok(self.groups.entry(id.clone()).or_insert_with(new))
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }
}
