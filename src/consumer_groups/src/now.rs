//! The time, as an argument.

use wire::TimestampMs;

/// What the clocks say when an event is handled.
///
/// Sessions are judged by the clock that never jumps; what is stored, and so outlives a restart, by the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that only runs forward, from any origin; it need not survive a restart.
    pub steady_ms: u64,
    /// The time of day.
    pub wall: TimestampMs,
}
