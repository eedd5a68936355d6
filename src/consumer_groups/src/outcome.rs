//! What an event leads to: the driver's work.

use wire::{
    AlterGroupReply, AlterOffsetsReply, CommitOffsetsReply, DeleteGroupReply, DescribeGroupReply, FetchOffsetsReply,
    GroupHeartbeatReply, ListGroupsReply, SettleReply, TakeRetriesReply,
};

use crate::ids::GroupId;
use crate::retry::RetryAction;
use crate::state::StateRecord;

/// Names a request that waits for its reply: the driver's number, which the coordinator only hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What the driver has to do, in this order: append the records as one batch, and send the replies once they, and all before them, are
/// durable.
#[derive(Debug, Default)]
pub struct Outcome {
    /// State to append. Those of one event belong into one batch: a crash must leave all or none of them.
    pub records: Vec<StateRecord>,
    /// Groups of whose members there are records among them.
    pub memberships: Vec<GroupId>,
    /// Replies, to be held back until all records so far are durable. That to a heartbeat says nothing of what else a group knows: it may leave
    /// as soon as the records about the group's members ([`Outcome::memberships`]) are.
    pub replies: Vec<(Token, Reply)>,
    /// What to do for dead letters, to be held back like a reply; each is reported by [`crate::Event::Retry`]. After a start they come again.
    pub retry_actions: Vec<RetryAction>,
    /// Groups that nobody has used for their retention: their offsets are gone, and they too unless an operator set something of them.
    pub expired: Vec<GroupId>,
    /// When to say [`crate::Event::Tick`] at the latest, by the steady clock; an earlier one does no harm. It holds until the next outcome.
    pub wake_at_ms: Option<u64>,
}

/// The reply to a request of [`crate::Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`crate::Request::Heartbeat`].
    Heartbeat(GroupHeartbeatReply),
    /// To [`crate::Request::CommitOffsets`].
    CommitOffsets(CommitOffsetsReply),
    /// To [`crate::Request::FetchOffsets`].
    FetchOffsets(FetchOffsetsReply),
    /// To [`crate::Request::ListGroups`].
    ListGroups(ListGroupsReply),
    /// To [`crate::Request::DescribeGroup`]. What the coordinator does not know is empty, for the driver to fill in: `shard`, and for each
    /// partition `log_start` and `high_watermark`.
    DescribeGroup(DescribeGroupReply),
    /// To [`crate::Request::DeleteGroup`].
    DeleteGroup(DeleteGroupReply),
    /// To [`crate::Request::AlterOffsets`].
    AlterOffsets(AlterOffsetsReply),
    /// To [`crate::Request::AlterGroup`].
    AlterGroup(AlterGroupReply),
    /// To [`crate::Request::Settle`].
    Settle(SettleReply),
    /// To [`crate::Request::TakeRetries`].
    TakeRetries(TakeRetriesReply),
}
