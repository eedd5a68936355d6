//! Consuming: positions, bounds, damage.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use corelane_client::*;
use futures_util::{FutureExt, StreamExt, TryStreamExt};

use crate::mock::Broker;
use crate::{connect, options, run};

async fn fill(client: &Client, topic: &str, partition: u32, values: std::ops::Range<u32>) {
    let producer = client.producer(ProducerOptions::default());
    for value in values {
        let text = value.to_string();
        let record = Record::to(topic).partition(partition).value(&text).timestamp(TimestampMs(i64::from(value) * 1000));
        // Each awaited: a batch each.
        producer.send(record).await.unwrap().await.unwrap();
    }
}

async fn take(consumer: &Consumer, count: usize) -> Vec<String> {
    let mut values = Vec::new();
    while values.len() < count {
        let batch = consumer.next_batch().await.unwrap();
        for record in batch.records() {
            values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
    }
    values
}

fn texts(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|value| value.to_string()).collect()
}

#[test]
fn every_start_begins_where_it_says() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        fill(&client, "t", 0, 0..20).await;
        let cases = [
            (StartAt::Earliest, 0),
            (StartAt::Offset(Offset(7)), 7),
            (StartAt::Timestamp(TimestampMs(11_500)), 12),
            (StartAt::Timestamp(TimestampMs(0)), 0),
        ];
        for (start, first) in cases {
            let consumer = client.consumer(ConsumerOptions::default());
            consumer.assign("t", [0], start).await.unwrap();
            let count = (20 - first) as usize;
            assert_eq!(take(&consumer, count).await, texts(first..20), "{start:?}");
            assert_eq!(consumer.position("t", 0), Some(Offset(20)));
            assert_eq!(consumer.high_watermark("t", 0), Some(Offset(20)));
        }
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign("t", [0], StartAt::Latest).await.unwrap();
        while consumer.position("t", 0).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fill(&client, "t", 0, 20..23).await;
        assert_eq!(take(&consumer, 3).await, texts(20..23));
    });
}

#[test]
fn a_position_within_a_batch_skips_what_is_before_it() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        let options = ProducerOptions { linger: Duration::from_secs(3600), ..ProducerOptions::default() };
        let producer = client.producer(options);
        for value in 0..10 {
            drop(producer.send(Record::to("t").value(&value.to_string())).await.unwrap());
        }
        producer.flush().await.unwrap();
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign("t", [0], StartAt::Offset(Offset(4))).await.unwrap();
        let batch = consumer.next_batch().await.unwrap();
        let offsets: Vec<u64> = batch.records().map(|record| record.offset.0).collect();
        assert_eq!(offsets, (4..10).collect::<Vec<_>>());
    });
}

#[test]
fn all_partitions_are_read_each_in_order_with_a_small_buffer() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 5);
        let client = connect(&broker).await;
        for partition in 0..5 {
            fill(&client, "t", partition, partition * 100..partition * 100 + 30).await;
        }
        let options =
            ConsumerOptions { prefetch_bytes_max: 500, max_bytes: 1000, partition_max_bytes: 300, ..ConsumerOptions::default() };
        let consumer = client.consumer(options);
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        let mut read: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        while read.values().map(Vec::len).sum::<usize>() < 150 {
            let batch = consumer.next_batch().await.unwrap();
            for record in batch.records() {
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                read.entry(batch.partition()).or_default().push(value);
            }
        }
        for partition in 0..5 {
            assert_eq!(read[&partition], texts(partition * 100..partition * 100 + 30));
        }
    });
}

#[test]
fn nothing_is_fetched_beyond_the_prefetch_bound() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        fill(&client, "t", 0, 0..50).await;
        let options = ConsumerOptions {
            prefetch_bytes_max: 1,
            partition_max_bytes: 1,
            max_wait: Duration::from_secs(3600),
            ..ConsumerOptions::default()
        };
        let consumer = client.consumer(options);
        consumer.assign("t", [0], StartAt::Earliest).await.unwrap();
        for taken in 1..=50 {
            take(&consumer, 1).await;
            let fetches = broker.state().fetches;
            assert!(fetches <= taken + 1, "{fetches} fetches for {taken} batches taken");
        }
    });
}

#[test]
fn seek_pause_and_resume() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 2);
        let client = connect(&broker).await;
        fill(&client, "t", 0, 0..10).await;
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        assert_eq!(take(&consumer, 10).await, texts(0..10));
        consumer.seek("t", 0, StartAt::Offset(Offset(6))).unwrap();
        assert_eq!(take(&consumer, 4).await, texts(6..10));
        consumer.seek("t", 0, StartAt::Earliest).unwrap();
        assert_eq!(take(&consumer, 3).await, texts(0..3));

        consumer.pause("t", 0).unwrap();
        fill(&client, "t", 1, 100..105).await;
        assert_eq!(take(&consumer, 5).await, texts(100..105), "only the other partition");
        assert_eq!(consumer.position("t", 0), Some(Offset(3)));
        consumer.resume("t", 0).unwrap();
        assert_eq!(take(&consumer, 7).await, texts(3..10));

        let error = consumer.seek("t", 9, StartAt::Earliest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        consumer.unassign("t", [0]);
        assert_eq!(consumer.assignment().len(), 1);
    });
}

#[test]
fn out_of_range_fails_or_resets_as_told() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 1);
        let client = connect(&broker).await;
        fill(&client, "t", 0, 0..10).await;
        let key = wire::PartitionKey::new(topic, wire::PartitionIndex(0));
        broker.state().log_start.insert(key, Offset(5));

        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign("t", [0], StartAt::Offset(Offset(2))).await.unwrap();
        let error = consumer.next_batch().await.err().unwrap();
        assert_eq!(error.code(), Some(ErrorCode::OffsetOutOfRange));
        assert_eq!(error.place(), "t/0 at offset 2");
        consumer.seek("t", 0, StartAt::Earliest).unwrap();
        assert_eq!(take(&consumer, 5).await, texts(5..10));

        let options = ConsumerOptions { out_of_range: OutOfRange::Earliest, ..ConsumerOptions::default() };
        let consumer = client.consumer(options);
        consumer.assign("t", [0], StartAt::Offset(Offset(2))).await.unwrap();
        assert_eq!(take(&consumer, 5).await, texts(5..10));
    });
}

#[test]
fn transient_failures_are_retried_behind_the_scenes() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        fill(&client, "t", 0, 0..10).await;
        let before = broker.state().metadata_requests;
        broker.state().fetch_faults.extend([ErrorCode::NotLeader, ErrorCode::Overloaded, ErrorCode::WrongShard]);
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign("t", [0], StartAt::Earliest).await.unwrap();
        assert_eq!(take(&consumer, 10).await, texts(0..10));
        assert!(broker.state().metadata_requests > before);
    });
}

#[test]
fn a_damaged_batch_is_an_error_and_can_be_fetched_again() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        fill(&client, "t", 0, 0..10).await;
        broker.state().damage_next_fetch = true;
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign("t", [0], StartAt::Offset(Offset(3))).await.unwrap();
        let error = consumer.next_batch().await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(error.place(), "t/0 at offset 3");
        assert!(consumer.poll(Duration::from_millis(20)).await.unwrap().is_none(), "the partition is stopped");
        consumer.seek("t", 0, StartAt::Offset(Offset(3))).unwrap();
        assert_eq!(take(&consumer, 7).await, texts(3..10));
    });
}

#[test]
fn batches_come_as_a_stream_and_a_cancelled_next_loses_none() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        let mut batches = consumer.batches();
        let mut values = Vec::new();
        let mut keep = |batch: FetchedBatch| {
            values.extend(batch.records().map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
            values.len()
        };
        for round in 0..40 {
            if round % 4 == 0 {
                fill(&client, "t", 0, round..round + 4).await;
            }
            while let Ok(batch) = tokio::time::timeout(Duration::from_micros(u64::from(round) * 20), batches.try_next()).await {
                keep(batch.unwrap().unwrap());
            }
        }
        fill(&client, "t", 0, 40..41).await;
        while keep(batches.try_next().await.unwrap().unwrap()) < 41 {}
        assert_eq!(values, texts(0..41));
    });
}

#[test]
fn a_stream_that_is_put_aside_does_not_keep_batches_from_others() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        let mut aside = consumer.batches();
        assert!(aside.next().now_or_never().is_none());
        // It waits behind the stream, and is the only one that is polled from here on.
        let mut next = pin!(consumer.next_batch());
        assert!(next.as_mut().now_or_never().is_none());
        fill(&client, "t", 0, 0..1).await;
        assert_eq!(next.await.unwrap().records().count(), 1);
    });
}

#[test]
fn metadata_is_read_again_when_it_is_old_though_nothing_failed() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let options = ClientOptions { metadata_age_max: Duration::from_millis(20), ..options(&broker) };
        let client = Client::connect(options).await.unwrap();
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        broker.state().topics.get_mut("t").unwrap().1.partitions = 3;
        while client.topic("t").await.unwrap().partition_count() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}
