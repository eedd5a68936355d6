//! What was acknowledged is there after a stop, whatever the number of shards.

use crate::support::{HANG_GUARD, Raw, Site, batch, noise, stop};
use std::{
    net::SocketAddr,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};
use wire::{DescribeClusterRequest, ErrorCode, TopicConfig, TopicId};

const PARTITIONS: u32 = 5;

fn fill(client: &mut Raw, topic: TopicId, round: u64) {
    for partition in 0..PARTITIONS {
        let values: Vec<Vec<u8>> = (0..10).map(|number| noise(3000, round * 1000 + u64::from(partition) * 10 + number)).collect();
        assert_eq!(client.produce(topic, partition, batch(&values)).base_offset.0, round * 10);
    }
}

fn check(client: &mut Raw, topic: TopicId, rounds: u64) {
    for partition in 0..PARTITIONS {
        let expected: Vec<Vec<u8>> = (0..rounds)
            .flat_map(|round| (0..10).map(move |number| noise(3000, round * 1000 + u64::from(partition) * 10 + number)))
            .collect();
        assert!(client.read_all(topic, partition) == expected, "partition {partition} after {rounds} rounds");
    }
}

#[test]
fn topics_and_data_are_there_after_a_restart_with_any_number_of_shards() {
    let site = Site::new();
    let mut topic = None;
    for (round, shards) in (0..).zip([1, 1, 2, 3, 2, 1]) {
        let broker = site.start(shards);
        let mut client = Raw::connect(broker.addr());
        let config = TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() };
        let topic = *topic.get_or_insert_with(|| client.create("kept", config.clone()));
        let found = client.topic("kept");
        assert_eq!((found.error, found.id, found.config), (ErrorCode::None, topic, config));
        check(&mut client, topic, round);
        fill(&mut client, topic, round);
        check(&mut client, topic, round + 1);
        stop(broker);
    }
}

/// Produces until the broker says that it stops or is gone; gives how many values were acknowledged, in order from 0.
fn load(address: SocketAddr, topic: TopicId, partition: u32, started: &Barrier, acknowledged: &AtomicU64) {
    let mut client = Raw::connect(address);
    started.wait();
    for number in 0_u64.. {
        let mut value = noise(500, number);
        value[..8].copy_from_slice(&number.to_le_bytes());
        if !try_produce(&mut client, topic, partition, &value, number) {
            return;
        }
        acknowledged.store(number + 1, Ordering::SeqCst);
    }
}

/// One produce over a connection that may end at any moment.
fn try_produce(client: &mut Raw, topic: TopicId, partition: u32, value: &[u8], number: u64) -> bool {
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.try_produce(topic, partition, batch(&[value]))));
    match outcome {
        Ok(reply) if reply.error == ErrorCode::None => {
            assert_eq!(reply.base_offset.0, number);
            true
        }
        Ok(reply) => {
            assert_eq!(reply.error, ErrorCode::ShuttingDown, "{:?}", reply.message);
            false
        }
        Err(_) => false,
    }
}

#[test]
fn a_stop_under_load_loses_nothing_that_was_acknowledged() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 4, ..TopicConfig::default() });
    let acknowledged: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let started = Barrier::new(5);
    let address = broker.addr();
    thread::scope(|scope| {
        for (partition, acknowledged) in (0..).zip(&acknowledged) {
            let started = &started;
            scope.spawn(move || load(address, topic, partition, started, acknowledged));
        }
        started.wait();
        while acknowledged.iter().any(|count| count.load(Ordering::SeqCst) < 50) {
            thread::yield_now();
        }
        stop(broker);
    });

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    for (partition, acknowledged) in (0..).zip(&acknowledged) {
        let values = client.read_all(topic, partition);
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        assert!(values.len() as u64 >= acknowledged, "{} of {acknowledged}", values.len());
        for (number, value) in (0_u64..).zip(&values) {
            assert_eq!(value[..8], number.to_le_bytes());
        }
    }
    stop(broker);
}

/// A program that embeds the broker may start and stop it often.
#[test]
fn a_broker_that_has_stopped_holds_nothing_open() {
    let site = Site::new();
    let open = || {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(site.folder.path())).collect::<Vec<_>>()
    };
    let mut topic = None;
    for round in 0..3 {
        let broker = site.start(2);
        let mut client = Raw::connect(broker.addr());
        let config = TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() };
        let topic = *topic.get_or_insert_with(|| client.create("t", config));
        check(&mut client, topic, round);
        fill(&mut client, topic, round);
        assert!(!open().is_empty());
        stop(broker);
        let begun = Instant::now();
        while !open().is_empty() {
            assert!(begun.elapsed() < HANG_GUARD, "{:?}", open());
            thread::yield_now();
        }
    }
}

#[test]
fn the_cluster_is_described_whole_as_soon_as_the_broker_serves() {
    const SHARDS: u16 = 3;
    let site = Site::new();
    // More than a shard looks at in one go, over all topics; and some data on every shard.
    let broker = site.start(SHARDS);
    let mut client = Raw::connect(broker.addr());
    for number in 0..7 {
        client.create(&format!("wide{number}"), TopicConfig { partitions: 1000, ..TopicConfig::default() });
    }
    let topic = client.create("t", TopicConfig { partitions: 30, ..TopicConfig::default() });
    for partition in 0..30 {
        client.produce(topic, partition, batch(&["value"]));
    }
    stop(broker);
    for shards in [SHARDS, 1] {
        let broker = site.start(shards);
        let described = Raw::connect(broker.addr()).ask(&DescribeClusterRequest { broker: None });
        let shards_described = &described.brokers[0].shards;
        assert_eq!((described.topics, described.partitions, shards_described.len()), (8, 7030, usize::from(shards)));
        assert_eq!(shards_described.iter().map(|shard| shard.partitions).sum::<u32>(), 7030);
        for shard in shards_described {
            assert!(shard.partitions > 0 && shard.log_bytes > 0, "{shard:?}");
            assert!(shard.disk_available_bytes > 0 && shard.disk_available_bytes < u64::MAX, "{shard:?}");
        }
        stop(broker);
    }
}
