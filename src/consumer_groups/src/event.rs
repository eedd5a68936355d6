//! What happens to a coordinator.

use wire::{
    AlterGroupRequest, AlterOffsetsRequest, CommitOffsetsRequest, DeleteGroupRequest, DescribeGroupRequest, FetchOffsetsRequest,
    GroupHeartbeatRequest, ListGroupsRequest, SettleRequest, TakeRetriesRequest, TopicId,
};

use crate::membership::Client;
use crate::outcome::Token;
use crate::retry::RetryEvent;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// The state has been read back to its end ([`crate::Coordinator::finish_replay`]): from now on sessions run. Said once, before any request,
    /// also when nothing was stored. The topics given with it must be all there are: state of others is dropped.
    Loaded,
    /// A request came in, for a group of this coordinator.
    Request {
        /// Names its reply. Each request is answered once, at once or later.
        token: Token,
        /// What is asked.
        request: Request,
    },
    /// Nobody waits for the reply any more: its connection is gone. The request may have been answered already, or may be yet.
    Cancelled {
        /// Names the reply.
        token: Token,
    },
    /// Topics were made or have grown.
    TopicsChanged {
        /// Their names.
        names: Vec<String>,
    },
    /// A topic was deleted. One of the same name that is made later has another identity.
    TopicDeleted {
        /// Its identity.
        id: TopicId,
        /// Its name.
        name: String,
    },
    /// A dead letter has come a step further.
    Retry(RetryEvent),
    /// Time has passed.
    Tick {
        /// Whether the time of day is believed: with one that jumped ahead nothing expires.
        is_wall_trusted: bool,
    },
}

/// A request, as it came over the wire and with its counts checked by it.
#[derive(Debug)]
pub enum Request {
    /// Joins, stays, leaves.
    Heartbeat {
        /// The request.
        request: GroupHeartbeatRequest,
        /// Who sent it.
        client: Client,
    },
    /// Commits offsets.
    CommitOffsets(CommitOffsetsRequest),
    /// Reads offsets.
    FetchOffsets(FetchOffsetsRequest),
    /// Names groups. One coordinator names its own; the driver merges those of all.
    ListGroups(ListGroupsRequest),
    /// Describes a group.
    DescribeGroup(DescribeGroupRequest),
    /// Deletes a group.
    DeleteGroup(DeleteGroupRequest),
    /// Moves a group by hand.
    AlterOffsets(AlterOffsetsRequest),
    /// Changes a group.
    AlterGroup(AlterGroupRequest),
    /// Says what became of records.
    Settle {
        /// The request.
        request: SettleRequest,
        /// Any number: it decides how pauses differ from each other.
        random: u64,
    },
    /// Takes records that are due again.
    TakeRetries(TakeRetriesRequest),
}

impl Request {
    /// The group that it is about, by which the driver finds its coordinator; empty when it is about all.
    pub fn group(&self) -> &str {
        match self {
            Request::Heartbeat { request, .. } => &request.group,
            Request::CommitOffsets(request) => &request.group,
            Request::FetchOffsets(request) => &request.group,
            Request::ListGroups(_) => "",
            Request::DescribeGroup(request) => &request.group,
            Request::DeleteGroup(request) => &request.group,
            Request::AlterOffsets(request) => &request.group,
            Request::AlterGroup(request) => &request.group,
            Request::Settle { request, .. } => &request.group,
            Request::TakeRetries(request) => &request.group,
        }
    }
}
