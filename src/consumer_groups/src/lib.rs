//! Who reads which partition of a topic, how far, and what is tried again: the coordinator of consumer groups, as a pure core.
//!
//! ```text
//!   requests, time, topics ──► coordinator.handle(now, topics, event, &mut outcome)
//!                                   │
//!      membership ── assignment     │     offsets      retry
//!                                   ▼
//!            outcome: state records to append │ replies │ when to wake up
//!
//!   start:  replay(record) for each of the internal topic's partition ──► Event::Loaded ──► requests
//!   now and then:  snapshot(..) in slices, appended ──► durable ──► the log starts where the snapshot began
//! ```
//!
//! Invariants:
//! - The state is what replaying the records gives: at the end of each event, and so after a crash between any two.
//! - At most one member owns a partition, by what members believe, as long as they keep the rules in `membership`.
//! - What a member commits never goes back. Only an operator, or who commits without a membership, moves an offset back, while the group has
//!   no member that owns the partition.
//! - Every partition of a topic that a living member subscribes to comes to be owned.
//! - A member that keeps a partition over a rebalance does not pause it.
//!
//! Absent on purpose: I/O, clocks, randomness, async, sockets. The driver appends the state records to a partition of the internal topic,
//! and sends a reply only when everything appended before it is durable.

#![forbid(unsafe_code)]

pub mod limits;
pub mod retry;
pub mod state;

mod assignment;
mod coordinator;
mod event;
mod group;
mod ids;
mod membership;
mod now;
mod offsets;
mod outcome;
mod refusal;
mod topics;

pub use coordinator::{Coordinator, GroupPartitionStanding, GroupStanding, Options, SnapshotPosition, SnapshotSlice};
pub use event::{Event, Request};
pub use ids::{GroupId, InstanceId, MemberId};
pub use membership::Client;
pub use now::Now;
pub use outcome::{Outcome, Reply, Token};
pub use state::{StateError, StateRecord};
pub use topics::{Topic, Topics};
