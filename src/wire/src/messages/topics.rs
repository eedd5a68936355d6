//! Topics: configuration, create, delete, alter, describe, list.

use rkyv::{Archive, Deserialize, Serialize};
use thiserror::Error;

use crate::batch::TimestampKind;
use crate::body::bodies;
use crate::compression::Compression;
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::limits::{
    MESSAGE_BYTES_MAX_CEILING, MESSAGE_BYTES_MAX_DEFAULT, MESSAGE_BYTES_MAX_FLOOR, PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_MAX, RETENTION_MS_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SEGMENT_MS_DEFAULT, SEGMENT_MS_MIN,
};

/// What an acknowledgement of a topic means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum Durability {
    /// The data is on stable storage.
    #[default]
    Stable = 0,
    /// The data is in the broker's memory, on its way to storage: a power cut loses the last moments.
    Relaxed = 1,
}

/// Everything a topic can be told.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TopicConfig {
    /// 1 to [`PARTITIONS_PER_TOPIC_MAX`].
    pub partitions: u32,
    /// Copies of each partition, 1 to [`REPLICATION_FACTOR_MAX`].
    pub replication_factor: u16,
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Age at which data may go; `None` keeps it for ever.
    pub retention_ms: Option<i64>,
    /// Size of a partition above which its oldest data may go; `None` for any size.
    pub retention_bytes: Option<u64>,
    /// Key + value + headers of one message.
    pub message_bytes_max: u32,
    /// What producers should use; the broker stores what it is given.
    pub compression: Compression,
    /// Who sets timestamps.
    pub timestamp_kind: TimestampKind,
    /// Size at which a segment is closed.
    pub segment_bytes: u64,
    /// Age at which a segment is closed, so that retention can delete it.
    pub segment_ms: u64,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            partitions: 1,
            replication_factor: 1,
            durability: Durability::Stable,
            retention_ms: Some(RETENTION_MS_DEFAULT),
            retention_bytes: None,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
            compression: Compression::None,
            timestamp_kind: TimestampKind::Create,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            segment_ms: SEGMENT_MS_DEFAULT,
        }
    }
}

/// A value that a topic cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is {found}: {rule}")]
pub struct TopicConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// The value given.
    pub found: String,
    /// What is allowed.
    pub rule: String,
    /// The code to answer with.
    pub code: ErrorCode,
}

impl TopicConfig {
    /// Checks every value against its limits.
    ///
    /// # Errors
    /// The first value that is outside them.
    pub fn check(&self) -> Result<(), TopicConfigError> {
        let partitions = within(self.partitions, 1, PARTITIONS_PER_TOPIC_MAX);
        require("partitions", self.partitions, partitions, ErrorCode::InvalidPartitions)?;
        let replicas = within(self.replication_factor, 1, REPLICATION_FACTOR_MAX);
        require("replication_factor", self.replication_factor, replicas, ErrorCode::InvalidReplicationFactor)?;
        if let Some(retention_ms) = self.retention_ms {
            require("retention_ms", retention_ms, within(retention_ms, 1, i64::MAX), ErrorCode::InvalidConfig)?;
        }
        let message = within(self.message_bytes_max, MESSAGE_BYTES_MAX_FLOOR, MESSAGE_BYTES_MAX_CEILING);
        require("message_bytes_max", self.message_bytes_max, message, ErrorCode::InvalidConfig)?;
        let segment = within(self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        require("segment_bytes", self.segment_bytes, segment, ErrorCode::InvalidConfig)?;
        let age = within(self.segment_ms, SEGMENT_MS_MIN, u64::MAX);
        require("segment_ms", self.segment_ms, age, ErrorCode::InvalidConfig)
    }
}

/// The rule that a value breaks, if it does.
fn within<T: PartialOrd + std::fmt::Display>(found: T, least: T, most: T) -> Option<String> {
    (found < least || found > most).then(|| format!("{least} to {most} are allowed"))
}

fn require(
    field: &'static str,
    found: impl std::fmt::Display,
    broken_rule: Option<String>,
    code: ErrorCode,
) -> Result<(), TopicConfigError> {
    match broken_rule {
        Some(rule) => Err(TopicConfigError { field, found: found.to_string(), rule, code }),
        None => Ok(()),
    }
}

/// A new value for a setting that can also be unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum Change<T> {
    /// As it was.
    #[default]
    Keep,
    /// Without a limit.
    Unset,
    /// This.
    Set(T),
}

impl<T: Copy> Change<T> {
    /// The setting after the change.
    pub fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Change::Keep => before,
            Change::Unset => None,
            Change::Set(value) => Some(value),
        }
    }
}

/// Changes to a topic; what is `None` or `Keep` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TopicConfigChanges {
    /// May only grow: records would change their partition's order otherwise.
    pub partitions: Option<u32>,
    /// See [`TopicConfig`].
    pub replication_factor: Option<u16>,
    /// See [`TopicConfig`].
    pub durability: Option<Durability>,
    /// See [`TopicConfig`].
    pub retention_ms: Change<i64>,
    /// See [`TopicConfig`].
    pub retention_bytes: Change<u64>,
    /// See [`TopicConfig`].
    pub message_bytes_max: Option<u32>,
    /// See [`TopicConfig`].
    pub compression: Option<Compression>,
    /// See [`TopicConfig`].
    pub timestamp_kind: Option<TimestampKind>,
    /// See [`TopicConfig`].
    pub segment_bytes: Option<u64>,
    /// See [`TopicConfig`].
    pub segment_ms: Option<u64>,
}

impl TopicConfigChanges {
    /// The configuration after the changes.
    ///
    /// # Errors
    /// When the result is not allowed, or has fewer partitions than before.
    pub fn apply(&self, before: &TopicConfig) -> Result<TopicConfig, TopicConfigError> {
        let partitions = self.partitions.unwrap_or(before.partitions);
        let shrunk = (partitions < before.partitions).then(|| format!("there are {} and they can only grow", before.partitions));
        require("partitions", partitions, shrunk, ErrorCode::InvalidPartitions)?;
        let after = TopicConfig {
            partitions,
            replication_factor: self.replication_factor.unwrap_or(before.replication_factor),
            durability: self.durability.unwrap_or(before.durability),
            retention_ms: self.retention_ms.apply(before.retention_ms),
            retention_bytes: self.retention_bytes.apply(before.retention_bytes),
            message_bytes_max: self.message_bytes_max.unwrap_or(before.message_bytes_max),
            compression: self.compression.unwrap_or(before.compression),
            timestamp_kind: self.timestamp_kind.unwrap_or(before.timestamp_kind),
            segment_bytes: self.segment_bytes.unwrap_or(before.segment_bytes),
            segment_ms: self.segment_ms.unwrap_or(before.segment_ms),
        };
        after.check()?;
        Ok(after)
    }
}

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

#[cfg(test)]
mod tests {
    use super::{Change, TopicConfig, TopicConfigChanges};
    use crate::error_code::ErrorCode;

    #[test]
    fn the_default_is_allowed_and_each_limit_names_its_field() {
        assert_eq!(TopicConfig::default().check(), Ok(()));
        type Spoil = fn(&mut TopicConfig);
        let cases: [(&str, ErrorCode, Spoil); 8] = [
            ("partitions", ErrorCode::InvalidPartitions, |config| config.partitions = 0),
            ("partitions", ErrorCode::InvalidPartitions, |config| config.partitions = 1001),
            ("replication_factor", ErrorCode::InvalidReplicationFactor, |config| config.replication_factor = 0),
            ("retention_ms", ErrorCode::InvalidConfig, |config| config.retention_ms = Some(-1)),
            ("message_bytes_max", ErrorCode::InvalidConfig, |config| config.message_bytes_max = 10),
            ("message_bytes_max", ErrorCode::InvalidConfig, |config| config.message_bytes_max = u32::MAX),
            ("segment_bytes", ErrorCode::InvalidConfig, |config| config.segment_bytes = 1),
            ("segment_ms", ErrorCode::InvalidConfig, |config| config.segment_ms = 0),
        ];
        for (field, code, spoil) in cases {
            let mut config = TopicConfig::default();
            spoil(&mut config);
            let error = config.check().expect_err(field);
            assert_eq!((error.field, error.code), (field, code), "{error}");
        }
    }

    #[test]
    fn partitions_only_grow_and_limits_can_be_unset() {
        let before = TopicConfig { partitions: 4, retention_bytes: Some(1), ..TopicConfig::default() };
        let changes = TopicConfigChanges { partitions: Some(8), retention_bytes: Change::Unset, ..Default::default() };
        let after = changes.apply(&before).expect("allowed");
        let fewer = TopicConfigChanges { partitions: Some(3), ..Default::default() };
        assert_eq!(fewer.apply(&before).expect_err("fewer").code, ErrorCode::InvalidPartitions);
        assert_eq!(after, TopicConfig { partitions: 8, retention_bytes: None, ..before });
    }
}
