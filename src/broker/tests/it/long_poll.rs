//! A fetch that waits: woken by a produce, bounded in time, let go by a stop.

use crate::support::{HANG_GUARD, Raw, Site, batch, fetch_request, records, stop};
use std::time::{Duration, Instant};
use wire::{ErrorCode, TopicConfig};

/// Longer than the test may take.
const FOR_EVER_MS: u32 = 300_000;

#[test]
fn a_waiting_fetch_is_woken_by_a_produce_on_any_shard() {
    let site = Site::new();
    let mut config = site.config(2);
    config.limits.fetch_wait_max = "300s".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let (mut consumer, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let (mut producer, _) = Raw::connect_to_shard(broker.addr(), Some(1));
    let topic = producer.create("t", TopicConfig { partitions: 4, ..TopicConfig::default() });
    for round in 0..20 {
        for partition in 0..4 {
            consumer.send(&fetch_request(topic, partition, round, FOR_EVER_MS, 1), &[]);
            producer.produce(topic, partition, batch(&[format!("{round}")]));
            let (part, bytes) = consumer.receive_fetched();
            assert_eq!(part.error, ErrorCode::None);
            assert_eq!(records(&bytes), [(round, round.to_string().into_bytes())]);
        }
    }
    stop(broker);
}

#[test]
fn a_waiting_fetch_holds_up_nothing_else_on_its_connection() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let waiting = client.send(&fetch_request(topic, 0, 0, FOR_EVER_MS, 1), &[]);
    assert_eq!(client.topic("t").error, ErrorCode::None);
    let produce = client.send_produce(topic, 0, &[batch(&["v"])]);
    let mut answered = [client.receive().header.correlation_id, client.receive().header.correlation_id];
    answered.sort_unstable();
    assert_eq!(answered, [waiting, produce]);
    stop(broker);
}

#[test]
fn a_fetch_waits_as_long_as_it_says_and_no_longer() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    client.produce(topic, 0, batch(&["v"]));
    let begun = Instant::now();
    client.send(&fetch_request(topic, 0, 0, 300, 1 << 20), &[]);
    let (part, bytes) = client.receive_fetched();
    assert!(begun.elapsed() >= Duration::from_millis(290), "less than was asked for is answered late");
    assert_eq!((part.error, records(&bytes).len()), (ErrorCode::None, 1));
    stop(broker);
}

#[test]
fn a_stop_and_a_deletion_let_a_waiting_fetch_go() {
    let site = Site::new();
    let mut config = site.config(2);
    config.stop.drain_within = "300s".parse().unwrap();
    config.limits.fetch_wait_max = "300s".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let (mut consumer, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let (mut admin, _) = Raw::connect_to_shard(broker.addr(), Some(1));
    let topic = admin.create("gone", TopicConfig { partitions: 4, ..TopicConfig::default() });
    for partition in 0..4 {
        consumer.send(&fetch_request(topic, partition, 0, FOR_EVER_MS, 1), &[]);
    }
    let deleted = admin.ask(&wire::DeleteTopicRequest { name: "gone".to_owned() });
    assert_eq!(deleted.error, ErrorCode::None);
    for _ in 0..4 {
        assert_eq!(consumer.receive_fetched().0.error, ErrorCode::UnknownTopicOrPartition);
    }
    let topic = admin.create("kept", TopicConfig { partitions: 4, ..TopicConfig::default() });
    for partition in 0..4 {
        consumer.send(&fetch_request(topic, partition, 0, FOR_EVER_MS, 1), &[]);
    }
    // It is behind the fetches: when it is answered, they have begun.
    assert_eq!(consumer.topic("kept").error, ErrorCode::None);
    let begun = Instant::now();
    broker.stop();
    for _ in 0..4 {
        assert_eq!(consumer.receive_fetched().0.error, ErrorCode::ShuttingDown);
    }
    broker.join().unwrap();
    assert!(begun.elapsed() < HANG_GUARD, "the stop waited for a fetch");
}
