//! A partition as the log keeps it: what should be in it, and its segments as they stand on the disk, each a list of batches.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use commit_log::format::record::{CompactedSegment, Entry, SegmentEnd};
use commit_log::{PartitionState, SegmentState};
use proptest::prelude::*;
use wire::Offset;

use crate::samples::{batch_of, disk, key, options};

pub(crate) const BOOT: u64 = 1;

#[derive(Debug, Clone)]
pub(crate) enum Step {
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

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
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
pub(crate) type Batch = (u64, u64, u32);

/// A partition as the log keeps it: the model, and its segments as they stand on the disk.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    /// Segment files: name to batches.
    pub(crate) files: BTreeMap<u64, Vec<Batch>>,
    /// All records of the log since the checkpoint.
    pub(crate) log: Vec<Owned>,
    pub(crate) checkpoint: PartitionState,
    /// What should be there.
    pub(crate) batches: Vec<Batch>,
    log_start: u64,
    pub(crate) end: u64,
    flushed_end: u64,
    segments: Vec<SegmentState>,
    active: Option<u64>,
    /// Nothing below is cut.
    compacted_end: u64,
    noted: bool,
    epoch: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Owned {
    Batch(Vec<u8>),
    Other(Entry<'static>),
}

impl Live {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn step(&mut self, step: &Step) {
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
pub(crate) fn name(segment: &SegmentState) -> u64 {
    segment.base.0 | u64::from(segment.generation) << 32
}

pub(crate) fn segment(base: u64) -> SegmentState {
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
