//! The requests and replies, version 1. Each is an owned struct; hot paths read the archived form in place.
//!
//! Counts are compared with their limits when a body is decoded ([`crate::Body::check_limits`]): who breaks them does not speak the
//! protocol. What a user can get wrong is told by `validate` in words and a code, and answered in a reply.

mod alter_group;
mod alter_offsets;
mod assignor;
mod cluster;
mod commit_offsets;
mod delete_group;
mod delete_records;
mod describe_group;
mod fetch;
mod fetch_offsets;
mod field;
mod find_coordinator;
mod group_heartbeat;
mod hello;
mod init_producer;
mod list_groups;
mod metadata;
mod offsets;
mod produce;
mod retry_policy;
mod settle;
mod take_retries;
mod topic_config;
mod topics;

pub use alter_group::{AlterGroupReply, AlterGroupRequest, OffsetsRetention};
pub use alter_offsets::{AlterOffsetsReply, AlterOffsetsRequest, AlterPartition};
pub use assignor::Assignor;
pub use cluster::{
    BrokerDescription, ConfigEntry, ConfigOrigin, DescribeClusterReply, DescribeClusterRequest, DescribeConfigReply,
    DescribeConfigRequest, ShardDescription,
};
pub use commit_offsets::{CommitOffsetsReply, CommitOffsetsRequest, CommitPartition, CommittedOffset, GroupPartitionReply};
pub use delete_group::{DeleteGroupReply, DeleteGroupRequest};
pub use delete_records::{DeleteRecordsPartition, DeleteRecordsPartitionReply, DeleteRecordsReply, DeleteRecordsRequest};
pub use describe_group::{
    DescribeGroupReply, DescribeGroupRequest, GroupPartitionDescription, MemberDescription, StoppedAt, TopicRetryPolicy,
};
pub use fetch::{FetchPartition, FetchPartitionReply, FetchReply, FetchRequest};
pub use fetch_offsets::{FetchOffsetsReply, FetchOffsetsRequest, FetchedOffset, ParkedKey};
pub use field::{Change, FieldError};
pub use find_coordinator::{FindCoordinatorReply, FindCoordinatorRequest, GroupCoordinator};
pub use group_heartbeat::{AssignedTopic, GroupHeartbeatReply, GroupHeartbeatRequest, TopicPartitions};
pub use hello::{HelloReply, HelloRequest};
pub use init_producer::{InitProducerReply, InitProducerRequest, ProducerIdentity};
pub use list_groups::{GroupListing, GroupState, ListGroupsReply, ListGroupsRequest};
pub use metadata::{BrokerMetadata, MetadataReply, MetadataRequest, PartitionMetadata, TopicMetadata};
pub use offsets::{ListOffsetsPartition, ListOffsetsPartitionReply, ListOffsetsReply, ListOffsetsRequest, OffsetAt};
pub use produce::{AckLevel, Acks, ProducePartition, ProducePartitionReply, ProduceReply, ProduceRequest};
pub use retry_policy::{DEAD_LETTER_TOPIC_DEFAULT, Exhausted, RetryPolicy, RetryPolicyChanges};
pub use settle::{
    DeferredRecord, DoneRecord, FailedRecord, SettleOutcome, SettlePartition, SettlePartitionReply, SettleReply, SettleRequest,
};
pub use take_retries::{DueRecord, TakeRetriesReply, TakeRetriesRequest};
pub use topic_config::{Cleanup, Durability, TopicConfig, TopicConfigChanges};
pub use topics::{
    AlterTopicReply, AlterTopicRequest, CreateTopicReply, CreateTopicRequest, DeleteTopicReply, DeleteTopicRequest,
    DescribeTopicReply, DescribeTopicRequest, ListTopicsReply, ListTopicsRequest, PartitionDescription, TopicListing,
};
