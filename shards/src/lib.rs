//! The machine: pinned executors, disk, sockets, a mesh between them, clock, randomness, memory.
//!
//! ```text
//!            broker, commit_log, replication (drivers)
//!                │ executor  clock  random  sync  buffer  disk  net  mesh  run  probe
//!    ────────────┼──────────────────────────────────────────────────────── this surface
//!                ▼
//!         machine of this thread (one branch per call)
//!          │                         │                        │
//!          ▼                         ▼                        ▼
//!   real: glommio            simulated: one thread,    ordinary thread: clock,
//!   one pinned thread        one seed, a clock that    randomness and memory only
//!   per shard, io_uring      only moves when idle      (HTTP, signals, tests)
//! ```
//!
//! Invariants:
//! - Only `real/` names glommio; no type, error or macro of it is in this surface. A file that holds it is not exported.
//! - A shard never blocks: what may block runs on its blocking thread ([`executor::blocking`]), and comes back as a value.
//! - A disk write is never cancelled: dropping its future leaves the write running and its memory alive until the kernel
//!   is done. Whoever drops it must not assume that it did not happen.
//! - A write that the kernel cut short is an error, whatever was written. A read never returns bytes past the end of file.
//! - Nothing is unbounded: I/O in flight, outboxes, posted messages, buffers. Full is an answer, never a wait for ever.
//! - A panic, a shard that fails, or a mesh that closes outside an orderly stop, ends the process.
//! - A ready task runs within a tick (2 ms) plus the run of those before it: no lost wake-up puts a shard to sleep.

pub mod buffer;
pub mod clock;
pub mod disk;
pub mod executor;
pub mod mesh;
pub mod net;
pub mod probe;
pub mod random;
pub mod run;
pub mod simulated;
pub mod sync;

mod limits;
mod machine;
mod real;
mod shard_id;

pub use limits::*;
pub use shard_id::ShardId;
