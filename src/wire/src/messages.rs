//! The requests and replies, version 1. Each is an owned struct; hot paths read the archived form in place.

mod cluster;
mod fetch;
mod hello;
mod metadata;
mod offsets;
mod produce;
mod topics;

pub use cluster::{
    BrokerDescription, ConfigEntry, ConfigOrigin, DescribeClusterReply, DescribeClusterRequest, DescribeConfigReply,
    DescribeConfigRequest, ShardDescription,
};
pub use fetch::{FetchPartition, FetchPartitionReply, FetchReply, FetchRequest};
pub use hello::{HelloReply, HelloRequest};
pub use metadata::{BrokerMetadata, MetadataReply, MetadataRequest, PartitionMetadata, TopicMetadata};
pub use offsets::{ListOffsetsPartition, ListOffsetsPartitionReply, ListOffsetsReply, ListOffsetsRequest, OffsetAt};
pub use produce::{AckLevel, Acks, ProducePartition, ProducePartitionReply, ProduceReply, ProduceRequest};
pub use topics::{
    AlterTopicReply, AlterTopicRequest, Change, CreateTopicReply, CreateTopicRequest, DeleteTopicReply, DeleteTopicRequest,
    DescribeTopicReply, DescribeTopicRequest, Durability, ListTopicsReply, ListTopicsRequest, PartitionDescription, TopicConfig,
    TopicConfigChanges, TopicConfigError, TopicListing,
};
