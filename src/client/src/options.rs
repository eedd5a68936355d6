//! What a caller may choose, with the defaults.

use std::time::Duration;

use wire::{Acks, Assignor, Compression};

use crate::consumer::StartAt;
use crate::group::OnRebalance;

/// How a client reaches the cluster.
///
/// ```
/// use corelane_client::ClientOptions;
/// let options = ClientOptions { client_id: "billing".into(), ..ClientOptions::new(["10.0.0.1:7311", "10.0.0.2:7311"]) };
/// assert_eq!(options.brokers.len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Addresses to start from, `host:port`; one that answers is enough, it names the others.
    pub brokers: Vec<String>,
    /// Shown by the broker in logs and listings.
    pub client_id: String,
    /// Time for opening a connection, the greeting included.
    pub connect_timeout: Duration,
    /// Time for one request to be answered, beyond the waiting the request itself asks for.
    pub request_timeout: Duration,
    /// Time for an operation with all its retries: metadata, admin, offsets.
    pub operation_timeout: Duration,
    /// How long a topic that no broker knows is asked for again before it counts as missing: it may just have been created.
    pub unknown_topic_timeout: Duration,
    /// Wait after the first failure; doubles with each further one.
    pub backoff_first: Duration,
    /// Longest wait between two attempts.
    pub backoff_max: Duration,
    /// Age at which metadata is asked for again although nothing failed: how soon new partitions are seen.
    pub metadata_age_max: Duration,
    /// Send and receive buffers of the sockets in bytes; 0 leaves them to the system, which sizes them itself.
    pub socket_buffer_bytes: u32,
}

/// Where a broker listens when nothing else is configured.
pub const BROKER_DEFAULT: &str = "127.0.0.1:7311";

impl ClientOptions {
    /// Defaults, with these addresses to start from.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(brokers: I) -> Self {
        Self {
            brokers: brokers.into_iter().map(Into::into).collect(),
            client_id: "corelane-client".into(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            operation_timeout: Duration::from_secs(60),
            unknown_topic_timeout: Duration::from_secs(1),
            backoff_first: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            metadata_age_max: Duration::from_secs(60),
            socket_buffer_bytes: 0,
        }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self::new([BROKER_DEFAULT])
    }
}

/// How a producer batches, sends and retries.
///
/// **Order.** Records of one partition are stored in the order in which `send` accepted them, through retries too. Many partitions
/// share a request and many requests share a connection, so that one request at a time for each partition, the default, does not idle
/// the connection. With a larger `partition_requests_in_flight_max` requests of one partition overlap; without `idempotent` one that
/// fails and is retried may then be stored after its successor. While a partition has something to retry it falls back to one request
/// at a time.
///
/// **Duplicates.** A request whose connection ended, or whose answer did not come in time, is sent again when `retries` is on.
/// With `idempotent`, the default, brokers recognise what they have stored already: every record is stored once. A record whose
/// delivery failed may be stored or not; those behind it are stored once, or fail too, and are never left out silently. Without it
/// records may be stored twice.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// When a record counts as delivered.
    pub acks: Acks,
    /// Compression of batches; `None` here follows the configuration of each topic.
    pub compression: Option<Compression>,
    /// Bytes (before compression) at which a batch is closed.
    pub batch_bytes: usize,
    /// How long a batch that is not full waits for more records. At zero a lone record leaves at once, and batches form
    /// from what arrives while earlier requests of the partition are unanswered.
    pub linger: Duration,
    /// Bytes of records accepted and not yet delivered; `send` waits beyond.
    pub buffer_bytes_max: usize,
    /// Bytes of batches put into one request. One batch is always sent, however large.
    pub request_bytes_max: usize,
    /// Unanswered requests that may contain one partition. See the note on order.
    pub partition_requests_in_flight_max: usize,
    /// Unanswered produce requests per shard connection.
    pub connection_requests_in_flight_max: usize,
    /// Whether brokers recognise what is sent again. Needs `retries`; a partition has at most five batches unanswered then. Batches given to
    /// [`Producer::send_batch`](crate::Producer::send_batch) go as they are.
    pub idempotent: bool,
    /// A name that outlives the process: a producer that begins with it fences those that began with it before. When a record that may be
    /// stored could not be delivered, a named producer accepts nothing more: begin the next one.
    pub name: Option<String>,
    /// Whether failures that a retry can help are retried.
    pub retries: bool,
    /// From `send` to the result, retries included.
    pub delivery_timeout: Duration,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            acks: Acks::AllInSync,
            compression: None,
            batch_bytes: 1024 * 1024,
            linger: Duration::ZERO,
            buffer_bytes_max: 64 * 1024 * 1024,
            request_bytes_max: 8 * 1024 * 1024,
            partition_requests_in_flight_max: 1,
            connection_requests_in_flight_max: 16,
            idempotent: true,
            name: None,
            retries: true,
            delivery_timeout: Duration::from_secs(120),
        }
    }
}

/// What a consumer, or a member of a group, does when its position is not in the log: retention passed it, or it never existed.
///
/// With `Earliest` or `Latest` the commit of a group follows to where it goes on, also while there is nothing to read there. Where a group
/// begins that has never committed is [`GroupOptions::start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OutOfRange {
    /// `next_batch` returns the error and the partition stops until a `seek`. Nothing is skipped silently.
    #[default]
    Fail,
    /// Go on at the first record kept.
    Earliest,
    /// Go on at the end.
    Latest,
}

/// How a consumer fetches.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// How long a broker may wait for `min_bytes` before it answers with what there is.
    pub max_wait: Duration,
    /// Bytes a broker waits for before it answers. 1 answers as soon as there is anything.
    pub min_bytes: u32,
    /// Bytes of one answer.
    pub max_bytes: u32,
    /// Bytes of one partition in one answer. A batch that is larger still comes whole.
    pub partition_max_bytes: u32,
    /// Bytes fetched and not yet taken by `next_batch`; no fetch is sent beyond. Exceeded by at most one answer per shard.
    pub prefetch_bytes_max: usize,
    /// What to do when the position is not in the log.
    pub out_of_range: OutOfRange,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 8 * 1024 * 1024,
            partition_max_bytes: 1024 * 1024,
            prefetch_bytes_max: 32 * 1024 * 1024,
            out_of_range: OutOfRange::Fail,
        }
    }
}

/// When a record that was delivered counts as handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// When it was dropped and another one is asked for, unless it was failed: for a program that handles a record before it lets go of it.
    /// One that moves what it needs out of the record and handles it later uses `Explicit`.
    #[default]
    OnNext,
    /// When the program says so, by [`done`](crate::GroupConsumer::done). A record of which it says nothing stays in hand: the commit does not
    /// pass it, and later ones of its key wait.
    Explicit,
}

/// How a member of a group reads.
#[derive(Clone)]
pub struct GroupOptions {
    /// The group. Each group reads all records of its topics, independently of others.
    pub group: String,
    /// The topics, by name; one that does not exist yet is read when it does.
    pub topics: Vec<String>,
    /// A name of its own that outlives the process: a member that comes back under it within its session time-out has its partitions again,
    /// without a rebalance.
    pub instance_id: Option<String>,
    /// Where to begin in a partition in which the group has never committed.
    pub start: StartAt,
    /// When a record counts as handled.
    pub acknowledge: Acknowledge,
    /// How often what is handled is committed; `None`: only [`commit`](crate::GroupConsumer::commit) and
    /// [`close`](crate::GroupConsumer::close) do.
    pub auto_commit: Option<Duration>,
    /// Records of one partition delivered or ready to be, and not yet handled.
    pub in_flight_max: usize,
    /// How partitions are spread; `None` leaves it to the group.
    pub assignor: Option<Assignor>,
    /// A member that was not heard of for so long is taken for dead, and its partitions go to others.
    pub session_timeout: Duration,
    /// How long a member may take to end with partitions that go to others.
    pub rebalance_timeout: Duration,
    /// Told of partitions that come and go.
    pub on_rebalance: Option<OnRebalance>,
    /// How it fetches.
    pub fetch: ConsumerOptions,
}

impl GroupOptions {
    /// A member of `group` that reads `topics` from their start.
    pub fn new<T: Into<String>>(group: impl Into<String>, topics: impl IntoIterator<Item = T>) -> Self {
        Self {
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            instance_id: None,
            start: StartAt::Earliest,
            acknowledge: Acknowledge::default(),
            auto_commit: Some(Duration::from_secs(1)),
            in_flight_max: 4096,
            assignor: None,
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(300),
            on_rebalance: None,
            fetch: ConsumerOptions::default(),
        }
    }
}
