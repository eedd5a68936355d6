//! Who reads which partition of a topic, how far, and what is tried again: the coordinator of consumer groups, as a pure core.
//!
//! ```text
//!   requests, time, topics ──► coordinator.handle(now, event, &mut outcome)
//!                                   │
//!      membership ── assignment     │     offsets      retry
//!                                   ▼
//!            outcome: state records to append │ replies │ when to wake up
//! ```
//!
//! Absent on purpose: I/O, clocks, randomness, async, sockets. The driver appends the state records to a partition of the internal topic,
//! and sends a reply only when everything appended before it is durable.

#![forbid(unsafe_code)]

pub mod limits;

mod ids;
mod now;
mod retry;

pub use ids::{GroupId, InstanceId, MemberId, NameError};
pub use now::Now;
