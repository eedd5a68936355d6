//! Compacted topics: what producers may send, and that of each key the newest record stays, while the broker runs.

use crate::support::{HANG_GUARD, Raw, Site, stop};
use std::time::{Duration, Instant};
use wire::{
    AlignedVec, AlterTopicRequest, BatchBuilder, BatchView, BuilderOptions, Cleanup, Compression, ErrorCode, TimestampMs,
    TopicConfig, TopicConfigChanges, TopicId,
};

fn keyed(keys: &[Option<&str>], value_bytes: usize, compression: Compression) -> AlignedVec {
    let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
    let value = vec![b'v'; value_bytes];
    for key in keys {
        builder.push(TimestampMs(1), key.map(str::as_bytes), Some(&value), &[]).unwrap();
    }
    builder.build()
}

/// Offsets and keys of a whole partition.
fn read(client: &mut Raw, topic: TopicId) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let mut next = 0;
    loop {
        let (reply, bytes) = client.fetch(topic, 0, next);
        assert_eq!(reply.error, ErrorCode::None);
        if bytes.is_empty() {
            assert_eq!(next, reply.high_watermark.0);
            return found;
        }
        let mut aligned = AlignedVec::new();
        aligned.extend_from_slice(&bytes);
        let mut at = 0;
        while at < aligned.len() {
            let view = BatchView::new(&aligned[at..]).unwrap();
            let key = |key: Option<&[u8]>| String::from_utf8(key.unwrap().to_vec()).unwrap();
            found.extend(view.records().map(|record| (record.offset.0, key(record.key))));
            next = view.header().next_offset().0;
            at += view.header().total_length();
        }
    }
}

#[test]
fn records_of_a_compacted_topic_have_keys() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("profiles", TopicConfig { cleanup: Cleanup::Compact, ..TopicConfig::default() });
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let reply = client.try_produce(topic, 0, keyed(&[Some("a"), None], 500, compression));
        assert_eq!(reply.error, ErrorCode::InvalidBatch);
        assert!(reply.message.unwrap().contains("record 1 of the batch has no key"));
        client.produce(topic, 0, keyed(&[Some("a"), Some("")], 500, compression));
    }
    let mut alter = |cleanup| {
        let changes = TopicConfigChanges { cleanup: Some(cleanup), ..TopicConfigChanges::default() };
        let reply = client.ask(&AlterTopicRequest { name: "profiles".to_owned(), changes, validate_only: false });
        assert_eq!(reply.error, ErrorCode::None);
        client.try_produce(topic, 0, keyed(&[None], 1, Compression::None)).error
    };
    // In effect at once.
    assert_eq!(alter(Cleanup::Delete), ErrorCode::None);
    assert_eq!(alter(Cleanup::CompactAndDelete), ErrorCode::InvalidBatch);
    stop(broker);
}

#[test]
fn of_each_key_the_newest_record_stays_once_a_topic_is_compacted() {
    let site = Site::new();
    let mut config = site.config(1);
    config.log.compaction_interval = "100ms".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("profiles", TopicConfig { segment_ms: 1000, retention_ms: None, ..TopicConfig::default() });
    let large = |key| keyed(&[Some(key)], 200_000, Compression::None);
    for key in ["a", "b", "a", "a", "c"] {
        client.produce(topic, 0, large(key));
    }
    // The segment is old enough to be closed by the next append.
    std::thread::sleep(Duration::from_millis(1100));
    client.produce(topic, 0, large("b"));
    let all = [(0, "a"), (1, "b"), (2, "a"), (3, "a"), (4, "c"), (5, "b")].map(|(offset, key)| (offset, key.to_owned()));
    assert_eq!(read(&mut client, topic), all);
    stop(broker);

    // From the disk, not from memory, where batches stay as they were appended.
    let mut config = site.config(1);
    config.log.compaction_interval = "100ms".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    assert_eq!(read(&mut client, topic), all);
    let changes = TopicConfigChanges { cleanup: Some(Cleanup::Compact), ..TopicConfigChanges::default() };
    let reply = client.ask(&AlterTopicRequest { name: "profiles".to_owned(), changes, validate_only: false });
    assert_eq!(reply.error, ErrorCode::None);
    let started = Instant::now();
    let expected = [(1, "b"), (3, "a"), (4, "c"), (5, "b")].map(|(offset, key)| (offset, key.to_owned()));
    while read(&mut client, topic) != expected {
        assert!(started.elapsed() < HANG_GUARD, "{:?}", read(&mut client, topic));
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(broker);
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    assert_eq!(read(&mut client, topic), expected);
    stop(broker);
}
