//! What recovery writes, and the state of each partition after it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use wire::{Offset, PartitionKey};

use super::RecordAt;
use crate::Durability;
use crate::partition_state::{OffsetRange, PartitionState, SegmentState};
use crate::producers::Recovering;

/// Where surviving batches of the log go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Behind what a segment holds.
    Append {
        /// The segment.
        base: Offset,
        /// The first free block.
        position: u64,
    },
    /// Into a segment that starts here. A file of this name is a leftover.
    New(Offset),
    /// Into the same segment as the write before, directly behind it.
    Continue,
}

/// Batches of the log that are in no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The first record that may hold one.
    pub from: RecordAt,
    /// The last.
    pub to: RecordAt,
    /// Their offsets.
    pub offsets: OffsetRange,
    /// Where they go.
    pub target: Target,
}

/// Batches of a segment that move into a file of their own before anything is written: nobody was told that they are on stable storage, and it may
/// be that only a cache holds them, whose loss a failed sync has already reported to the process before this one. No later sync answers for such
/// bytes unless they are written again; and written over in place, a crash in the middle would tear those that are safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The data directory of both files.
    pub disk: Arc<Path>,
    /// The segment that holds them.
    pub source: Offset,
    /// Where they begin in it.
    pub position: u64,
    /// Their bytes, whole blocks.
    pub length: u64,
    /// The segment that they become. It may be the same: the new file takes the place of the old one.
    pub target: Offset,
    /// Of the new file.
    pub incarnation: u64,
}

/// A segment as the writer of the plan left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub base: Offset,
    /// Offset after the last batch written.
    pub end: Offset,
    /// Position after it and its padding.
    pub end_position: u64,
    /// Greatest timestamp of what was written.
    pub max_timestamp_ms: i64,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPlan {
    /// Its state, with what its segments hold now.
    pub state: PartitionState,
    /// What moves first.
    pub copies: Vec<Copy>,
    /// What is known of its producers.
    pub(crate) producers: Recovering,
    /// What must be written, ascending by offset and by record.
    pub writes: Vec<Write>,
    /// Everything below was acknowledged, whether it is there or not.
    pub committed: Offset,
    /// Lost blocks may have held batches of it.
    pub suspect: bool,
    /// The checkpoint said that it is lossy: that is no news.
    pub was_lossy: bool,
    /// Records of it were replayed. The files of others are not touched.
    pub touched: bool,
    /// Where new segments go.
    pub disk: Arc<Path>,
}

impl PartitionPlan {
    /// Which write takes the batch `base..end` at this place of the log; `None` when it was cut or stands in a segment.
    pub fn takes(&self, at: RecordAt, base: Offset, end: Offset) -> Option<usize> {
        let after = self.writes.partition_point(|write| write.offsets.end <= base);
        let write = self.writes.get(after)?;
        // The log may start inside a batch: all of it is kept.
        let start = write.offsets.start;
        let begins = start <= base || (start == self.state.log_start && start < end);
        let within = begins && end <= write.offsets.end && write.from <= at && at <= write.to;
        within.then_some(after)
    }

    /// Where a batch goes that [`PartitionPlan::takes`] gave to a write; `before` is the write and the end of the batch taken before it. `None`: directly
    /// behind that one. After a cut whose record is lost a write may begin inside a batch, which nobody takes: a segment has no hole, so that what
    /// follows begins another one.
    pub fn target(&self, write: usize, base: Offset, before: Option<(usize, Offset)>) -> Option<Target> {
        let follows = before.is_some_and(|(_, end)| end == base);
        match self.writes[write].target {
            _ if before.is_some_and(|(before, _)| before == write) => (!follows).then_some(Target::New(base)),
            Target::Continue => (!follows).then_some(Target::New(base)),
            Target::Append { .. } if base > self.writes[write].offsets.start => Some(Target::New(base)),
            Target::New(_) => Some(Target::New(base)),
            target => Some(target),
        }
    }

    /// The file of the segment `base` is not there: its offsets are lost, and what was to go behind them goes into a new one.
    pub fn without_file(&mut self, base: Offset) {
        let at = self.state.segments.iter().position(|segment| segment.base == base).expect("a segment of this partition");
        let gone = self.state.segments.remove(at);
        self.state.add_lost(OffsetRange { start: gone.base.max(self.state.log_start), end: gone.end });
        for write in &mut self.writes {
            if matches!(write.target, Target::Append { base: target, .. } if target == base) {
                write.target = Target::New(write.offsets.start);
            }
        }
    }

    /// The segment behind which a write goes, of those that were there before the recovery.
    pub fn continued(&self) -> Option<&SegmentState> {
        let is_continued = |write: &Write| match write.target {
            Target::Append { base, .. } if self.copies.iter().all(|copy| copy.target != base) => Some(base),
            _ => None,
        };
        let base = self.writes.iter().find_map(is_continued)?;
        self.state.segments.iter().find(|segment| segment.base == base)
    }

    /// The state after the writes, of which `written` names each segment that got batches, ascending; `now_ms` is when.
    pub fn complete(self, written: &[Written], now_ms: i64) -> PartitionState {
        let mut state = self.state;
        for done in written {
            let at = state.segments.partition_point(|segment| segment.base < done.base);
            match state.segments.get_mut(at) {
                Some(segment) if segment.base == done.base => {
                    assert!(segment.end <= done.end, "a write goes on behind the segment's end");
                    segment.end = done.end;
                    segment.end_position = done.end_position;
                    segment.max_timestamp_ms = segment.max_timestamp_ms.max(done.max_timestamp_ms);
                }
                _ => {
                    let segment = SegmentState {
                        disk: self.disk.clone(),
                        base: done.base,
                        end: done.end,
                        end_position: done.end_position,
                        max_timestamp_ms: done.max_timestamp_ms,
                        aged_from_ms: now_ms,
                        sealed: false,
                        generation: 0,
                        tombstones_since_ms: None,
                    };
                    state.segments.insert(at, segment);
                }
            }
        }
        state.segments.retain(|segment| segment.base < segment.end);
        seal_all_but_last(&mut state.segments);
        add_gaps(&mut state);
        let promised = match state.options.durability {
            Durability::Stable => self.committed.max(state.high_watermark),
            // What a relaxed topic shows may be ahead of what is durable.
            Durability::Relaxed => self.committed,
        };
        let end = state.end();
        if end < promised {
            // The offsets were acknowledged: they are not given again.
            state.add_lost(OffsetRange { start: end, end: promised });
        }
        state.lossy |= self.suspect;
        let end = state.end();
        state.high_watermark = state.high_watermark.clamp(state.log_start, end);
        if let Some(last) = state.segments.last_mut()
            && last.end < end
        {
            last.seal();
        }
        for segment in state.segments.iter_mut().filter(|segment| segment.aged_from_ms == 0) {
            segment.aged_from_ms = now_ms;
        }
        state.epochs.trim(state.log_start);
        state.producers = self.producers.finish(end, now_ms);
        state.producers_as_of_block = 0;
        state
    }
}

fn seal_all_but_last(segments: &mut [SegmentState]) {
    if let Some((_, before)) = segments.split_last_mut() {
        for segment in before {
            segment.seal();
        }
    }
}

/// Offsets between segments that no segment holds were acknowledged and are gone.
fn add_gaps(state: &mut PartitionState) {
    let mut due = state.log_start;
    let mut gaps = Vec::new();
    for segment in &state.segments {
        gaps.push(OffsetRange { start: due, end: segment.base });
        due = due.max(segment.end);
    }
    let known = state.lost.clone();
    for gap in gaps {
        let is_known = known.iter().any(|range| range.start <= gap.start && gap.end <= range.end);
        if !is_known {
            state.add_lost(gap);
        }
    }
}

/// All partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Those that exist.
    pub partitions: BTreeMap<PartitionKey, PartitionPlan>,
    /// Those that do not exist any more: their files go.
    pub deleted: Vec<PartitionKey>,
}
