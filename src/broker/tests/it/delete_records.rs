//! The oldest records go when they are asked to, and stay gone.

use crate::support::{Raw, Site, batch, stop};
use wire::{
    DeleteRecordsPartition, DeleteRecordsPartitionReply, DeleteRecordsRequest, ErrorCode, ListOffsetsPartition,
    ListOffsetsRequest, Offset, OffsetAt, PartitionIndex, TopicConfig, TopicId,
};

fn delete(client: &mut Raw, topic: TopicId, before: &[(u32, u64)]) -> Vec<DeleteRecordsPartitionReply> {
    let part = |&(partition, before): &(u32, u64)| DeleteRecordsPartition {
        topic,
        partition: PartitionIndex(partition),
        before: Offset(before),
    };
    let reply = client.ask(&DeleteRecordsRequest { partitions: before.iter().map(part).collect() });
    assert_eq!(reply.partitions.len(), before.len());
    reply.partitions
}

fn starts(client: &mut Raw, topic: TopicId, partitions: u32) -> Vec<u64> {
    let part = |partition| ListOffsetsPartition { topic, partition: PartitionIndex(partition), at: OffsetAt::Earliest };
    let reply = client.ask(&ListOffsetsRequest { partitions: (0..partitions).map(part).collect() });
    reply.partitions.into_iter().map(|part| part.offset.0).collect()
}

#[test]
fn log_starts_move_on_every_shard_and_stay_moved() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 6, ..TopicConfig::default() });
    for partition in 0..6 {
        client.produce(topic, partition, batch(&["a", "b", "c"]));
        client.produce(topic, partition, batch(&["d", "e"]));
    }
    // At a batch, within one, everything, nothing.
    let replies = delete(&mut client, topic, &[(5, 3), (0, 2), (3, 5), (1, 0)]);
    let told: Vec<_> = replies.iter().map(|part| (part.partition.0, part.error, part.log_start.0)).collect();
    assert_eq!(told, [(5, ErrorCode::None, 3), (0, ErrorCode::None, 2), (3, ErrorCode::None, 5), (1, ErrorCode::None, 0)]);
    assert_eq!(starts(&mut client, topic, 6), [2, 0, 0, 5, 0, 3]);

    // Once more, and further back: it is gone already.
    let replies = delete(&mut client, topic, &[(5, 3), (5, 1)]);
    assert!(replies.iter().all(|part| (part.error, part.log_start.0) == (ErrorCode::None, 3)), "{replies:?}");
    let (below, bytes) = client.fetch(topic, 0, 1);
    assert_eq!((below.error, below.log_start.0, bytes.len()), (ErrorCode::OffsetOutOfRange, 2, 0));
    let (at_start, bytes) = client.fetch(topic, 0, 2);
    assert_eq!(at_start.error, ErrorCode::None);
    assert!(crate::support::records(&bytes).contains(&(2, b"c".to_vec())));
    assert_eq!(client.produce(topic, 3, batch(&["f"])).base_offset.0, 5);
    stop(broker);

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    assert_eq!(starts(&mut client, topic, 6), [2, 0, 0, 5, 0, 3]);
    assert_eq!(client.produce(topic, 3, batch(&["g"])).base_offset.0, 6);
    stop(broker);
}

#[test]
fn what_cannot_be_deleted_is_said_for_each_partition() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    (0..2).for_each(|partition| drop(client.produce(topic, partition, batch(&["a", "b"]))));
    let replies = delete(&mut client, topic, &[(0, 3), (1, 1), (2, 0), (1, u64::MAX)]);
    let errors: Vec<ErrorCode> = replies.iter().map(|part| part.error).collect();
    let (range, unknown) = (ErrorCode::OffsetOutOfRange, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(errors, [range, ErrorCode::None, unknown, range]);
    assert!(replies[0].message.as_deref().unwrap().contains("ends at 2"), "{:?}", replies[0]);
    assert_eq!(delete(&mut client, TopicId([9; 16]), &[(0, 0)])[0].error, unknown);
    assert_eq!(starts(&mut client, topic, 2), [0, 1]);
    stop(broker);
}
