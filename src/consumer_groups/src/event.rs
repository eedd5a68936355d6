//! What happens to a coordinator.

use wire::{
    AlterGroupRequest, AlterOffsetsRequest, CommitOffsetsRequest, DeleteGroupRequest, DescribeGroupRequest, FetchOffsetsRequest,
    GroupHeartbeatRequest, ListGroupsRequest, TopicId,
};

use crate::membership::Client;
use crate::outcome::Token;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// The state has been read back to its end: from now on sessions run. Said once, before any request, also when nothing was stored. The
    /// topics given with it must be all there are: state of others is dropped.
    Loaded,
    /// A request came in, for a group of this coordinator.
    Request {
        /// Names its reply. Each request is answered once, at once or later.
        token: Token,
        /// What is asked.
        request: Request,
    },
    /// Nobody waits for the reply any more: its connection is gone. The request may have been answered already.
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
    /// Time has passed.
    Tick,
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
        }
    }
}
