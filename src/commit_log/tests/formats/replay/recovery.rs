//! A recovery of the model: what a crash left of it goes through the replay, and what the plan says is done.

use std::collections::BTreeMap;

use commit_log::format::record::{Entry, Record};
use commit_log::format::segment::{Run, ScanStop, SegmentTail};
use commit_log::replay::{RecordAt, Replay, Target, Written};
use commit_log::{EpochStart, PartitionState, Seen};
use wire::batch::BatchHeader;
use wire::{LeaderEpoch, Offset};

use super::model::{BOOT, Batch, Live, Owned, name};
use crate::samples::{disk, key};

/// What a scan of a file of one batch a block finds.
pub(crate) fn scan(file: &[Batch], from_position: u64, expected: u64, bound: u64) -> SegmentTail {
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
pub(crate) fn recover(live: &Live, files: &mut BTreeMap<u64, Vec<Batch>>, writes_max: usize) -> Option<PartitionState> {
    recover_without(live, files, writes_max, usize::MAX..usize::MAX)
}

/// The same, when the records of the range are in blocks that are lost.
pub(crate) fn recover_without(
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
pub(crate) fn content(state: &PartitionState, files: &BTreeMap<u64, Vec<Batch>>) -> Vec<Batch> {
    let mut found = Vec::new();
    for segment in &state.segments {
        let inside = files[&name(segment)].iter().filter(|batch| batch.1 <= segment.end.0 && batch.1 > state.log_start.0);
        found.extend(inside.copied());
    }
    found
}
