//! What members and people are told about the retries of a partition.

use wire::{Offset, TimestampMs};

use super::partition::PartitionRetries;

/// What a member must know that begins with a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryView {
    /// Parked keys, each with its head: later records of them are held back, earlier ones were handled.
    pub parked: Vec<(Vec<u8>, Offset)>,
    /// Offsets from the commit on that are not to be delivered. Ascending.
    pub held: Vec<Offset>,
    /// Nothing of it is to be delivered.
    pub stopped: bool,
}

/// What people are told about a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryDescription {
    /// Keys parked, and records that park alone.
    pub parked_keys: usize,
    /// Records that wait in them.
    pub parked_records: usize,
    /// When the next of them is due.
    pub next_due: Option<TimestampMs>,
    /// Dead letters decided so far.
    pub dead_lettered: u64,
    /// Of these, not yet durable in their topic.
    pub dead_letters_pending: usize,
    /// Records skipped so far.
    pub skipped: u64,
    /// The record that stopped the partition, and why.
    pub stopped: Option<(Offset, String)>,
}

pub(super) fn view(retries: &PartitionRetries, commit: Offset) -> RetryView {
    RetryView {
        parked: retries.parked_heads().map(|(key, head)| (key.to_vec(), head)).collect(),
        held: retries.held_from(commit),
        stopped: retries.is_stopped(),
    }
}

pub(super) fn describe(retries: &PartitionRetries) -> RetryDescription {
    RetryDescription {
        parked_keys: retries.parked_keys(),
        parked_records: retries.parked_records(),
        next_due: retries.next_due(),
        dead_lettered: retries.dead_lettered(),
        dead_letters_pending: retries.dead_letters_pending(),
        skipped: retries.skipped(),
        stopped: retries.stopped_at().map(|(offset, reason)| (offset, reason.to_owned())),
    }
}
