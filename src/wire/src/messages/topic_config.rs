//! What a topic can be told, and how that is changed.

use rkyv::{Archive, Deserialize, Serialize};

use crate::batch::TimestampKind;
use crate::compression::Compression;
use crate::error_code::ErrorCode;
use crate::limits::{
    COMPACTION_MS_MAX, MESSAGE_BYTES_MAX_CEILING, MESSAGE_BYTES_MAX_DEFAULT, MESSAGE_BYTES_MAX_FLOOR, PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_MAX, RETENTION_MS_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SEGMENT_MS_DEFAULT, SEGMENT_MS_MIN, TOMBSTONE_RETENTION_MS_DEFAULT,
};
use crate::messages::field::{Change, FieldError, require, within};

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

/// What becomes of records that are old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum Cleanup {
    /// They go when retention says so.
    #[default]
    Delete = 0,
    /// The latest record of each key stays; retention does not apply.
    Compact = 1,
    /// The latest record of each key stays until retention says so.
    CompactAndDelete = 2,
}

impl Cleanup {
    /// Whether superseded records of a key go.
    pub const fn compacts(self) -> bool {
        matches!(self, Cleanup::Compact | Cleanup::CompactAndDelete)
    }

    /// Whether retention applies.
    pub const fn deletes(self) -> bool {
        matches!(self, Cleanup::Delete | Cleanup::CompactAndDelete)
    }
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
    /// What becomes of old records.
    pub cleanup: Cleanup,
    /// How long a compacted topic keeps a record that deletes its key (one without a value): a consumer that reads from the
    /// beginning and takes no longer than this sees every deletion.
    pub tombstone_retention_ms: u64,
    /// Age below which a record is not compacted.
    pub compaction_lag_ms: u64,
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
            cleanup: Cleanup::Delete,
            tombstone_retention_ms: TOMBSTONE_RETENTION_MS_DEFAULT,
            compaction_lag_ms: 0,
        }
    }
}

impl TopicConfig {
    /// Checks every value against its limits.
    ///
    /// # Errors
    /// The first value that is outside them.
    pub fn check(&self) -> Result<(), FieldError> {
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
        require("segment_ms", self.segment_ms, age, ErrorCode::InvalidConfig)?;
        let tombstones = within(self.tombstone_retention_ms, 0, COMPACTION_MS_MAX);
        require("tombstone_retention_ms", self.tombstone_retention_ms, tombstones, ErrorCode::InvalidConfig)?;
        let lag = within(self.compaction_lag_ms, 0, COMPACTION_MS_MAX);
        require("compaction_lag_ms", self.compaction_lag_ms, lag, ErrorCode::InvalidConfig)
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
    /// See [`TopicConfig`].
    pub cleanup: Option<Cleanup>,
    /// See [`TopicConfig`].
    pub tombstone_retention_ms: Option<u64>,
    /// See [`TopicConfig`].
    pub compaction_lag_ms: Option<u64>,
}

impl TopicConfigChanges {
    /// The configuration after the changes.
    ///
    /// # Errors
    /// When the result is not allowed, or has fewer partitions than before.
    pub fn apply(&self, before: &TopicConfig) -> Result<TopicConfig, FieldError> {
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
            cleanup: self.cleanup.unwrap_or(before.cleanup),
            tombstone_retention_ms: self.tombstone_retention_ms.unwrap_or(before.tombstone_retention_ms),
            compaction_lag_ms: self.compaction_lag_ms.unwrap_or(before.compaction_lag_ms),
        };
        after.check()?;
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cleanup, TopicConfig, TopicConfigChanges};
    use crate::error_code::ErrorCode;
    use crate::messages::field::Change;

    #[test]
    fn the_default_is_allowed_and_each_limit_names_its_field() {
        assert_eq!(TopicConfig::default().check(), Ok(()));
        type Spoil = fn(&mut TopicConfig);
        let cases: [(&str, ErrorCode, Spoil); 10] = [
            ("partitions", ErrorCode::InvalidPartitions, |config| config.partitions = 0),
            ("partitions", ErrorCode::InvalidPartitions, |config| config.partitions = 1001),
            ("replication_factor", ErrorCode::InvalidReplicationFactor, |config| config.replication_factor = 0),
            ("retention_ms", ErrorCode::InvalidConfig, |config| config.retention_ms = Some(-1)),
            ("message_bytes_max", ErrorCode::InvalidConfig, |config| config.message_bytes_max = 10),
            ("message_bytes_max", ErrorCode::InvalidConfig, |config| config.message_bytes_max = u32::MAX),
            ("segment_bytes", ErrorCode::InvalidConfig, |config| config.segment_bytes = 1),
            ("segment_ms", ErrorCode::InvalidConfig, |config| config.segment_ms = 0),
            ("tombstone_retention_ms", ErrorCode::InvalidConfig, |config| config.tombstone_retention_ms = u64::MAX),
            ("compaction_lag_ms", ErrorCode::InvalidConfig, |config| config.compaction_lag_ms = u64::MAX),
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

    #[test]
    fn a_topic_can_be_changed_to_compaction_and_back() {
        let before = TopicConfig::default();
        let compacted =
            TopicConfigChanges { cleanup: Some(Cleanup::Compact), compaction_lag_ms: Some(60_000), ..Default::default() };
        let after = compacted.apply(&before).expect("allowed");
        assert_eq!((after.cleanup, after.compaction_lag_ms), (Cleanup::Compact, 60_000));
        assert_eq!(after.tombstone_retention_ms, before.tombstone_retention_ms);
        let back = TopicConfigChanges { cleanup: Some(Cleanup::Delete), compaction_lag_ms: Some(0), ..Default::default() };
        assert_eq!(back.apply(&after), Ok(before));
    }
}
