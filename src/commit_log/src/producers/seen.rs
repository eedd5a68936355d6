//! Batches of producers that recovery comes across, in the write-ahead log or in a segment, and the state that they and a checkpoint make.
//!
//! ```text
//!   checkpoint   … 40 41 42 │                    what was durable then, of each producer the newest
//!   log                     │ 43    45 46        in their order, but what was written straight into a segment is not among them
//!   segments                │    44       47
//!                             └─ by offset ─┘ ─► the newest row without a gap
//! ```

use std::collections::{BTreeMap, VecDeque};

use wire::{Offset, ProducerId};

use super::{Produced, Producer, Producers};
use crate::limits::{PRODUCER_BATCHES_KEPT, PRODUCERS_PER_PARTITION_MAX};

/// A batch at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    base_offset: Offset,
    produced: Produced,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    /// Ascending by offset.
    newest: VecDeque<Placed>,
    is_trimmed: bool,
}

/// The newest batches of each producer among those seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    rows: BTreeMap<ProducerId, Row>,
}

impl Seen {
    /// Notes a batch. It stands behind all others seen of its producer that were not cut.
    pub fn add(&mut self, produced: Produced, base_offset: Offset) {
        let row = self.rows.entry(produced.id).or_default();
        if row.newest.back().is_some_and(|newest| newest.base_offset >= base_offset) {
            // Damage took the record of a cut.
            row.truncate(base_offset);
        }
        if row.newest.len() == PRODUCER_BATCHES_KEPT {
            row.newest.pop_front();
            row.is_trimmed = true;
        }
        row.newest.push_back(Placed { base_offset, produced });
        if self.rows.len() > 2 * PRODUCERS_PER_PARTITION_MAX {
            self.keep_latest(PRODUCERS_PER_PARTITION_MAX);
        }
    }

    fn keep_latest(&mut self, producers_max: usize) {
        let mut newest: Vec<Offset> = self.rows.values().filter_map(Row::newest_offset).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        let Some(oldest_kept) = newest.get(producers_max.saturating_sub(1)).copied() else { return };
        self.rows.retain(|_, row| row.newest_offset().is_some_and(|offset| offset >= oldest_kept));
    }

    /// Takes back what stands at and above `to`. Gives the producers of which nothing is left although they may have a batch below.
    pub fn truncate(&mut self, to: Offset) -> Vec<ProducerId> {
        let mut forgotten = Vec::new();
        self.rows.retain(|id, row| {
            row.truncate(to);
            if row.newest.is_empty() && row.is_trimmed {
                forgotten.push(*id);
            }
            !row.newest.is_empty()
        });
        forgotten
    }

    fn remove(&mut self, id: ProducerId) {
        self.rows.remove(&id);
    }
}

impl Row {
    fn newest_offset(&self) -> Option<Offset> {
        self.newest.back().map(|placed| placed.base_offset)
    }

    fn truncate(&mut self, to: Offset) {
        while self.newest.back().is_some_and(|placed| placed.base_offset >= to) {
            self.newest.pop_back();
        }
    }
}

/// What recovery knows of the producers of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovering {
    /// Of the checkpoint.
    stored: Producers,
    log: Seen,
    /// Of each segment that was scanned.
    segments: Vec<Seen>,
    /// The newest batch of a producer below this offset is not known: others after it pushed it out of what is remembered, and were cut.
    forgotten_below: BTreeMap<ProducerId, Offset>,
}

impl Recovering {
    pub(crate) fn new(stored: Producers) -> Self {
        Self { stored, ..Self::default() }
    }

    /// The next batch in the log that the checkpoint does not know of.
    pub(crate) fn logged(&mut self, produced: Produced, base_offset: Offset) {
        self.log.add(produced, base_offset);
    }

    /// What stands in a segment that was written to since the checkpoint.
    pub(crate) fn scanned(&mut self, seen: Seen) {
        if !seen.rows.is_empty() {
            self.segments.push(seen);
        }
    }

    /// A cut that the checkpoint knows of.
    pub(crate) fn cut_log(&mut self, to: Offset) {
        // Whoever is left without a batch is what the checkpoint says.
        let _known = self.log.truncate(to);
    }

    /// A cut after the checkpoint.
    pub(crate) fn truncate(&mut self, to: Offset) {
        let of_log = self.log.truncate(to);
        for id in self.stored.truncate(to).into_iter().chain(of_log) {
            self.forgotten_below.insert(id, to);
            self.log.remove(id);
            self.stored.remove(id);
        }
    }

    /// The state of a partition whose log ends before `end`, recovered at `now_ms`.
    pub(crate) fn finish(self, end: Offset, now_ms: i64) -> Producers {
        let Self { stored, log, segments, forgotten_below } = self;
        if log.rows.is_empty() && segments.is_empty() {
            return stored.below(end);
        }
        let mut rows: BTreeMap<ProducerId, (Vec<Placed>, bool)> = BTreeMap::new();
        let mut add = |id: ProducerId, placed: &mut dyn Iterator<Item = Placed>, is_trimmed: bool| {
            let row = rows.entry(id).or_default();
            let from = forgotten_below.get(&id).copied().unwrap_or_default();
            row.0.extend(placed.filter(|placed| (from..end).contains(&placed.base_offset)));
            row.1 |= is_trimmed;
        };
        // What stands in a segment wins over what the log says of the same offset.
        for (id, row) in segments.iter().chain([&log]).flat_map(|seen| &seen.rows) {
            add(*id, &mut row.newest.iter().copied(), row.is_trimmed);
        }
        for known in stored.known() {
            let placed = known.batches().map(|batch| Placed {
                base_offset: batch.base_offset,
                produced: Produced {
                    id: known.id(),
                    epoch: known.epoch(),
                    base_sequence: batch.base_sequence,
                    length: batch.length,
                },
            });
            add(known.id(), &mut placed.into_iter(), known.is_trimmed());
        }
        let merged = rows.into_iter().filter_map(|(id, (placed, is_trimmed))| {
            let is_trimmed = is_trimmed || forgotten_below.contains_key(&id);
            let before = stored.known().binary_search_by_key(&id, Producer::id).ok().map(|at| &stored.known()[at]);
            newest_row(placed, is_trimmed, before, now_ms)
        });
        let mut producers = Producers { known: merged.collect() };
        producers.keep_latest(PRODUCERS_PER_PARTITION_MAX);
        producers
    }
}

/// The producer whose batches these are, in any order; `None` without any.
fn newest_row(mut placed: Vec<Placed>, is_trimmed: bool, before: Option<&Producer>, now_ms: i64) -> Option<Producer> {
    placed.sort_by_key(|placed| placed.base_offset);
    placed.dedup_by_key(|placed| placed.base_offset);
    let newest = placed.last()?.base_offset;
    let is_news = before.is_none_or(|before| Offset(before.newest_offset()) < newest);
    let last_append_ms = before.filter(|_| !is_news).map_or(now_ms, Producer::last_append_ms);
    let mut rest = placed.into_iter();
    let first = rest.next()?;
    let mut producer = Producer::new(first.produced, first.base_offset, last_append_ms);
    rest.for_each(|placed| producer.push(placed.produced, placed.base_offset, last_append_ms));
    if is_trimmed {
        producer.trimmed();
    }
    Some(producer)
}
