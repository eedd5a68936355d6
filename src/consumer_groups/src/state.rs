//! The state of groups as records of the internal topic: a key, and its whole value or none.
//!
//! ```text
//!   key   = version 1 byte │ StateKey, archived          the last record of a key counts
//!   value = version 1 byte │ StateValue, archived        without a value: the key is gone
//! ```
//!
//! Invariants:
//! - Replaying the records up to the end of any event gives the state after that event.
//! - Whatever the bytes, reading them gives a record or an error.

mod codec;
mod convert;

use rkyv::{Archive, Deserialize, Serialize};
use wire::{Assignor, CommittedOffset, MemberEpoch, PartitionIndex, PartitionKey, TimestampMs, TopicId};

pub use codec::StateError;
pub(crate) use codec::decode;

/// A record to append to the internal topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// What it is about.
    pub key: Vec<u8>,
    /// Its state from now on; `None`: it is gone.
    pub value: Option<Vec<u8>>,
}

/// What a record is about. The order is that of a snapshot: a group before what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub struct StateKey {
    /// The group.
    pub group: String,
    /// What of it.
    pub part: StatePart,
}

/// A part of a group's state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub enum StatePart {
    /// The group itself.
    Group,
    /// A member.
    Member(String),
    /// A committed offset.
    Offset(PartitionKey),
}

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum StateValue {
    /// Of [`StatePart::Group`].
    Group(GroupValue),
    /// Of [`StatePart::Member`].
    Member(MemberValue),
    /// Of [`StatePart::Offset`].
    Offset(OffsetValue),
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupValue {
    /// Counts changes of members, subscriptions and topics.
    pub epoch: MemberEpoch,
    /// When its last member went; `None` while it has members.
    pub empty_since: Option<TimestampMs>,
    /// How long offsets are kept after that.
    pub offsets_retention: RetentionValue,
}

/// How long offsets of a group without members are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum RetentionValue {
    /// As the broker is configured.
    #[default]
    Default,
    /// That long, in milliseconds.
    Ms(u64),
    /// For ever.
    Forever,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct MemberValue {
    /// The name that outlives it.
    pub instance: Option<String>,
    /// Whether it is there.
    pub presence: PresenceValue,
    /// The first epoch it was given.
    pub joined: MemberEpoch,
    /// The last epoch it was given.
    pub epoch: MemberEpoch,
    /// Topics subscribed to, by name.
    pub topics: Vec<String>,
    /// The assignor it wants.
    pub assignor: Option<Assignor>,
    /// How long it may be silent.
    pub session_timeout_ms: u32,
    /// How long it may take to give up partitions.
    pub rebalance_timeout_ms: u32,
    /// What it calls itself.
    pub client_id: String,
    /// Where it is.
    pub host: String,
    /// What it is to have.
    pub target: Vec<TargetValue>,
    /// What it holds.
    pub holdings: Vec<HoldingsValue>,
}

/// Whether a member is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum PresenceValue {
    /// It sends heartbeats.
    Here,
    /// It will be back.
    Away,
    /// Another has its instance id.
    Replaced,
}

/// Partitions of one topic that a member is to have.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TargetValue {
    /// The topic.
    pub topic: TopicId,
    /// Its partitions.
    pub partitions: Vec<PartitionIndex>,
}

/// Partitions of one topic that a member holds.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct HoldingsValue {
    /// The topic.
    pub topic: TopicId,
    /// Its partitions.
    pub partitions: Vec<HoldingValue>,
}

/// A partition that a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct HoldingValue {
    /// The partition.
    pub partition: PartitionIndex,
    /// The epoch in which it was given.
    pub granted: MemberEpoch,
    /// The epoch from which on it is to be given up.
    pub revoked: Option<MemberEpoch>,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct OffsetValue {
    /// The position.
    pub position: CommittedOffset,
    /// When it was committed.
    pub at: TimestampMs,
}
