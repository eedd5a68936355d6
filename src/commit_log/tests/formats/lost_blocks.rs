//! Blocks of the log are lost, and one of them held the record that matters: whatever it was, each partition that it may have hit is marked.

use commit_log::format::record::{Entry, Record, SegmentEnd};
use commit_log::format::segment::{Run, ScanStop, SegmentTail};
use commit_log::replay::{PartitionPlan, RecordAt, Replay};
use commit_log::{PartitionState, SegmentState};
use wire::Offset;

use crate::samples::{batch_of, disk, key, options};

fn apply(replay: &mut Replay, block: u64, entry: Entry<'_>) {
    replay.apply(RecordAt { block, index: 0 }, &Record { key: key(1), entry }).unwrap();
}

fn created() -> Entry<'static> {
    Entry::Created { options: options(), start: Offset(0) }
}

/// A partition with one segment that holds `0..end` and takes more.
fn state(end: u64) -> PartitionState {
    let mut state = PartitionState::new(key(1), 1, options(), Offset(0));
    state.segments.push(SegmentState {
        disk: disk(),
        base: Offset(0),
        end: Offset(end),
        end_position: 8192,
        max_timestamp_ms: 1,
        created_ms: 1,
        sealed: false,
        generation: 0,
        tombstones_since_ms: None,
    });
    state.as_of_block = 5;
    state
}

fn only_plan(replay: Replay) -> PartitionPlan {
    replay.finish().partitions.into_values().next().unwrap()
}

fn ranges(plan: &PartitionPlan) -> Vec<(u64, u64)> {
    plan.state.segments.iter().map(|segment| (segment.base.0, segment.end.0)).collect()
}

/// Power-cut seed 103: the cut at 198 and the batches after it are lost together, and the next batch goes on at 201.
#[test]
fn a_lost_cut_that_leaves_no_gap_marks_the_partition() {
    let mut replay = Replay::new(disk(), 1, Vec::new());
    apply(&mut replay, 1, created());
    apply(&mut replay, 2, Entry::Batch(&batch_of(0, 198, 10, 1, 1)));
    apply(&mut replay, 3, Entry::Batch(&batch_of(198, 3, 10, 1, 1)));
    replay.hole();
    apply(&mut replay, 6, Entry::Batch(&batch_of(201, 3, 10, 1, 1)));
    assert!(only_plan(replay).suspect);
}

#[test]
fn after_a_lost_cut_below_a_segments_end_the_later_history_stands() {
    let mut replay = Replay::new(disk(), 1, vec![state(300)]);
    replay.hole();
    apply(&mut replay, 8, Entry::Batch(&batch_of(198, 2, 10, 1, 1)));
    let plan = only_plan(replay);
    assert!(plan.suspect);
    assert_eq!(ranges(&plan), [(0, 198)]);
    assert!(plan.state.segments[0].sealed, "nothing is written behind what was cut");
    assert_eq!((plan.writes.len(), plan.writes[0].offsets.start), (1, Offset(198)));
}

#[test]
fn after_a_lost_cut_below_a_direct_write_the_later_history_stands() {
    let mut replay = Replay::new(disk(), 1, vec![state(10)]);
    let note = |offset: u64, position: u64| SegmentEnd { base: Offset(0), incarnation: 0, position, offset: Offset(offset) };
    apply(&mut replay, 6, Entry::DirectStart(note(10, 8192)));
    apply(&mut replay, 7, Entry::DirectEnd(note(40, 16_384)));
    replay.hole();
    apply(&mut replay, 9, Entry::Batch(&batch_of(20, 2, 10, 1, 1)));
    assert_eq!(replay.scans()[0].bound, Offset(20));
}

#[test]
fn a_lost_deletion_leaves_the_partition_and_marks_it() {
    let mut replay = Replay::new(disk(), 1, vec![state(10)]);
    replay.hole();
    let plan = only_plan(replay);
    assert!(plan.suspect);
    assert_eq!(ranges(&plan), [(0, 10)]);
}

#[test]
fn a_lost_deletion_shows_when_the_partition_is_made_again() {
    let mut replay = Replay::new(disk(), 1, vec![state(10)]);
    replay.hole();
    apply(&mut replay, 8, created());
    apply(&mut replay, 9, Entry::Batch(&batch_of(0, 2, 10, 1, 1)));
    let plan = only_plan(replay);
    assert!(plan.state.lossy);
    assert_eq!((plan.state.segments.len(), plan.writes.len()), (0, 1));
}

#[test]
fn a_lost_creation_leaves_what_follows_it_and_marks_it() {
    let mut replay = Replay::new(disk(), 1, Vec::new());
    replay.hole();
    apply(&mut replay, 8, Entry::Batch(&batch_of(3, 2, 10, 1, 1)));
    let plan = only_plan(replay);
    assert!(plan.state.lossy);
    assert_eq!(plan.writes.len(), 1);
}

#[test]
fn what_was_deleted_and_made_again_in_a_lost_block_is_kept_with_its_files() {
    for goes_on in [true, false] {
        let mut replay = Replay::new(disk(), 1, vec![state(10)]);
        apply(&mut replay, 6, Entry::Deleted);
        replay.hole();
        if goes_on {
            apply(&mut replay, 9, Entry::Batch(&batch_of(0, 2, 10, 1, 1)));
        }
        let plan = replay.finish();
        assert_eq!(plan.deleted, [], "its folder may hold acknowledged batches");
        let lossy: Vec<bool> = plan.partitions.values().map(|partition| partition.state.lossy).collect();
        assert_eq!(lossy, if goes_on { vec![true] } else { vec![] });
    }
}

#[test]
fn what_is_deleted_after_the_lost_blocks_is_gone() {
    let mut replay = Replay::new(disk(), 1, vec![state(10)]);
    replay.hole();
    apply(&mut replay, 9, Entry::Deleted);
    let plan = replay.finish();
    assert!(plan.partitions.is_empty());
    assert_eq!(plan.deleted, [key(1)]);
}

/// The start of direct writes is lost: the segment that took them is looked at all the same, up to where the log goes on.
#[test]
fn direct_writes_whose_note_is_lost_are_found() {
    let mut replay = Replay::new(disk(), 1, vec![state(10)]);
    replay.hole();
    apply(&mut replay, 9, Entry::Batch(&batch_of(30, 2, 10, 1, 1)));
    let scans = replay.scans();
    assert_eq!((scans.len(), scans[0].expected, scans[0].bound), (1, Offset(10), Offset(30)));
    let run = Run { start: Offset(10), end: Offset(30), position: 8192, end_position: 16_384 };
    let tail = SegmentTail {
        from_position: 8192,
        runs: vec![run],
        max_timestamp_ms: 1,
        epochs: Vec::new(),
        stop: ScanStop::Bound,
        torn_inside_block: false,
    };
    replay.scanned(key(1), Offset(0), Some(tail));
    let plan = only_plan(replay);
    assert!(plan.suspect);
    assert_eq!(ranges(&plan), [(0, 10), (10, 30)]);
    assert_eq!((plan.copies.len(), plan.copies[0].target, plan.copies[0].length), (1, Offset(10), 8192));
}

#[test]
fn a_cut_before_the_lost_blocks_closes_the_segment_that_is_looked_at() {
    let mut replay = Replay::new(disk(), 1, vec![state(10)]);
    apply(&mut replay, 6, Entry::Truncate(Offset(20)));
    replay.hole();
    assert_eq!(replay.scans(), []);
}
