//! Idempotent producers through checkpoint, log and segments.

use commit_log::format::checkpoint::Checkpoint;
use commit_log::format::record::{CompactedSegment, Entry, Record, SegmentEnd};
use commit_log::format::segment::{Run, ScanStop, SegmentTail};
use commit_log::replay::{RecordAt, Replay, Written};
use commit_log::{PartitionState, Produced, Producer, Producers, Seen, SegmentState};
use wire::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence};

use crate::samples::{self, batch_by, disk, key, options};

/// As of block 9: durable to offset 4, in a segment to there; a group in flight is block 9.
fn stored() -> PartitionState {
    let mut state = PartitionState::new(key(1), 1, options(), Offset(0));
    (state.as_of_block, state.producers_as_of_block) = (9, 8);
    state.segments = vec![SegmentState {
        disk: disk(),
        base: Offset(0),
        end: Offset(4),
        end_position: 8192,
        max_timestamp_ms: 1,
        aged_from_ms: 1,
        generation: 0,
        tombstones_since_ms: None,
        sealed: false,
    }];
    let known = Producer::from_stored(ProducerId(7), ProducerEpoch(0), Sequence(4), 50, false, &[(0, 2), (2, 2)]).unwrap();
    state.producers = Producers::from_known(vec![known]).unwrap();
    state
}

fn apply(replay: &mut Replay, block: u64, entry: Entry<'_>) {
    replay.apply(RecordAt { block, index: 0 }, &Record { key: key(1), entry }).unwrap();
}

/// Id, offset and sequence of each batch, time of the last append.
type Remembered = (i64, Vec<(u64, i32)>, i64);

fn finish(replay: Replay, end: u64) -> Vec<Remembered> {
    let written = Written { base: Offset(0), end: Offset(end), end_position: 12_288, max_timestamp_ms: 1 };
    let state = replay.finish().partitions.into_values().next().unwrap().complete(&[written], 1_000);
    let batches = |known: &Producer| known.batches().map(|batch| (batch.base_offset.0, batch.base_sequence.0)).collect();
    state.producers.known().iter().map(|known| (known.id().0, batches(known), known.last_append_ms())).collect()
}

#[test]
fn the_log_adds_what_was_not_durable_at_the_checkpoint() {
    let mut replay = Replay::new(disk(), 1, vec![stored()]);
    // Known, in a segment.
    apply(&mut replay, 8, Entry::Batch(&batch_by(7, 0, 2, 2, 2)));
    // In flight then: the state of the partition knows it, its producers do not.
    apply(&mut replay, 9, Entry::Batch(&batch_by(7, 0, 4, 4, 1)));
    apply(&mut replay, 10, Entry::Batch(&batch_by(8, 0, 0, 5, 1)));
    let expected = [(7, vec![(0, 0), (2, 2), (4, 4)], 1_000), (8, vec![(5, 0)], 1_000)];
    assert_eq!(finish(replay, 6), expected);
}

#[test]
fn a_producer_without_news_keeps_its_time() {
    let replay = Replay::new(disk(), 1, vec![stored()]);
    assert_eq!(finish(replay, 4), [(7, vec![(0, 0), (2, 2)], 50)]);
}

#[test]
fn a_cut_takes_producers_back_and_what_it_hides_is_not_guessed() {
    let mut replay = Replay::new(disk(), 1, vec![stored()]);
    apply(&mut replay, 10, Entry::Batch(&batch_by(7, 0, 4, 4, 1)));
    apply(&mut replay, 11, Entry::Truncate(Offset(4)));
    assert_eq!(finish(replay, 4), [(7, vec![(0, 0), (2, 2)], 50)]);

    let mut replay = Replay::new(disk(), 1, vec![stored()]);
    for number in 0..11 {
        apply(&mut replay, 10 + number, Entry::Batch(&batch_by(7, 0, 4 + number as i32, 4 + number, 1)));
    }
    // The newest that is left was pushed out: in memory too nothing is left of it.
    apply(&mut replay, 30, Entry::Truncate(Offset(5)));
    assert_eq!(finish(replay, 5), []);
}

/// Producer 7's next two sequences, straight into the segment behind what the checkpoint knows.
fn direct_tail() -> SegmentTail {
    let mut producers = Seen::default();
    let direct = BatchHeader::decode(&batch_by(7, 0, 4, 4, 2)).unwrap();
    producers.add(Produced::of(&direct).unwrap(), Offset(4));
    SegmentTail {
        from_position: 8192,
        runs: vec![Run { start: Offset(4), end: Offset(6), position: 8192, end_position: 12_288 }],
        max_timestamp_ms: 1,
        epochs: Vec::new(),
        producers,
        stop: ScanStop::End,
        torn_inside_block: false,
    }
}

#[test]
fn batches_that_went_straight_into_a_segment_take_their_place_among_the_others() {
    let mut replay = Replay::new(disk(), 1, vec![stored()]);
    let note = SegmentEnd { base: Offset(0), incarnation: 0, position: 8192, offset: Offset(4) };
    apply(&mut replay, 10, Entry::DirectStart(note));
    apply(&mut replay, 11, Entry::Batch(&batch_by(7, 0, 6, 6, 1)));
    replay.scanned(key(1), Offset(0), Some(direct_tail()));
    let state = replay.finish().partitions.into_values().next().unwrap().complete(&[], 1_000);
    // Nothing was written here, so the log ends behind the segment.
    let batches: Vec<_> =
        state.producers.known()[0].batches().map(|batch| (batch.base_offset.0, batch.base_sequence.0)).collect();
    assert_eq!((state.end(), batches), (Offset(6), vec![(0, 0), (2, 2), (4, 4)]));
}

/// Power cuts: compaction put a segment into another one before a checkpoint knew what had gone straight into it.
#[test]
fn a_segment_that_compaction_has_replaced_still_tells_of_producers() {
    let mut replay = Replay::new(disk(), 1, vec![stored()]);
    let note = SegmentEnd { base: Offset(0), incarnation: 5, position: 8192, offset: Offset(4) };
    apply(&mut replay, 10, Entry::DirectStart(note));
    apply(&mut replay, 11, Entry::DirectEnd(SegmentEnd { position: 12_288, offset: Offset(6), ..note }));
    let made = CompactedSegment {
        base: Offset(0),
        end: Offset(6),
        generation: 1,
        end_position: 8192,
        max_timestamp_ms: 1,
        tombstones_since_ms: None,
    };
    apply(&mut replay, 12, Entry::Compacted(made));
    let scans: Vec<_> =
        replay.scans().into_iter().map(|scan| (scan.base, scan.incarnation, scan.from_position, scan.bound)).collect();
    assert_eq!(scans, [(Offset(0), 5, 8192, Offset(6))]);
    replay.scanned(key(1), Offset(0), Some(direct_tail()));
    let state = replay.finish().partitions.into_values().next().unwrap().complete(&[], 1_000);
    let batches: Vec<_> =
        state.producers.known()[0].batches().map(|batch| (batch.base_offset.0, batch.base_sequence.0)).collect();
    assert_eq!((state.segments.len(), state.segments[0].generation, state.segments[0].end_position), (1, 1, 8192));
    assert_eq!(batches, [(0, 0), (2, 2), (4, 4)]);
}

/// The end of a direct write may stand in the log behind the record that put its segment into another one.
#[test]
fn the_late_end_of_a_direct_write_does_not_bring_a_replaced_segment_back() {
    let mut replay = Replay::new(disk(), 1, vec![stored()]);
    let first = SegmentEnd { base: Offset(0), incarnation: 5, position: 8192, offset: Offset(4) };
    let second = SegmentEnd { base: Offset(4), incarnation: 6, position: 4096, offset: Offset(4) };
    apply(&mut replay, 10, Entry::DirectStart(first));
    apply(&mut replay, 11, Entry::DirectStart(second));
    let made = CompactedSegment {
        base: Offset(0),
        end: Offset(8),
        generation: 1,
        end_position: 8192,
        max_timestamp_ms: 1,
        tombstones_since_ms: None,
    };
    apply(&mut replay, 12, Entry::Compacted(made));
    apply(&mut replay, 12, Entry::DirectEnd(SegmentEnd { position: 8192, offset: Offset(8), ..second }));
    let state = replay.finish().partitions.into_values().next().unwrap().complete(&[], 1_000);
    let found: Vec<_> = state.segments.iter().map(|segment| (segment.base, segment.end, segment.generation)).collect();
    assert_eq!(found, [(Offset(0), Offset(8), 1)]);
}

#[test]
fn numbers_that_make_no_sense_are_no_producer() {
    let sound = |id, epoch, next, batches: &[(u64, u32)]| {
        Producer::from_stored(ProducerId(id), ProducerEpoch(epoch), Sequence(next), 0, false, batches).is_some()
    };
    assert!(sound(1, 0, 5, &[(0, 1), (1, 1)]));
    for (id, epoch, next, batches) in [
        (-1, 0, 5, &[(0, 1)][..]),
        (1, -1, 5, &[(0, 1)]),
        (1, 0, -5, &[(0, 1)]),
        (1, 0, 5, &[]),
        (1, 0, 5, &[(0, 0)]),
        (1, 0, 5, &[(4, 2), (5, 1)]),
        (1, 0, 5, &[(u64::MAX, 2), (5, 1)]),
        (1, 0, 5, &[(0, 1); 11]),
    ] {
        assert!(!sound(id, epoch, next, batches), "{id} {epoch} {next} {batches:?}");
    }
    let two = vec![samples::producers().known()[0].clone(), samples::producers().known()[0].clone()];
    assert_eq!(Producers::from_known(two), None);
}

#[test]
fn a_partition_without_producers_costs_a_checkpoint_nothing() {
    let plain = samples::checkpoint();
    let mut without = plain.clone();
    without.partitions[1].producers = Producers::default();
    without.partitions[1].producers_as_of_block = without.partitions[1].as_of_block;
    let length = |checkpoint: &Checkpoint| checkpoint.encode(&disk()).len();
    assert_eq!(length(&plain) - length(&without), 24 + 2 * 24 + 11 * 12);
}
