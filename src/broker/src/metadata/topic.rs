//! A topic as the metadata holds it, and as it is stored.

use serde::{Deserialize, Serialize};
use wire::{Cleanup, Compression, Durability, TimestampKind, TopicConfig, TopicId};

/// A topic. Never changed in place: an alteration is a new value under the same id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) name: String,
    pub(crate) config: TopicConfig,
    /// When it was made, in milliseconds since 1970.
    pub(crate) created_ms: i64,
    /// The metadata version that last changed it.
    pub(crate) version: u64,
}

/// The stored form. Fields may be added with a default, never removed or given another meaning.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredTopic {
    id: String,
    name: String,
    partitions: u32,
    replication_factor: u16,
    relaxed: bool,
    retention_ms: Option<i64>,
    retention_bytes: Option<u64>,
    message_bytes_max: u32,
    compression: StoredCompression,
    append_time: bool,
    segment_bytes: u64,
    segment_ms: u64,
    created_ms: i64,
    version: u64,
    cleanup: StoredCleanup,
    tombstone_retention_ms: u64,
    compaction_lag_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredCleanup {
    Delete,
    Compact,
    CompactAndDelete,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredCompression {
    None,
    Lz4,
    Zstd,
}

impl From<&Topic> for StoredTopic {
    fn from(topic: &Topic) -> Self {
        let config = &topic.config;
        StoredTopic {
            id: topic.id.to_hex(),
            name: topic.name.clone(),
            partitions: config.partitions,
            replication_factor: config.replication_factor,
            relaxed: config.durability == Durability::Relaxed,
            retention_ms: config.retention_ms,
            retention_bytes: config.retention_bytes,
            message_bytes_max: config.message_bytes_max,
            compression: match config.compression {
                Compression::None => StoredCompression::None,
                Compression::Lz4 => StoredCompression::Lz4,
                Compression::Zstd => StoredCompression::Zstd,
            },
            append_time: config.timestamp_kind == TimestampKind::Append,
            segment_bytes: config.segment_bytes,
            segment_ms: config.segment_ms,
            created_ms: topic.created_ms,
            version: topic.version,
            cleanup: match config.cleanup {
                Cleanup::Delete => StoredCleanup::Delete,
                Cleanup::Compact => StoredCleanup::Compact,
                Cleanup::CompactAndDelete => StoredCleanup::CompactAndDelete,
            },
            tombstone_retention_ms: config.tombstone_retention_ms,
            compaction_lag_ms: config.compaction_lag_ms,
        }
    }
}

impl StoredTopic {
    /// `None` when the id is not an id: the checksum held, so a later version wrote it.
    pub(super) fn into_topic(self) -> Option<Topic> {
        let config = TopicConfig {
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            durability: if self.relaxed { Durability::Relaxed } else { Durability::Stable },
            retention_ms: self.retention_ms,
            retention_bytes: self.retention_bytes,
            message_bytes_max: self.message_bytes_max,
            compression: match self.compression {
                StoredCompression::None => Compression::None,
                StoredCompression::Lz4 => Compression::Lz4,
                StoredCompression::Zstd => Compression::Zstd,
            },
            timestamp_kind: if self.append_time { TimestampKind::Append } else { TimestampKind::Create },
            segment_bytes: self.segment_bytes,
            segment_ms: self.segment_ms,
            cleanup: match self.cleanup {
                StoredCleanup::Delete => Cleanup::Delete,
                StoredCleanup::Compact => Cleanup::Compact,
                StoredCleanup::CompactAndDelete => Cleanup::CompactAndDelete,
            },
            tombstone_retention_ms: self.tombstone_retention_ms,
            compaction_lag_ms: self.compaction_lag_ms,
        };
        Some(Topic {
            id: TopicId::from_hex(&self.id)?,
            name: self.name,
            config,
            created_ms: self.created_ms,
            version: self.version,
        })
    }
}
