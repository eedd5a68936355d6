//! Who leads what.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, PartitionIndex, TopicId};
use crate::messages::TopicConfig;

/// Asks for brokers and topics.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct MetadataRequest {
    /// The topics by name; `None` for all.
    pub topics: Option<Vec<String>>,
    /// A version the client has; the reply then may leave out topics that have not changed since. 0 for everything.
    pub since_version: u64,
    /// Of all topics only those whose name comes after this one: the next page.
    pub after: Option<String>,
    /// Topics in the reply, at most; 0 for as many as fit one.
    pub limit: u32,
}

/// The cluster as this broker knows it, or a page of it.
///
/// What does not fit one reply is asked for again: topics by name, those that the reply does not reach (it answers them in the order of the
/// request); all topics, with the name of the last one as [`MetadataRequest::after`]. All pages together are at least as new as the version
/// of the first, which is the one to ask for changes since.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct MetadataReply {
    /// Whether the request as a whole succeeded.
    pub error: ErrorCode,
    /// What is wrong with it, and what to do.
    pub message: Option<String>,
    /// Counts changes of metadata; ever growing within a cluster.
    pub version: u64,
    /// Whether topics unchanged since the client's version were left out.
    pub only_changes: bool,
    /// Every broker.
    pub brokers: Vec<BrokerMetadata>,
    /// The topics asked for: in the order of the request, all topics by name.
    pub topics: Vec<TopicMetadata>,
    /// There are more than fit this reply, or more than the limit.
    pub more: bool,
    /// Topics deleted since the client's version.
    pub deleted: Vec<TopicId>,
}

/// A broker and its address.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct BrokerMetadata {
    /// Its number.
    pub id: u32,
    /// Host name or address that clients can reach.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Its shards.
    pub shard_count: u16,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TopicMetadata {
    /// Whether there is such a topic.
    pub error: ErrorCode,
    /// Its name, as asked for.
    pub name: String,
    /// Its identity; zeros with an error.
    pub id: TopicId,
    /// Its configuration.
    pub config: TopicConfig,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionMetadata>,
}

/// Where a partition is served.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct PartitionMetadata {
    /// Its number.
    pub partition: PartitionIndex,
    /// The broker that leads it.
    pub leader: u32,
    /// That broker's reign.
    pub leader_epoch: LeaderEpoch,
    /// The shard of that broker.
    pub shard: u16,
}

bodies! {
    MetadataRequest = Metadata => MetadataReply;
}
