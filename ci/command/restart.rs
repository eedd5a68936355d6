//! A broker that is killed under its clients, and comes back or does not.

use std::collections::BTreeSet;
use std::time::Duration;

use corelane_client::{
    ConsumerOptions, DeliveryFuture, ErrorKind, OffsetAt, Producer, ProducerOptions, Record, StartAt, TopicConfig,
};

use crate::broker::{Broker, guarded};

const PARTITIONS: u32 = 3;

async fn send(producer: &Producer, numbers: std::ops::Range<u32>) -> Vec<(u32, DeliveryFuture)> {
    let mut deliveries = Vec::new();
    for number in numbers {
        let value = number.to_string();
        let record = Record::to("t").partition(number % PARTITIONS).value(&value);
        deliveries.push((number, producer.send(record).await.expect("accepted")));
    }
    deliveries
}

#[test]
fn clients_go_on_after_kill_9_and_nothing_acknowledged_is_lost() {
    guarded(async {
        let mut broker = Broker::start();
        let client = broker.client().await;
        client
            .admin()
            .create_topic("t", TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() })
            .await
            .expect("a new topic");
        let producer = client.producer(ProducerOptions { batch_bytes: 4096, ..ProducerOptions::default() });
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.expect("assigned");

        let mut next = 0;
        let mut acknowledged = BTreeSet::new();
        for _ in 0..3 {
            let mut deliveries = send(&producer, next..next + 3000).await;
            // Some are answered, some are under way, some were never sent.
            deliveries.remove(0).1.await.expect("delivered");
            acknowledged.insert(next);
            broker.kill();
            deliveries.extend(send(&producer, next + 3000..next + 3300).await);
            broker.restart();
            for (number, delivery) in deliveries {
                delivery.await.unwrap_or_else(|error| panic!("record {number}: {error}"));
                acknowledged.insert(number);
            }
            next += 3300;
        }
        assert_eq!(acknowledged.len(), next as usize);

        let ends = client.admin().list_offsets("t", 0..PARTITIONS, OffsetAt::Latest).await.expect("offsets");
        let mut read = BTreeSet::new();
        let mut last = [None; PARTITIONS as usize];
        while ends.iter().any(|end| consumer.position("t", end.partition).is_none_or(|position| position < end.offset)) {
            let Some(batch) = consumer.poll(Duration::from_millis(10)).await.expect("no failure") else { continue };
            for record in batch.records() {
                let number: u32 = std::str::from_utf8(record.value.expect("a value")).expect("text").parse().expect("a number");
                // Sent again because an answer was lost, a record may be there twice; in between, order holds.
                let before = last[batch.partition() as usize].replace(number);
                let in_order = before.is_none_or(|before| before < number) || read.contains(&number);
                assert!(in_order, "{number} after {before:?}");
                read.insert(number);
            }
        }
        assert_eq!(read, acknowledged);
    });
}

#[test]
fn a_broker_that_stays_away_is_named_when_the_delivery_timeout_is_over() {
    guarded(async {
        let mut broker = Broker::start();
        let client = broker.client().await;
        client
            .admin()
            .create_topic("t", TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() })
            .await
            .expect("a new topic");
        let delivery_timeout = Duration::from_millis(700);
        let producer = client.producer(ProducerOptions { delivery_timeout, ..ProducerOptions::default() });
        until_delivered(&producer).await;
        broker.kill();
        for (number, delivery) in send(&producer, 0..30).await {
            let error = delivery.await.expect_err("nobody is there");
            assert!(matches!(error.kind(), ErrorKind::Connect | ErrorKind::Disconnected), "{error}");
            assert!(error.place().starts_with(&format!("t/{} ({}", number % PARTITIONS, broker.address)), "{error}");
            assert!(error.cause().contains("gave up after"), "{error}");
            assert!(error.retryable());
        }
        // The producer is as good as before when the broker is back.
        broker.restart();
        until_delivered(&producer).await;
    });
}

/// Sends until a record is delivered: on a busy machine, a short delivery timeout may pass while nothing is wrong.
async fn until_delivered(producer: &Producer) {
    while let Err(error) = send(producer, 0..1).await.remove(0).1.await {
        assert!(error.retryable(), "{error}");
    }
}
