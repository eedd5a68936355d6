//! Named cases of the replay: what single records, lost blocks and scans of segments come to.

use commit_log::format::record::{Entry, Record, SegmentEnd};
use commit_log::format::segment::SegmentTail;
use commit_log::replay::{RecordAt, Replay, Target, Written};
use commit_log::{PartitionState, SegmentState};
use wire::Offset;

use super::model::{BOOT, segment};
use super::recovery::scan;
use crate::samples::{batch_of, disk, key, options};

fn apply(replay: &mut Replay, at: u64, entry: Entry<'_>) {
    replay.apply(RecordAt { block: at, index: 0 }, &Record { key: key(1), entry }).unwrap();
}

fn created() -> Entry<'static> {
    Entry::Created { options: options(), start: Offset(0) }
}

#[test]
fn a_gap_behind_lost_blocks_is_a_lost_range() {
    let mut replay = Replay::new(disk(), BOOT, Vec::new());
    apply(&mut replay, 1, created());
    apply(&mut replay, 2, Entry::Batch(&batch_of(0, 3, 10, 1, 1)));
    replay.hole();
    apply(&mut replay, 4, Entry::Batch(&batch_of(8, 2, 10, 1, 1)));
    let plan = replay.finish().partitions.into_values().next().unwrap();
    assert_eq!(plan.writes.len(), 2);
    assert_eq!(plan.writes[1].target, Target::New(Offset(8)));
    let written = [
        Written { base: Offset(0), end: Offset(3), end_position: 8192, max_timestamp_ms: 1 },
        Written { base: Offset(8), end: Offset(10), end_position: 8192, max_timestamp_ms: 1 },
    ];
    let state = plan.complete(&written, 1);
    assert!(state.lossy);
    assert_eq!(state.lost.iter().map(|range| (range.start.0, range.end.0)).collect::<Vec<_>>(), [(3, 8)]);
    assert_eq!(state.end(), Offset(10));
}

/// The lost blocks may have held a cut and the batches that took its place.
#[test]
fn a_partition_that_goes_on_without_a_gap_may_have_been_hit_by_lost_blocks() {
    for next in [Some(3), None] {
        let mut replay = Replay::new(disk(), BOOT, Vec::new());
        apply(&mut replay, 1, created());
        apply(&mut replay, 2, Entry::Batch(&batch_of(0, 3, 10, 1, 1)));
        replay.hole();
        let mut end = 3;
        if let Some(next) = next {
            apply(&mut replay, 4, Entry::Batch(&batch_of(next, 2, 10, 1, 1)));
            end = next + 2;
        }
        let plan = replay.finish().partitions.into_values().next().unwrap();
        let written = [Written { base: Offset(0), end: Offset(end), end_position: 8192, max_timestamp_ms: 1 }];
        assert!(plan.complete(&written, 1).lossy);
    }
}

#[test]
fn offsets_that_were_acknowledged_are_not_given_again() {
    let mut replay = Replay::new(disk(), BOOT, Vec::new());
    apply(&mut replay, 1, created());
    let note = |offset: u64, position: u64| SegmentEnd { base: Offset(0), incarnation: 0, position, offset: Offset(offset) };
    apply(&mut replay, 2, Entry::DirectStart(note(0, 4096)));
    apply(&mut replay, 3, Entry::DirectEnd(note(40, 81_920)));
    let scans = replay.scans();
    assert_eq!((scans.len(), scans[0].committed_position, scans[0].expected), (1, 81_920, Offset(0)));
    replay.scanned(key(1), Offset(0), None);
    let state = replay.finish().partitions.into_values().next().unwrap().complete(&[], 1);
    assert!(state.lossy);
    assert_eq!((state.end(), state.lost.len()), (Offset(40), 1));
}

#[test]
fn a_deleted_partition_stays_deleted() {
    let mut replay = Replay::new(disk(), BOOT, vec![PartitionState::new(key(1), BOOT, options(), Offset(0))]);
    apply(&mut replay, 1, Entry::Deleted);
    apply(&mut replay, 2, Entry::HighWatermark(Offset(3)));
    let plan = replay.finish();
    assert!(plan.partitions.is_empty());
    assert_eq!(plan.deleted, vec![key(1)]);
}

/// The checkpoint's state of a partition may be newer than the first records replayed on it. Here a cut is older than the state, and the segment
/// begun after it starts below the cut, with a batch that was in no segment yet.
#[test]
fn a_cut_older_than_the_state_does_not_take_what_followed_it() {
    let mut state = PartitionState::new(key(1), BOOT, options(), Offset(0));
    state.segments = vec![SegmentState { end: Offset(60), end_position: 3 * 4096, ..segment(58) }];
    state.log_start = Offset(58);
    state.as_of_block = 5;
    let mut replay = Replay::new(disk(), BOOT, vec![state]);
    apply(&mut replay, 1, Entry::Batch(&batch_of(58, 1, 10, 1, 1)));
    apply(&mut replay, 2, Entry::Batch(&batch_of(59, 4, 10, 1, 1)));
    apply(&mut replay, 3, Entry::Truncate(Offset(59)));
    apply(
        &mut replay,
        4,
        Entry::DirectStart(SegmentEnd { base: Offset(58), incarnation: 0, position: 4096, offset: Offset(58) }),
    );
    apply(
        &mut replay,
        5,
        Entry::DirectEnd(SegmentEnd { base: Offset(58), incarnation: 0, position: 3 * 4096, offset: Offset(60) }),
    );
    apply(&mut replay, 6, Entry::Batch(&batch_of(60, 2, 10, 1, 2)));
    assert_eq!(replay.scans(), Vec::new());
    let plan = replay.finish().partitions.into_values().next().unwrap();
    assert_eq!(plan.writes.len(), 1, "only what the state does not hold");
    assert_eq!(plan.writes[0].target, Target::Append { base: Offset(58), position: 3 * 4096 });
    let written = Written { base: Offset(58), end: Offset(62), end_position: 4 * 4096, max_timestamp_ms: 1 };
    let state = plan.complete(&[written], 1);
    assert!(!state.lossy, "{state:?}");
    assert_eq!((state.end(), state.segments.len(), state.segments[0].sealed), (Offset(62), 1, false));
}

#[test]
fn nothing_is_appended_behind_a_flush_torn_inside_a_block() {
    for (torn_inside_block, target) in
        [(false, Target::Append { base: Offset(0), position: 2 * 4096 }), (true, Target::New(Offset(3)))]
    {
        let mut replay = Replay::new(disk(), BOOT, Vec::new());
        apply(&mut replay, 1, created());
        apply(
            &mut replay,
            2,
            Entry::DirectStart(SegmentEnd { base: Offset(0), incarnation: 0, position: 4096, offset: Offset(0) }),
        );
        apply(&mut replay, 3, Entry::Batch(&batch_of(3, 4, 10, 1, 1)));
        replay.scanned(key(1), Offset(0), Some(SegmentTail { torn_inside_block, ..scan(&[(0, 3, 1)], 4096, 0, u64::MAX) }));
        let plan = replay.finish().partitions.into_values().next().unwrap();
        assert_eq!(plan.writes[0].target, target);
    }
}

#[test]
fn a_deletion_older_than_the_state_leaves_the_partition_made_since() {
    let mut state = PartitionState::new(key(1), BOOT, options(), Offset(0));
    state.segments = vec![SegmentState { end: Offset(4), end_position: 2 * 4096, ..segment(0) }];
    state.as_of_block = 3;
    let mut replay = Replay::new(disk(), BOOT, vec![state]);
    apply(&mut replay, 1, Entry::Batch(&batch_of(4, 5, 10, 1, 1)));
    apply(&mut replay, 2, Entry::Deleted);
    apply(&mut replay, 3, created());
    let plan = replay.finish();
    assert!(plan.deleted.is_empty());
    let partition = plan.partitions.into_values().next().unwrap();
    assert!(partition.writes.is_empty(), "the batch belonged to the deleted one");
    assert_eq!(partition.complete(&[], 1).end(), Offset(4));
}
