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
}

/// The cluster as this broker knows it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct MetadataReply {
    /// Whether the request as a whole succeeded.
    pub error: ErrorCode,
    /// Counts changes of metadata; ever growing within a cluster.
    pub version: u64,
    /// Whether topics unchanged since the client's version were left out.
    pub only_changes: bool,
    /// Every broker.
    pub brokers: Vec<BrokerMetadata>,
    /// The topics asked for.
    pub topics: Vec<TopicMetadata>,
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
