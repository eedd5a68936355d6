//! The server: connections in front, one log for each shard behind, and what starts and stops them.
//!
//! ```text
//!  start.rs ── locks, superblock, probe, core plan ─► shards (shard/serve.rs) ◄── metadata thread, HTTP thread, signals
//!
//!  on each shard:
//!  connection.rs ─► append.rs ─► router.rs ─► commit_log ─► ack.rs ─► reply
//!        │                          └ one hop (calls.rs, mail.rs) to the shard that owns the partition
//!        ├────────► fetch.rs ── reads, or waits until a high watermark moves
//!        ├────────► producers.rs ── identities for producers; older instances of named ones are fenced
//!        └────────► admin.rs ── the copy of the catalog (topics.rs); changes go to metadata.rs
//! ```
//!
//! Invariants:
//! - An acknowledgement says what it stands for: "stable" leaves only when the log has reported the batch durable.
//! - Produce requests of one partition over one connection are appended in the order in which they were received.
//! - Nothing is read into memory that was not admitted; at a bound the socket is not read. No length is believed unchecked.
//! - One shard's memory is touched by its thread alone; shards meet in the mesh, ordinary threads post to it.
//! - One bad frame is answered by one clear error, then its connection is closed. Others notice nothing.
//! - After a failed write to stable storage nothing is acknowledged, and the broker ends: first its shards, then its locks.

pub mod config;

mod ack;
mod admin;
mod admission;
mod append;
mod calls;
mod connection;
mod counters;
mod data_directory;
mod delete_records;
mod fetch;
mod groups;
mod http;
mod io_profile;
mod mail;
mod metadata;
mod metrics;
mod offsets;
mod partition;
mod process;
mod producers;
mod router;
mod scatter;
mod shard;
mod standing;
mod start;
mod topics;

pub use config::{Config, ConfigError};
pub use data_directory::{DataDirectoryError, FileError, LockError};
pub use metadata::{JournalError, MetadataError};
pub use start::{BrokerError, BrokerHandle, run, start};
