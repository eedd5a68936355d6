//! More than the broker can take: it waits as long as it says, then answers "overloaded", and the connection goes on.

use crate::support::{HANG_GUARD, Raw, Site, batch, fetch_request, noise, stop};
use broker::{
    BrokerHandle, Config,
    config::{Auto, ByteSize},
};
use std::{
    io::Write,
    net::{Shutdown, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use wire::{
    Acks, CreateTopicReply, CreateTopicRequest, DescribeClusterReply, DescribeClusterRequest, Durability, ErrorCode, FetchReply,
    ListTopicsReply, ListTopicsRequest, PartitionIndex, ProducePartition, ProduceRequest, TopicConfig, TopicId, encode_request,
};

const PARTITIONS: u32 = 4;
const KIB: usize = 1 << 10;

/// A broker with room for one request, and little more.
fn small_config(site: &Site, shards: u16, admission_wait: &str) -> Config {
    let mut config = site.config(shards);
    config.limits.frame_bytes_max = "1MiB".parse().unwrap();
    config.limits.message_bytes_max = "512KiB".parse().unwrap();
    config.limits.read_timeout = "300s".parse().unwrap();
    config.memory.append_bytes_max = "1MiB".parse().unwrap();
    config.memory.admission_wait = admission_wait.parse().unwrap();
    config
}

fn topic_config() -> TopicConfig {
    TopicConfig { partitions: PARTITIONS, message_bytes_max: 512 << 10, ..TopicConfig::default() }
}

/// Produces more than the log's queue holds, without waiting for answers; gives the codes of the answers, in the order of the requests.
fn flood(client: &mut Raw, topic: TopicId, partition: u32) -> Vec<(ErrorCode, u64)> {
    const COUNT: u64 = 40;
    for number in 0..COUNT {
        client.send_produce(topic, partition, &[batch(&[noise(300 * KIB, number)])]);
    }
    let answers = (0..COUNT).map(|_| client.receive_produced());
    answers.map(|part| (part.error, part.base_offset.0)).collect()
}

#[test]
fn appends_beyond_the_queue_wait_here_and_over_a_hop() {
    let site = Site::new();
    let broker = broker::start(small_config(&site, 2, "60s")).unwrap();
    let (mut client, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let topic = client.create("t", topic_config());
    let owners: Vec<u16> = client.topic("t").partitions.iter().map(|part| part.shard).collect();
    assert!(owners.contains(&0) && owners.contains(&1), "{owners:?}");
    for partition in 0..PARTITIONS {
        let expected: Vec<_> = (0..40).map(|offset| (ErrorCode::None, offset)).collect();
        assert_eq!(flood(&mut client, topic, partition), expected, "partition {partition}");
    }
    stop(broker);
}

/// What waits for memory is told when a flush has freed some: no commit comes that could tell it.
#[test]
fn appends_wait_for_memory_that_a_flush_frees() {
    let site = Site::new();
    let mut config = site.config(1);
    config.memory.unflushed_bytes = Auto::Set(ByteSize::mib(1));
    // Longer than the client waits: an append that nobody tells is not answered by the last look before it is given up.
    config.memory.admission_wait = "600s".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    // Each is less than goes straight into a segment, all are more than is kept.
    let bytes = 100 * KIB;
    assert!((bytes as u64) < commit_log::limits::DIRECT_THRESHOLD_BYTES_DEFAULT);
    for offset in 0..80 {
        assert_eq!(client.produce(topic, 0, batch(&[noise(bytes, offset)])).base_offset.0, offset);
    }
    stop(broker);
}

#[test]
fn appends_that_wait_too_long_are_answered_overloaded_here_and_over_a_hop() {
    const COUNT: u32 = 64;
    let site = Site::new();
    let mut config = small_config(&site, 2, "0ms");
    // What is appended to a relaxed topic stays in the queue for half of this, however fast the disk is.
    config.log.relaxed_within = "8s".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let (mut client, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let topic = client.create("t", TopicConfig { partitions: COUNT, durability: Durability::Relaxed, ..topic_config() });
    let owners: Vec<u16> = client.topic("t").partitions.iter().map(|part| part.shard).collect();
    // Less than is written at once, and all together more than the queues hold.
    let bytes = 100 * KIB;
    assert!((bytes as u64) < commit_log::limits::DIRECT_THRESHOLD_BYTES_DEFAULT);
    let large = batch(&[noise(bytes, 1)]);
    let mut refused = Vec::new();
    for partition in 0..COUNT {
        match client.try_produce(topic, partition, large.clone()).error {
            ErrorCode::None => {}
            ErrorCode::Overloaded => refused.push(partition),
            other => panic!("{other}"),
        }
    }
    for shard in 0..2 {
        assert!(refused.iter().any(|partition| owners[*partition as usize] == shard), "shard {shard}: {refused:?}");
    }
    let begun = Instant::now();
    for partition in refused {
        let reply = loop {
            let reply = client.try_produce(topic, partition, batch(&["v"]));
            if reply.error != ErrorCode::Overloaded {
                break reply;
            }
            assert!(begun.elapsed() < HANG_GUARD, "the queue does not empty");
        };
        assert_eq!((reply.error, reply.base_offset.0), (ErrorCode::None, 0), "what was refused has no offset");
    }
    stop(broker);
}

/// A broker whose requests have 1 MiB together.
fn without_memory(site: &Site) -> BrokerHandle {
    let mut config = small_config(site, 1, "20ms");
    config.memory.in_flight_bytes_max = "1MiB".parse().unwrap();
    broker::start(config).unwrap()
}

/// A produce request that arrives slowly, and holds memory until this is dropped: not so slowly that it gives way to others.
struct SlowRequest {
    stream: TcpStream,
    sender: Option<JoinHandle<()>>,
}

impl SlowRequest {
    /// On a connection that was made before: without memory there is no answer to Hello.
    fn begin(client: Raw, topic: TopicId, bytes: usize) -> Self {
        let stream = client.stream;
        let mut sending = stream.try_clone().unwrap();
        sending.write_all(&encode_request(9, &produce_request(topic, bytes), bytes)).unwrap();
        // It is far from whole when the longest test is over.
        let send = move || {
            while sending.write_all(&[0; 256]).is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        };
        SlowRequest { stream, sender: Some(thread::spawn(send)) }
    }
}

impl Drop for SlowRequest {
    fn drop(&mut self) {
        // The broker may have ended before.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.sender.take().map(JoinHandle::join);
    }
}

fn produce_request(topic: TopicId, bytes: usize) -> ProduceRequest {
    let part = ProducePartition { topic, partition: PartitionIndex(0), batch_lengths: vec![u32::try_from(bytes).unwrap()] };
    ProduceRequest { acks: Acks::AllInSync, timeout_ms: 0, partitions: vec![part] }
}

/// Length of what comes before the batches of a request.
fn begun_bytes(topic: TopicId) -> usize {
    encode_request(9, &produce_request(topic, 16), 16).len()
}

#[test]
fn a_request_without_memory_is_answered_overloaded_and_its_connection_goes_on() {
    let site = Site::new();
    let broker = without_memory(&site);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", topic_config());

    let slow = SlowRequest::begin(Raw::connect(broker.addr()), topic, 700 * KIB);
    // Until the broker has seen that one, requests find room.
    let begun = Instant::now();
    while client.try_produce(topic, 0, batch(&[noise(400 * KIB, 1)])).error != ErrorCode::Overloaded {
        assert!(begun.elapsed() < HANG_GUARD, "no request is without memory");
        thread::sleep(Duration::from_millis(5));
    }
    let end = client_end(&mut client, topic);
    // A large one, a small one, and one behind the other: each is answered, and its payload is not taken for a frame.
    for _ in 0..2 {
        for size in [500 * KIB, 350 * KIB] {
            client.send_produce(topic, 1, &[batch(&[noise(size, 2)]), batch(&["v"])]);
        }
        for _ in 0..2 {
            let reply = client.receive_produced();
            assert_eq!((reply.error, reply.partition.0), (ErrorCode::Overloaded, 1), "{:?}", reply.message);
            assert!(reply.message.unwrap().contains("memory.admission_wait"));
        }
    }
    drop(slow);
    while client.try_produce(topic, 1, batch(&["v"])).error == ErrorCode::Overloaded {
        assert!(begun.elapsed() < HANG_GUARD, "the memory does not come back");
    }
    assert_eq!(client_end(&mut client, topic), end, "what was refused was not appended");
    assert_eq!(client.read_all(topic, 1), [b"v"]);
    stop(broker);
}

/// The end of partition 0.
fn client_end(client: &mut Raw, topic: TopicId) -> u64 {
    loop {
        let (part, _) = client.fetch(topic, 0, 0);
        if part.error != ErrorCode::Overloaded {
            return part.log_end.0;
        }
    }
}

#[test]
fn every_request_can_be_answered_overloaded() {
    let site = Site::new();
    let broker = without_memory(&site);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", topic_config());
    // One request holds all there is. One that finds no memory itself holds none: then the next does.
    let connected: Vec<Raw> = (0..20).map(|_| Raw::connect(broker.addr())).collect();
    let mut large = Vec::new();
    let overloaded = connected.into_iter().any(|connection| {
        large.push(SlowRequest::begin(connection, topic, (1 << 20) - begun_bytes(topic)));
        let reply: ListTopicsReply = client.ask(&ListTopicsRequest { prefix: String::new(), after: None, limit: 0 });
        reply.error == ErrorCode::Overloaded
    });
    assert!(overloaded, "there is always memory");
    let begun = Instant::now();
    let create = CreateTopicRequest { name: "new".to_owned(), config: TopicConfig::default(), validate_only: false };
    let reply: CreateTopicReply = client.ask(&create);
    assert_eq!(reply.error, ErrorCode::Overloaded);
    let reply: DescribeClusterReply = client.ask(&DescribeClusterRequest { broker: None });
    assert_eq!(reply.error, ErrorCode::Overloaded);
    let reply: FetchReply = client.ask(&fetch_request(topic, 0, 0, 0, 0));
    assert_eq!(reply.partitions[0].error, ErrorCode::Overloaded);
    drop(large);
    while client.try_produce(topic, 0, batch(&["v"])).error == ErrorCode::Overloaded {
        assert!(begun.elapsed() < HANG_GUARD, "the memory does not come back");
    }
    stop(broker);
}
