//! Finds the valid batches of a segment's tail, given its bytes piece by piece.
//!
//! ```text
//!  position                          end_position     committed_position
//!  │ batch │ batch │ pad │ batch │ pad │ (torn) …            │
//!  └────────── run ──────────────────┘
//!                                      │ damaged │ batch │ … │        only below committed_position: what is there was acknowledged, so
//!                                                └── run ───┘        the scan goes on behind the damage and reports a gap
//! ```
//!
//! Every flush starts on a block, so that after damage the next batch is found at a block.

use std::ops::ControlFlow;

use wire::batch::{BatchHeader, HEADER_BYTES, PayloadKind, verify_payload};
use wire::{LeaderEpoch, Offset};

use super::BLOCK_BYTES;
use super::index::SegmentIndex;
use crate::epochs::EpochStart;
use crate::producers::{Produced, Seen};

/// Batches back to back in offset order, with their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Base offset of the first batch.
    pub start: Offset,
    /// Offset after the last batch.
    pub end: Offset,
    /// Position of the first batch.
    pub position: u64,
    /// Position after the last batch and the padding behind it: a whole block.
    pub end_position: u64,
}

/// Why a scan ended where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStop {
    /// Zeros, the index, or nothing follows.
    End,
    /// The batch at this position does not hold: torn or damaged.
    Bad {
        /// Position of the bad bytes.
        position: u64,
    },
    /// The batch there reaches the bound that was given.
    Bound,
}

/// What stands in the scanned part of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentTail {
    /// Where the scan began.
    pub from_position: u64,
    /// Valid batches in offset order. More than one run means damage between acknowledged batches.
    pub runs: Vec<Run>,
    /// Greatest timestamp of these batches; `i64::MIN` for none.
    pub max_timestamp_ms: i64,
    /// Where epochs begin in them.
    pub epochs: Vec<EpochStart>,
    /// The newest of them of each idempotent producer.
    pub producers: Seen,
    /// Why it ended.
    pub stop: ScanStop,
    /// The last valid batch ends inside a block: the flush was torn behind it. Appends must not go on in this file, because what stands between
    /// that batch and the next block would be read as a damaged batch.
    pub torn_inside_block: bool,
}

impl SegmentTail {
    /// The position after everything valid: appends go on here, on a block.
    pub fn end_position(&self) -> u64 {
        self.runs.last().map_or(self.from_position, |run| run.end_position)
    }

    /// The offset after everything valid, if anything is.
    pub fn end_offset(&self) -> Option<Offset> {
        self.runs.last().map(|run| run.end)
    }
}

/// The scanner. Feed it the file from `position` on with [`SegmentScan::feed`].
#[derive(Debug)]
pub struct SegmentScan {
    tail: SegmentTail,
    position: u64,
    /// Batches must not start below this.
    expected: Offset,
    bound: Offset,
    committed_position: u64,
    epoch: LeaderEpoch,
    index: Option<SegmentIndex>,
    bad: Option<u64>,
}

impl SegmentScan {
    /// Starts at `position` (a block), where a batch with offset `expected` or none is due. Batches that reach `bound` (a cut) are not taken.
    /// Below `committed_position` everything was acknowledged: damage there is skipped and shows as a gap between runs.
    pub fn new(position: u64, expected: Offset, bound: Offset, committed_position: u64) -> Self {
        assert!(position >= BLOCK_BYTES as u64, "batches start after the header");
        assert!(position.is_multiple_of(BLOCK_BYTES as u64), "a scan starts on a block");
        let tail = SegmentTail {
            from_position: position,
            runs: Vec::new(),
            max_timestamp_ms: i64::MIN,
            epochs: Vec::new(),
            producers: Seen::default(),
            stop: ScanStop::End,
            torn_inside_block: false,
        };
        Self { tail, position, expected, bound, committed_position, epoch: LeaderEpoch(0), index: None, bad: None }
    }

    /// Builds `index` on the way (the whole segment must be scanned).
    pub fn with_index(mut self, index: SegmentIndex) -> Self {
        self.index = Some(index);
        self
    }

    /// Position of the next byte that it wants.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Looks at `bytes`, the file from [`SegmentScan::position`] on. `last` says that the file ends with them. `Continue(needed)`: call again
    /// with at least `needed` bytes from the new position on. `Break`: done.
    pub fn feed(&mut self, bytes: &[u8], last: bool) -> ControlFlow<(), usize> {
        let start = self.position;
        loop {
            let rest = &bytes[(self.position - start) as usize..];
            if rest.len() < HEADER_BYTES {
                if last {
                    return self.stop_at_end();
                }
                return ControlFlow::Continue(BLOCK_BYTES);
            }
            let header = match BatchHeader::decode(rest) {
                Ok(header) => header,
                Err(_) => {
                    self.skip_bad(rest)?;
                    if self.position - start > bytes.len() as u64 {
                        return if last { self.stop_at_end() } else { ControlFlow::Continue(BLOCK_BYTES) };
                    }
                    continue;
                }
            };
            if rest.len() < header.total_length() && !last {
                return ControlFlow::Continue(header.total_length().next_multiple_of(BLOCK_BYTES));
            }
            if verify_payload(&header, rest).is_err() || !self.fits(&header) {
                self.skip_bad(rest)?;
                if self.position - start > bytes.len() as u64 {
                    return if last { self.stop_at_end() } else { ControlFlow::Continue(BLOCK_BYTES) };
                }
                continue;
            }
            if header.payload_kind != PayloadKind::Padding && header.next_offset() > self.bound {
                self.tail.stop = ScanStop::Bound;
                return ControlFlow::Break(());
            }
            self.take(&header);
        }
    }

    /// The result, and the index if one was to be built.
    pub fn finish(mut self) -> (SegmentTail, Option<SegmentIndex>) {
        self.tail.torn_inside_block =
            self.tail.runs.last().is_some_and(|run| !run.end_position.is_multiple_of(BLOCK_BYTES as u64));
        for run in &mut self.tail.runs {
            run.end_position = run.end_position.next_multiple_of(BLOCK_BYTES as u64);
        }
        (self.tail, self.index)
    }

    /// A valid batch may still be one of an older life of these bytes.
    fn fits(&self, header: &BatchHeader) -> bool {
        if header.payload_kind == PayloadKind::Padding {
            return header.base_offset >= self.expected || self.tail.runs.is_empty();
        }
        let follows = if self.bad.is_some() { header.base_offset >= self.expected } else { header.base_offset == self.expected };
        follows && header.leader_epoch >= self.epoch
    }

    fn take(&mut self, header: &BatchHeader) {
        let end_position = self.position + header.total_length() as u64;
        if header.payload_kind == PayloadKind::Padding {
            if self.bad.is_none()
                && let Some(run) = self.tail.runs.last_mut()
            {
                run.end_position = end_position;
            }
            self.position = end_position;
            return;
        }
        let (start, end) = (header.base_offset, header.next_offset());
        match self.tail.runs.last_mut() {
            Some(run) if self.bad.is_none() => (run.end, run.end_position) = (end, end_position),
            _ => self.tail.runs.push(Run { start, end, position: self.position, end_position }),
        }
        self.bad = None;
        self.expected = end;
        self.tail.max_timestamp_ms = self.tail.max_timestamp_ms.max(header.max_timestamp_ms.0);
        if self.tail.epochs.last().is_none_or(|last| last.epoch < header.leader_epoch) {
            self.tail.epochs.push(EpochStart { epoch: header.leader_epoch, start });
        }
        if let Some(produced) = Produced::of(header) {
            self.tail.producers.add(produced, start);
        }
        self.epoch = header.leader_epoch;
        if let Some(index) = self.index.as_mut() {
            index.add(start, self.position, header.max_timestamp_ms.0);
        }
        self.position = end_position;
    }

    /// Goes to the next block while everything there was acknowledged; else the scan is over.
    fn skip_bad(&mut self, rest: &[u8]) -> ControlFlow<(), usize> {
        let first_bad = *self.bad.get_or_insert(self.position);
        let next = (self.position + 1).next_multiple_of(BLOCK_BYTES as u64);
        if next < self.committed_position {
            self.position = next;
            return ControlFlow::Continue(0);
        }
        let clean = first_bad >= self.committed_position && starts_clean(rest);
        self.tail.stop = if clean { ScanStop::End } else { ScanStop::Bad { position: first_bad } };
        ControlFlow::Break(())
    }

    fn stop_at_end(&mut self) -> ControlFlow<(), usize> {
        let first_bad = self.bad.unwrap_or(self.position);
        let clean = first_bad >= self.committed_position;
        self.tail.stop = if clean { ScanStop::End } else { ScanStop::Bad { position: first_bad } };
        ControlFlow::Break(())
    }
}

/// Whether what follows the last batch looks like space that was never written. (An index does not: that is a `Bad` to the scan of a sealed
/// segment whose checkpoint did not come about, and harmless: the runs are what counts.)
fn starts_clean(rest: &[u8]) -> bool {
    super::is_zero(&rest[..HEADER_BYTES])
}
