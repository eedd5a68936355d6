//! Every key of the file with its comment: what is not here is refused, what is here is printed.

/// One key: its table (`""` for none), its name, and what `--print-config` says about it.
pub(super) struct Key {
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    pub(super) comment: &'static str,
}

/// A table of the file, in the order in which it is printed.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) is_list: bool,
    pub(super) comment: &'static str,
}

const fn key(table: &'static str, name: &'static str, comment: &'static str) -> Key {
    Key { table, name, comment }
}

const fn table(name: &'static str, is_list: bool, comment: &'static str) -> Table {
    Table { name, is_list, comment }
}

pub(super) const TABLES: [Table; 11] = [
    table("broker", false, "Identity and data directory."),
    table("cores", false, "Each shard is one thread on one core and owns its partitions alone."),
    table("listen", false, "Where clients connect (native protocol)."),
    table("http", false, "Metrics (/metrics) and health (/healthz, /readyz)."),
    table("limits", false, "Bounds on what clients may ask for."),
    table("memory", false, "Bounds on memory. When one is reached the broker stops reading from sockets; nothing is dropped."),
    table("log", false, "The log on disk."),
    table("groups", false, "Consumer groups. Their state is in the topic `__groups`."),
    table("stop", false, "Graceful stop on SIGTERM or SIGINT."),
    table("disk", true, "One for each disk. None: the data directory is the only disk."),
    table("placement", true, "The first rule that matches a topic names the shards that own its partitions. None: all shards."),
];

pub(super) const KEYS: &[Key] = &[
    key("broker", "id", "the number of this broker in its cluster"),
    key("broker", "data", "metadata, superblock and locks; also the disk when no [[disk]] is given"),
    key("cores", "shards", "a cpu list (\"2-15\"), a count (\"4\"), or \"auto\": all cores but one"),
    key("cores", "housekeeping", "cpus for metadata, HTTP and signals; empty: those that run no shard"),
    key("cores", "share", "several shards may share a cpu: for tests and small machines; needs a count in shards"),
    key("cores", "spin", "an idle shard spins this long before it sleeps; pays only on dedicated cores"),
    key("listen", "address", "port 0 takes a free port"),
    key("listen", "advertised", "host:port told to clients; empty: the listening address"),
    key("listen", "backlog", "connections the kernel may queue before they are accepted"),
    key("http", "enabled", "false: no HTTP at all"),
    key("http", "address", "port 0 takes a free port"),
    key("limits", "message_bytes_max", "the largest message (key, value, headers) a topic may allow"),
    key("limits", "frame_bytes_max", "the largest request, attachments included"),
    key("limits", "fetch_bytes_max", "the most bytes one fetch returns (one batch is always returned whole)"),
    key("limits", "fetch_wait_max", "the longest a fetch may wait for data"),
    key("limits", "connections_max", "connections of the whole process"),
    key("limits", "requests_in_flight_max", "requests of one connection not yet answered"),
    key("limits", "topics_max", "topics of the broker"),
    key("limits", "partitions_max", "partitions of the broker"),
    key("limits", "hello_timeout", "a new connection must say Hello within this time"),
    key(
        "limits",
        "read_timeout",
        "a request whose bytes stop half-way is given up after this time, a slow one after a second more for each 32 KiB",
    ),
    key("limits", "write_timeout", "a client must take a MiB of its replies, or all there is, within this time"),
    key("memory", "connection_in_flight_bytes_max", "requests taken in and not yet answered: one connection"),
    key("memory", "in_flight_bytes_max", "requests taken in and not yet answered: the process, in equal parts for each shard"),
    key(
        "memory",
        "connection_reply_bytes_max",
        "replies not yet taken by the client: one connection, if its client takes as much in half a second",
    ),
    key("memory", "reply_bytes_max", "replies not yet taken by clients: the process, in equal parts for each shard"),
    key("memory", "admission_wait", "a request that waits longer for memory is answered \"overloaded\""),
    key("memory", "append_bytes_max", "appended and not yet durable, for each shard"),
    key(
        "memory",
        "unflushed_bytes",
        "batches kept until they are in their segments, for each shard; auto: an eighth of the memory, 1 GiB at most",
    ),
    key(
        "memory",
        "tail_cache_bytes",
        "batches kept for consumers near the end, for each shard; auto: 1/32 of the memory, 256 MiB at most",
    ),
    key("memory", "read_cache_bytes", "blocks read from segments and kept for other readers, for each shard"),
    key(
        "memory",
        "compaction_bytes",
        "keys of a partition that is being compacted, for each shard; with more it takes several passes",
    ),
    key(
        "memory",
        "io_bytes",
        "registered memory for direct I/O, for each shard; counts three times against RLIMIT_MEMLOCK; auto: one and a half tail caches, as far as that allows",
    ),
    key("log", "wal_file_bytes", "size of one write-ahead log file"),
    key("log", "wal_bytes_max", "write-ahead log of one shard; bounds replay after a crash"),
    key(
        "log",
        "free_bytes_min",
        "below this much free disk producers get \"disk full\", reads go on, and groups down to half of it",
    ),
    key("log", "free_bytes_resume", "above this much free disk producers are let in again"),
    key("log", "relaxed_within", "messages of relaxed topics are on stable storage within this time"),
    key("log", "producers_kept", "an idempotent producer that appends nothing to a partition for this long is forgotten there"),
    key("log", "compaction_interval", "how often each shard looks for partitions to compact"),
    key("log", "compaction_bytes_per_second", "what compaction reads and writes in a second, for each shard"),
    key(
        "log",
        "scrub_bytes_per_second",
        "what the check of sealed segments at rest reads in a second, for each shard; 0: no check",
    ),
    key("log", "scrub_interval", "between two passes of that check, and before the first"),
    key("log", "open_files_max", "segment file handles one shard keeps open; auto: what RLIMIT_NOFILE allows"),
    key("log", "io_profile", "written by `corelane tune iobench`; empty: io.toml in each disk's folder, if there"),
    key("groups", "partitions", "partitions of `__groups` when it is made: its coordinators are spread over the shards"),
    key("groups", "heartbeat_interval", "how often a member says that it lives"),
    key("groups", "groups_max", "groups of one coordinator"),
    key("groups", "offsets_retention", "committed offsets of a group without members are kept this long"),
    key("groups", "metrics_max", "groups named in /metrics, those furthest behind; and ten times as many of their partitions"),
    key("stop", "drain_within", "requests in progress get this long to finish"),
    key("disk", "path", "the directory"),
    key("disk", "shards", "the shards that write here; given nowhere: an even spread"),
    key("placement", "topic", "a topic name; *, ?, [a-z] and {a,b} as in globs"),
    key("placement", "shards", "the shards that own the partitions, such as \"0-3\""),
];
