//! Many connections, and clients that do not behave: bounded, and of no concern to others.

use crate::http::metrics_when;
use crate::support::{HANG_GUARD, Raw, Site, batch, fetch_request, noise, stop};
use std::{
    io::{Read, Write},
    thread,
    time::{Duration, Instant},
};
use wire::{
    Acks, Api, DescribeClusterRequest, ErrorCode, HelloReply, HelloRequest, MetadataRequest, PartitionIndex, ProducePartition,
    ProduceRequest, TopicConfig, TopicId, encode_request, limits::FRAME_HEADER_BYTES,
};

/// Both ends of a connection are in this process.
const IDLE_CONNECTIONS: usize = 5000;

/// Connections that the broker serves, this one included.
fn served(client: &mut Raw) -> u32 {
    let reply = client.ask(&DescribeClusterRequest { broker: None });
    reply.brokers[0].shards.iter().map(|shard| shard.connections).sum()
}

fn wait_until_served(client: &mut Raw, count: u32) {
    let begun = Instant::now();
    while served(client) != count {
        assert!(begun.elapsed() < HANG_GUARD, "there are {} connections, not {count}", served(client));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn thousands_of_idle_connections_are_served() {
    let (open_files_max, _) = open_files_limit();
    let count = IDLE_CONNECTIONS.min(open_files_max.saturating_sub(500) / 2);
    assert!(count >= 200, "RLIMIT_NOFILE is {open_files_max}");
    let site = Site::new();
    let broker = site.start(2);
    let mut idle: Vec<Raw> = (0..count).map(|_| Raw::connect(broker.addr())).collect();
    let mut client = Raw::connect(broker.addr());
    wait_until_served(&mut client, u32::try_from(count + 1).unwrap());
    let topic = client.create("t", TopicConfig::default());
    client.produce(topic, 0, batch(&["v"]));
    for idle in idle.iter_mut().step_by(97) {
        assert_eq!(idle.read_all(topic, 0).len(), 1);
    }
    drop(idle);
    wait_until_served(&mut client, 1);
    stop(broker);
}

/// The soft and the hard limit on open files.
fn open_files_limit() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().skip(3).map(|word| word.parse().unwrap_or(usize::MAX));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn one_connection_too_many_is_told_so() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.connections_max = 3;
    let broker = broker::start(config).unwrap();
    let mut clients: Vec<Raw> = (0..3).map(|_| Raw::connect(broker.addr())).collect();
    let mut fourth = Raw::silent(broker.addr());
    let hello = HelloRequest { client_id: "test".to_owned(), versions: Api::ranges(), shard_wanted: None };
    fourth.send(&hello, &[]);
    assert_eq!(fourth.refusal().1.error, ErrorCode::TooManyConnections);
    drop(clients.pop());
    wait_until_served(&mut clients[0], 2);
    drop(Raw::connect(broker.addr()));
    stop(broker);
}

#[test]
fn who_does_not_say_hello_is_disconnected() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.hello_timeout = "300ms".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let hello = HelloRequest { client_id: "test".to_owned(), versions: Api::ranges(), shard_wanted: None };
    let hello = encode_request(1, &hello, 0);
    for said in [0, 1, FRAME_HEADER_BYTES, hello.len() - 1] {
        let mut client = Raw::silent(broker.addr());
        client.stream.write_all(&hello[..said]).unwrap();
        assert!(client.is_at_end(), "{said} bytes of Hello are enough to stay");
    }
    // Who has said it may be silent for longer.
    let mut client = Raw::connect(broker.addr());
    thread::sleep(Duration::from_millis(900));
    assert_eq!(client.topic("t").error, ErrorCode::UnknownTopicOrPartition);
    stop(broker);
}

/// Fifty such connections held the memory of all requests, and everybody else was told "overloaded".
#[test]
fn who_has_not_said_hello_gets_no_memory_for_a_large_request() {
    let site = Site::new();
    let broker = site.start(1);
    let hello = HelloRequest { client_id: "test".to_owned(), versions: Api::ranges(), shard_wanted: None };
    let hello = encode_request(1, &hello, 1 << 20);
    let fetch = encode_request(1, &fetch_request(TopicId([1; 16]), 0, 0, 0, 0), 1 << 20);
    for (begun, code, words) in
        [(hello, ErrorCode::FrameTooLarge, "65536 are allowed"), (fetch, ErrorCode::InvalidRequest, "not Hello")]
    {
        let mut client = Raw::silent(broker.addr());
        client.stream.write_all(&begun).unwrap();
        let (id, refusal) = client.refusal();
        assert_eq!((id, refusal.error), (1, code));
        assert!(refusal.message.unwrap().contains(words));
    }
    stop(broker);
}

#[test]
fn who_stops_in_the_middle_of_a_request_is_disconnected() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.read_timeout = "300ms".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let topic = Raw::connect(broker.addr()).create("t", TopicConfig::default());
    for attachment_bytes in [0, 1 << 20] {
        let mut client = Raw::connect(broker.addr());
        let fetch = encode_request(1, &fetch_request(topic, 0, 0, 0, 0), attachment_bytes);
        let cut = if attachment_bytes == 0 { fetch.len() - 1 } else { fetch.len() };
        client.stream.write_all(&fetch[..cut]).unwrap();
        assert!(client.is_at_end());
    }
    stop(broker);
}

/// A byte now and then renewed the deadline of a request for ever.
#[test]
fn who_sends_a_request_byte_by_byte_is_disconnected() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.read_timeout = "300ms".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let topic = Raw::connect(broker.addr()).create("t", TopicConfig::default());
    for attachment_bytes in [0, 16 << 10] {
        let mut client = Raw::connect(broker.addr());
        let fetch = encode_request(1, &fetch_request(topic, 0, 0, 0, 0), attachment_bytes);
        let begun = Instant::now();
        // The last byte never comes; the broker's end shows as an error of a later write.
        let mut bytes = fetch[..fetch.len() - 1].iter().chain(std::iter::repeat_n(&0, attachment_bytes));
        while bytes.next().is_some_and(|byte| client.stream.write_all(&[*byte]).is_ok()) {
            assert!(begun.elapsed() < HANG_GUARD, "it is never disconnected");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!matches!(client.stream.read(&mut [0]), Ok(1..)), "it was answered");
    }
    stop(broker);
}

/// A large request gets time for its bytes: longer than a client may be still.
#[test]
fn a_large_request_over_a_slow_link_is_taken() {
    const BYTES: usize = 512 << 10;
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.read_timeout = "1s".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let batch = batch(&[noise(BYTES, 1)]);
    let lengths = vec![u32::try_from(batch.len()).unwrap()];
    let part = ProducePartition { topic, partition: PartitionIndex(0), batch_lengths: lengths };
    let request = ProduceRequest { acks: Acks::AllInSync, timeout_ms: 60_000, partitions: vec![part] };
    let frame = encode_request(9, &request, batch.len());
    // Four times the time of a small request, at twice the least pace.
    for piece in [&frame[..], &batch[..]].concat().chunks(16 << 10) {
        client.stream.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(130));
    }
    let reply = client.receive_produced();
    assert_eq!((reply.error, reply.base_offset.0), (ErrorCode::None, 0));
    stop(broker);
}

#[test]
fn a_client_that_does_not_read_is_bounded_and_then_disconnected() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.write_timeout = "5s".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut other = Raw::connect(broker.addr());
    let topic = other.create("t", TopicConfig::default());
    for number in 0..8 {
        other.produce(topic, 0, batch(&[noise(1 << 20, number)]));
    }
    // 500 times 8 MiB would be 4 GB: the broker holds what one connection may have, and stops reading its requests.
    let mut stuck = Raw::connect(broker.addr());
    for _ in 0..500 {
        stuck.send(&fetch_request(topic, 0, 0, 0, 0), &[]);
    }
    for offset in 8..200 {
        assert_eq!(other.produce(topic, 0, batch(&["v"])).base_offset.0, offset);
    }
    wait_until_served(&mut other, 2);
    assert!(resident_bytes() < 1 << 30, "{} bytes are resident", resident_bytes());
    wait_until_served(&mut other, 1);
    drop(stuck);
    // What it held is free again.
    metrics_when(broker.http_addr().unwrap(), |samples| samples["corelane_reply_bytes{shard=\"0\"}"] == 0.0);
    assert_eq!(other.read_all(topic, 0).len(), 200);
    stop(broker);
}

/// Replies without batches are held to the same bound.
#[test]
fn a_client_that_does_not_read_metadata_is_bounded_and_then_disconnected() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.write_timeout = "5s".parse().unwrap();
    config.memory.connection_reply_bytes_max = "32MiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut other = Raw::connect(broker.addr());
    other.create("wide", TopicConfig { partitions: 1000, ..TopicConfig::default() });
    // 300 times 8 MiB would be 2.4 GB.
    let mut stuck = Raw::connect(broker.addr());
    let names = vec!["wide".to_owned(); 500];
    for _ in 0..300 {
        stuck.send(&MetadataRequest { topics: Some(names.clone()), since_version: 0, after: None, limit: 0 }, &[]);
    }
    for _ in 0..100 {
        assert_eq!(other.topic("wide").partitions.len(), 1000);
    }
    wait_until_served(&mut other, 2);
    assert!(resident_bytes() < 1 << 30, "{} bytes are resident", resident_bytes());
    wait_until_served(&mut other, 1);
    drop(stuck);
    let http = broker.http_addr().unwrap();
    metrics_when(http, |samples| samples["corelane_reply_bytes{shard=\"0\"}"] == 0.0);
    stop(broker);
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_connection_that_asks_for_a_shard_that_is_not_there_is_served_by_another() {
    let site = Site::new();
    let broker = site.start(2);
    let (mut client, hello): (Raw, HelloReply) = Raw::connect_to_shard(broker.addr(), Some(77));
    assert!(hello.shard < 2);
    client.create("t", TopicConfig::default());
    stop(broker);
}
