//! What a topic does not keep goes, soon after it is told so and without a restart.

use crate::{
    http::metrics_when,
    support::{Raw, Site, batch, noise, records, stop},
};
use wire::{
    AlterTopicRequest, Change, ErrorCode, ListOffsetsPartition, ListOffsetsRequest, Offset, OffsetAt, PartitionIndex,
    TimestampMs, TopicConfig, TopicConfigChanges, TopicId,
};

fn alter(client: &mut Raw, name: &str, changes: TopicConfigChanges) {
    let reply = client.ask(&AlterTopicRequest { name: name.to_owned(), changes, validate_only: false });
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
}

fn offset(client: &mut Raw, topic: TopicId, at: OffsetAt) -> (Offset, TimestampMs) {
    let partitions = vec![ListOffsetsPartition { topic, partition: PartitionIndex(0), at }];
    let reply = client.ask(&ListOffsetsRequest { partitions });
    assert_eq!(reply.partitions[0].error, ErrorCode::None);
    (reply.partitions[0].offset, reply.partitions[0].timestamp_ms)
}

#[test]
fn an_altered_age_takes_what_no_segment_holds_yet() {
    let site = Site::new();
    let broker = site.start(2);
    let http = broker.http_addr().unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("aging", TopicConfig { retention_ms: None, ..TopicConfig::default() });
    client.produce(topic, 0, batch(&["a", "b", "c"]));
    assert_eq!(offset(&mut client, topic, OffsetAt::Earliest).0, Offset(0));
    alter(&mut client, "aging", TopicConfigChanges { retention_ms: Change::Set(1), ..TopicConfigChanges::default() });
    let log_start = r#"corelane_partition_log_start{topic="aging",partition="0"}"#;
    let found = metrics_when(http, |found| found.get(log_start) == Some(&3.0));
    assert!(found[r#"corelane_topic_expired_segments_total{topic="aging"}"#] >= 1.0);
    assert!(found[r#"corelane_topic_expired_bytes_total{topic="aging"}"#] >= 4096.0);
    // Who reads what went is told where the log starts; the log goes on.
    let (reply, bytes) = client.fetch(topic, 0, 1);
    assert_eq!((reply.error, reply.log_start, bytes.len()), (ErrorCode::OffsetOutOfRange, Offset(3), 0));
    assert_eq!(offset(&mut client, topic, OffsetAt::Timestamp(TimestampMs(0))), (Offset(3), TimestampMs(-1)));
    alter(&mut client, "aging", TopicConfigChanges { retention_ms: Change::Unset, ..TopicConfigChanges::default() });
    assert_eq!(client.produce(topic, 0, batch(&["d"])).base_offset, Offset(3));
    stop(broker);

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    assert_eq!(offset(&mut client, topic, OffsetAt::Earliest).0, Offset(3));
    assert_eq!(records(&client.fetch(topic, 0, 3).1), [(3, b"d".to_vec())]);
    stop(broker);
}

#[test]
fn an_altered_size_takes_the_oldest_segments() {
    let site = Site::new();
    let broker = site.start(1);
    let http = broker.http_addr().unwrap();
    let mut client = Raw::connect(broker.addr());
    // The timestamps of the batches are old.
    let config = TopicConfig { retention_ms: None, retention_bytes: Some(16 << 20), ..TopicConfig::default() };
    let topic = client.create("growing", config);
    // Segments of 4 MiB, and 12 MiB of them.
    for number in 0..12 {
        client.produce(topic, 0, batch(&[noise(1 << 20, number)]));
    }
    assert_eq!(offset(&mut client, topic, OffsetAt::Earliest).0, Offset(0));
    alter(&mut client, "growing", TopicConfigChanges { retention_bytes: Change::Set(5 << 20), ..TopicConfigChanges::default() });
    let log_start = r#"corelane_partition_log_start{topic="growing",partition="0"}"#;
    let found = metrics_when(http, |found| found.get(log_start).is_some_and(|start| *start > 0.0));
    let start = found[log_start];
    assert!((3.0..9.0).contains(&start), "{start}");
    assert_eq!(client.fetch(topic, 0, 0).0.error, ErrorCode::OffsetOutOfRange);
    // A closed segment is news enough: the limit holds without another change.
    for number in 12..24 {
        client.produce(topic, 0, batch(&[noise(1 << 20, number)]));
    }
    metrics_when(http, |found| found[log_start] >= 12.0);
    stop(broker);
}

#[test]
fn sealed_segments_are_checked_at_the_pace_that_is_configured() {
    let site = Site::new();
    let mut config = site.config(1);
    config.log.scrub_interval = "100ms".parse().unwrap();
    config.log.scrub_bytes_per_second = "1GiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let config = TopicConfig { retention_ms: None, retention_bytes: Some(16 << 20), ..TopicConfig::default() };
    let topic = client.create("checked", config);
    // Segments of 4 MiB.
    for number in 0..9 {
        client.produce(topic, 0, batch(&[noise(1 << 20, number)]));
    }
    let of_shard = |name: &str| format!("corelane_scrub{name}_total{{shard=\"0\"}}");
    let found = metrics_when(broker.http_addr().unwrap(), |found| {
        found[&of_shard("_passes")] >= 2.0 && found[&of_shard("bed_bytes")] >= f64::from(4 << 20)
    });
    assert_eq!(found[&of_shard("_damaged_ranges")], 0.0);
    stop(broker);
}
