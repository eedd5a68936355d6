//! What is produced is fetched: the same bytes, offsets without gaps, whichever shard is asked.

use crate::support::{Raw, Site, batch, fetch_request, noise, records, stop};
use broker::config::{Auto, ByteSize};
use wire::{
    AckLevel, Acks, Durability, ErrorCode, FetchPartition, FetchReply, FetchRequest, ListOffsetsPartition, ListOffsetsRequest,
    Offset, OffsetAt, PartitionIndex, ProducePartition, ProduceReply, ProduceRequest, TimestampKind, TimestampMs, TopicConfig,
    TopicId,
};

#[test]
fn the_same_bytes_and_offsets_come_back() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let sent: Vec<Vec<u8>> = (0..100).map(|number| noise(number * 37, number as u64)).collect();
    let mut end = 0;
    for values in sent.chunks(7) {
        let reply = client.produce(topic, 0, batch(values));
        assert_eq!((reply.base_offset.0, reply.last_offset.0), (end, end + values.len() as u64 - 1));
        assert_eq!((reply.level, reply.replicas_durable), (AckLevel::Stable, 1));
        end += values.len() as u64;
    }
    assert_eq!(client.read_all(topic, 0), sent);

    // From the middle of a batch: whole batches, the first of which holds the offset.
    let (part, bytes) = client.fetch(topic, 0, 10);
    assert_eq!((part.high_watermark, part.log_end, part.log_start), (Offset(100), Offset(100), Offset(0)));
    assert_eq!(records(&bytes)[0], (7, sent[7].clone()));
    let (part, bytes) = client.fetch(topic, 0, 101);
    assert_eq!((part.error, bytes.len()), (ErrorCode::OffsetOutOfRange, 0));
    stop(broker);
}

#[test]
fn several_batches_of_one_request_are_appended_back_to_back_or_not_at_all() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    client.send_produce(topic, 0, &[batch(&["a", "b"]), batch(&["c"]), batch(&["d", "e"])]);
    let reply = client.receive_produced();
    assert_eq!((reply.error, reply.base_offset.0, reply.last_offset.0), (ErrorCode::None, 0, 4));

    let mut damaged = batch(&["f"]);
    let last = damaged.len() - 17;
    damaged[last] ^= 1;
    client.send_produce(topic, 0, &[batch(&["x"]), damaged, batch(&["y"])]);
    let reply = client.receive_produced();
    assert_eq!(reply.error, ErrorCode::CorruptBatch, "{:?}", reply.message);
    assert_eq!(client.read_all(topic, 0), ["a", "b", "c", "d", "e"].map(|value| value.as_bytes().to_vec()));
    stop(broker);
}

#[test]
fn one_request_for_many_partitions_is_answered_in_its_order() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 8, ..TopicConfig::default() });
    let mut partitions = Vec::new();
    let mut attachments = Vec::new();
    for partition in (0..8).rev().chain([99]) {
        let one = batch(&[format!("for {partition}")]);
        let batch_lengths = vec![u32::try_from(one.len()).unwrap()];
        partitions.push(ProducePartition { topic, partition: PartitionIndex(partition), batch_lengths });
        attachments.extend_from_slice(&one);
    }
    client.send(&ProduceRequest { acks: Acks::Leader, timeout_ms: 60_000, partitions }, &attachments);
    let reply: ProduceReply = client.receive().body();
    let answered: Vec<(u32, ErrorCode)> = reply.partitions.iter().map(|part| (part.partition.0, part.error)).collect();
    let mut expected: Vec<(u32, ErrorCode)> = (0..8).rev().map(|partition| (partition, ErrorCode::None)).collect();
    expected.push((99, ErrorCode::UnknownTopicOrPartition));
    assert_eq!(answered, expected);

    let mut request = fetch_request(topic, 0, 0, 0, 0);
    let first = request.partitions.pop().unwrap();
    request
        .partitions
        .extend((0..8).map(|partition| wire::FetchPartition { partition: PartitionIndex(partition), ..first.clone() }));
    client.send(&request, &[]);
    let reply = client.receive();
    let body: wire::FetchReply = reply.body();
    let values: Vec<String> =
        records(reply.attachments()).into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect();
    assert_eq!(values, (0..8).map(|partition| format!("for {partition}")).collect::<Vec<_>>());
    assert!(body.partitions.iter().all(|part| part.error == ErrorCode::None && part.high_watermark == Offset(1)));
    stop(broker);
}

#[test]
fn a_shard_that_does_not_own_the_partition_passes_it_on() {
    let site = Site::new();
    let broker = site.start(2);
    let (mut on_zero, hello) = Raw::connect_to_shard(broker.addr(), Some(0));
    assert_eq!((hello.shard, hello.shard_count), (0, 2));
    let (mut on_one, hello) = Raw::connect_to_shard(broker.addr(), Some(1));
    assert_eq!(hello.shard, 1);
    let topic = on_zero.create("t", TopicConfig { partitions: 4, ..TopicConfig::default() });
    let owners: Vec<u16> = on_zero.topic("t").partitions.iter().map(|part| part.shard).collect();
    assert!(owners.contains(&0) && owners.contains(&1), "{owners:?}");
    for partition in 0..4 {
        for round in 0..50_u64 {
            let (writer, reader) = if round % 2 == 0 { (&mut on_zero, &mut on_one) } else { (&mut on_one, &mut on_zero) };
            let value = noise(200 + round as usize, round);
            let reply = writer.produce(topic, partition, batch(&[&value]));
            assert_eq!(reply.base_offset.0, round);
            // What was acknowledged can be read at once, wherever it is asked for.
            let (_, bytes) = reader.fetch(topic, partition, round);
            assert_eq!(records(&bytes), [(round, value)]);
        }
    }
    stop(broker);
}

#[test]
fn the_batches_of_one_connection_keep_their_order() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    for number in 0..400_u32 {
        for partition in 0..2 {
            client.send_produce(topic, partition, &[batch(&[number.to_le_bytes()])]);
        }
    }
    for _ in 0..800 {
        assert_eq!(client.receive_produced().error, ErrorCode::None);
    }
    let expected: Vec<Vec<u8>> = (0..400_u32).map(|number| number.to_le_bytes().to_vec()).collect();
    assert_eq!(client.read_all(topic, 0), expected);
    assert_eq!(client.read_all(topic, 1), expected);
    stop(broker);
}

#[test]
fn an_acknowledgement_says_what_it_stands_for() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let stable = client.create("stable", TopicConfig::default());
    let relaxed = client.create("relaxed", TopicConfig { durability: Durability::Relaxed, ..TopicConfig::default() });
    let reply = client.produce(stable, 0, batch(&["v"]));
    assert_eq!((reply.level, reply.replicas_durable), (AckLevel::Stable, 1));
    for round in 0..20 {
        let reply = client.produce(relaxed, 0, batch(&["v"]));
        assert_eq!((reply.level, reply.replicas_durable, reply.base_offset.0), (AckLevel::Relaxed, 0, round));
        let (part, bytes) = client.fetch(relaxed, 0, round);
        assert_eq!((part.high_watermark.0, records(&bytes)[0].0), (round + 1, round));
    }
    stop(broker);

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    assert_eq!(client.read_all(relaxed, 0).len(), 20);
    stop(broker);
}

#[test]
fn the_broker_sets_the_time_where_the_topic_says_so() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { timestamp_kind: TimestampKind::Append, ..TopicConfig::default() });
    let reply = client.produce(topic, 0, batch(&["v"]));
    assert!(reply.append_time_ms.0 > 1_700_000_000_000);
    let (_, bytes) = client.fetch(topic, 0, 0);
    let header = wire::BatchHeader::decode(&bytes).unwrap();
    assert_eq!((header.timestamp_kind, header.max_timestamp_ms), (TimestampKind::Append, reply.append_time_ms));
    stop(broker);
}

#[test]
fn offsets_are_found_by_position_and_by_time() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    for partition in 0..2 {
        client.produce(topic, partition, batch(&["a", "b", "c"]));
    }
    let at = |partition, at| ListOffsetsPartition { topic, partition: PartitionIndex(partition), at };
    let partitions = vec![
        at(1, OffsetAt::Earliest),
        at(0, OffsetAt::Latest),
        at(1, OffsetAt::Timestamp(TimestampMs(1_700_000_000_000))),
        at(0, OffsetAt::Timestamp(TimestampMs(4_000_000_000_000))),
        at(7, OffsetAt::Latest),
    ];
    let reply = client.ask(&ListOffsetsRequest { partitions });
    let found: Vec<(ErrorCode, u64)> = reply.partitions.iter().map(|part| (part.error, part.offset.0)).collect();
    assert_eq!(found[..4], [(ErrorCode::None, 0), (ErrorCode::None, 3), (ErrorCode::None, 0), (ErrorCode::None, 3)]);
    assert_eq!(found[4].0, ErrorCode::UnknownTopicOrPartition);
    stop(broker);
}

#[test]
fn what_is_not_there_is_said_to_be_unknown() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let nowhere = TopicId([7; 16]);
    assert_eq!(client.try_produce(nowhere, 0, batch(&["v"])).error, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(client.fetch(nowhere, 0, 0).0.error, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(client.topic("nowhere").error, ErrorCode::UnknownTopicOrPartition);
    stop(broker);
}

#[test]
fn a_produce_that_takes_too_long_is_answered_timed_out_and_is_stored_all_the_same() {
    const COUNT: usize = 8;
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let large = batch(&[noise(8 << 20, 1)]);
    // One that may take long is there first: the others do not wait for its time.
    client.send_produce(topic, 0, &[batch(&["patient"])]);
    for _ in 0..COUNT {
        let part =
            ProducePartition { topic, partition: PartitionIndex(0), batch_lengths: vec![u32::try_from(large.len()).unwrap()] };
        client.send(&ProduceRequest { acks: Acks::AllInSync, timeout_ms: 1, partitions: vec![part] }, &large);
    }
    let codes: Vec<ErrorCode> = (0..=COUNT).map(|_| client.receive_produced().error).collect();
    assert!(codes.iter().all(|code| matches!(code, ErrorCode::None | ErrorCode::TimedOut)), "{codes:?}");
    assert!(codes.contains(&ErrorCode::TimedOut), "64 MiB are stable within a millisecond each: {codes:?}");
    // Behind an acknowledgement everything before it is stable.
    assert_eq!(client.produce(topic, 0, batch(&["last"])).base_offset.0, COUNT as u64 + 1);
    assert_eq!(client.read_all(topic, 0).len(), COUNT + 2);
    stop(broker);
}

/// A request for these partitions from their beginning.
fn fetch_many(topic: TopicId, partitions: impl Iterator<Item = u32>, bytes_each: u32, bytes_max: u32) -> FetchRequest {
    let part = |partition| FetchPartition {
        topic,
        partition: PartitionIndex(partition),
        offset: Offset(0),
        max_bytes: bytes_each,
        leader_epoch: None,
    };
    FetchRequest { max_wait_ms: 0, min_bytes: 1, max_bytes: bytes_max, partitions: partitions.map(part).collect() }
}

#[test]
fn many_cold_partitions_are_read_in_the_order_of_the_request_and_within_its_bytes() {
    const PARTITIONS: u32 = 40;
    const VALUE: usize = 10 << 10;
    let site = Site::new();
    let mut config = site.config(2);
    // Nothing is remembered.
    config.memory.read_cache_bytes = "0".parse().unwrap();
    config.memory.tail_cache_bytes = Auto::Set(ByteSize(0));
    let broker = broker::start(config.clone()).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() });
    for partition in 0..PARTITIONS {
        for number in 0..3 {
            client.produce(topic, partition, batch(&[noise(VALUE, u64::from(partition) * 10 + number)]));
        }
    }
    stop(broker);
    let broker = broker::start(config).unwrap();
    let (mut client, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let batch_bytes = batch(&[noise(VALUE, 1)]).len();

    // What may be on its way to a client grows with what it takes.
    for _ in 0..10 {
        client.send(&fetch_many(topic, 0..PARTITIONS, 1 << 20, 16 << 20), &[]);
        client.receive();
    }

    // (bytes for each partition, for all, batches expected of each partition, of all)
    let cases = [
        (1 << 20, 16 << 20, Some(3), 120),
        // Two batches do not stand quite side by side on disk.
        (2 * batch_bytes + 5_000, 16 << 20, Some(2), 80),
        (1, 16 << 20, Some(1), 40),
        (1 << 20, 10 * batch_bytes, None, 10),
        (batch_bytes, 10 * batch_bytes, None, 10),
        (1 << 20, 1, None, 1),
    ];
    for (bytes_each, bytes_max, of_each, of_all) in cases {
        // Backwards, so that the order of the request is not that of the partitions.
        let (bytes_each, bytes_max) = (u32::try_from(bytes_each).unwrap(), u32::try_from(bytes_max).unwrap());
        client.send(&fetch_many(topic, (0..PARTITIONS).rev(), bytes_each, bytes_max), &[]);
        let reply = client.receive();
        let body: FetchReply = reply.body();
        let mut bytes = reply.attachments();
        let mut batches = 0;
        for (part, partition) in body.partitions.iter().zip((0..PARTITIONS).rev()) {
            assert_eq!((part.error, part.partition.0), (ErrorCode::None, partition), "{:?}", part.message);
            let (own, rest) = bytes.split_at(part.batch_bytes as usize);
            bytes = rest;
            let found = records(own);
            for (offset, value) in &found {
                assert!(*value == noise(VALUE, u64::from(partition) * 10 + offset), "partition {partition}, offset {offset}");
            }
            assert!(of_each.is_none_or(|count| found.len() == count), "{} with {bytes_each} bytes each", found.len());
            batches += found.len();
        }
        assert_eq!(batches, of_all, "with {bytes_each} bytes each and {bytes_max} for all");
    }
    stop(broker);
}
