//! Idempotent producers: what is sent again is stored once, what does not follow is refused, whichever shard is asked and whatever restarts.

use crate::support::{Raw, Site, batch, batch_by, stop};
use wire::{
    ErrorCode, InitProducerReply, InitProducerRequest, ProducePartitionReply, ProducerEpoch, ProducerId, ProducerIdentity,
    TopicConfig, TopicId,
};

fn try_init(client: &mut Raw, name: Option<&str>, current: Option<ProducerIdentity>) -> InitProducerReply {
    client.ask(&InitProducerRequest { name: name.map(str::to_owned), current })
}

fn init(client: &mut Raw, name: Option<&str>) -> ProducerIdentity {
    let reply = try_init(client, name, None);
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
    ProducerIdentity { id: reply.producer_id, epoch: reply.producer_epoch }
}

fn offsets(reply: &ProducePartitionReply) -> (ErrorCode, u64, u64) {
    (reply.error, reply.base_offset.0, reply.last_offset.0)
}

fn send(client: &mut Raw, topic: TopicId, producer: ProducerIdentity, sequence: i32, values: &[&str]) -> (ErrorCode, u64, u64) {
    offsets(&client.try_produce(topic, 0, batch_by(producer, sequence, values)))
}

fn values(client: &mut Raw, topic: TopicId) -> Vec<String> {
    client.read_all(topic, 0).into_iter().map(|value| String::from_utf8(value).unwrap()).collect()
}

#[test]
fn a_batch_sent_again_is_stored_once_and_has_its_offsets() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let producer = init(&mut client, None);
    assert_eq!(send(&mut client, topic, producer, 0, &["a", "b"]), (ErrorCode::None, 0, 1));
    client.produce(topic, 0, batch(&["somebody else"]));
    assert_eq!(send(&mut client, topic, producer, 2, &["c"]), (ErrorCode::None, 3, 3));
    // Over either shard, one of which does not own the partition.
    for shard in 0..2 {
        let (mut other, _) = Raw::connect_to_shard(broker.addr(), Some(shard));
        assert_eq!(send(&mut other, topic, producer, 0, &["a", "b"]), (ErrorCode::None, 0, 1));
        assert_eq!(send(&mut other, topic, producer, 2, &["c"]), (ErrorCode::None, 3, 3));
    }
    // Both before the first is durable: one is stored, and both are told where.
    let first = client.send_produce(topic, 0, &[batch_by(producer, 3, &["d"])]);
    let again = client.send_produce(topic, 0, &[batch_by(producer, 3, &["d"])]);
    assert_ne!(first, again);
    assert_eq!([offsets(&client.receive_produced()), offsets(&client.receive_produced())], [(ErrorCode::None, 4, 4); 2]);
    assert_eq!(values(&mut client, topic), ["a", "b", "somebody else", "c", "d"]);
    stop(broker);
}

#[test]
fn several_batches_sent_again_are_answered_when_they_stand_together() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let producer = init(&mut client, None);
    let set = [batch_by(producer, 0, &["a"]), batch_by(producer, 1, &["b", "c"])];
    for _ in 0..2 {
        client.send_produce(topic, 0, &set);
        assert_eq!(offsets(&client.receive_produced()), (ErrorCode::None, 0, 2));
    }
    client.send_produce(topic, 0, &[batch_by(producer, 1, &["b", "c"]), batch_by(producer, 3, &["d"])]);
    assert_eq!(client.receive_produced().error, ErrorCode::InvalidRequest);
    let other = init(&mut client, None);
    client.send_produce(topic, 0, &[batch_by(producer, 3, &["d"]), batch_by(other, 0, &["e"])]);
    assert_eq!(client.receive_produced().error, ErrorCode::InvalidRequest);
    assert_eq!(values(&mut client, topic), ["a", "b", "c"]);
    stop(broker);
}

#[test]
fn what_does_not_follow_is_refused() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let producer = init(&mut client, None);
    let code = |client: &mut Raw, producer, sequence| send(client, topic, producer, sequence, &["x"]).0;
    assert_eq!(code(&mut client, producer, 1), ErrorCode::UnknownProducer);
    assert_eq!(code(&mut client, producer, 0), ErrorCode::None);
    assert_eq!(code(&mut client, producer, 2), ErrorCode::OutOfOrderSequence);
    let reply = try_init(&mut client, None, Some(producer));
    let next = ProducerIdentity { id: reply.producer_id, epoch: reply.producer_epoch };
    assert_eq!(next, ProducerIdentity { id: producer.id, epoch: ProducerEpoch(1) });
    assert_eq!(code(&mut client, next, 0), ErrorCode::None);
    assert_eq!(code(&mut client, producer, 1), ErrorCode::ProducerFenced);
    let negative = ProducerIdentity { id: ProducerId(-7), epoch: ProducerEpoch(0) };
    assert_eq!(code(&mut client, negative, 0), ErrorCode::InvalidBatch);
    assert_eq!(values(&mut client, topic), ["x", "x"]);
    stop(broker);
}

#[test]
fn an_instance_of_a_name_fences_the_one_before_on_every_shard() {
    let site = Site::new();
    let broker = site.start(3);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 12, ..TopicConfig::default() });
    let first = init(&mut client, Some("payments"));
    assert_eq!(client.try_produce(topic, 0, batch_by(first, 0, &["x"])).error, ErrorCode::None);
    let (mut elsewhere, _) = Raw::connect_to_shard(broker.addr(), Some(2));
    let second = init(&mut elsewhere, Some("payments"));
    assert_eq!(second, ProducerIdentity { id: first.id, epoch: ProducerEpoch(1) });
    // Also where the second has appended nothing, and the first had not begun.
    for partition in 0..12 {
        let reply = client.try_produce(topic, partition, batch_by(first, i32::from(partition == 0), &["late"]));
        assert_eq!(reply.error, ErrorCode::ProducerFenced, "partition {partition}");
    }
    assert_eq!(try_init(&mut client, Some("payments"), Some(first)).error, ErrorCode::ProducerFenced);
    assert_eq!(try_init(&mut client, Some(""), None).error, ErrorCode::InvalidRequest);
    assert_eq!(elsewhere.try_produce(topic, 5, batch_by(second, 0, &["x"])).error, ErrorCode::None);
    stop(broker);

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    assert_eq!(client.try_produce(topic, 7, batch_by(first, 0, &["late"])).error, ErrorCode::ProducerFenced);
    assert_eq!(client.try_produce(topic, 7, batch_by(second, 0, &["x"])).error, ErrorCode::None);
    let third = init(&mut client, Some("payments"));
    assert_eq!(third, ProducerIdentity { id: first.id, epoch: ProducerEpoch(2) });
    stop(broker);
}

#[test]
fn producers_are_known_after_restarts_with_any_number_of_shards() {
    let site = Site::new();
    let mut sequence = 0;
    let mut known: Option<(TopicId, ProducerIdentity)> = None;
    let mut ids = Vec::new();
    for shards in [1, 3, 2, 1] {
        let broker = site.start(shards);
        let mut client = Raw::connect(broker.addr());
        let fresh = init(&mut client, None);
        assert!(!ids.contains(&fresh.id), "an id is given once: {fresh:?} after {ids:?}");
        ids.push(fresh.id);
        let (topic, producer) = *known.get_or_insert_with(|| (client.create("t", TopicConfig::default()), fresh));
        if sequence > 0 {
            let last = u64::try_from(sequence - 1).unwrap();
            assert_eq!(send(&mut client, topic, producer, sequence - 1, &["x"]), (ErrorCode::None, last, last));
            assert_eq!(send(&mut client, topic, producer, sequence + 1, &["x"]).0, ErrorCode::OutOfOrderSequence);
        }
        for _ in 0..7 {
            assert_eq!(send(&mut client, topic, producer, sequence, &["x"]).0, ErrorCode::None);
            sequence += 1;
        }
        assert_eq!(values(&mut client, topic).len(), usize::try_from(sequence).unwrap());
        stop(broker);
    }
}
