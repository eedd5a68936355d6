//! Requests about partitions of many shards from a client that does not know shards.

use crate::support::{Raw, Site, batch, noise, records, stop};
use wire::{
    DescribeTopicRequest, ErrorCode, FetchPartition, FetchReply, FetchRequest, ListOffsetsPartition, ListOffsetsRequest, Offset,
    OffsetAt, PartitionIndex, TopicConfig, TopicId,
};

const PARTITIONS: u32 = 12;
const VALUE: usize = 8 << 10;

fn value(partition: u32, offset: u64) -> Vec<u8> {
    noise(VALUE, u64::from(partition) * 1000 + offset)
}

/// One fetch from these offsets on; gives the values of each partition in the order of the request, each with its offset.
fn fetch(client: &mut Raw, topic: TopicId, from: &[u64], min_bytes: usize, max_bytes: usize) -> Vec<Vec<(u64, Vec<u8>)>> {
    let part = |(partition, offset): (u32, &u64)| FetchPartition {
        topic,
        partition: PartitionIndex(partition),
        offset: Offset(*offset),
        max_bytes: 16 << 20,
        leader_epoch: None,
    };
    let (min_bytes, max_bytes) = (u32::try_from(min_bytes).unwrap(), u32::try_from(max_bytes).unwrap());
    let request = FetchRequest { max_wait_ms: 60_000, min_bytes, max_bytes, partitions: (0..).zip(from).map(part).collect() };
    client.send(&request, &[]);
    let reply = client.receive();
    let body: FetchReply = reply.body();
    let mut bytes = reply.attachments();
    assert_eq!(body.partitions.len(), from.len());
    let parts = body.partitions.iter().zip(0..).map(|(part, partition)| {
        assert_eq!((part.error, part.partition.0), (ErrorCode::None, partition), "{:?}", part.message);
        let (own, rest) = bytes.split_at(part.batch_bytes as usize);
        bytes = rest;
        records(own)
    });
    parts.collect()
}

#[test]
fn one_fetch_fills_its_bytes_from_wherever_the_records_are() {
    let site = Site::new();
    let broker = site.start(4);
    let (mut client, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let topic = client.create("t", TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() });
    // One has much, one has some, the others have nothing: the shares of their shards go to it.
    let counts: Vec<u64> =
        (0..PARTITIONS).map(|partition| [0, 0, 0, 0, 0, 60, 0, 7].get(partition as usize).copied().unwrap_or(0)).collect();
    for (partition, count) in (0..).zip(&counts) {
        for offset in 0..*count {
            client.produce(topic, partition, batch(&[value(partition, offset)]));
        }
    }
    let batch_bytes = batch(&[value(0, 0)]).len();
    // It does not wait: there is as much as it wants at least.
    let read = fetch(&mut client, topic, &[0; PARTITIONS as usize], 40 * batch_bytes, 40 * batch_bytes);
    let found: usize = read.iter().map(Vec::len).sum();
    assert!((40..=44).contains(&found), "{found} batches");
    assert!(read[7].len() <= 7 && read[5].len() >= 33, "{} and {}", read[7].len(), read[5].len());

    // From there on, until all is read: every record once and in order.
    let mut from = [0; PARTITIONS as usize];
    while from[..] != counts[..] {
        for (partition, found) in fetch(&mut client, topic, &from, 1, 9 * batch_bytes).into_iter().enumerate() {
            for (offset, found) in found {
                assert_eq!(offset, from[partition], "partition {partition}");
                assert!(found == value(u32::try_from(partition).unwrap(), offset));
                from[partition] += 1;
            }
        }
    }
    stop(broker);
}

#[test]
fn offsets_and_descriptions_come_in_the_order_of_the_request_whatever_the_shards() {
    let site = Site::new();
    let broker = site.start(4);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() });
    for partition in 0..PARTITIONS {
        client.produce(topic, partition, batch(&vec!["v"; 1 + partition as usize]));
    }
    // Backwards and interleaved, with one that does not exist, and one twice.
    let asked: Vec<u32> = (0..PARTITIONS).rev().chain([PARTITIONS, 3]).collect();
    let partitions =
        asked.iter().map(|partition| ListOffsetsPartition { topic, partition: PartitionIndex(*partition), at: OffsetAt::Latest });
    let reply = client.ask(&ListOffsetsRequest { partitions: partitions.collect() });
    let found: Vec<_> = reply.partitions.iter().map(|part| (part.partition.0, part.error, part.offset.0)).collect();
    let expected = asked.iter().map(|partition| match *partition {
        PARTITIONS => (PARTITIONS, ErrorCode::UnknownTopicOrPartition, 0),
        partition => (partition, ErrorCode::None, u64::from(partition) + 1),
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
    let described = client.ask(&DescribeTopicRequest { name: "t".to_owned() });
    let ends: Vec<u64> = described.partitions.iter().map(|partition| partition.high_watermark.0).collect();
    assert_eq!(ends, (1..=u64::from(PARTITIONS)).collect::<Vec<_>>());
    stop(broker);
}
