//! One partition of a consumer.

use std::sync::Arc;
use std::time::Instant;

use wire::{Offset, OffsetAt};

use crate::consumer::StartAt;
use crate::core::backoff::Backoff;
use crate::limits::UNKNOWN_PARTITION_ANSWERS_MAX;

/// Where the next fetch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// To be asked for.
    Unresolved(OffsetAt),
    At(Offset),
}

impl From<StartAt> for Position {
    fn from(start: StartAt) -> Self {
        match start {
            StartAt::Earliest => Position::Unresolved(OffsetAt::Earliest),
            StartAt::Latest => Position::Unresolved(OffsetAt::Latest),
            StartAt::Timestamp(timestamp) => Position::Unresolved(OffsetAt::Timestamp(timestamp)),
            StartAt::Offset(offset) => Position::At(offset),
        }
    }
}

pub(super) struct Assigned {
    pub(super) topic: Arc<str>,
    /// Of the position: answers to an older one are not used.
    pub(super) generation: u64,
    pub(super) position: Position,
    /// The offset after the last batch handed out, or of the start.
    handed_out: Option<Offset>,
    /// Batches fetched and not handed out.
    buffered_batches: usize,
    pub(super) high_watermark: Option<Offset>,
    pub(super) paused: bool,
    /// Neither handed out nor fetched for now.
    pub(super) is_held: bool,
    /// Stopped by an error that was handed out.
    pub(super) halted: bool,
    /// In a request.
    pub(super) busy: bool,
    /// In a row.
    pub(super) failures: u32,
    /// Answers "no such partition" in a row, of its leader or in metadata.
    pub(super) unknown_answers: u32,
    pub(super) not_before: Option<Instant>,
}

impl Assigned {
    pub(super) fn new(topic: Arc<str>, generation: u64, start: StartAt) -> Self {
        let mut assigned = Self {
            topic,
            generation,
            position: Position::from(start),
            handed_out: None,
            buffered_batches: 0,
            high_watermark: None,
            paused: false,
            is_held: false,
            halted: false,
            busy: false,
            failures: 0,
            unknown_answers: 0,
            not_before: None,
        };
        assigned.restart(generation, Position::from(start));
        assigned
    }

    /// Goes on from `position`, whatever was asked before.
    pub(super) fn restart(&mut self, generation: u64, position: Position) {
        self.generation = generation;
        self.position = position;
        self.handed_out = match position {
            Position::At(offset) => Some(offset),
            Position::Unresolved(_) => None,
        };
        self.halted = false;
        self.busy = false;
        self.succeeded();
    }

    /// Goes on at an offset that was looked up. What was fetched before is still handed out first.
    pub(super) fn resolve(&mut self, offset: Offset) {
        self.position = Position::At(offset);
        if self.buffered_batches == 0 {
            self.handed_out = Some(offset);
        }
        self.busy = false;
        self.succeeded();
    }

    /// It was answered: no failure is in the way any more.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.unknown_answers = 0;
        self.not_before = None;
    }

    /// Something failed: the next try is after a pause.
    pub(super) fn retry_later(&mut self, now: Instant, backoff: Backoff, random: u64) {
        self.busy = false;
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + backoff.delay(self.failures, random));
    }

    /// Said so often that there is no such partition, it was deleted.
    pub(super) fn is_gone(&self) -> bool {
        self.unknown_answers >= UNKNOWN_PARTITION_ANSWERS_MAX
    }

    pub(super) fn batch_buffered(&mut self) {
        self.buffered_batches += 1;
    }

    /// The oldest buffered batch, which ends before `next`, goes to the caller.
    pub(super) fn batch_handed_out(&mut self, next: Offset) {
        assert!(self.buffered_batches > 0, "a batch is handed out of the buffer");
        self.buffered_batches -= 1;
        self.handed_out = Some(next);
    }

    /// What was buffered is no longer there.
    pub(super) fn buffer_dropped(&mut self) {
        self.buffered_batches = 0;
    }

    /// The offset of the next record to hand out, once it is known. With nothing buffered it is where the next fetch begins: also
    /// behind batches that carry no records for the caller, so that who reads up to an offset gets there.
    pub(super) fn next_to_hand_out(&self) -> Option<Offset> {
        match self.position {
            Position::At(offset) if self.buffered_batches == 0 => Some(offset),
            _ => self.handed_out,
        }
    }

    /// Forgets what was fetched and not handed out.
    pub(super) fn rewind(&mut self, generation: u64) {
        let halted = self.halted;
        self.restart(generation, self.next_to_hand_out().map_or(self.position, Position::At));
        self.halted = halted;
    }

    pub(super) fn resolved(&self) -> bool {
        matches!(self.position, Position::At(_))
    }

    pub(super) fn askable(&self, now: Instant) -> bool {
        !self.busy && !self.paused && !self.is_held && !self.halted && self.not_before.is_none_or(|not_before| not_before <= now)
    }

    /// Only time keeps it from being asked for.
    pub(super) fn askable_later(&self, now: Instant) -> bool {
        !self.busy && !self.paused && !self.is_held && !self.halted && self.not_before.is_some_and(|not_before| not_before > now)
    }
}
