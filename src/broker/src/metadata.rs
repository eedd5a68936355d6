//! Topics and producers: one writer, durable before visible, the same order on every shard.
//!
//! ```text
//!  shard: create "orders" ─► writer thread: allowed? ─► journal, fsync ─► broadcast ─► each shard: copy, then its partitions
//!                                │ no                                                        │ durable
//!                                ▼                                                           ▼
//!                             refusal                          answer ◄── all shards have confirmed
//! ```
//!
//! Invariants:
//! - What a client was told is on stable storage, and known to every shard.
//! - A change costs O(1) in the number of topics; snapshots cost each change a constant share.
//! - Data is deleted only for a topic that the journal says is deleted.

mod catalog;
mod journal;
mod producers;
mod rules;
mod store;
mod topic;
mod writer;

pub(crate) use catalog::{Change, Refusal};
pub use journal::JournalError;
pub(crate) use producers::NamedProducer;
pub use store::MetadataError;
pub(crate) use store::Store;
pub(crate) use topic::Topic;
pub(crate) use writer::{Answered, Command, Request, TopicRequest, Writer};
