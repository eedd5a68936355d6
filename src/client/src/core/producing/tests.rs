//! The producer's decisions, with replies and time made by hand.

mod identity;

use std::collections::BTreeSet;
use std::time::Duration;

use wire::{
    AckLevel, BatchBuilder, BatchHeader, BatchView, BuilderOptions, ErrorCode, Offset, ProducePartitionReply, ProduceReply,
    ProducerEpoch, ProducerId, TimestampMs,
};

use super::*;
use crate::core::samples::{BACKOFF_MAX, Clock, FIRST, SECOND, TOPIC, backoff, key, map, topic};
use crate::limits::BATCHES_PER_PARTITION_MAX;
use crate::producer::DeliveryFuture;
use crate::record::Record;

const IDENTITY: ProducerIdentity = ProducerIdentity { id: ProducerId(9), epoch: ProducerEpoch(0) };

/// A producer of the sample cluster, every shard connected.
struct Bench {
    core: ProducerCore,
    clock: Clock,
    map: ClusterMap,
    unconnected: Vec<Target>,
}

impl Bench {
    fn new(leaders: &[Target], options: ProducerOptions) -> Self {
        let mut core = ProducerCore::new(options, backoff());
        core.identified(Instant::now(), Ok(IDENTITY), 0);
        Self { core, clock: Clock::new(), map: map(leaders), unconnected: Vec::new() }
    }

    fn send(&mut self, partition: u32, value: &str) -> DeliveryFuture {
        let topic = topic(&self.map);
        let record = Record::to(TOPIC).value(value);
        self.core.push(self.clock.0, &topic, partition, &record, TimestampMs(1), None).unwrap().0
    }

    /// Requests that leave now.
    fn leaving(&mut self) -> Vec<ProducePlan> {
        self.actions().requests
    }

    fn actions(&mut self) -> ProduceActions {
        let unconnected = self.unconnected.clone();
        self.core.next_actions(self.clock.0, &self.map, |target| !unconnected.contains(&target), 0)
    }

    /// The only request that leaves now.
    fn one(&mut self) -> ProducePlan {
        let mut requests = self.leaving();
        assert_eq!(requests.len(), 1);
        requests.pop().unwrap()
    }

    /// Gives every partition of the request this answer.
    fn answer(&mut self, plan: ProducePlan, code: ErrorCode) {
        let reply = reply(&plan, code);
        self.core.on_reply(self.clock.0, plan, Ok(reply), 0);
    }

    fn disconnect(&mut self, plan: ProducePlan) {
        let error = ClientError::new(ErrorKind::Disconnected, "produce", "broker:1 shard 0", "the broker closed the connection");
        self.core.on_reply(self.clock.0, plan, Err(error), 0);
    }
}

fn reply(plan: &ProducePlan, error: ErrorCode) -> ProduceReply {
    let partitions = plan.partitions.iter().map(|part| ProducePartitionReply {
        topic: part.key.topic,
        partition: part.key.partition,
        error,
        message: None,
        base_offset: Offset(100),
        last_offset: Offset(100),
        log_start: Offset::ZERO,
        append_time_ms: TimestampMs(-1),
        level: AckLevel::Stable,
        replicas_durable: 1,
    });
    ProduceReply { partitions: partitions.collect() }
}

/// The values in a request, a vector a batch.
fn values(plan: &mut ProducePlan) -> Vec<Vec<String>> {
    let batches = plan.partitions.iter_mut().flat_map(|part| &mut part.batches);
    let values = batches.map(|batch| {
        // A copy, because a batch is read where it is aligned.
        let mut bytes = wire::AlignedVec::new();
        bytes.extend_from_slice(&batch.build());
        let view = BatchView::new(&bytes).unwrap();
        view.records().map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()).collect()
    });
    values.collect()
}

/// Epoch and first sequence of each batch.
fn stamps(plan: &mut ProducePlan) -> Vec<(i16, i32)> {
    let batches = plan.partitions.iter_mut().flat_map(|part| &mut part.batches);
    let headers = batches.map(|batch| BatchHeader::decode(&batch.build()).unwrap());
    headers.map(|header| (header.producer_epoch.0, header.base_sequence.0)).collect()
}

#[test]
fn a_batch_closes_at_its_size() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions { batch_bytes: 1000, ..ProducerOptions::default() });
    for index in 0..10 {
        drop(bench.send(0, &format!("{index}{}", "x".repeat(300))));
    }
    let mut plan = bench.one();
    let mut sent = values(&mut plan);
    assert!(sent.len() > 1, "full batches leave together: {}", sent.len());
    assert!(sent.iter().all(|batch| batch.len() == sent[0].len()));
    bench.answer(plan, ErrorCode::None);
    sent.extend(values(&mut bench.one()));
    let starts: Vec<&str> = sent.iter().flatten().map(|value| &value[..1]).collect();
    assert_eq!(starts, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[test]
fn a_batch_that_is_not_full_lingers_and_then_leaves() {
    let linger = Duration::from_millis(10);
    let mut bench = Bench::new(&[FIRST], ProducerOptions { linger, ..ProducerOptions::default() });
    drop(bench.send(0, "a"));
    bench.clock.advance(linger / 2);
    drop(bench.send(0, "b"));
    assert!(bench.leaving().is_empty());
    assert_eq!(bench.core.next_timer(), Some(bench.clock.0 + linger / 2));
    bench.clock.advance(linger / 2);
    let mut plan = bench.one();
    assert_eq!(values(&mut plan), [["a", "b"]]);
}

#[test]
fn a_flush_does_not_wait_for_the_linger() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions { linger: Duration::from_secs(3600), ..ProducerOptions::default() });
    let delivery = bench.send(0, "a");
    let mark = bench.core.flush(bench.clock.0);
    let plan = bench.one();
    assert!(!bench.core.flushed(mark));
    drop(bench.send(0, "later"));
    bench.answer(plan, ErrorCode::None);
    assert!(bench.core.flushed(mark), "what came after the flush is not waited for");
    assert_eq!(delivery.try_get().unwrap().unwrap().offset, Offset(100));
}

#[test]
fn keys_choose_their_partition_and_keyless_records_stay_for_a_batch() {
    let mut bench = Bench::new(&[FIRST; 3], ProducerOptions { batch_bytes: 100, ..ProducerOptions::default() });
    let topic = topic(&bench.map);
    // As Kafka's clients place them.
    for key in ["a", "customer-7", ""] {
        let expected = wire::partition_for_key(key.as_bytes(), 3).0;
        for random in 0..5 {
            let chosen = bench.core.choose_partition(&topic, &Record::to(TOPIC).key(key), random).unwrap();
            assert_eq!(chosen, expected);
        }
    }
    let value = vec![0; 50];
    let record = Record::to(TOPIC).value(&value);
    let chosen: Vec<u32> = (0..8).map(|random| bench.core.choose_partition(&topic, &record, random).unwrap()).collect();
    assert_eq!(chosen, [0, 0, 1, 1, 2, 2, 0, 0], "a batch's worth each, the first by chance");
    let named = Record::to(TOPIC).key("a").partition(2);
    assert_eq!(bench.core.choose_partition(&topic, &named, 0).unwrap(), 2);
    let error = bench.core.choose_partition(&topic, &Record::to(TOPIC).partition(3), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchPartition);
}

#[test]
fn a_partition_has_one_request_under_way_and_what_gathers_leaves_as_one() {
    let mut bench = Bench::new(&[FIRST, FIRST], ProducerOptions::default());
    drop(bench.send(0, "a"));
    let first = bench.one();
    drop(bench.send(0, "b"));
    drop(bench.send(0, "c"));
    drop(bench.send(1, "elsewhere"));
    let mut other = bench.one();
    assert_eq!(values(&mut other), [["elsewhere"]]);
    bench.answer(first, ErrorCode::None);
    let mut second = bench.one();
    assert_eq!(values(&mut second), [["b", "c"]]);
    assert!(bench.leaving().is_empty());
}

#[test]
fn partitions_of_a_shard_share_a_request_and_shards_do_not() {
    let mut bench = Bench::new(&[FIRST, SECOND, FIRST], ProducerOptions::default());
    (0..3).for_each(|partition| drop(bench.send(partition, "x")));
    let plans = bench.leaving();
    let places: Vec<(Target, Vec<u32>)> =
        plans.iter().map(|plan| (plan.target, plan.partitions.iter().map(|part| part.key.partition.0).collect())).collect();
    assert_eq!(places, [(FIRST, vec![0, 2]), (SECOND, vec![1])]);
}

#[test]
fn a_failed_request_is_sent_again_in_its_place_after_a_growing_wait() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    let delivery = bench.send(0, "a");
    let mut plan = bench.one();
    drop(bench.send(0, "b"));
    for (failures, full_ms) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (6, 1000)] {
        match failures % 2 {
            0 => bench.answer(plan, ErrorCode::Overloaded),
            _ => bench.disconnect(plan),
        }
        assert!(bench.leaving().is_empty(), "it waits");
        // With 0 for chance, a wait is half of what it can be.
        let wait = Duration::from_millis(full_ms / 2);
        assert_eq!(bench.core.next_timer(), Some(bench.clock.0 + wait), "failure {failures}");
        bench.clock.advance(wait);
        plan = bench.one();
        assert_eq!(values(&mut plan)[0], ["a"], "its successor did not overtake it");
        assert!(delivery.try_get().is_none());
    }
    bench.answer(plan, ErrorCode::None);
    assert!(delivery.try_get().unwrap().is_ok());
}

#[test]
fn without_retries_the_first_failure_is_the_result() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions { retries: false, ..ProducerOptions::default() });
    let delivery = bench.send(0, "a");
    let plan = bench.one();
    bench.disconnect(plan);
    let error = delivery.try_get().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Disconnected, true));
    assert!(bench.leaving().is_empty());
}

#[test]
fn with_more_in_flight_a_failure_falls_back_to_one_and_order_is_taken_up_again() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions { partition_requests_in_flight_max: 3, ..ProducerOptions::default() });
    let plans: Vec<ProducePlan> = ["a", "b", "c"]
        .map(|value| {
            drop(bench.send(0, value));
            bench.one()
        })
        .into();
    drop(bench.send(0, "d"));
    assert!(bench.leaving().is_empty(), "three are under way");
    for plan in plans.into_iter().rev() {
        bench.answer(plan, ErrorCode::Overloaded);
    }
    bench.clock.advance(BACKOFF_MAX);
    let mut again = bench.one();
    assert_eq!(values(&mut again).concat()[..3], ["a", "b", "c"]);
    assert!(bench.leaving().is_empty(), "one at a time while there are failures");
}

#[test]
fn delivery_ends_with_its_timeout_and_says_what_kept_it() {
    let delivery_timeout = Duration::from_secs(3);
    let mut bench = Bench::new(&[FIRST], ProducerOptions { delivery_timeout, ..ProducerOptions::default() });
    let begun = bench.clock.0;
    let delivery = bench.send(0, "a");
    while delivery.try_get().is_none() {
        for plan in bench.leaving() {
            bench.disconnect(plan);
        }
        if let Some(timer) = bench.core.next_timer().filter(|_| delivery.try_get().is_none()) {
            assert!(timer > bench.clock.0, "time goes on");
            bench.clock.0 = timer;
        }
    }
    assert!(bench.clock.0 - begun >= delivery_timeout);
    assert!(bench.clock.0 - begun < delivery_timeout + BACKOFF_MAX);
    let error = delivery.try_get().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert!(error.to_string().contains("gave up after"), "{error}");
    assert!(error.place().starts_with("t/0"), "{error}");
    assert_eq!(bench.core.unfinished_batches(), 0);
}

#[test]
fn a_shard_that_cannot_be_reached_is_named_when_the_time_is_over() {
    let delivery_timeout = Duration::from_secs(3);
    let mut bench = Bench::new(&[FIRST], ProducerOptions { delivery_timeout, ..ProducerOptions::default() });
    bench.unconnected.push(FIRST);
    let delivery = bench.send(0, "a");
    while delivery.try_get().is_none() {
        let actions = bench.actions();
        for target in actions.connect {
            let error = ClientError::new(ErrorKind::Connect, "connect", "broker:1", "refused");
            bench.core.connection_failed(bench.clock.0, target, &error, 0);
        }
        bench.clock.0 = bench.core.next_timer().unwrap_or(bench.clock.0);
    }
    let error = delivery.try_get().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().starts_with("produce: t/0 (broker:1): refused (gave up after"), "{error}");
}

#[test]
fn a_wrong_leader_asks_for_metadata_and_the_batch_goes_where_it_says() {
    for code in [ErrorCode::NotLeader, ErrorCode::WrongShard, ErrorCode::UnknownTopicOrPartition] {
        let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
        drop(bench.send(0, "a"));
        let plan = bench.one();
        assert_eq!(bench.core.take_metadata_wanted(), None);
        bench.answer(plan, code);
        assert_eq!(bench.core.take_metadata_wanted(), Some(vec![TOPIC.to_owned()]), "{code:?}");
        assert_eq!(bench.core.take_metadata_wanted(), None, "once");
        bench.map = map(&[SECOND]);
        bench.clock.advance(BACKOFF_MAX);
        assert_eq!(bench.one().target, SECOND);
    }
}

#[test]
fn a_topic_that_stays_unknown_counts_as_deleted() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    let delivery = bench.send(0, "a");
    bench.map = ClusterMap::default();
    for attempt in 1..=UNKNOWN_PARTITION_ANSWERS_MAX {
        assert!(delivery.try_get().is_none(), "attempt {attempt}");
        assert!(bench.leaving().is_empty());
        assert_eq!(bench.core.take_metadata_wanted(), Some(vec![TOPIC.to_owned()]));
        bench.clock.advance(BACKOFF_MAX);
    }
    let error = delivery.try_get().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition));
}

#[test]
fn failures_without_an_answer_do_not_count_towards_a_topic_that_is_deleted() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    let delivery = bench.send(0, "a");
    for _ in 0..3 * UNKNOWN_PARTITION_ANSWERS_MAX {
        bench.unconnected = vec![FIRST];
        for target in bench.actions().connect {
            let refused = ClientError::new(ErrorKind::Connect, "connect", "broker:1", "refused");
            bench.core.connection_failed(bench.clock.0, target, &refused, 0);
        }
        bench.clock.advance(BACKOFF_MAX);
    }
    // The broker is back, and its shard has not made the partition yet.
    bench.unconnected.clear();
    let plan = bench.one();
    bench.answer(plan, ErrorCode::UnknownTopicOrPartition);
    bench.clock.advance(BACKOFF_MAX);
    let plan = bench.one();
    bench.answer(plan, ErrorCode::None);
    assert!(delivery.try_get().unwrap().is_ok());
}

#[test]
fn what_waits_for_room_on_a_connection_goes_on_when_there_is_some() {
    let options = ProducerOptions { connection_requests_in_flight_max: 1, ..ProducerOptions::default() };
    let mut bench = Bench::new(&[FIRST, FIRST], options);
    drop(bench.send(0, "a"));
    let first = bench.one();
    drop(bench.send(1, "b"));
    assert!(bench.leaving().is_empty());
    bench.answer(first, ErrorCode::None);
    let mut second = bench.one();
    assert_eq!(values(&mut second), [["b"]]);
}

#[test]
fn a_request_stays_within_the_limits_of_the_wire() {
    let partitions = wire::limits::PARTITIONS_PER_REQUEST_MAX + 1;
    let options = ProducerOptions { request_bytes_max: usize::MAX, ..ProducerOptions::default() };
    let mut bench = Bench::new(&vec![FIRST; partitions], options);
    (0..u32::try_from(partitions).unwrap()).for_each(|partition| drop(bench.send(partition, "x")));
    let sizes: Vec<usize> = bench.leaving().iter().map(|plan| plan.partitions.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), partitions);
    assert!(sizes.iter().all(|size| *size <= wire::limits::PARTITIONS_PER_REQUEST_MAX), "{sizes:?}");

    // As many batches a partition as it may have, in more partitions than one request has room for.
    let partitions = u32::try_from(wire::limits::BATCHES_PER_REQUEST_MAX / BATCHES_PER_PARTITION_MAX + 1).unwrap();
    let options = ProducerOptions { request_bytes_max: usize::MAX, ..ProducerOptions::default() };
    let mut bench = Bench::new(&vec![FIRST; partitions as usize], options);
    let topic = topic(&bench.map);
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    builder.push(TimestampMs(1), None, Some(b"x"), &[]).unwrap();
    let batch = bytes::Bytes::from_owner(builder.build());
    for partition in 0..partitions {
        for _ in 0..BATCHES_PER_PARTITION_MAX {
            drop(bench.core.push_batch(bench.clock.0, &topic, partition, batch.clone(), None).unwrap());
        }
    }
    for plan in bench.leaving() {
        let batches: usize = plan.partitions.iter().map(|part| part.batches.len()).sum();
        assert!(batches <= wire::limits::BATCHES_PER_REQUEST_MAX, "{batches}");
    }
}

#[test]
fn a_reply_that_does_not_fit_its_request_is_an_error_for_whom_it_leaves_out() {
    let mut bench = Bench::new(&[FIRST, FIRST], ProducerOptions::default());
    let deliveries = [bench.send(0, "a"), bench.send(1, "b")];
    let plan = bench.one();
    let mut short = reply(&plan, ErrorCode::None);
    short.partitions.pop();
    bench.core.on_reply(bench.clock.0, plan, Ok(short), 0);
    assert!(deliveries[0].try_get().unwrap().is_ok());
    let error = deliveries[1].try_get().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(error.place(), "t/1");
}

#[test]
fn every_batch_gets_its_outcome_when_the_producer_goes() {
    let mut bench = Bench::new(&[FIRST, FIRST], ProducerOptions::default());
    let under_way = bench.send(0, "a");
    let plan = bench.one();
    let waiting = [bench.send(0, "b"), bench.send(1, "c")];
    bench.core.fail_all(&ClientError::closed("produce"));
    let kinds: BTreeSet<String> =
        waiting.iter().map(|delivery| format!("{:?}", delivery.try_get().unwrap().unwrap_err().kind())).collect();
    assert_eq!(kinds, BTreeSet::from(["Closed".to_owned()]));
    assert!(under_way.try_get().is_none());
    bench.answer(plan, ErrorCode::None);
    assert!(under_way.try_get().unwrap().is_ok());
    assert_eq!(bench.core.unfinished_batches(), 0);
}

#[test]
fn a_refused_record_leaves_no_trace() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    let topic = topic(&bench.map);
    let value = vec![0; topic.config.message_bytes_max as usize + 1];
    let record = Record::to(TOPIC).value(&value);
    let error = bench.core.push(bench.clock.0, &topic, 0, &record, TimestampMs(1), None).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(bench.core.unfinished_batches(), 0);
    assert!(bench.leaving().is_empty());
    drop(bench.send(0, "next"));
    let mut plan = bench.one();
    assert_eq!(values(&mut plan), [["next"]]);
    assert_eq!(plan.partitions[0].key, key(0));
}

#[test]
fn finished_batches_go_as_they_are_and_in_requests_of_their_own() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    let topic = topic(&bench.map);
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    builder.push(TimestampMs(1), None, Some(b"raw"), &[]).unwrap();
    let raw = bytes::Bytes::from_owner(builder.build());
    drop(bench.send(0, "a"));
    drop(bench.core.push_batch(bench.clock.0, &topic, 0, raw, None).unwrap());
    drop(bench.send(0, "b"));
    for expected in [(0, 0), (-1, -1), (0, 1)] {
        let mut plan = bench.one();
        assert_eq!(stamps(&mut plan), [expected]);
        bench.answer(plan, ErrorCode::None);
    }
}
