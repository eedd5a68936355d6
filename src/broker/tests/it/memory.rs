//! Memory of a shard that some clients hold and do not use: others go on. No time-out helps here, all are longer than the tests wait.

use crate::support::{HANG_GUARD, Raw, Site, batch, fetch_request, noise, stop};
use broker::{BrokerHandle, Config};
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};
use wire::{Acks, ErrorCode, PartitionIndex, ProducePartition, ProduceRequest, TopicConfig, TopicId, encode_request};

const MIB: usize = 1 << 20;

/// Time-outs that nobody lives to see.
fn patient(site: &Site) -> Config {
    let mut config = site.config(1);
    config.limits.read_timeout = "3600s".parse().unwrap();
    config.limits.write_timeout = "3600s".parse().unwrap();
    config.memory.admission_wait = "600s".parse().unwrap();
    config
}

/// A topic with so many batches of a MiB, each of one value.
fn topic_of(broker: &BrokerHandle, batches: u64) -> TopicId {
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    for number in 0..batches {
        client.produce(topic, 0, batch(&[value(number)]));
    }
    topic
}

fn value(number: u64) -> Vec<u8> {
    noise(MIB - 4096, number)
}

/// Asks for everything, again and again, and reads nothing. The system takes some MiB in its stead.
fn never_reads(broker: &BrokerHandle, topic: TopicId, fetches: usize) -> (Raw, Vec<u64>) {
    let mut client = Raw::connect(broker.addr());
    let ids = (0..fetches).map(|_| client.send(&fetch_request(topic, 0, 0, 0, 0), &[])).collect();
    (client, ids)
}

#[test]
fn readers_go_on_while_others_never_read_their_replies() {
    const BATCHES: u64 = 8;
    let site = Site::new();
    let mut config = patient(&site);
    config.memory.reply_bytes_max = "32MiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let topic = topic_of(&broker, BATCHES);
    let mut reader = Raw::connect(broker.addr());
    // Together they may hold the whole of it many times over; those who come later find what the first have left.
    let mut stuck = Vec::new();
    for _ in 0..24 {
        stuck.push(never_reads(&broker, topic, 50));
        let read = reader.read_all(topic, 0);
        assert_eq!(read.len() as u64, BATCHES);
        assert!(read.iter().zip(0..).all(|(read, number)| *read == value(number)));
    }
    for _ in 0..20 {
        assert_eq!(reader.read_all(topic, 0).len() as u64, BATCHES);
    }
    stop(broker);
}

/// Two clients hold the memory of all replies, in part for replies of which nothing is sent yet. When somebody else wants some they give that
/// back, and still get every reply once they read.
#[test]
fn replies_that_gave_way_are_made_again_when_their_client_reads() {
    const BATCHES: u64 = 4;
    let site = Site::new();
    let mut config = patient(&site);
    config.limits.fetch_bytes_max = "4MiB".parse().unwrap();
    config.memory.reply_bytes_max = "4MiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let topic = topic_of(&broker, BATCHES);
    let mut reader = Raw::connect(broker.addr());
    let mut stuck = [never_reads(&broker, topic, 60), never_reads(&broker, topic, 60)];
    for _ in 0..10 {
        assert_eq!(reader.read_all(topic, 0).len() as u64, BATCHES);
    }
    // Both read at once: one that begins to read while the other still does not may find that one's reply begun and stuck, and who is stuck
    // for long is closed.
    thread::scope(|scope| {
        for (client, ids) in &mut stuck {
            scope.spawn(|| {
                let mut answered: Vec<u64> = Vec::new();
                for _ in 0..ids.len() {
                    let reply = client.receive();
                    answered.push(reply.header.correlation_id);
                    let read = crate::support::records(reply.attachments());
                    assert!(!read.is_empty());
                    assert!(read.iter().zip(0..).all(|((offset, read), number)| *offset == number && *read == value(number)));
                }
                answered.sort_unstable();
                assert_eq!(answered, *ids, "each is answered once");
            });
        }
    });
    stop(broker);
}

/// A batch of more than a connection's window, and more than is free when it is read.
#[test]
fn a_batch_larger_than_a_reply_should_be_is_read_whole() {
    let site = Site::new();
    let mut config = patient(&site);
    config.limits.fetch_bytes_max = "1MiB".parse().unwrap();
    config.memory.reply_bytes_max = "1MiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let large = noise(6 * MIB, 1);
    client.produce(topic, 0, batch(&[&large]));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut reader = Raw::connect(broker.addr());
                for _ in 0..3 {
                    reader.send(&fetch_request(topic, 0, 0, 0, 0), &[]);
                }
                for _ in 0..3 {
                    let (part, bytes) = reader.receive_fetched();
                    assert_eq!(part.error, ErrorCode::None);
                    assert_eq!(crate::support::records(&bytes), [(0, large.clone())]);
                }
            });
        }
    });
    stop(broker);
}

/// Sends the beginning of a produce request of `bytes`.
fn begin_request(client: &mut TcpStream, topic: TopicId, bytes: usize) {
    let part = ProducePartition { topic, partition: PartitionIndex(0), batch_lengths: vec![u32::try_from(bytes).unwrap()] };
    let request = ProduceRequest { acks: Acks::AllInSync, timeout_ms: 0, partitions: vec![part] };
    client.write_all(&encode_request(9, &request, bytes)).unwrap();
}

#[test]
fn producers_go_on_while_others_never_end_their_requests() {
    let site = Site::new();
    let mut config = patient(&site);
    config.limits.frame_bytes_max = "4MiB".parse().unwrap();
    config.limits.message_bytes_max = "1MiB".parse().unwrap();
    config.memory.in_flight_bytes_max = "4MiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { message_bytes_max: MIB as u32, ..TopicConfig::default() });
    // Half of them end in the middle, half send a byte now and then.
    let mut stuck: Vec<TcpStream> = (0..4).map(|_| Raw::connect(broker.addr()).stream).collect();
    for stuck in &mut stuck {
        begin_request(stuck, topic, 3 * MIB + 3 * MIB / 4);
    }
    let mut trickling: Vec<TcpStream> = stuck.iter().step_by(2).map(|stuck| stuck.try_clone().unwrap()).collect();
    let trickle = thread::spawn(move || {
        let begun = Instant::now();
        while !trickling.is_empty() && begun.elapsed() < HANG_GUARD {
            trickling.retain_mut(|stream| stream.write_all(&[0]).is_ok());
            thread::sleep(Duration::from_millis(50));
        }
        assert!(trickling.is_empty(), "who trickles is never disconnected");
    });
    for offset in 0..20 {
        assert_eq!(client.produce(topic, 0, batch(&[noise(MIB / 2, offset)])).base_offset.0, offset);
    }
    // What they sent and nobody read makes the end of some an error.
    assert!(stuck.iter_mut().all(|stuck| !matches!(stuck.read(&mut [0]), Ok(1..))), "who holds memory that others want stays");
    trickle.join().unwrap();
    stop(broker);
}
