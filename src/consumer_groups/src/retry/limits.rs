//! Every limit of retries, with the reason for its value. Those that clients must know stand in `wire::limits`.

use wire::limits::{FAILURE_REASON_BYTES_MAX, PARKING_KEY_BYTES_MAX};

/// Records that one partition of a group may have parked, held back behind parked ones, or waiting to become dead letters. At 8 bytes for
/// one that is held back, a poison key of a busy partition takes 64 KiB; who has more to put aside has an outage, not poison messages.
pub const PARKED_RECORDS_MAX: usize = 8192;

/// Memory that parked keys of one partition of a group may take: each counts [`PARKED_KEY_BYTES`] and its key.
pub const PARKED_BYTES_MAX: usize = 4 << 20;

/// What a parked key takes at most, beside the key: the reason of its failure, times and indexes.
pub const PARKED_KEY_BYTES: usize = FAILURE_REASON_BYTES_MAX + 256;

/// Offsets in one entry of the state of a queue: holding back or delivering one record rewrites half a kilobyte, however long the queue is.
pub const QUEUE_ENTRY_OFFSETS_MAX: usize = 64;

/// Dead letters of one partition that are appended and not yet marked as done. A repeated append is known as such by the last batches of
/// its producer, of which a log remembers more than this; one before these would be refused after a crash.
pub const DEAD_LETTERS_IN_FLIGHT_MAX: u64 = 4;

/// Topics of one group with a policy of their own.
pub const TOPIC_POLICIES_MAX: usize = 1000;

/// How much of one partition of a group may be parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// At most [`PARKED_RECORDS_MAX`].
    pub records_max: usize,
    /// At most [`PARKED_BYTES_MAX`].
    pub bytes_max: usize,
}

impl Default for RetryLimits {
    fn default() -> Self {
        RetryLimits { records_max: PARKED_RECORDS_MAX, bytes_max: PARKED_BYTES_MAX }
    }
}

const _: () = {
    // A dead letter keeps what its parked key had, so that the worst case is a multiple of what is stated here, not open.
    assert!(PARKED_BYTES_MAX >= 1000 * (PARKED_KEY_BYTES + PARKING_KEY_BYTES_MAX));
    // A log that remembers but five batches of a producer, the fewest there are, will do.
    assert!(DEAD_LETTERS_IN_FLIGHT_MAX < 5);
    assert!(QUEUE_ENTRY_OFFSETS_MAX > 1);
};
