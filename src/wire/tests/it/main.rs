//! The crate from outside: bytes, round trips, damage.

#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod allocations;
mod batch_damage;
mod batch_retain;
mod batch_round_trip;
mod frame_stream;
mod golden;
mod hostile_bytes;
mod samples;
