//! A topic's settings as flags, for `create` and `alter`.

use std::str::FromStr;

use broker::config::{ByteSize, Span};
use corelane_client::{Change, Cleanup, Compression, Durability, TimestampKind, TopicConfig, TopicConfigChanges};

/// Every setting; what is not given keeps its default, or what it was.
#[derive(Debug, clap::Args)]
pub(crate) struct TopicOptions {
    /// Number of partitions, 1 to 1000; can grow later, not shrink
    #[arg(long, short = 'p', value_name = "N")]
    partitions: Option<u32>,
    /// Copies of each partition, on as many brokers
    #[arg(long, value_name = "N")]
    replication_factor: Option<u16>,
    /// What an acknowledgement stands for: stable (on storage) or relaxed (in memory, soon on storage)
    #[arg(long, value_name = "KIND", value_parser = durability)]
    durability: Option<Durability>,
    /// Age at which records may be deleted, such as 7d; forever keeps them
    #[arg(long, value_name = "TIME")]
    retention: Option<Limit<Span>>,
    /// Size of a partition above which its oldest records may be deleted, such as 100GiB; forever keeps them
    #[arg(long, value_name = "SIZE")]
    retention_bytes: Option<Limit<ByteSize>>,
    /// Largest key + value + headers of one record, such as 10MiB
    #[arg(long, value_name = "SIZE")]
    message_bytes_max: Option<ByteSize>,
    /// What producers should compress with: none, lz4 or zstd
    #[arg(long, value_name = "KIND", value_parser = compression)]
    compression: Option<Compression>,
    /// Who sets the timestamps: create (the producer) or append (the broker)
    #[arg(long, value_name = "KIND", value_parser = timestamp_kind)]
    timestamps: Option<TimestampKind>,
    /// Size at which a segment file is closed
    #[arg(long, value_name = "SIZE")]
    segment_bytes: Option<ByteSize>,
    /// Age at which a segment file is closed
    #[arg(long, value_name = "TIME")]
    segment_age: Option<Span>,
    /// What becomes of old records: delete (by retention), compact (the latest of each key stays) or compact,delete (both)
    #[arg(long, value_name = "KIND", value_parser = cleanup)]
    cleanup: Option<Cleanup>,
    /// How long a compacted topic keeps a record without a value, which deletes its key
    #[arg(long, value_name = "TIME")]
    tombstone_retention: Option<Span>,
    /// Age below which records are not compacted
    #[arg(long, value_name = "TIME")]
    compaction_lag: Option<Span>,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug)]
enum Limit<T> {
    Forever,
    At(T),
}

impl<T: FromStr> FromStr for Limit<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            "forever" | "unlimited" => Ok(Limit::Forever),
            _ => text.parse().map(Limit::At),
        }
    }
}

impl TopicOptions {
    /// The configuration of a new topic.
    pub(crate) fn config(&self) -> Result<TopicConfig, String> {
        self.changes().apply(&TopicConfig { partitions: 1, ..TopicConfig::default() }).map_err(|error| error.to_string())
    }

    /// The changes to a topic.
    pub(crate) fn changes(&self) -> TopicConfigChanges {
        TopicConfigChanges {
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            durability: self.durability,
            retention_ms: change(self.retention, |span| i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX)),
            retention_bytes: change(self.retention_bytes, |size| size.0),
            message_bytes_max: self.message_bytes_max.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX)),
            compression: self.compression,
            timestamp_kind: self.timestamps,
            segment_bytes: self.segment_bytes.map(|size| size.0),
            segment_ms: self.segment_age.map(millis),
            cleanup: self.cleanup,
            tombstone_retention_ms: self.tombstone_retention.map(millis),
            compaction_lag_ms: self.compaction_lag.map(millis),
        }
    }
}

fn millis(span: Span) -> u64 {
    u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)
}

fn change<T: Copy, U>(limit: Option<Limit<T>>, value: impl Fn(T) -> U) -> Change<U> {
    match limit {
        None => Change::Keep,
        Some(Limit::Forever) => Change::Unset,
        Some(Limit::At(limit)) => Change::Set(value(limit)),
    }
}

/// `none`, `lz4` or `zstd`.
pub(crate) fn compression(text: &str) -> Result<Compression, String> {
    Compression::from_name(text).ok_or_else(|| "none, lz4 and zstd are known".to_owned())
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "stable" => Ok(Durability::Stable),
        "relaxed" => Ok(Durability::Relaxed),
        _ => Err("stable and relaxed are known".to_owned()),
    }
}

fn timestamp_kind(text: &str) -> Result<TimestampKind, String> {
    match text {
        "create" => Ok(TimestampKind::Create),
        "append" => Ok(TimestampKind::Append),
        _ => Err("create and append are known".to_owned()),
    }
}

fn cleanup(text: &str) -> Result<Cleanup, String> {
    let kinds = [Cleanup::Delete, Cleanup::Compact, Cleanup::CompactAndDelete];
    kinds
        .into_iter()
        .find(|&kind| cleanup_text(kind) == text)
        .ok_or_else(|| "delete, compact and compact,delete are known".to_owned())
}

fn cleanup_text(cleanup: Cleanup) -> &'static str {
    match cleanup {
        Cleanup::Delete => "delete",
        Cleanup::Compact => "compact",
        Cleanup::CompactAndDelete => "compact,delete",
    }
}

/// The settings by name, as text a person reads and `alter` takes.
pub(crate) fn setting_texts(config: &TopicConfig) -> Vec<(&'static str, String)> {
    let or_forever = |text: Option<String>| text.unwrap_or_else(|| "forever".to_owned());
    let span = |ms: u64| Span(std::time::Duration::from_millis(ms)).to_string();
    let durability = match config.durability {
        Durability::Stable => "stable",
        Durability::Relaxed => "relaxed",
    };
    let timestamps = match config.timestamp_kind {
        TimestampKind::Create => "create",
        TimestampKind::Append => "append",
    };
    vec![
        ("partitions", config.partitions.to_string()),
        ("replication-factor", config.replication_factor.to_string()),
        ("durability", durability.to_owned()),
        ("retention", or_forever(config.retention_ms.map(|ms| span(ms.unsigned_abs())))),
        ("retention-bytes", or_forever(config.retention_bytes.map(|bytes| ByteSize(bytes).to_string()))),
        ("message-bytes-max", ByteSize(u64::from(config.message_bytes_max)).to_string()),
        ("compression", config.compression.to_string()),
        ("timestamps", timestamps.to_owned()),
        ("segment-bytes", ByteSize(config.segment_bytes).to_string()),
        ("segment-age", span(config.segment_ms)),
        ("cleanup", cleanup_text(config.cleanup).to_owned()),
        ("tombstone-retention", span(config.tombstone_retention_ms)),
        ("compaction-lag", span(config.compaction_lag_ms)),
    ]
}
