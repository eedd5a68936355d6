//! The broker end to end: real shards, real sockets, a real disk, and a client that writes frames by hand.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]
#![expect(clippy::disallowed_methods, reason = "the client's side runs on ordinary threads, by the clock of the machine")]

mod compaction;
mod connections;
mod delete_records;
mod disks;
mod failures;
mod frames;
mod group_metrics;
mod groups;
mod http;
mod long_poll;
mod many_shards;
mod members;
mod memory;
mod overload;
mod placement;
mod produce_fetch;
mod producers;
mod refusals;
mod restart;
mod retention;
mod sizes;
mod support;
mod topics;
