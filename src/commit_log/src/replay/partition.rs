//! One partition while the log is replayed.

use std::path::Path;
use std::sync::Arc;

use wire::batch::BatchHeader;
use wire::{LeaderEpoch, Offset};

use super::plan::{Copy, PartitionPlan, Target, Write};
use super::{RecordAt, SegmentToScan};
use crate::format::BLOCK_BYTES;
use crate::format::record::{CompactedSegment, SegmentEnd};
use crate::format::segment_scan::SegmentTail;
use crate::partition_state::{OffsetRange, PartitionState, SegmentState};
use crate::producers::{Produced, Recovering};

/// A stretch of batches in the log.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: RecordAt,
    /// The last record.
    to: RecordAt,
    offsets: OffsetRange,
    /// The next batch may go on with it.
    open: bool,
}

/// A segment that may hold batches which bypassed the log: its end is known after a scan.
#[derive(Debug)]
struct Noted {
    base: Offset,
    /// Of its file; 0 for the one that the checkpoint names.
    incarnation: u64,
    from_position: u64,
    expected: Offset,
    /// Batches that reach this were cut.
    bound: Offset,
    /// No note names it: the note may be in a lost block. What the log has after that block counts more.
    is_assumed: bool,
    /// Everything below was told to be on stable storage: by the checkpoint, or as the end of a direct write.
    told: Told,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    offset: Offset,
    position: u64,
}

#[derive(Debug)]
pub(super) struct Replaying {
    pub(super) state: PartitionState,
    /// Blocks were lost that may have held records of this partition. Nothing later shows that they did not: a cut and the batches after it may be
    /// gone together, and what follows them goes on at the same offset as what was cut.
    pub(super) suspect: bool,
    was_lossy: bool,
    runs: Vec<Run>,
    noted: Vec<Noted>,
    /// Segments that compaction has put into others since the checkpoint: only what they say of producers is asked for.
    replaced: Vec<SegmentToScan>,
    copies: Vec<Copy>,
    producers: Recovering,
    /// Everything below was acknowledged.
    committed: Offset,
    touched: bool,
}

impl Replaying {
    pub(super) fn new(mut state: PartitionState) -> Self {
        let (runs, noted, replaced, copies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let was_lossy = state.lossy;
        let producers = Recovering::new(std::mem::take(&mut state.producers));
        Self { state, suspect: false, was_lossy, runs, noted, replaced, copies, producers, committed: Offset(0), touched: false }
    }

    /// What nothing says the beginning of.
    pub(super) fn lossy(state: PartitionState) -> Self {
        let mut partition = Self::new(state);
        partition.state.lossy = true;
        partition
    }

    /// Blocks are missing before the next record.
    pub(super) fn hole(&mut self) {
        self.suspect = true;
        if let Some(last) = self.state.segments.last().filter(|last| !last.sealed) {
            let (base, from_position, expected) = (last.base, last.end_position, last.end);
            if let Some(noted) = self.note(base, 0, from_position, expected) {
                noted.is_assumed = true;
                self.touched = true;
            }
        }
    }

    /// Whether the checkpoint's state holds what the records of `block` did. Batches are the exception: they may stand in no segment yet.
    pub(super) fn is_known(&self, block: u64) -> bool {
        block <= self.state.as_of_block
    }

    pub(super) fn batch(&mut self, at: RecordAt, header: &BatchHeader) {
        let (base, end) = (header.base_offset, header.next_offset());
        let known = self.is_known(at.block);
        let is_cut_missing = if known || !self.suspect { self.logged_end() > base } else { self.told_end() > base };
        if is_cut_missing {
            // The record of a cut is among the lost blocks. The later history stands.
            self.cut_runs(base);
            if !known {
                self.truncate(base);
                self.state.lossy = true;
            }
        }
        self.touched = true;
        for noted in self.noted.iter_mut().filter(|noted| noted.is_assumed) {
            noted.bound = noted.bound.min(base);
        }
        match self.runs.last_mut() {
            Some(run) if run.open && run.offsets.end == base => (run.to, run.offsets.end) = (at, end),
            _ => self.runs.push(Run { from: at, to: at, offsets: OffsetRange { start: base, end }, open: true }),
        }
        if !known {
            self.epoch(header.leader_epoch, base);
        }
        if let Some(produced) = Produced::of(header).filter(|_| at.block > self.state.producers_as_of_block) {
            self.producers.logged(produced, base);
        }
    }

    /// End of the batches seen in the log.
    fn logged_end(&self) -> Offset {
        self.runs.last().map_or(Offset(0), |run| run.offsets.end)
    }

    /// End of all that was told of the partition before the next record: in the log, in segments, or as the end of a direct write.
    fn told_end(&self) -> Offset {
        let stored = self.state.segments.last().map_or(Offset(0), |segment| segment.end);
        self.logged_end().max(stored).max(self.committed)
    }

    pub(super) fn epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        self.touched = true;
        let epochs = &mut self.state.epochs;
        if epochs.latest().is_some_and(|latest| latest.epoch < epoch && latest.start > start) {
            epochs.truncate(start);
        }
        epochs.begin(epoch, start);
    }

    /// Takes what is at and above `to` from the batches seen so far in the log.
    pub(super) fn cut_runs(&mut self, to: Offset) {
        self.touched = true;
        self.producers.cut_log(to);
        self.runs.retain(|run| run.offsets.start < to);
        if let Some(run) = self.runs.last_mut() {
            run.offsets.end = run.offsets.end.min(to);
            run.open = false;
        }
    }

    pub(super) fn truncate(&mut self, to: Offset) {
        self.producers.truncate(to);
        self.cut_runs(to);
        self.noted.retain(|noted| noted.base < to);
        self.replaced.retain(|replaced| replaced.base < to);
        self.replaced.iter_mut().for_each(|replaced| replaced.bound = replaced.bound.min(to));
        for noted in &mut self.noted {
            noted.bound = noted.bound.min(to);
            noted.told.offset = noted.told.offset.min(to);
        }
        let state = &mut self.state;
        state.segments.retain(|segment| segment.base < to);
        if let Some(last) = state.segments.last_mut() {
            // Whatever it holds by now: a cut closes it, and the next batches went into another.
            last.end = last.end.min(to);
            last.seal();
        }
        state.epochs.truncate(to);
        state.high_watermark = state.high_watermark.min(to);
        state.log_start = state.log_start.min(to);
        state.lost.retain(|range| range.start < to);
        if let Some(last) = state.lost.last_mut() {
            last.end = last.end.min(to);
        }
        state.clean_end = state.clean_end.min(to);
        self.committed = self.committed.min(to);
    }

    pub(super) fn log_start(&mut self, start: Offset) {
        self.touched = true;
        self.state.log_start = self.state.log_start.max(start);
    }

    pub(super) fn high_watermark(&mut self, offset: Offset) {
        self.state.high_watermark = self.state.high_watermark.max(offset);
    }

    pub(super) fn direct_start(&mut self, note: SegmentEnd, disk: &Arc<Path>) {
        self.touched = true;
        let compacted = |segment: &SegmentState| segment.base == note.base && segment.generation > 0;
        if self.state.segments.iter().any(compacted) {
            // Nothing is written into what compaction made: the record of a cut is among the lost blocks.
            self.truncate(note.base);
            self.state.lossy = true;
        }
        let segments = &mut self.state.segments;
        let at = segments.partition_point(|segment| segment.base < note.base);
        let (from_position, expected) = match segments.get(at) {
            Some(known) if known.base == note.base => (known.end_position, known.end),
            _ => {
                let state = SegmentState {
                    disk: disk.clone(),
                    base: note.base,
                    end: note.base,
                    end_position: BLOCK_BYTES as u64,
                    max_timestamp_ms: i64::MIN,
                    aged_from_ms: 0,
                    sealed: false,
                    generation: 0,
                    tombstones_since_ms: None,
                };
                segments.insert(at, state);
                (BLOCK_BYTES as u64, note.base)
            }
        };
        // A note of another file of this name: the cut between them is in a lost block.
        let is_other = |noted: &Noted| noted.is_assumed || noted.incarnation != note.incarnation;
        self.noted.retain(|noted| noted.base != note.base || !is_other(noted));
        self.note(note.base, note.incarnation, from_position, expected);
    }

    /// Notes a segment; returns it if it was not noted before.
    fn note(&mut self, base: Offset, incarnation: u64, from_position: u64, expected: Offset) -> Option<&mut Noted> {
        if self.noted.iter().any(|noted| noted.base == base) {
            return None;
        }
        let (bound, told) = (Offset(u64::MAX), Told { offset: expected, position: from_position });
        self.noted.push(Noted { base, incarnation, from_position, expected, bound, is_assumed: false, told });
        self.noted.last_mut()
    }

    pub(super) fn direct_end(&mut self, note: SegmentEnd, disk: &Arc<Path>) {
        self.touched = true;
        let known = self.state.segments.iter().find(|segment| segment.base == note.base);
        if known.is_some_and(|segment| segment.end >= note.offset) || note.offset <= self.state.log_start {
            return;
        }
        // The ends of direct writes ride in later blocks: its segment may have gone into another one meanwhile.
        let replaces = |segment: &SegmentState| segment.generation > 0 && segment.base <= note.base && segment.end >= note.offset;
        if self.state.segments.iter().any(replaces) {
            return;
        }
        // Without a note before it, the note is in a lost block.
        self.direct_start(note, disk);
        if let Some(noted) = self.noted.iter_mut().find(|noted| noted.base == note.base)
            && note.offset > noted.told.offset
        {
            noted.told = Told { offset: note.offset, position: note.position };
        }
        self.committed = self.committed.max(note.offset);
    }

    /// What began in these offsets is in one segment now. Whatever the checkpoint says of those before is older than that: it was sealed, and below the
    /// high watermark.
    pub(super) fn compacted(&mut self, made: CompactedSegment, disk: &Arc<Path>) {
        self.touched = true;
        let is_source = |base: Offset| (made.base..made.end).contains(&base);
        // Their files stay until a checkpoint knows what their batches say of producers.
        let sources = self.noted.iter().filter(|noted| is_source(noted.base)).filter_map(|noted| self.scan(noted));
        let sources: Vec<_> = sources.map(|scan| SegmentToScan { bound: scan.bound.min(made.end), ..scan }).collect();
        self.replaced.extend(sources);
        let segments = &mut self.state.segments;
        let is_same = |segment: &&SegmentState| segment.base == made.base && segment.generation == made.generation;
        // Where only something became known of a segment, it stays on its disk.
        let same = segments.iter().find(is_same);
        let disk = same.map_or(disk, |segment| &segment.disk).clone();
        // The age counts from the youngest. Of one that the checkpoint does not know, or not as sealed, it is not known.
        let sources = || segments.iter().filter(|segment| is_source(segment.base));
        let is_known = sources().all(|segment| segment.sealed);
        let aged_from_ms = sources().map(|segment| segment.aged_from_ms).max().filter(|_| is_known).unwrap_or(0);
        segments.retain(|segment| !is_source(segment.base));
        self.noted.retain(|noted| !is_source(noted.base));
        let at = segments.partition_point(|segment| segment.base < made.base);
        let segment = SegmentState {
            disk,
            base: made.base,
            end: made.end,
            end_position: made.end_position,
            max_timestamp_ms: made.max_timestamp_ms,
            aged_from_ms,
            sealed: true,
            generation: made.generation,
            tombstones_since_ms: made.tombstones_since_ms,
        };
        segments.insert(at, segment);
        self.committed = self.committed.max(made.end);
        self.high_watermark(made.end);
    }

    pub(super) fn clean_end(&mut self, end: Offset) {
        self.touched = true;
        self.state.clean_end = self.state.clean_end.max(end);
    }

    pub(super) fn scans(&self) -> impl Iterator<Item = SegmentToScan> {
        self.noted.iter().filter_map(move |noted| self.scan(noted)).chain(self.replaced.iter().cloned())
    }

    fn scan(&self, noted: &Noted) -> Option<SegmentToScan> {
        let segments = &self.state.segments;
        let at = segments.iter().position(|segment| segment.base == noted.base)?;
        if segments[at].end > noted.expected {
            return None;
        }
        let next = segments.get(at + 1).map_or(Offset(u64::MAX), |next| next.base);
        Some(SegmentToScan {
            key: self.state.key,
            disk: segments[at].disk.clone(),
            base: noted.base,
            incarnation: noted.incarnation,
            from_position: noted.from_position,
            expected: noted.expected,
            bound: noted.bound.min(next),
            committed_position: noted.told.position,
        })
    }

    pub(super) fn scanned(&mut self, base: Offset, tail: Option<SegmentTail>) {
        if self.replaced.iter().any(|replaced| replaced.base == base) {
            tail.into_iter().for_each(|tail| self.producers.scanned(tail.producers));
            return;
        }
        let at = self.state.segments.iter().position(|segment| segment.base == base).expect("the scan was asked for");
        let noted = self.noted.iter().find(|noted| noted.base == base).expect("the scan was asked for");
        let (told, incarnation) = (noted.told, noted.incarnation);
        let segment = &mut self.state.segments[at];
        let Some(tail) = tail else {
            if segment.base == segment.end {
                // The note is durable before the file is made; or a cut removed the file.
                self.state.segments.remove(at);
            }
            return;
        };
        segment.end_position = tail.end_position();
        segment.max_timestamp_ms = segment.max_timestamp_ms.max(tail.max_timestamp_ms);
        let mut due = segment.end;
        let mut lost = Vec::new();
        for run in &tail.runs {
            lost.push(OffsetRange { start: due, end: run.start });
            due = run.end;
        }
        segment.end = due;
        if tail.torn_inside_block {
            segment.seal();
        }
        for range in lost {
            self.state.add_lost(range);
        }
        for start in &tail.epochs {
            self.epoch(start.epoch, start.start);
        }
        let end_position = tail.end_position();
        if let Some(last) = tail.runs.last()
            && last.end > told.offset
        {
            let is_within = last.start <= told.offset && (last.position..end_position).contains(&told.position);
            let from = if is_within { told } else { Told { offset: last.start, position: last.position } };
            self.copy_from(at, from, end_position, incarnation);
        }
        self.producers.scanned(tail.producers);
    }

    /// What stands in the segment from `from` to `end_position` goes into a file of its own.
    fn copy_from(&mut self, at: usize, from: Told, end_position: u64, incarnation: u64) {
        let segment = &mut self.state.segments[at];
        let copy = Copy {
            disk: segment.disk.clone(),
            source: segment.base,
            position: from.position,
            length: end_position - from.position,
            target: from.offset,
            incarnation,
        };
        assert!(copy.length > 0, "batches take room");
        assert_eq!(segment.generation, 0, "nothing is written into what compaction made");
        let copied = SegmentState { base: copy.target, end_position: BLOCK_BYTES as u64 + copy.length, ..segment.clone() };
        if copy.source == copy.target {
            *segment = copied;
        } else {
            (segment.end, segment.end_position) = (from.offset, from.position);
            segment.seal();
            self.state.segments.insert(at + 1, copied);
        }
        self.copies.push(copy);
    }

    /// Brings segments and runs together.
    pub(super) fn plan(mut self, disk: &Arc<Path>) -> PartitionPlan {
        let log_start = self.state.log_start;
        self.state.segments.retain(|segment| segment.end > log_start || segment.base >= log_start);
        let segments = &self.state.segments;
        self.copies.retain(|copy| segments.iter().any(|segment| segment.base == copy.target));
        let bounds: Vec<Offset> = self.state.segments.iter().skip(1).map(|segment| segment.base).collect();
        for (segment, next) in self.state.segments.iter_mut().zip(bounds) {
            // A newer segment starts where this one was cut.
            segment.end = segment.end.min(next);
        }
        let mut writes = Vec::new();
        for run in &self.runs {
            let offsets = OffsetRange { start: run.offsets.start.max(log_start), end: run.offsets.end };
            for piece in uncovered(offsets, &self.state.segments) {
                writes.push(Write { from: run.from, to: run.to, offsets: piece, target: Target::New(piece.start) });
            }
        }
        let mut last_base = None;
        for write in &mut writes {
            let start = write.offsets.start;
            let before = self.state.segments.iter().rfind(|segment| segment.base <= start);
            write.target = match before {
                Some(segment) if segment.end == start && !segment.sealed && last_base.is_none_or(|last| last < segment.base) => {
                    Target::Append { base: segment.base, position: segment.end_position }
                }
                _ => Target::New(start),
            };
            last_base = Some(start);
        }
        merge_adjacent(&mut writes);
        PartitionPlan {
            state: self.state,
            copies: self.copies,
            producers: self.producers,
            writes,
            committed: self.committed,
            suspect: self.suspect,
            was_lossy: self.was_lossy,
            touched: self.touched,
            disk: disk.clone(),
        }
    }
}

/// Runs that follow each other (a cut lay between them) are still separate in time but go into one file: the later appends to what the earlier
/// began.
fn merge_adjacent(writes: &mut [Write]) {
    for at in 1..writes.len() {
        let (before, after) = writes.split_at_mut(at);
        let (Some(before), Some(after)) = (before.last(), after.first_mut()) else { continue };
        if before.offsets.end == after.offsets.start && after.target == Target::New(after.offsets.start) {
            after.target = Target::Continue;
        }
    }
}

/// The parts of `offsets` that no segment holds, ascending.
fn uncovered(offsets: OffsetRange, segments: &[SegmentState]) -> Vec<OffsetRange> {
    let mut left = Vec::new();
    let mut start = offsets.start;
    for segment in segments {
        let covered = OffsetRange { start: segment.base, end: segment.end }.intersection(OffsetRange { start, end: offsets.end });
        if covered.is_empty() {
            continue;
        }
        if start < covered.start {
            left.push(OffsetRange { start, end: covered.start });
        }
        start = covered.end;
    }
    if start < offsets.end {
        left.push(OffsetRange { start, end: offsets.end });
    }
    left
}
