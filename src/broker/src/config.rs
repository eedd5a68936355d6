//! The configuration: one TOML file, every key optional, unknown keys refused with the nearest known name.
//!
//! ```text
//!  file text ──► keys known? (keys.rs) ──► serde ──► validate.rs ──► Config ──► print.rs (effective, with comments)
//! ```

mod keys;
mod placement;
mod print;
mod quantity;
mod read;
mod shard_set;
mod validate;

pub use placement::{PlacementRules, owner};
pub use quantity::{Auto, ByteSize, QuantityError, Span};
pub use read::ConfigError;
pub use shard_set::{ShardSet, ShardSetError};

use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, path::PathBuf};

/// The port of the native protocol.
pub const NATIVE_PORT_DEFAULT: u16 = 7311;
/// The port of metrics and health.
pub const HTTP_PORT_DEFAULT: u16 = 7312;

/// Everything that can be set. `Config::default()` runs a broker in `./corelane-data` on all cores but one, listening on 127.0.0.1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Identity and data directory.
    pub broker: Broker,
    /// Which cores run shards.
    pub cores: Cores,
    /// Where clients connect.
    pub listen: Listen,
    /// Metrics and health.
    pub http: Http,
    /// Bounds on what clients may ask for.
    pub limits: Limits,
    /// Bounds on memory.
    pub memory: Memory,
    /// The log on disk.
    pub log: Log,
    /// Consumer groups.
    pub groups: Groups,
    /// Graceful stop.
    pub stop: Stop,
    /// The disks; none means one disk, the data directory itself.
    pub disk: Vec<Disk>,
    /// Which shards own which topics; the first match wins.
    pub placement: Vec<Placement>,
}

/// Identity and data directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Broker {
    /// The number of this broker in its cluster.
    pub id: u32,
    /// Where metadata, superblock and locks live; also the disk when no `[[disk]]` is given.
    pub data: PathBuf,
}

/// Which cores run shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cores {
    /// A cpu list such as `"2-15"`, a count such as `"4"`, or `"auto"` (all but one).
    #[serde(deserialize_with = "read::text_or_number")]
    pub shards: String,
    /// The cpu of the housekeeping threads; empty means any cpu that runs no shard.
    #[serde(deserialize_with = "read::text_or_number")]
    pub housekeeping: String,
    /// Several shards may share a cpu: for tests and small machines. Needs a count in `shards`.
    pub share: bool,
    /// How long an idle shard spins before it sleeps. Pays only on dedicated cores.
    pub spin: Span,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listen {
    /// Address and port of the native protocol; port 0 takes a free one.
    pub address: SocketAddr,
    /// `host:port` told to clients; empty means the listening address.
    pub advertised: String,
    /// Connections the kernel may queue before they are accepted.
    pub backlog: u32,
}

/// Metrics and health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Http {
    /// Whether to serve HTTP.
    pub enabled: bool,
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
}

/// Bounds on what clients may ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// The largest message (key, value and headers) a topic may allow.
    pub message_bytes_max: ByteSize,
    /// The largest request, header and attachments included.
    pub frame_bytes_max: ByteSize,
    /// The most bytes of batches one fetch returns.
    pub fetch_bytes_max: ByteSize,
    /// The longest a fetch may wait for data.
    pub fetch_wait_max: Span,
    /// Connections of the whole process.
    pub connections_max: u32,
    /// Requests of one connection not yet answered.
    pub requests_in_flight_max: u32,
    /// Topics of the broker.
    pub topics_max: u32,
    /// Partitions of the broker, all topics together.
    pub partitions_max: u32,
    /// A new connection must say Hello within this time.
    pub hello_timeout: Span,
    /// A request whose bytes stop arriving half-way is given up after this time, one that arrives slowly after a second more for each 32 KiB.
    pub read_timeout: Span,
    /// A client that does not take a MiB of its replies, or all there is, within this time is disconnected.
    pub write_timeout: Span,
}

/// Bounds on memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Request bytes taken in and not yet answered: one connection.
    pub connection_in_flight_bytes_max: ByteSize,
    /// Request bytes taken in and not yet answered: the process; each shard has an equal part.
    pub in_flight_bytes_max: ByteSize,
    /// Reply bytes not yet taken by a client: one connection, if its client takes as much in half a second. Any has 2 MiB.
    pub connection_reply_bytes_max: ByteSize,
    /// Reply bytes not yet taken by clients: the process; each shard has an equal part.
    pub reply_bytes_max: ByteSize,
    /// How long a request may wait for memory before it is answered "overloaded".
    pub admission_wait: Span,
    /// Batches appended and not yet durable, for each shard.
    pub append_bytes_max: ByteSize,
    /// Batches kept in memory until they are in their segments, for each shard.
    pub unflushed_bytes: Auto<ByteSize>,
    /// Batches kept in memory for consumers near the end, for each shard.
    pub tail_cache_bytes: Auto<ByteSize>,
    /// Blocks read from segments and kept for other readers, for each shard.
    pub read_cache_bytes: ByteSize,
    /// Keys of a partition that is being compacted, for each shard. With more keys it takes several passes.
    pub compaction_bytes: ByteSize,
    /// Registered memory for direct I/O, for each shard.
    pub io_bytes: Auto<ByteSize>,
}

/// The log on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    /// The size of one write-ahead log file.
    pub wal_file_bytes: ByteSize,
    /// The write-ahead log of one shard may grow to this; bounds replay after a crash.
    pub wal_bytes_max: ByteSize,
    /// At least this much disk stays free; producers get "disk full" below it, reads go on. Of it, half is for the state of groups.
    pub free_bytes_min: ByteSize,
    /// Producers are let in again above this much free disk.
    pub free_bytes_resume: ByteSize,
    /// A relaxed topic's messages are on stable storage within this time.
    pub relaxed_within: Span,
    /// An idempotent producer that appends nothing to a partition for this long is forgotten there.
    pub producers_kept: Span,
    /// How often each shard looks for partitions to compact.
    pub compaction_interval: Span,
    /// What compaction reads and writes in a second, for each shard.
    pub compaction_bytes_per_second: ByteSize,
    /// What the check of sealed segments at rest reads in a second, for each shard; 0: nothing is checked.
    pub scrub_bytes_per_second: ByteSize,
    /// Between two passes of that check, and before the first.
    pub scrub_interval: Span,
    /// Segment file handles one shard keeps open.
    pub open_files_max: Auto<u32>,
    /// The file `corelane tune iobench` wrote; empty means `io.toml` in each disk's folder, if there.
    pub io_profile: PathBuf,
}

/// Consumer groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Groups {
    /// Partitions of the internal topic that holds the state of groups, when it is made: over so many coordinators groups are spread.
    pub partitions: u32,
    /// How often a member of a group says that it lives.
    pub heartbeat_interval: Span,
    /// Groups of one coordinator.
    pub groups_max: u32,
    /// Committed offsets of a group without members are kept this long, unless the group says otherwise.
    pub offsets_retention: Span,
    /// Groups named in the metrics, those furthest behind first; and ten times as many of their partitions.
    pub metrics_max: u32,
}

/// Graceful stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stop {
    /// Requests in progress get this long to finish before their connections are closed.
    pub drain_within: Span,
}

/// One disk: a directory that shards write to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// The directory.
    pub path: PathBuf,
    /// The shards that write here; none given anywhere means an even spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardSet>,
}

/// One placement rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// A topic name, with `*`, `?`, `[…]` and `{a,b}` as in globs.
    pub topic: String,
    /// The shards that own the partitions of these topics.
    pub shards: ShardSet,
}

impl Default for Broker {
    fn default() -> Self {
        Broker { id: 1, data: PathBuf::from("./corelane-data") }
    }
}

impl Default for Cores {
    fn default() -> Self {
        Cores { shards: "auto".to_owned(), housekeeping: String::new(), share: false, spin: Span::milliseconds(0) }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Listen { address: SocketAddr::from(([127, 0, 0, 1], NATIVE_PORT_DEFAULT)), advertised: String::new(), backlog: 4096 }
    }
}

impl Default for Http {
    fn default() -> Self {
        Http { enabled: true, address: SocketAddr::from(([127, 0, 0, 1], HTTP_PORT_DEFAULT)) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            message_bytes_max: ByteSize::mib(10),
            frame_bytes_max: ByteSize::mib(64),
            fetch_bytes_max: ByteSize::mib(32),
            fetch_wait_max: Span::seconds(60),
            connections_max: 20_000,
            requests_in_flight_max: 1024,
            topics_max: 200_000,
            partitions_max: 500_000,
            hello_timeout: Span::seconds(10),
            read_timeout: Span::seconds(30),
            write_timeout: Span::seconds(30),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            connection_in_flight_bytes_max: ByteSize::mib(64),
            in_flight_bytes_max: ByteSize::mib(512),
            connection_reply_bytes_max: ByteSize::mib(64),
            reply_bytes_max: ByteSize::mib(512),
            admission_wait: Span::seconds(10),
            append_bytes_max: ByteSize::mib(64),
            unflushed_bytes: Auto::Auto,
            tail_cache_bytes: Auto::Auto,
            read_cache_bytes: ByteSize::mib(32),
            compaction_bytes: ByteSize(commit_log::limits::COMPACTION_TABLE_BYTES_MAX_DEFAULT),
            io_bytes: Auto::Auto,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log {
            wal_file_bytes: ByteSize(commit_log::limits::WAL_FILE_BYTES),
            wal_bytes_max: ByteSize(commit_log::limits::WAL_BYTES_MAX_DEFAULT),
            free_bytes_min: ByteSize::mib(1024),
            free_bytes_resume: ByteSize::mib(2048),
            relaxed_within: Span::milliseconds(50),
            producers_kept: Span::milliseconds(commit_log::limits::PRODUCER_IDLE_MS_MAX_DEFAULT),
            compaction_interval: Span::seconds(15),
            compaction_bytes_per_second: ByteSize(commit_log::limits::COMPACTION_BYTES_PER_SECOND_DEFAULT),
            scrub_bytes_per_second: ByteSize(commit_log::limits::SCRUB_BYTES_PER_SECOND_DEFAULT),
            scrub_interval: Span::milliseconds(commit_log::limits::SCRUB_PAUSE_MS_DEFAULT),
            open_files_max: Auto::Auto,
            io_profile: PathBuf::new(),
        }
    }
}

impl Default for Groups {
    fn default() -> Self {
        let core = consumer_groups::Options::default();
        Groups {
            partitions: 16,
            heartbeat_interval: Span::milliseconds(u64::from(core.heartbeat_interval_ms)),
            groups_max: u32::try_from(core.groups_max).unwrap_or(u32::MAX),
            offsets_retention: Span::milliseconds(core.offsets_retention_ms),
            metrics_max: 1000,
        }
    }
}

impl Default for Stop {
    fn default() -> Self {
        Stop { drain_within: Span::seconds(10) }
    }
}
