//! Limits of the machine. Each says why it has its value.

use std::time::Duration;

/// Positions, lengths and memory of disk I/O are multiples of this: the page size, and at least the alignment that every
/// supported device wants (the startup probe refuses a device that wants more).
pub const DISK_ALIGNMENT_BYTES: usize = 4096;

/// The largest single read: above this a device gains nothing, and a polled queue above `max_sectors_kb` hangs.
pub const READ_PIECE_BYTES_MAX: usize = 1 << 20;

/// Disk requests of one shard in flight at once. More wait in order. Below `RING_DEPTH`, so that timers, sockets and wake-ups
/// always find a free entry.
pub const DISK_IN_FLIGHT_MAX: usize = 96;

/// Entries of each ring of a shard.
pub(crate) const RING_DEPTH: usize = 128;
const _: () = assert!(DISK_IN_FLIGHT_MAX + 32 <= RING_DEPTH);

/// Registered I/O memory of a shard when nothing else is said. The kernel counts it three times (three rings).
pub const IO_MEMORY_BYTES_DEFAULT: usize = 64 << 20;

/// The least I/O memory of a shard: below this a single group commit does not fit.
pub const IO_MEMORY_BYTES_MIN: usize = 1 << 20;

/// How often a shard looks around: outboxes, posted messages, timers. It bounds how long a lost wake-up can last.
pub const TICK: Duration = Duration::from_millis(2);

/// How long tasks run before a shard looks at its rings again, when work never ends.
pub const PREEMPT_DEFAULT: Duration = Duration::from_millis(1);

/// A shard without a tick for this long is woken from outside, and the stall is counted.
pub const STALL: Duration = Duration::from_millis(100);

/// Messages that may wait for one peer. A full outbox is told to the sender.
pub const MESH_OUTBOX_MESSAGES_MAX: usize = 4096;

/// Messages on the way between an ordered pair of shards, beyond the outbox: a receiver that is behind by this many is not
/// helped by more.
pub const MESH_LANE_MESSAGES_MAX: usize = 4096;

/// Messages that ordinary threads may have waiting for one shard.
pub const REMOTE_MESSAGES_MAX: usize = 1024;

/// Shards of one process.
pub const SHARDS_MAX: usize = 1024;

/// A shard that is not up by then ends the process.
pub const START_DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
