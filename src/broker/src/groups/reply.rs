//! Replies of coordinators to the connection that asked.

use crate::{connection::ReplyTo, metadata::Refusal};
use consumer_groups::{Reply, Request};
use wire::{
    AlterGroupReply, AlterOffsetsReply, Assignor, CommitOffsetsReply, DeleteGroupReply, DescribeGroupReply, FetchOffsetsReply,
    GroupHeartbeatReply, GroupState, ListGroupsReply, MemberEpoch, RetryPolicy, SettleReply, TakeRetriesReply,
};

pub(super) fn send(to: ReplyTo, reply: Reply) {
    match reply {
        Reply::Heartbeat(reply) => to.send(&reply),
        Reply::CommitOffsets(reply) => to.send(&reply),
        Reply::FetchOffsets(reply) => to.send(&reply),
        Reply::ListGroups(reply) => to.send(&reply),
        Reply::DescribeGroup(reply) => to.send(&reply),
        Reply::DeleteGroup(reply) => to.send(&reply),
        Reply::AlterOffsets(reply) => to.send(&reply),
        Reply::AlterGroup(reply) => to.send(&reply),
        Reply::Settle(reply) => to.send(&reply),
        Reply::TakeRetries(reply) => to.send(&reply),
    }
}

/// The reply to a request that no coordinator answers, made by its kind.
pub(super) struct RefusalReply(fn(Refusal) -> Reply);

impl RefusalReply {
    pub(super) fn to(request: &Request) -> RefusalReply {
        RefusalReply(match request {
            Request::Heartbeat { .. } => |Refusal { code, message }| {
                Reply::Heartbeat(GroupHeartbeatReply {
                    error: code,
                    message: Some(message),
                    member_epoch: MemberEpoch::LEAVE,
                    heartbeat_interval_ms: 0,
                    assignment: None,
                })
            },
            Request::CommitOffsets(_) => |Refusal { code, message }| {
                Reply::CommitOffsets(CommitOffsetsReply { error: code, message: Some(message), partitions: Vec::new() })
            },
            Request::FetchOffsets(_) => |Refusal { code, message }| {
                let (error, message) = (code, Some(message));
                Reply::FetchOffsets(FetchOffsetsReply { error, message, partitions: Vec::new(), more: false })
            },
            Request::ListGroups(_) => |Refusal { code, message }| {
                Reply::ListGroups(ListGroupsReply { error: code, message: Some(message), groups: Vec::new(), more: false })
            },
            Request::DescribeGroup(_) => |Refusal { code, message }| {
                Reply::DescribeGroup(DescribeGroupReply {
                    error: code,
                    message: Some(message),
                    state: GroupState::default(),
                    epoch: MemberEpoch::JOIN,
                    assignor: Assignor::default(),
                    shard: 0,
                    retry: RetryPolicy::default(),
                    topic_retries: Vec::new(),
                    offsets_retention_ms: None,
                    members: Vec::new(),
                    partitions: Vec::new(),
                    more: false,
                })
            },
            Request::DeleteGroup(_) => {
                |Refusal { code, message }| Reply::DeleteGroup(DeleteGroupReply { error: code, message: Some(message) })
            }
            Request::AlterOffsets(_) => |Refusal { code, message }| {
                Reply::AlterOffsets(AlterOffsetsReply { error: code, message: Some(message), partitions: Vec::new() })
            },
            Request::Settle { .. } => |Refusal { code, message }| {
                Reply::Settle(SettleReply { error: code, message: Some(message), partitions: Vec::new() })
            },
            Request::TakeRetries(_) => |Refusal { code, message }| {
                Reply::TakeRetries(TakeRetriesReply { error: code, message: Some(message), records: Vec::new() })
            },
            Request::AlterGroup(_) => |Refusal { code, message }| {
                Reply::AlterGroup(AlterGroupReply {
                    error: code,
                    message: Some(message),
                    retry: RetryPolicy::default(),
                    offsets_retention_ms: None,
                })
            },
        })
    }

    pub(super) fn with(self, refusal: Refusal) -> Reply {
        self.0(refusal)
    }
}
