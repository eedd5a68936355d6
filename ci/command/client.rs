//! The client crate against a real broker.

use std::collections::BTreeMap;
use std::time::Duration;

use corelane_client::{
    AckLevel, Client, Compression, Consumer, ConsumerOptions, ErrorCode, ErrorKind, Offset, OffsetAt, ProducerOptions, Record,
    StartAt, TimestampMs, TopicConfig, TopicConfigChanges,
};

use crate::broker::{Broker, guarded};

const PARTITIONS: u32 = 5;

async fn with_topic(broker: &Broker, partitions: u32) -> Client {
    let client = broker.client().await;
    let config = TopicConfig { partitions, ..TopicConfig::default() };
    client.admin().create_topic("t", config).await.expect("a new topic");
    client
}

/// The next `count` values by partition.
async fn take(consumer: &Consumer, count: usize) -> BTreeMap<u32, Vec<String>> {
    let mut values: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    while values.values().map(Vec::len).sum::<usize>() < count {
        let batch = consumer.next_batch().await.expect("a batch");
        let texts = batch.records().map(|record| String::from_utf8_lossy(record.value.expect("a value")).into_owned());
        values.entry(batch.partition()).or_default().extend(texts);
    }
    values
}

fn texts(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// A record each second from 0 on, each delivered before the next.
async fn fill(client: &Client, partition: u32, numbers: std::ops::Range<u32>) {
    let producer = client.producer(ProducerOptions::default());
    for number in numbers {
        let value = number.to_string();
        let record = Record::to("t").partition(partition).value(&value).timestamp(TimestampMs(i64::from(number) * 1000));
        producer.send(record).await.expect("accepted").await.expect("delivered");
    }
}

#[test]
fn records_of_a_key_keep_their_partition_and_order() {
    guarded(async {
        let broker = Broker::start();
        let client = with_topic(&broker, PARTITIONS).await;
        let producer = client.producer(ProducerOptions::default());
        let mut deliveries = Vec::new();
        for number in 0..3000 {
            let (key, value) = (format!("key {}", number % 30), number.to_string());
            deliveries.push((number % 30, producer.send(Record::to("t").key(&key).value(&value)).await.expect("accepted")));
        }
        let mut partition_of: BTreeMap<u32, u32> = BTreeMap::new();
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for (key, delivery) in deliveries {
            let delivered = delivery.await.expect("delivered");
            assert_eq!(delivered.level, AckLevel::Stable);
            assert_eq!(*partition_of.entry(key).or_insert(delivered.partition), delivered.partition);
            let before = last.insert(delivered.partition, delivered.offset.0);
            assert_eq!(before.map_or(0, |before| before + 1), delivered.offset.0, "offsets follow the order of sending");
        }
        assert!(last.len() > 1, "keys spread over partitions");

        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.expect("assigned");
        for (partition, values) in take(&consumer, 3000).await {
            let numbers: Vec<u32> = values.iter().map(|value| value.parse().expect("a number")).collect();
            assert!(numbers.is_sorted(), "order within partition {partition}");
            assert!(numbers.iter().all(|number| partition_of[&(number % 30)] == partition));
            assert_eq!(consumer.position("t", partition), Some(Offset(numbers.len() as u64)));
        }
    });
}

#[test]
fn a_consumer_begins_and_goes_where_it_is_told() {
    guarded(async {
        let broker = Broker::start();
        let client = with_topic(&broker, 2).await;
        fill(&client, 0, 0..20).await;
        let starts = [
            (StartAt::Earliest, 0),
            (StartAt::Offset(Offset(7)), 7),
            (StartAt::Timestamp(TimestampMs(11_500)), 12),
            (StartAt::Timestamp(TimestampMs(19_000)), 19),
        ];
        let consumer = client.consumer(ConsumerOptions::default());
        for (start, first) in starts {
            consumer.assign("t", [0], start).await.expect("assigned");
            assert_eq!(take(&consumer, (20 - first) as usize).await[&0], texts(first..20), "{start:?}");
        }
        consumer.seek("t", 0, StartAt::Offset(Offset(18))).expect("assigned");
        assert_eq!(take(&consumer, 2).await[&0], texts(18..20));
        // Beyond the last timestamp: at the end, where the next record comes.
        consumer.seek("t", 0, StartAt::Timestamp(TimestampMs(1_000_000))).expect("assigned");
        while consumer.position("t", 0).is_none() {
            tokio::task::yield_now().await;
        }
        fill(&client, 0, 20..21).await;
        assert_eq!(take(&consumer, 1).await[&0], texts(20..21));

        consumer.seek("t", 0, StartAt::Offset(Offset(500))).expect("assigned");
        let error = consumer.next_batch().await.err().expect("it is behind the end");
        assert_eq!((error.code(), error.place()), (Some(ErrorCode::OffsetOutOfRange), "t/0 at offset 500"));
        let error = consumer.assign("t", [9], StartAt::Earliest).await.expect_err("there are two");
        assert_eq!(error.kind(), ErrorKind::NoSuchPartition);
    });
}

#[test]
fn reading_to_a_known_end_ends() {
    guarded(async {
        let broker = Broker::start();
        let client = with_topic(&broker, 3).await;
        fill(&client, 0, 0..10).await;
        fill(&client, 2, 0..1).await;
        let ends = client.admin().list_offsets("t", 0..3, OffsetAt::Latest).await.expect("offsets");
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.expect("assigned");
        let mut records = 0;
        while ends.iter().any(|end| consumer.position("t", end.partition).is_none_or(|position| position < end.offset)) {
            // The wait is no expectation: without a batch, positions are looked at again.
            if let Some(batch) = consumer.poll(Duration::from_millis(10)).await.expect("no failure") {
                records += batch.records().count();
            }
        }
        assert_eq!(records, 11);
    });
}

#[test]
fn topics_are_administered() {
    guarded(async {
        let broker = Broker::start();
        let client = broker.client().await;
        let admin = client.admin();
        let config = TopicConfig { partitions: 3, ..TopicConfig::default() };
        admin.validate_topic("t", config.clone()).await.expect("it can be made");
        let id = admin.create_topic("t", config).await.expect("a new topic");
        let error = admin.create_topic("t", TopicConfig::default()).await.expect_err("it exists");
        assert_eq!((error.code(), error.retryable()), (Some(ErrorCode::TopicExists), false));
        let error = admin.create_topic("not allowed", TopicConfig::default()).await.expect_err("a blank");
        assert_eq!(error.code(), Some(ErrorCode::InvalidTopicName));

        let changes = TopicConfigChanges { partitions: Some(4), compression: Some(Compression::Zstd), ..Default::default() };
        assert_eq!(admin.alter_topic("t", changes).await.expect("altered").partitions, 4);
        let fewer = TopicConfigChanges { partitions: Some(2), ..Default::default() };
        let error = admin.alter_topic("t", fewer).await.expect_err("partitions stay");
        assert_eq!(error.code(), Some(ErrorCode::InvalidPartitions));

        // A topic that grew is seen by a producer that knew it before.
        fill(&client, 2, 0..3).await;
        let described = admin.describe_topic("t").await.expect("described");
        assert_eq!((described.id, described.config.compression, described.partitions.len()), (id, Compression::Zstd, 4));
        assert_eq!(described.partitions[2].high_watermark, Offset(3));
        let listed = admin.list_topics().await.expect("listed");
        assert_eq!(listed.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["t"]);
        assert!(!admin.describe_config("listen").await.expect("described").is_empty());

        admin.delete_topic("t").await.expect("deleted");
        for error in [
            admin.delete_topic("t").await.expect_err("it is gone"),
            admin.describe_topic("t").await.map(drop).expect_err("it is gone"),
            admin.list_offsets("t", [0], OffsetAt::Earliest).await.map(drop).expect_err("it is gone"),
        ] {
            assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition), "{error}");
        }
        assert!(admin.list_topics().await.expect("listed").is_empty());
    });
}

#[test]
fn a_producer_notices_that_its_topic_was_deleted_and_made_again() {
    guarded(async {
        let broker = Broker::start();
        let client = with_topic(&broker, 1).await;
        let producer = client.producer(ProducerOptions::default());
        producer.send(Record::to("t").value("old")).await.expect("accepted").await.expect("delivered");
        let other = broker.client().await;
        other.admin().delete_topic("t").await.expect("deleted");
        let error = producer.send(Record::to("t").value("x")).await.expect("accepted").await.expect_err("the topic is gone");
        assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition), "{error}");
        other.admin().create_topic("t", TopicConfig::default()).await.expect("a new topic");
        let delivered = producer.send(Record::to("t").value("new")).await.expect("accepted").await.expect("delivered");
        assert_eq!(delivered.offset, Offset(0));
    });
}

#[test]
fn records_are_borrowed_from_their_batch_whatever_its_compression() {
    guarded(async {
        let broker = Broker::start();
        let client = with_topic(&broker, 1).await;
        let value = "compressible ".repeat(1000);
        let mut begin = 0;
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let options = ProducerOptions {
                compression: Some(compression),
                linger: Duration::from_secs(3600),
                ..ProducerOptions::default()
            };
            let producer = client.producer(options);
            for _ in 0..10 {
                drop(producer.send(Record::to("t").key("k").value(&value).header("h", "x")).await.expect("accepted"));
            }
            producer.flush().await.expect("flushed");
            let consumer = client.consumer(ConsumerOptions::default());
            consumer.assign("t", [0], StartAt::Offset(Offset(begin))).await.expect("assigned");
            let batch = consumer.next_batch().await.expect("a batch");
            let header = batch.header();
            assert_eq!((header.compression, header.record_count), (compression, 10));
            assert_eq!(header.payload_length_bytes < header.uncompressed_length_bytes, compression != Compression::None);
            // A clone shares the buffer: its records are at the same addresses.
            let clone = batch.clone();
            for (record, again) in batch.records().zip(clone.records()) {
                assert_eq!((record.key, record.value), (Some(&b"k"[..]), Some(value.as_bytes())));
                assert_eq!(
                    record.headers.iter().map(|header| (header.name, header.value)).collect::<Vec<_>>(),
                    [("h", Some(&b"x"[..]))]
                );
                assert_eq!(record.value.map(<[u8]>::as_ptr), again.value.map(<[u8]>::as_ptr));
            }
            begin += 10;
        }
    });
}
