//! Every limit of the coordinator that the protocol ([`wire::limits`]) does not set, with the reason for its value.

/// Members of one group, gone ones that still hold partitions included. Each change of members computes the assignment anew: at this size
/// it stays a matter of milliseconds.
pub const MEMBERS_PER_GROUP_MAX: usize = 2000;

/// Groups of one coordinator unless configured: one of 16 on a node with ten times the groups that are promised.
pub const GROUPS_MAX_DEFAULT: usize = 10_000;

/// How often a member says that it lives, unless configured. A coordinator answers at once when it has news, so that this is no delay of
/// a rebalance; it is the load of idle members.
pub const HEARTBEAT_INTERVAL_MS_DEFAULT: u32 = 3000;

/// Heartbeats within one session, at least: two may be lost.
pub const HEARTBEATS_PER_SESSION_MIN: u32 = 3;

/// How long offsets of a group without members are kept unless configured: a week of holidays (Kafka's value).
pub const OFFSETS_RETENTION_MS_DEFAULT: u64 = 7 * 24 * 3600 * 1000;

/// The longest sleep until something that depends on the time of day, so that a clock that was set is noticed.
pub const WALL_SLEEP_MS_MAX: u64 = 3600 * 1000;

/// After a start nothing of groups expires for this long (or for its retention, if that is less): who used them may come back with the broker.
pub const START_GRACE_MS: u64 = 24 * 3600 * 1000;

/// Until another look at what the time of day says has expired and what has not been taken: the clock may not be trusted.
pub const EXPIRED_LOOK_MS: u64 = 60 * 1000;

/// What a reply about a group carries before it says that there is more: far below the largest reply, and whatever one entry adds to it is too.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

const _: () = {
    assert!(START_GRACE_MS <= OFFSETS_RETENTION_MS_DEFAULT);
    assert!(REPLY_BYTES_MAX * 2 <= wire::limits::REPLY_BODY_BYTES_MAX as usize);
    assert!(OFFSETS_RETENTION_MS_DEFAULT >= wire::limits::OFFSETS_RETENTION_MS_MIN);
    assert!(OFFSETS_RETENTION_MS_DEFAULT <= wire::limits::OFFSETS_RETENTION_MS_MAX);
    assert!(HEARTBEAT_INTERVAL_MS_DEFAULT * HEARTBEATS_PER_SESSION_MIN <= wire::limits::SESSION_TIMEOUT_MS_MAX);
};
