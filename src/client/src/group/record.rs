//! A record in the program's hands.

use std::sync::Arc;

use wire::{Offset, RecordView};

use crate::consumer::FetchedBatch;
use crate::core::retrying::{Assignment, Delivery};

/// A record that waits to be delivered: its batch, and its place in it.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) batch: Arc<FetchedBatch>,
    pub(super) place: usize,
}

/// A record delivered to a member of a group. It keeps the batch that it came in alive.
#[must_use = "say done or fail, or it stays in hand"]
pub struct GroupRecord {
    held: Held,
    assignment: Assignment,
    offset: Offset,
    attempt: u32,
    /// Shows the consumer that the program has the record, where dropping it is how it is acknowledged.
    _presence: Option<Arc<()>>,
}

impl GroupRecord {
    pub(super) fn new(delivery: Delivery<Held>, presence: Option<Arc<()>>) -> Self {
        let Delivery { assignment, offset, attempt, record } = delivery;
        Self { held: record, assignment, offset, attempt, _presence: presence }
    }

    pub(super) fn place(&self) -> (Assignment, Offset) {
        (self.assignment, self.offset)
    }

    /// Key, value, headers, timestamp, in place: nothing is copied.
    pub fn record(&self) -> RecordView<'_> {
        self.held.batch.record(self.held.place)
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        self.held.batch.topic()
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.held.batch.partition()
    }

    /// The offset.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// 1 when it is delivered for the first time, then one more for each time that it failed before.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}
