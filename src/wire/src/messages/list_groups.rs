//! ListGroups: the consumer groups by name.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;

/// How a group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum GroupState {
    /// No members: only offsets and retry state are left.
    #[default]
    Empty = 0,
    /// Members are still giving up or taking partitions.
    Reconciling = 1,
    /// Every member owns what it is assigned.
    Stable = 2,
}

impl GroupState {
    /// Every state.
    pub const ALL: [GroupState; 3] = [GroupState::Empty, GroupState::Reconciling, GroupState::Stable];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "empty",
            GroupState::Reconciling => "reconciling",
            GroupState::Stable => "stable",
        }
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<GroupState> {
        GroupState::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Asks for the groups.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListGroupsRequest {
    /// Only groups whose id starts so; empty for all.
    pub prefix: String,
    /// Only groups in this state.
    pub state: Option<GroupState>,
    /// Only groups whose id comes after this one: the next page.
    pub after: Option<String>,
    /// Groups in the reply, at most; 0 for as many as fit one.
    pub limit: u32,
}

/// Answers [`ListGroupsRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListGroupsReply {
    /// Whether the request succeeded.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The groups, ordered by id.
    pub groups: Vec<GroupListing>,
    /// There are more: ask again for those after the last one.
    pub more: bool,
}

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupListing {
    /// The group.
    pub group: String,
    /// How it stands.
    pub state: GroupState,
    /// Its members.
    pub members: u32,
    /// Partitions of which it has state.
    pub partitions: u32,
    /// Keys parked, all partitions together.
    pub parked_keys: u32,
}

bodies! {
    ListGroupsRequest = ListGroups => ListGroupsReply;
}
