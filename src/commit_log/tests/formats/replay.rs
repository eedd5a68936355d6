//! Replay against a model: whatever was appended, cut and flushed in whatever way comes out, and a second replay comes to the same log.
//!
//! The disk is a list of segments, each a list of batches. A history draws appends (through the log or straight into a segment), cuts,
//! flushes, checkpoints, log starts and compactions; a crash may come after any of them, and another in the middle of the recovery.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use commit_log::format::record::{CompactedSegment, Entry, Record, SegmentEnd};
use commit_log::format::segment::{Run, ScanStop, SegmentTail};
use commit_log::replay::{RecordAt, Replay, Target, Written};
use commit_log::{EpochStart, PartitionState, Seen, SegmentState};
use proptest::prelude::*;
use wire::batch::BatchHeader;
use wire::{LeaderEpoch, Offset};

use crate::samples::{batch_of, disk, key, options};

const BOOT: u64 = 1;

#[derive(Debug, Clone)]
enum Step {
    Append {
        count: u32,
        direct: bool,
    },
    Flush,
    Roll,
    Truncate(prop::sample::Index),
    LogStart(prop::sample::Index),
    /// Some sealed segments become one, and their batches fewer.
    Compact {
        from: prop::sample::Index,
        count: usize,
    },
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1u32..4, prop::bool::weighted(0.4)).prop_map(|(count, direct)| Step::Append { count, direct }),
        3 => Just(Step::Flush),
        1 => Just(Step::Roll),
        2 => any::<prop::sample::Index>().prop_map(Step::Truncate),
        1 => any::<prop::sample::Index>().prop_map(Step::LogStart),
        2 => (any::<prop::sample::Index>(), 1usize..4).prop_map(|(from, count)| Step::Compact { from, count }),
        2 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 1..40)
}

/// Base offset, end, epoch.
type Batch = (u64, u64, u32);

/// A partition as the log keeps it: the model, and its segments as they stand on the disk.
#[derive(Debug, Clone)]
struct Live {
    /// Segment files: name to batches.
    files: BTreeMap<u64, Vec<Batch>>,
    /// All records of the log since the checkpoint.
    log: Vec<Owned>,
    checkpoint: PartitionState,
    /// What should be there.
    batches: Vec<Batch>,
    log_start: u64,
    end: u64,
    flushed_end: u64,
    segments: Vec<SegmentState>,
    active: Option<u64>,
    /// Nothing below is cut.
    compacted_end: u64,
    noted: bool,
    epoch: u32,
}

#[derive(Debug, Clone)]
enum Owned {
    Batch(Vec<u8>),
    Other(Entry<'static>),
}

impl Live {
    fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            log: vec![Owned::Other(Entry::Created { options: options(), start: Offset(0) })],
            checkpoint: PartitionState::new(key(1), BOOT, options(), Offset(0)),
            batches: Vec::new(),
            log_start: 0,
            end: 0,
            flushed_end: 0,
            segments: Vec::new(),
            active: None,
            compacted_end: 0,
            noted: false,
            epoch: 1,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append { count, direct } => {
                let batch = (self.end, self.end + u64::from(*count), self.epoch);
                self.batches.push(batch);
                self.end = batch.1;
                if *direct {
                    self.flush(true);
                } else {
                    self.log.push(Owned::Batch(batch_of(batch.0, *count, 10, 1000 + batch.0 as i64, self.epoch)));
                }
            }
            Step::Flush => self.flush(false),
            Step::Roll => self.seal(),
            Step::Truncate(at) => self.truncate(at),
            Step::LogStart(at) => {
                // Anywhere, also inside a batch.
                let to = self.log_start + at.index((self.flushed_end.max(self.log_start) - self.log_start) as usize + 1) as u64;
                self.log_start = to;
                self.log.push(Owned::Other(Entry::LogStart(Offset(to))));
                self.batches.retain(|batch| batch.1 > to);
                let gone: Vec<u64> =
                    self.segments.iter().filter(|segment| segment.sealed && segment.end.0 <= to).map(name).collect();
                self.segments.retain(|segment| !gone.contains(&name(segment)));
                for name in gone {
                    self.files.remove(&name);
                }
            }
            Step::Compact { from, count } => self.compact(from, *count),
            Step::Checkpoint => {
                self.flush(false);
                let mut state = PartitionState::new(key(1), BOOT, options(), Offset(self.log_start));
                state.segments = self.segments.clone();
                self.checkpoint = state;
                self.log.clear();
                self.noted = false;
            }
        }
    }

    fn flush(&mut self, direct: bool) {
        let unflushed: Vec<Batch> = self.batches.iter().filter(|batch| batch.0 >= self.flushed_end).copied().collect();
        let Some(first) = unflushed.first() else { return };
        let base = *self.active.get_or_insert_with(|| {
            self.noted = false;
            self.segments.push(segment(first.0));
            self.files.insert(first.0, Vec::new());
            first.0
        });
        if direct && !self.noted {
            self.noted = true;
            self.log.push(Owned::Other(Entry::DirectStart(self.note(base, first.0))));
        }
        let file = self.files.get_mut(&base).unwrap();
        file.extend(&unflushed);
        self.flushed_end = self.end;
        let active = self.segments.last_mut().unwrap();
        active.end = Offset(self.end);
        active.end_position = 4096 * (1 + file.len() as u64);
        if direct {
            self.log.push(Owned::Other(Entry::DirectEnd(self.note(base, self.end))));
        }
    }

    fn note(&self, base: u64, offset: u64) -> SegmentEnd {
        let position = 4096 * (1 + self.files[&base].len() as u64);
        SegmentEnd { base: Offset(base), incarnation: 0, position, offset: Offset(offset) }
    }

    fn seal(&mut self) {
        if self.active.take().is_some() {
            self.segments.last_mut().unwrap().sealed = true;
        }
    }

    fn truncate(&mut self, at: &prop::sample::Index) {
        let floor = self.log_start.max(self.compacted_end);
        let starts: Vec<u64> = self.batches.iter().map(|batch| batch.0).filter(|start| *start >= floor).collect();
        if starts.is_empty() {
            return;
        }
        let to = starts[at.index(starts.len())];
        self.seal();
        self.batches.retain(|batch| batch.0 < to);
        self.end = to;
        self.flushed_end = self.flushed_end.min(to);
        self.epoch += 1;
        self.log.push(Owned::Other(Entry::Truncate(Offset(to))));
        for segment in self.segments.iter().filter(|segment| segment.base.0 >= to) {
            self.files.remove(&name(segment));
        }
        self.segments.retain(|segment| segment.base.0 < to);
        if let Some(last) = self.segments.last_mut() {
            last.end = last.end.min(Offset(to));
        }
    }
}

impl Live {
    fn compact(&mut self, from: &prop::sample::Index, count: usize) {
        let sealed = self.segments.iter().filter(|segment| segment.sealed).count();
        if sealed == 0 {
            return;
        }
        let first = from.index(sealed);
        let range = first..(first + count).min(sealed);
        let sources = self.segments[range.clone()].to_vec();
        let mut made: Vec<Batch> = Vec::new();
        for source in &sources {
            for batch in self.files[&name(source)].iter().filter(|batch| batch.1 <= source.end.0) {
                match made.last_mut() {
                    Some(last) if last.2 == batch.2 => last.1 = batch.1,
                    _ => made.push(*batch),
                }
            }
        }
        let (base, end) = (sources[0].base, sources[sources.len() - 1].end);
        let segment = SegmentState {
            base,
            end,
            end_position: 4096 * (1 + made.len() as u64),
            generation: sources.iter().map(|source| source.generation).max().unwrap() + 1,
            sealed: true,
            ..sources[0].clone()
        };
        self.log.push(Owned::Other(Entry::Compacted(CompactedSegment {
            base,
            end,
            generation: segment.generation,
            end_position: segment.end_position,
            max_timestamp_ms: 0,
            tombstones_since_ms: None,
        })));
        // Those that were there stay for some checkpoints.
        self.files.insert(name(&segment), made.clone());
        self.segments.splice(range, [segment]);
        self.batches.retain(|batch| batch.1 <= base.0 || batch.0 >= end.0);
        self.batches.extend(made.iter().filter(|batch| batch.1 > self.log_start));
        self.batches.sort_unstable();
        self.compacted_end = self.compacted_end.max(end.0);
    }
}

/// The name of a segment's file.
fn name(segment: &SegmentState) -> u64 {
    segment.base.0 | u64::from(segment.generation) << 32
}

fn segment(base: u64) -> SegmentState {
    let disk: Arc<Path> = disk();
    let base = Offset(base);
    SegmentState {
        disk,
        base,
        end: base,
        end_position: 4096,
        max_timestamp_ms: 0,
        aged_from_ms: 1,
        sealed: false,
        generation: 0,
        tombstones_since_ms: None,
    }
}

/// What a scan of a file of one batch a block finds.
fn scan(file: &[Batch], from_position: u64, expected: u64, bound: u64) -> SegmentTail {
    let mut tail = SegmentTail {
        from_position,
        runs: Vec::new(),
        max_timestamp_ms: 0,
        epochs: Vec::new(),
        producers: Seen::default(),
        stop: ScanStop::End,
        torn_inside_block: false,
    };
    let mut due = expected;
    let first = (from_position / 4096 - 1) as usize;
    for (at, batch) in file.iter().enumerate().skip(first) {
        if batch.0 != due || batch.1 > bound {
            break;
        }
        let position = 4096 * (1 + at as u64);
        match tail.runs.last_mut() {
            Some(run) => (run.end, run.end_position) = (Offset(batch.1), position + 4096),
            None => tail.runs.push(Run { start: Offset(batch.0), end: Offset(batch.1), position, end_position: position + 4096 }),
        }
        if tail.epochs.last().is_none_or(|last| last.epoch.0 < batch.2) {
            tail.epochs.push(EpochStart { epoch: LeaderEpoch(batch.2), start: Offset(batch.0) });
        }
        due = batch.1;
    }
    tail
}

/// Recovers; stops after `writes_max` writes, as a crash would. Returns the state if it came to the end.
fn recover(live: &Live, files: &mut BTreeMap<u64, Vec<Batch>>, writes_max: usize) -> Option<PartitionState> {
    recover_without(live, files, writes_max, usize::MAX..usize::MAX)
}

/// The same, when the records of the range are in blocks that are lost.
fn recover_without(
    live: &Live,
    files: &mut BTreeMap<u64, Vec<Batch>>,
    writes_max: usize,
    lost: std::ops::Range<usize>,
) -> Option<PartitionState> {
    let exists = !matches!(live.log.first(), Some(Owned::Other(Entry::Created { .. })));
    let known = if exists { vec![live.checkpoint.clone()] } else { Vec::new() };
    let mut replay = Replay::new(disk(), BOOT, known);
    let records: Vec<(RecordAt, Record<'_>)> = live
        .log
        .iter()
        .enumerate()
        .map(|(number, owned)| {
            let entry = match owned {
                Owned::Batch(bytes) => Entry::Batch(bytes),
                Owned::Other(entry) => *entry,
            };
            (RecordAt { block: 1 + number as u64 / 3, index: number as u32 % 3 }, Record { key: key(1), entry })
        })
        .collect();
    for (number, (at, record)) in records.iter().enumerate() {
        if number == lost.start {
            replay.hole();
        }
        if !lost.contains(&number) {
            replay.apply(*at, record).unwrap();
        }
    }
    for wanted in replay.scans() {
        let file = files.get(&wanted.base.0);
        let tail = file.map(|file| scan(file, wanted.from_position, wanted.expected.0, wanted.bound.0));
        replay.scanned(wanted.key, wanted.base, tail);
    }
    let plan = replay.finish();
    let plan = plan.partitions.into_values().next()?;
    for copy in &plan.copies {
        let first = (copy.position / 4096 - 1) as usize;
        let moved = files[&copy.source.0][first..first + (copy.length / 4096) as usize].to_vec();
        files.insert(copy.target.0, moved);
    }
    let mut written: Vec<Written> = Vec::new();
    let mut last = None;
    for (done, (at, record)) in records.iter().enumerate().filter(|(number, _)| !lost.contains(number)) {
        let Entry::Batch(bytes) = record.entry else { continue };
        let header = BatchHeader::decode(bytes).unwrap();
        let Some(write) = plan.takes(*at, header.base_offset, header.next_offset()) else { continue };
        if done >= writes_max {
            return None;
        }
        let target = plan.target(write, header.base_offset, last);
        last = Some((write, header.next_offset()));
        let base = match target {
            None => written.last().unwrap().base,
            Some(Target::New(base)) => {
                files.insert(base.0, Vec::new());
                base
            }
            Some(Target::Append { base, position }) => {
                // With lost blocks its removal may be among what is lost.
                files.entry(base.0).or_default().truncate((position / 4096 - 1) as usize);
                base
            }
            Some(Target::Continue) => unreachable!("a batch that continues has no target"),
        };
        let file = files.get_mut(&base.0).unwrap();
        file.push((header.base_offset.0, header.next_offset().0, header.leader_epoch.0));
        let end_position = 4096 * (1 + file.len() as u64);
        match written.last_mut().filter(|last| last.base == base) {
            Some(last) => (last.end, last.end_position) = (header.next_offset(), end_position),
            None => written.push(Written { base, end: header.next_offset(), end_position, max_timestamp_ms: 0 }),
        }
    }
    Some(plan.complete(&written, 1))
}

/// All batches that the state's segments hold at or above the log start.
fn content(state: &PartitionState, files: &BTreeMap<u64, Vec<Batch>>) -> Vec<Batch> {
    let mut found = Vec::new();
    for segment in &state.segments {
        let inside = files[&name(segment)].iter().filter(|batch| batch.1 <= segment.end.0 && batch.1 > state.log_start.0);
        found.extend(inside.copied());
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn everything_acknowledged_comes_back_and_again(steps in steps(), writes_max in 0usize..40) {
        let mut live = Live::new();
        for step in &steps {
            live.step(step);
            // A crash here, and another in the middle of the recovery.
            let mut files = live.files.clone();
            recover(&live, &mut files, writes_max);
            let state = recover(&live, &mut files, usize::MAX).unwrap();
            let expected: Vec<Batch> = live.batches.clone();
            prop_assert_eq!(content(&state, &files), expected, "after {:?}", step);
            prop_assert!(!state.lossy, "{:?}", state);
            prop_assert_eq!(state.end(), Offset(live.end));
            let mut again = files.clone();
            let second = recover(&live, &mut again, usize::MAX).unwrap();
            prop_assert_eq!(content(&second, &again), content(&state, &files));
            prop_assert_eq!(second.end(), state.end());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the lost blocks held, the partition is marked, and everything that was acknowledged and is gone lies in a lost range or behind the
    /// end.
    #[test]
    fn lost_records_mark_the_partition(steps in steps(), at in any::<prop::sample::Index>(), count in 1usize..6) {
        let mut live = Live::new();
        steps.iter().for_each(|step| live.step(step));
        if live.log.is_empty() {
            return Ok(());
        }
        let start = at.index(live.log.len());
        let mut files = live.files.clone();
        let Some(state) = recover_without(&live, &mut files, usize::MAX, start..start + count) else { return Ok(()) };
        prop_assert!(state.lossy, "{:?}", state);
        let is_held = |offset: u64| state.segments.iter().any(|segment| segment.base.0 <= offset && offset < segment.end.0);
        let is_lost = |offset: u64| state.lost.iter().any(|range| range.start.0 <= offset && offset < range.end.0);
        for offset in state.log_start.0..state.end().0 {
            prop_assert!(is_held(offset) || is_lost(offset), "{} is nowhere: {:?}", offset, state);
        }
    }
}

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
