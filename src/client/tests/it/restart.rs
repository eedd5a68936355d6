//! A broker that goes away and comes back.

use std::time::Duration;

use corelane_client::*;

use crate::mock::Broker;
use crate::{connect, options, run};

#[test]
fn producer_and_consumer_go_on_after_a_restart() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 2);
        let port = broker.port();
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        producer.send(Record::to("t").partition(1).value("before")).await.unwrap().await.unwrap();
        assert_eq!(consumer.next_batch().await.unwrap().records().count(), 1);

        let state = broker.stop().await;
        let mut deliveries = Vec::new();
        for value in ["during 1", "during 2", "during 3"] {
            deliveries.push(producer.send(Record::to("t").partition(1).value(value)).await.unwrap());
        }
        let broker = Broker::with_state(state, port).await;
        for delivery in deliveries {
            delivery.await.unwrap();
        }
        assert_eq!(broker.values(topic, 1), ["before", "during 1", "during 2", "during 3"]);
        let mut seen = 0;
        while seen < 3 {
            seen += consumer.next_batch().await.unwrap().records().count();
        }
        assert_eq!(consumer.position("t", 1), Some(Offset(4)));
    });
}

#[test]
fn a_consumer_goes_on_after_a_long_outage_though_its_partition_is_not_there_at_once() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let port = broker.port();
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        let consumer = client.consumer(ConsumerOptions { max_wait: Duration::ZERO, ..ConsumerOptions::default() });
        consumer.assign_all("t", StartAt::Earliest).await.unwrap();
        producer.send(Record::to("t").value("before")).await.unwrap().await.unwrap();
        assert_eq!(consumer.next_batch().await.unwrap().records().count(), 1);

        let mut state = broker.stop().await;
        // Far more failures than answers that a topic counts as deleted after: the longest pause between two is 50 ms.
        assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_none());
        state.fetch_faults.extend([ErrorCode::UnknownTopicOrPartition; 2]);
        let broker = Broker::with_state(state, port).await;
        producer.send(Record::to("t").value("after")).await.unwrap().await.unwrap();
        assert_eq!(consumer.next_batch().await.unwrap().records().count(), 1);
        assert!(broker.state().fetch_faults.is_empty());
    });
}

#[test]
fn connecting_to_nothing_says_where() {
    run(async {
        let broker = Broker::start().await;
        let options = options(&broker);
        broker.stop().await;
        let error = Client::connect(options.clone()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert!(error.place().contains(&options.brokers[0]), "{error}");
        assert!(error.retryable());
    });
}

#[test]
fn the_second_address_is_tried_when_the_first_does_not_answer() {
    run(async {
        let gone = Broker::start().await;
        let dead = gone.address();
        gone.stop().await;
        let broker = Broker::start().await;
        broker.create("t", 1);
        let mut options = options(&broker);
        options.brokers.insert(0, dead);
        let client = Client::connect(options).await.unwrap();
        assert_eq!(client.topic("t").await.unwrap().partition_count(), 1);
    });
}

#[test]
fn admin_creates_topics_and_lists_offsets() {
    run(async {
        let broker = Broker::start().await;
        let client = connect(&broker).await;
        let admin = client.admin();
        admin.create_topic("new", TopicConfig { partitions: 3, ..TopicConfig::default() }).await.unwrap();
        let error = admin.create_topic("new", TopicConfig::default()).await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::TopicExists));
        assert_eq!(error.place(), "new");
        let producer = client.producer(ProducerOptions::default());
        producer.send(Record::to("new").partition(2).value("x")).await.unwrap().await.unwrap();
        let offsets = admin.list_offsets("new", [2, 0], OffsetAt::Latest).await.unwrap();
        let pairs: Vec<_> = offsets.iter().map(|offset| (offset.partition, offset.offset.0)).collect();
        assert_eq!(pairs, [(2, 1), (0, 0)]);
        let error = admin.list_offsets("missing", [0], OffsetAt::Latest).await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition));
    });
}
