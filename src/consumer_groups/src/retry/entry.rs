//! The state of retries as entries of the internal topic: a key, and its whole value or none. How they become bytes is the business of the
//! group's state, which wraps them.

use std::collections::BTreeSet;

use rkyv::{Archive, Deserialize, Serialize};
use wire::limits::{FAILURE_REASON_BYTES_MAX, PARKING_KEY_BYTES_MAX};
use wire::{Offset, PartitionIndex, PartitionKey, ProducerEpoch, ProducerId, RetryPolicy, TimestampMs};

use super::limits::QUEUE_ENTRY_OFFSETS_MAX;

/// What changed in one partition; the values are taken from the state when the event is handled.
pub(super) type Changes = BTreeSet<RetryPart>;

/// One bit for each of 512 offsets.
pub type SettledBits = [u64; 8];

/// Names an entry within its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub enum RetryKey {
    /// The policy of the group (`None`), or of one topic in it, by name.
    Policy(Option<String>),
    /// State of one partition.
    Partition(PartitionKey, RetryPart),
}

/// Names an entry within its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub enum RetryPart {
    /// What became of records whose attempts are used up.
    Exhausted,
    /// A record on its way to the dead-letter topic, by its number.
    DeadLetter(u64),
    /// A parked key, by its number.
    Parked(u64),
    /// Offsets held back behind a parked key; the second number orders the entries of one queue.
    Queue(u64, u32),
    /// Records settled beyond the commit: offsets from 512 times this number.
    Settled(u64),
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum RetryValue {
    /// Of [`RetryKey::Policy`].
    Policy(RetryPolicy),
    /// Of [`RetryPart::Exhausted`].
    Exhausted(ExhaustedValue),
    /// Of [`RetryPart::DeadLetter`].
    DeadLetter(DeadLetterValue),
    /// Of [`RetryPart::Parked`].
    Parked(ParkedValue),
    /// Of [`RetryPart::Queue`]: ascending.
    Queue(Vec<Offset>),
    /// Of [`RetryPart::Settled`].
    Settled(SettledBits),
}

/// A change of state: an upsert, or a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryEntry {
    /// Which entry.
    pub key: RetryKey,
    /// Its value from now on; `None` removes it.
    pub value: Option<RetryValue>,
}

/// What became of records whose attempts are used up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ExhaustedValue {
    /// Dead letters so far; the number of the next one.
    pub dead_lettered: u64,
    /// Records skipped so far.
    pub skipped: u64,
    /// Where dead letters go.
    pub lane: Option<LaneValue>,
}

/// The way of one partition's dead letters: a producer of its own, so that a repeated append is known as such.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct LaneValue {
    /// Name of the dead-letter topic.
    pub topic: String,
    /// Number of the dead letter that has sequence 0.
    pub base: u64,
    /// Who appends; `None` until the driver has opened it.
    pub producer: Option<DeadLetterProducer>,
}

/// As whom, and to which partition, dead letters are appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeadLetterProducer {
    /// Producer id.
    pub id: ProducerId,
    /// Producer epoch.
    pub epoch: ProducerEpoch,
    /// Partition of the dead-letter topic: it stays the same when the topic grows, so that sequences go on.
    pub partition: PartitionIndex,
}

/// A record on its way to the dead-letter topic.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeadLetterValue {
    /// The record.
    pub offset: Offset,
    /// How often it was tried.
    pub attempts: u32,
    /// When it failed first.
    pub first_failure: TimestampMs,
    /// When it failed last.
    pub last_failure: TimestampMs,
    /// Its key as it was parked by; what is left of the record when retention has deleted it.
    pub key: Option<Vec<u8>>,
    /// What the consumer said of the last failure.
    pub reason: String,
}

/// A parked key.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ParkedValue {
    /// The key; `None` for a record without one.
    pub key: Option<Vec<u8>>,
    /// The record that is tried again; later ones of the key wait behind it.
    pub head: Offset,
    /// How often it has failed; 0 for one that was held back behind another.
    pub attempts: u32,
    /// When it failed first.
    pub first_failure: TimestampMs,
    /// When it failed last.
    pub last_failure: TimestampMs,
    /// When it is due; `None` when it stopped the partition.
    pub due: Option<TimestampMs>,
    /// What the consumer said of the last failure.
    pub reason: String,
}

impl RetryValue {
    /// Whether the value keeps the limits and rules that this program keeps when it writes one: bytes from a disk may be anything.
    pub(super) fn is_sound(&self) -> bool {
        let key_fits = |key: &Option<Vec<u8>>| key.as_ref().is_none_or(|key| key.len() <= PARKING_KEY_BYTES_MAX);
        match self {
            RetryValue::Policy(policy) => policy.check().is_ok(),
            RetryValue::Exhausted(value) => value.lane.as_ref().is_none_or(|lane| lane.base <= value.dead_lettered),
            RetryValue::DeadLetter(value) => key_fits(&value.key) && value.reason.len() <= FAILURE_REASON_BYTES_MAX,
            RetryValue::Parked(value) => key_fits(&value.key) && value.reason.len() <= FAILURE_REASON_BYTES_MAX,
            RetryValue::Queue(offsets) => {
                let ascends = offsets.is_sorted_by(|earlier, later| earlier < later);
                ascends && (1..=QUEUE_ENTRY_OFFSETS_MAX).contains(&offsets.len())
            }
            RetryValue::Settled(_) => true,
        }
    }
}
