//! The consumer's decisions, with answers and time made by hand.

use std::time::Duration;

use wire::batch::write_padding;
use wire::limits::FRAME_HEADER_BYTES;
use wire::{
    AlignedVec, BatchBuilder, BuilderOptions, ErrorCode, FetchPartitionReply, FetchReply, FetchRequest, FrameHeader,
    ListOffsetsPartitionReply, ListOffsetsReply, PayloadKind, TimestampMs,
};

use super::*;
use crate::consumer::FetchedBatch;
use crate::core::samples::{BACKOFF_MAX, Clock, FIRST, SECOND, TOPIC, backoff, key, map};
use crate::error::ErrorKind;
use crate::limits::UNKNOWN_PARTITION_ANSWERS_MAX;
use crate::options::OutOfRange;

/// A consumer of the sample cluster, every shard connected.
struct Bench {
    core: ConsumerCore,
    clock: Clock,
    map: ClusterMap,
}

impl Bench {
    fn new(leaders: &[Target], options: ConsumerOptions) -> Self {
        Self { core: ConsumerCore::new(options, backoff()), clock: Clock::new(), map: map(leaders) }
    }

    /// With partition 0 assigned at this offset.
    fn at(offset: u64) -> Self {
        let mut bench = Self::new(&[FIRST], ConsumerOptions::default());
        bench.assign(0, StartAt::Offset(Offset(offset)));
        bench
    }

    fn assign(&mut self, partition: u32, start: StartAt) {
        self.core.assign(key(partition), &TOPIC.into(), start);
    }

    fn actions(&mut self) -> FetchActions {
        self.core.next_actions(self.clock.0, &self.map, |_| true, 0)
    }

    /// The only fetch that leaves now.
    fn fetch(&mut self) -> FetchPlan {
        let mut actions = self.actions();
        assert_eq!((actions.fetches.len(), actions.lookups.len()), (1, 0));
        actions.fetches.pop().unwrap()
    }

    /// Fetches, and answers each partition with these bytes.
    fn fetch_and_answer(&mut self, parts: &[Vec<u8>]) {
        let plan = self.fetch();
        self.answer(plan, parts);
    }

    fn answer(&mut self, plan: FetchPlan, parts: &[Vec<u8>]) {
        let named: Vec<(PartitionKey, ErrorCode)> = plan.partitions.iter().map(|part| (part.key, ErrorCode::None)).collect();
        let reply = fetch_reply(&named, parts);
        self.core.on_fetched(self.clock.0, plan, Ok(reply), 0);
    }

    fn fail(&mut self, plan: FetchPlan, code: ErrorCode) {
        let named: Vec<(PartitionKey, ErrorCode)> = plan.partitions.iter().map(|part| (part.key, code)).collect();
        let reply = fetch_reply(&named, &vec![Vec::new(); named.len()]);
        self.core.on_fetched(self.clock.0, plan, Ok(reply), 0);
    }

    /// The offsets of the next batch handed out.
    fn take(&mut self) -> Vec<u64> {
        match self.core.pop() {
            Some(Fetched::Batch(raw)) => FetchedBatch::check(raw).unwrap().records().map(|record| record.offset.0).collect(),
            Some(Fetched::Error(_, error)) => panic!("{error}"),
            None => Vec::new(),
        }
    }

    fn take_error(&mut self) -> ClientError {
        match self.core.pop() {
            Some(Fetched::Error(_, error)) => error,
            Some(Fetched::Batch(raw)) => panic!("a batch at {}", raw.header.base_offset.0),
            None => panic!("nothing"),
        }
    }

    fn position(&self) -> Option<u64> {
        self.core.position(key(0)).map(|offset| offset.0)
    }
}

/// A reply with its frame, as the transport brings it.
fn fetch_reply(named: &[(PartitionKey, ErrorCode)], parts: &[Vec<u8>]) -> (FetchReply, Frame) {
    let partitions = named.iter().zip(parts).map(|((key, error), bytes)| FetchPartitionReply {
        topic: key.topic,
        partition: key.partition,
        error: *error,
        message: None,
        high_watermark: Offset(1000),
        log_start: Offset::ZERO,
        log_end: Offset(1000),
        batch_bytes: u32::try_from(bytes.len()).unwrap(),
    });
    let reply = FetchReply { partitions: partitions.collect() };
    let request = FetchRequest { max_wait_ms: 0, min_bytes: 0, max_bytes: 1, partitions: Vec::new() };
    let request = FrameHeader::decode(wire::encode_request(1, &request, 0)[..FRAME_HEADER_BYTES].try_into().unwrap()).unwrap();
    let attached = parts.concat();
    let mut bytes = wire::encode_reply(&request, &reply, attached.len());
    bytes.extend_from_slice(&attached);
    let header = FrameHeader::decode(bytes[..FRAME_HEADER_BYTES].try_into().unwrap()).unwrap();
    (reply, Frame::new(header, Arc::new(bytes)))
}

/// A stored batch with this many records, its header changed before it gets its checksum.
fn batch_but(base: u64, records: u32, change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    for _ in 0..records {
        builder.push(TimestampMs(1), None, Some(b"value"), &[]).unwrap();
    }
    let mut bytes: AlignedVec = builder.build();
    let mut header = BatchHeader::decode(&bytes).unwrap();
    header.stamp(Offset(base), LeaderEpoch(1), None);
    change(&mut header);
    header.encode(bytes.first_chunk_mut().unwrap());
    bytes.to_vec()
}

fn batch(base: u64, records: u32) -> Vec<u8> {
    batch_but(base, records, |_| {})
}

fn padding(next: u64) -> Vec<u8> {
    let mut bytes = vec![0; 160];
    write_padding(&mut bytes, Offset(next), LeaderEpoch(1));
    bytes
}

#[test]
fn batches_are_handed_out_in_order_and_the_position_follows() {
    let mut bench = Bench::at(4);
    assert_eq!(bench.position(), Some(4));
    bench.fetch_and_answer(&[[batch(0, 6), padding(6), batch(6, 2)].concat()]);
    assert_eq!(bench.position(), Some(4), "nothing was taken yet");
    assert_eq!(bench.fetch().partitions[0].offset, Offset(8), "the next fetch does not wait for the caller");
    assert_eq!(bench.take(), [4, 5], "what is before the position is skipped");
    assert_eq!(bench.position(), Some(6));
    assert_eq!(bench.take(), [6, 7]);
    assert_eq!(bench.position(), Some(8));
    assert_eq!(bench.core.high_watermark(key(0)), Some(Offset(1000)));
}

/// Whoever waits is woken when there is something to take: told of what is held, it would wake itself for ever.
#[test]
fn what_was_fetched_of_a_held_partition_waits_and_nobody_is_told_of_it() {
    let mut bench = Bench::at(0);
    bench.fetch_and_answer(&[batch(0, 2)]);
    bench.core.hold(key(0), true);
    assert!(!bench.core.can_pop());
    assert!(bench.core.pop().is_none());
    bench.core.hold(key(0), false);
    assert!(bench.core.can_pop());
    assert_eq!(bench.take(), [0, 1]);
    assert!(!bench.core.can_pop());
}

#[test]
fn the_position_moves_over_batches_that_carry_no_records() {
    let control = || batch_but(10, 3, |header| header.payload_kind = PayloadKind::Control);
    let gap_behind = || batch_but(10, 1, |header| header.last_offset_delta = 9);
    let emptied = || {
        batch_but(10, 1, |header| {
            header.record_count = 0;
            header.last_offset_delta = 4;
        })
    };
    let cases = [
        ("a batch a filter emptied", vec![emptied()], vec![], 15),
        ("padding before what is kept", vec![padding(20)], vec![], 20),
        ("padding", vec![batch(10, 2), padding(12)], vec![10, 11], 12),
        ("control at the end", vec![control()], vec![], 13),
        ("control behind records", vec![batch(8, 2), control()], vec![], 13),
        ("a gap behind the last record", vec![gap_behind()], vec![10], 20),
    ];
    for (what, batches, records, position) in cases {
        let mut bench = Bench::at(10);
        bench.fetch_and_answer(&[batches.concat()]);
        assert_eq!(bench.take(), records, "{what}");
        assert!(bench.take().is_empty(), "{what}");
        assert_eq!(bench.position(), Some(position), "{what}");
        assert_eq!(bench.fetch().partitions[0].offset, Offset(position), "{what}");
    }
}

#[test]
fn the_position_moves_over_what_carries_no_records_only_once_the_records_before_it_are_taken() {
    let mut bench = Bench::at(0);
    let control = batch_but(2, 3, |header| header.payload_kind = PayloadKind::Control);
    bench.fetch_and_answer(&[[batch(0, 2), control].concat()]);
    assert_eq!(bench.position(), Some(0));
    assert_eq!(bench.take(), [0, 1]);
    assert_eq!(bench.position(), Some(5));
    // A pause goes on from there.
    assert!(bench.core.pause(key(0)));
    assert!(bench.core.resume(key(0)));
    assert_eq!(bench.fetch().partitions[0].offset, Offset(5));
}

#[test]
fn bytes_that_lead_nowhere_are_not_asked_for_at_once() {
    for bytes in [padding(10), batch(2, 8), padding(3)] {
        let mut bench = Bench::at(10);
        bench.fetch_and_answer(&[bytes]);
        assert!(bench.actions().fetches.is_empty());
        assert!(bench.core.next_timer(bench.clock.0).is_some());
        bench.clock.advance(BACKOFF_MAX);
        assert_eq!(bench.fetch().partitions[0].offset, Offset(10));
    }
}

#[test]
fn partitions_of_a_shard_are_asked_for_together_in_turn() {
    let mut bench = Bench::new(&[FIRST, SECOND, FIRST], ConsumerOptions::default());
    (0..3).for_each(|partition| bench.assign(partition, StartAt::Offset(Offset(0))));
    let mut first_of_round = Vec::new();
    for _ in 0..3 {
        let actions = bench.actions();
        let places: Vec<(Target, usize)> = actions.fetches.iter().map(|plan| (plan.target, plan.partitions.len())).collect();
        assert_eq!(places, [(FIRST, 2), (SECOND, 1)]);
        assert!(bench.actions().fetches.is_empty(), "a partition is in one request at a time");
        first_of_round.push(actions.fetches[0].partitions[0].key.partition.0);
        for plan in actions.fetches {
            let nothing = vec![Vec::new(); plan.partitions.len()];
            bench.answer(plan, &nothing);
        }
    }
    assert_eq!(first_of_round, [0, 2, 2], "none is always last");
}

#[test]
fn a_request_names_no_more_partitions_than_the_wire_allows() {
    let partitions = PARTITIONS_PER_REQUEST_MAX + 10;
    for start in [StartAt::Earliest, StartAt::Offset(Offset(0))] {
        let mut bench = Bench::new(&vec![FIRST; partitions], ConsumerOptions::default());
        (0..u32::try_from(partitions).unwrap()).for_each(|partition| bench.assign(partition, start));
        let named = |actions: FetchActions| {
            let fetches = actions.fetches.iter().map(|plan| plan.partitions.len());
            fetches.chain(actions.lookups.iter().map(|plan| plan.partitions.len())).collect::<Vec<_>>()
        };
        assert_eq!(named(bench.actions()), [PARTITIONS_PER_REQUEST_MAX]);
        assert_eq!(named(bench.actions()), [10]);
    }
}

#[test]
fn a_start_is_looked_up_and_then_fetched() {
    let starts = [
        (StartAt::Earliest, OffsetAt::Earliest),
        (StartAt::Latest, OffsetAt::Latest),
        (StartAt::Timestamp(TimestampMs(77)), OffsetAt::Timestamp(TimestampMs(77))),
    ];
    for (start, at) in starts {
        let mut bench = Bench::new(&[FIRST], ConsumerOptions::default());
        bench.assign(0, start);
        assert_eq!(bench.position(), None);
        let mut actions = bench.actions();
        let plan = actions.lookups.pop().unwrap();
        assert_eq!(plan.partitions[0].at, at);
        bench.core.on_looked_up(bench.clock.0, plan, Ok(looked_up(ErrorCode::None, 42)), 0);
        assert_eq!(bench.position(), Some(42));
        assert_eq!(bench.fetch().partitions[0].offset, Offset(42));
    }
}

fn looked_up(error: ErrorCode, offset: u64) -> ListOffsetsReply {
    let PartitionKey { topic, partition } = key(0);
    let part = ListOffsetsPartitionReply { topic, partition, error, offset: Offset(offset), timestamp_ms: TimestampMs(-1) };
    ListOffsetsReply { partitions: vec![part] }
}

#[test]
fn an_answer_to_a_question_from_before_a_seek_is_not_used() {
    let mut bench = Bench::at(0);
    let before = bench.fetch();
    assert!(bench.core.seek(key(0), StartAt::Offset(Offset(500))));
    let after = bench.fetch();
    bench.answer(before, &[batch(0, 5)]);
    assert!(bench.take().is_empty());
    assert_eq!(bench.position(), Some(500));
    bench.answer(after, &[batch(500, 1)]);
    assert_eq!(bench.take(), [500]);

    let before = bench.fetch();
    bench.core.unassign(key(0));
    bench.answer(before, &[batch(501, 1)]);
    assert!(bench.take().is_empty());
    assert_eq!(bench.position(), None);
    assert!(!bench.core.seek(key(0), StartAt::Earliest), "it is not assigned");
}

#[test]
fn nothing_is_fetched_while_the_buffer_is_full() {
    let mut bench = Bench::new(&[FIRST], ConsumerOptions { prefetch_bytes_max: 100, ..ConsumerOptions::default() });
    bench.assign(0, StartAt::Offset(Offset(0)));
    bench.fetch_and_answer(&[batch(0, 5)]);
    assert!(bench.actions().fetches.is_empty());
    bench.take();
    assert_eq!(bench.fetch().partitions[0].offset, Offset(5));
}

#[test]
fn retryable_failures_wait_and_a_wrong_leader_asks_for_metadata() {
    for code in [ErrorCode::NotLeader, ErrorCode::WrongShard, ErrorCode::UnknownTopicOrPartition, ErrorCode::Overloaded] {
        let mut bench = Bench::at(0);
        let plan = bench.fetch();
        bench.fail(plan, code);
        assert!(bench.actions().fetches.is_empty(), "it waits");
        let asked = bench.core.take_metadata_wanted();
        assert_eq!(asked.is_some(), code != ErrorCode::Overloaded, "{code:?}");
        assert!(asked.is_none_or(|topics| topics == [TOPIC]));
        assert_eq!(bench.core.next_timer(bench.clock.0), Some(bench.clock.0 + Duration::from_millis(50)));
        bench.map = map(&[SECOND]);
        bench.clock.advance(BACKOFF_MAX);
        assert_eq!(bench.fetch().target, SECOND);
    }
}

#[test]
fn a_topic_that_stays_unknown_stops_the_partition() {
    let mut bench = Bench::at(0);
    for _ in 0..UNKNOWN_PARTITION_ANSWERS_MAX {
        let plan = bench.fetch();
        bench.fail(plan, ErrorCode::UnknownTopicOrPartition);
        bench.clock.advance(BACKOFF_MAX);
    }
    let error = bench.take_error();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition));
    assert!(bench.actions().fetches.is_empty());
}

#[test]
fn failures_without_an_answer_do_not_count_towards_a_topic_that_is_gone() {
    let mut bench = Bench::at(3);
    let refused = ClientError::new(ErrorKind::Connect, "connect", "broker:1", "refused");
    for _ in 0..3 * UNKNOWN_PARTITION_ANSWERS_MAX {
        bench.core.connection_failed(bench.clock.0, FIRST, &bench.map, &refused, 0);
        bench.clock.advance(BACKOFF_MAX);
    }
    // Its metadata was dropped meanwhile, and nobody answers.
    let known = std::mem::take(&mut bench.map);
    for _ in 0..3 * UNKNOWN_PARTITION_ANSWERS_MAX {
        assert!(bench.actions().fetches.is_empty());
        assert!(bench.core.take_metadata_wanted().is_some());
        bench.clock.advance(BACKOFF_MAX);
    }
    // The broker is back, and its shard has not made the partition yet.
    bench.map = known;
    let plan = bench.fetch();
    bench.fail(plan, ErrorCode::UnknownTopicOrPartition);
    bench.clock.advance(BACKOFF_MAX);
    bench.fetch_and_answer(&[batch(3, 1)]);
    assert_eq!(bench.take(), [3]);
}

#[test]
fn only_answers_in_a_row_say_that_a_topic_is_gone() {
    let mut bench = Bench::at(0);
    for _ in 0..3 {
        for _ in 1..UNKNOWN_PARTITION_ANSWERS_MAX {
            let plan = bench.fetch();
            bench.fail(plan, ErrorCode::UnknownTopicOrPartition);
            bench.clock.advance(BACKOFF_MAX);
        }
        let plan = bench.fetch();
        bench.fail(plan, ErrorCode::Overloaded);
        bench.clock.advance(BACKOFF_MAX);
    }
    assert!(!bench.core.can_pop());
}

#[test]
fn a_topic_that_metadata_does_not_have_any_more_stops_the_partition() {
    let mut bench = Bench::at(0);
    bench.map = ClusterMap::default();
    for answers in 0..UNKNOWN_PARTITION_ANSWERS_MAX {
        assert!(!bench.core.can_pop(), "after {answers} answers");
        assert!(bench.actions().fetches.is_empty());
        bench.core.metadata_answered(&["another".to_owned()], &bench.map);
        bench.core.metadata_answered(&[TOPIC.to_owned()], &bench.map);
        bench.clock.advance(BACKOFF_MAX);
    }
    assert_eq!(bench.take_error().code(), Some(ErrorCode::UnknownTopicOrPartition));
    bench.core.metadata_answered(&[TOPIC.to_owned()], &bench.map);
    assert!(!bench.core.can_pop(), "it is told once");
}

#[test]
fn a_lost_connection_is_no_error_for_the_caller() {
    let mut bench = Bench::at(7);
    let plan = bench.fetch();
    let error = ClientError::new(ErrorKind::Disconnected, "fetch", "broker:1", "gone");
    bench.core.on_fetched(bench.clock.0, plan, Err(error), 0);
    assert!(!bench.core.can_pop());
    assert!(bench.core.take_metadata_wanted().is_some());
    bench.clock.advance(BACKOFF_MAX);
    assert_eq!(bench.fetch().partitions[0].offset, Offset(7));
}

#[test]
fn a_position_outside_the_log_stops_or_is_reset_as_told() {
    let mut bench = Bench::at(7);
    let plan = bench.fetch();
    bench.fail(plan, ErrorCode::OffsetOutOfRange);
    assert_eq!(bench.take_error().place(), "t/0 at offset 7");
    assert!(bench.actions().fetches.is_empty(), "it stays stopped");
    assert!(bench.core.seek(key(0), StartAt::Offset(Offset(8))));
    assert_eq!(bench.fetch().partitions[0].offset, Offset(8));

    for (out_of_range, at) in [(OutOfRange::Earliest, OffsetAt::Earliest), (OutOfRange::Latest, OffsetAt::Latest)] {
        let mut bench = Bench::new(&[FIRST], ConsumerOptions { out_of_range, ..ConsumerOptions::default() });
        bench.assign(0, StartAt::Offset(Offset(7)));
        let plan = bench.fetch();
        bench.fail(plan, ErrorCode::OffsetOutOfRange);
        bench.clock.advance(BACKOFF_MAX);
        assert_eq!(bench.actions().lookups[0].partitions[0].at, at);
    }
}

#[test]
fn a_reset_does_not_jump_over_what_was_fetched_before_it() {
    let mut bench = Bench::new(&[FIRST], ConsumerOptions { out_of_range: OutOfRange::Earliest, ..ConsumerOptions::default() });
    bench.assign(0, StartAt::Offset(Offset(0)));
    bench.fetch_and_answer(&[batch(0, 5)]);
    let plan = bench.fetch();
    bench.fail(plan, ErrorCode::OffsetOutOfRange);
    bench.clock.advance(BACKOFF_MAX);
    let plan = bench.actions().lookups.pop().unwrap();
    bench.core.on_looked_up(bench.clock.0, plan, Ok(looked_up(ErrorCode::None, 100)), 0);
    assert_eq!(bench.position(), Some(0), "the caller has not seen the batch yet");
    assert_eq!(bench.take(), [0, 1, 2, 3, 4]);
    assert_eq!(bench.position(), Some(100));
}

#[test]
fn bad_bytes_in_an_answer_stop_the_partition_with_an_error_that_says_where() {
    let cut = batch(2, 3);
    let bad_header = |position: usize| {
        let mut bytes = batch(2, 3);
        bytes[position] ^= 0xff;
        bytes
    };
    let cases = [
        ("garbage", vec![0xa5; 160], "magic"),
        ("zeros", vec![0; 160], "magic"),
        ("a cut batch", cut[..cut.len() - 16].to_vec(), "is cut after"),
        ("a cut header", cut[..48].to_vec(), "truncated"),
        ("a flipped length", bad_header(8), "crc"),
        ("an unknown version", bad_header(4), "version"),
    ];
    for (what, bytes, cause) in cases {
        let mut bench = Bench::at(0);
        bench.fetch_and_answer(&[[batch(0, 2), bytes].concat()]);
        assert_eq!(bench.take(), [0, 1], "{what}: what is before it is good");
        let error = bench.take_error();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}");
        assert_eq!(error.place(), "t/0 at offset 2", "{what}");
        assert!(error.cause().contains(cause), "{what}: {error}");
        assert!(bench.actions().fetches.is_empty(), "{what}");
    }
}

#[test]
fn a_payload_that_differs_from_its_checksum_is_found_when_it_is_taken() {
    let mut bytes = batch(0, 2);
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    let mut bench = Bench::at(0);
    bench.fetch_and_answer(&[bytes]);
    let Some(Fetched::Batch(raw)) = bench.core.pop() else { panic!("a batch") };
    let error = FetchedBatch::check(raw).err().unwrap();
    assert_eq!((error.kind(), error.place()), (ErrorKind::Corrupt, "t/0 at offset 0"));
}

#[test]
fn an_answer_that_does_not_fit_its_question_is_a_protocol_error_of_each_partition_it_leaves_out() {
    type Spoil = fn(&mut FetchReply);
    let cases: [(&str, Spoil, [bool; 2]); 4] = [
        ("short", |reply| drop(reply.partitions.pop()), [true, false]),
        ("another partition", |reply| reply.partitions[1].partition.0 = 9, [true, false]),
        ("more bytes than there are", |reply| reply.partitions[1].batch_bytes += 16, [true, false]),
        // Nothing behind it can be told apart.
        ("the first too long", |reply| reply.partitions[0].batch_bytes = u32::MAX, [false, false]),
    ];
    for (what, spoil, good) in cases {
        let mut bench = Bench::new(&[FIRST, FIRST], ConsumerOptions::default());
        (0..2).for_each(|partition| bench.assign(partition, StartAt::Offset(Offset(0))));
        let plan = bench.fetch();
        let named: Vec<(PartitionKey, ErrorCode)> = plan.partitions.iter().map(|part| (part.key, ErrorCode::None)).collect();
        let (mut reply, frame) = fetch_reply(&named, &[batch(0, 1), batch(0, 1)]);
        spoil(&mut reply);
        bench.core.on_fetched(bench.clock.0, plan, Ok((reply, frame)), 0);
        for good in good {
            match bench.core.pop().unwrap() {
                Fetched::Batch(_) => assert!(good, "{what}"),
                Fetched::Error(_, error) => assert_eq!((good, error.kind()), (false, ErrorKind::Protocol), "{what}"),
            }
        }
        assert!(bench.core.pop().is_none(), "{what}");
    }
}

#[test]
fn a_bad_answer_to_a_lookup_is_an_error_of_the_partition() {
    let mut bench = Bench::new(&[FIRST], ConsumerOptions::default());
    bench.assign(0, StartAt::Earliest);
    let plan = bench.actions().lookups.pop().unwrap();
    bench.core.on_looked_up(bench.clock.0, plan, Ok(ListOffsetsReply { partitions: Vec::new() }), 0);
    let error = bench.take_error();
    assert_eq!((error.kind(), error.place()), (ErrorKind::Protocol, "t/0"));
}
