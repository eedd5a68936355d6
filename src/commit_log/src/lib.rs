//! Records of partitions on one shard's disk.
//!
//! ```text
//!   append ──► ordered (offsets)                                       read
//!      │ pending                                                        │
//!      ▼                                                                ▼
//!   commit loop ── little ──► write-ahead log, one group for all ──► tail cache (the written buffers)
//!      │                                   │ flushed in the background  │ else
//!      └─ much of one partition ──────────►▼                            ▼
//!                                      segments, one file after the other ──► index, one direct read
//!
//!   a start:  recover every shard directory ──► barrier ──► ShardLog::open with the partitions that the shard owns now
//!             ──► barrier ──► ShardLog::forget_moved, retire the directories that no shard has any more
//! ```
//!
//! Invariants:
//! - An append is ordered when it returns and durable when the commit says so: two types, [`Appended`] and [`Durable`].
//! - Durable means on stable storage, with everything before it: of the shard's log (the prefix of completed groups), or of the partition's segment
//!   (writes, then one sync). No file grows, and no block is written twice, between an append and its acknowledgement.
//! - What is not in a segment stays in memory and in the write-ahead log. What is, may leave both.
//! - Batches of a partition stand in its segments in offset order without a hole.
//! - The first failed write stops the shard's log for good ([`LogFailed`]). Nothing is retried.
//! - Bytes from the disk are input: checked before they leave, and a bad one is a value ([`ReadError::Corrupt`]).
//! - A batch of an idempotent producer that is sent again gets the offsets that it has. Who appended what last is part of the log: checkpointed,
//!   recovered, cut with it.
//! - A partition at rest is a struct: no file handle, no task, no buffer.
//!
//! Absent on purpose: leaders, peers, sockets. Who may append, and what replicas have, is decided by the caller.

#![forbid(unsafe_code)]

pub mod format;
pub mod limits;

mod append;
mod background;
mod checkpoint;
mod cold_read;
mod commit;
mod compaction;
mod direct;
mod directory;
mod epochs;
mod failure;
mod file_cache;
mod flush;
mod group;
mod histogram;
mod inventory;
mod options;
mod partition;
mod partition_log;
mod partition_state;
mod producers;
mod read_cache;
mod reader;
mod reclaim;
mod recovery;
mod remove;
pub mod replay;
mod retention;
mod retire;
mod scrub;
mod seal;
mod segment_file;
mod segment_files;
mod segment_fill;
mod segment_index;
mod segments;
mod shard;
mod shard_log;
mod space;
mod start;
mod stats;
mod tail_cache;
mod time_lookup;
mod truncate;
mod wal;
mod wal_files;
pub mod wal_scan;
mod watermarks;

pub use append::{AppendError, Appended, Durable, Ticket};
pub use compaction::{CompactError, Compacted, CompactionNeed, CompactionTerms};
pub use directory::ShardDirectory;
pub use epochs::{EpochStart, Epochs};
pub use failure::LogFailed;
pub use histogram::{HISTOGRAM_BOUNDS, HistogramCounts};
pub use options::{Durability, LogOptions, PartitionOptions};
pub use partition_log::{PartitionLog, SegmentInfo};
pub use partition_state::{OffsetRange, PartitionState, SegmentState};
pub use producers::{Produced, Producer, ProducerBatch, ProducerError, Producers, Seen};
pub use reader::ReadError;
pub use recovery::{RecoverError, Recovered, RecoveryReport, newest, recover};
pub use retention::{Retained, Retention};
pub use retire::retire;
pub use shard::Committed;
pub use shard_log::{CreateError, OpenError, ShardLog};
pub use start::StartError;
pub use stats::{LogHistograms, LogStats};
pub use watermarks::Watermarks;
