//! Brokers, shards, and the effective configuration.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;

/// Asks for the brokers and their shards.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeClusterRequest {
    /// Only this broker; `None` for all.
    pub broker: Option<u32>,
}

/// Answers [`DescribeClusterRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeClusterReply {
    /// Whether the request succeeded.
    pub error: ErrorCode,
    /// Identity of the cluster.
    pub cluster_id: [u8; 16],
    /// The broker that decides about topics.
    pub controller: u32,
    /// Topics in the cluster.
    pub topics: u32,
    /// Partitions in the cluster.
    pub partitions: u32,
    /// The brokers.
    pub brokers: Vec<BrokerDescription>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct BrokerDescription {
    /// Its number.
    pub id: u32,
    /// Host name or address that clients can reach.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Name and version.
    pub server: String,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// Its shards, in order.
    pub shards: Vec<ShardDescription>,
}

/// A shard: one core of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ShardDescription {
    /// Its number.
    pub shard: u16,
    /// The processor it is pinned to, when it is.
    pub cpu: Option<u32>,
    /// Where it stores.
    pub disk: String,
    /// Partitions it owns.
    pub partitions: u32,
    /// Connections it serves.
    pub connections: u32,
    /// Bytes of its partitions on disk.
    pub log_bytes: u64,
    /// Free space of its disk.
    pub disk_available_bytes: u64,
}

/// Asks for the configuration in effect.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeConfigRequest {
    /// Only keys that start so; empty for all.
    pub prefix: String,
}

/// Answers [`DescribeConfigRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeConfigReply {
    /// Whether the request succeeded.
    pub error: ErrorCode,
    /// The settings, ordered by key.
    pub entries: Vec<ConfigEntry>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// Its key, as in the configuration file: `table.key`.
    pub key: String,
    /// Its value, as in the configuration file.
    pub value: String,
    /// Where it comes from.
    pub origin: ConfigOrigin,
}

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum ConfigOrigin {
    /// Built in.
    #[default]
    Default = 0,
    /// Configuration file, command line or environment.
    Given = 1,
    /// Measured on this host.
    Measured = 2,
}

bodies! {
    DescribeClusterRequest = DescribeCluster => DescribeClusterReply;
    DescribeConfigRequest = DescribeConfig => DescribeConfigReply;
}
