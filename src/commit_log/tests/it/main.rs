//! The log end to end, each scenario on the simulated and on the real machine.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod append;
mod append_read;
mod changes;
mod compaction;
mod directories;
mod faults;
mod flush;
mod inventory;
mod producers;
mod recovery;
mod retention;
mod scrub;
mod support;
mod time;
mod turns;
