//! Topics: create, delete, alter, describe, list.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::messages::topic_config::{TopicConfig, TopicConfigChanges};

/// Makes a topic.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CreateTopicRequest {
    /// Its name; see [`crate::check_topic_name`].
    pub name: String,
    /// Its configuration.
    pub config: TopicConfig,
    /// Only say whether it could be made.
    pub validate_only: bool,
}

/// Answers [`CreateTopicRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CreateTopicReply {
    /// Whether it was made.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// Its identity; zeros with an error or when only validated.
    pub id: TopicId,
}

/// Removes a topic and its data.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteTopicRequest {
    /// Its name.
    pub name: String,
}

/// Answers [`DeleteTopicRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteTopicReply {
    /// Whether it is gone.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
}

/// Changes a topic.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterTopicRequest {
    /// Its name.
    pub name: String,
    /// What changes.
    pub changes: TopicConfigChanges,
    /// Only say whether it could be changed.
    pub validate_only: bool,
}

/// Answers [`AlterTopicRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterTopicReply {
    /// Whether it was changed.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The configuration now.
    pub config: TopicConfig,
}

/// Asks about one topic.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeTopicRequest {
    /// Its name.
    pub name: String,
}

/// Answers [`DescribeTopicRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeTopicReply {
    /// Whether there is such a topic.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// Its identity.
    pub id: TopicId,
    /// Its configuration.
    pub config: TopicConfig,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionDescription>,
}

/// State of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct PartitionDescription {
    /// Its number.
    pub partition: PartitionIndex,
    /// Trouble with it: [`ErrorCode::PartitionLossy`], for example.
    pub error: ErrorCode,
    /// The broker that leads it.
    pub leader: u32,
    /// That broker's reign.
    pub leader_epoch: LeaderEpoch,
    /// The shard of that broker.
    pub shard: u16,
    /// First offset that can be read.
    pub log_start: Offset,
    /// End of what consumers see.
    pub high_watermark: Offset,
    /// End of what has been appended.
    pub log_end: Offset,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Segment files.
    pub segments: u32,
}

/// Asks for the topics.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListTopicsRequest {
    /// Only topics whose name starts so; empty for all.
    pub prefix: String,
    /// Only topics whose name comes after this one: the next page.
    pub after: Option<String>,
    /// Topics in the reply, at most; 0 for as many as fit one.
    pub limit: u32,
}

/// Answers [`ListTopicsRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ListTopicsReply {
    /// Whether the request succeeded.
    pub error: ErrorCode,
    /// The topics, ordered by name.
    pub topics: Vec<TopicListing>,
    /// There are more: ask again for those after the last one.
    pub more: bool,
}

/// A topic in a list.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: u32,
    /// Copies of each.
    pub replication_factor: u16,
}

bodies! {
    CreateTopicRequest = CreateTopic => CreateTopicReply;
    DeleteTopicRequest = DeleteTopic => DeleteTopicReply;
    AlterTopicRequest = AlterTopic => AlterTopicReply;
    DescribeTopicRequest = DescribeTopic => DescribeTopicReply;
    ListTopicsRequest = ListTopics => ListTopicsReply;
}
