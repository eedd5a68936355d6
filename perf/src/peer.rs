//! `perf peer`: the same plan, messages and checks against another broker, by its own client.
//!
//! ```text
//!   plan (open loop) ─► queue of a producer ─► batches ─► client of the peer ══► peer ══► read back ─► verify
//! ```
//!
//! Publishing only. A batch is as many messages as are waiting, at most `--batch`: a pipeline for Redis, publications awaited together
//! for NATS. The peer is started by `perf/peers/*.sh`.

mod load;
mod nats;
mod redis;

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use thiserror::Error;

use crate::latency::Percentiles;
use crate::machine::{CpuClock, Facts};
use crate::message::HEAD_BYTES;
use crate::paths::record_without_folders;
use crate::plan::Arrival;
use crate::process;
use crate::verify::{Counts, Delivered};
use crate::workload::Rate;
use load::{Load, Outcome};

/// Arguments of `perf peer`.
#[derive(Debug, clap::Args)]
pub struct PeerArgs {
    /// Which
    #[arg(value_enum)]
    peer: Kind,
    /// Where it listens
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// Messages per second of all producers together
    #[arg(long, value_name = "N", default_value_t = 10_000.0, conflicts_with = "saturate")]
    rate: f64,
    /// Closed loop with this many messages unanswered per producer: throughput only, no latency
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    saturate: Option<u64>,
    /// How messages are spaced
    #[arg(long, value_enum, default_value = "poisson")]
    arrival: Arrival,
    /// Measured time in seconds
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    duration: f64,
    /// Load before it, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    warmup: f64,
    /// Length of a message
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = message_bytes)]
    message_bytes: usize,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    producers: u32,
    /// Messages of a batch
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Batches unanswered of each producer
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    in_flight: u64,
    /// CPU of the generator
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    cpu: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A broker that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// A Redis stream: XADD
    Redis,
    /// A NATS JetStream stream, file storage, one replica
    Nats,
}

/// A peer cannot be used.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    #[error("redis: {0}")]
    Redis(#[from] ::redis::RedisError),
    #[error("nats: {0}")]
    Nats(String),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{0}")]
    Usage(String),
}

/// A connection; clones share it.
#[derive(Clone)]
enum Connection {
    Redis(redis::Connection),
    Nats(Rc<nats::Connection>),
}

impl Connection {
    async fn open(kind: Kind, address: &str) -> Result<Connection, PeerError> {
        match kind {
            Kind::Redis => redis::Connection::open(address).await.map(Connection::Redis),
            Kind::Nats => Ok(Connection::Nats(Rc::new(nats::Connection::open(address).await?))),
        }
    }

    /// Makes the stream anew; returns what the peer says about itself.
    async fn prepare(&mut self) -> Result<String, PeerError> {
        match self {
            Connection::Redis(connection) => connection.prepare().await,
            Connection::Nats(connection) => connection.prepare().await,
        }
    }

    /// Returns when every message is acknowledged.
    async fn publish(&mut self, messages: Vec<Vec<u8>>) -> Result<(), PeerError> {
        match self {
            Connection::Redis(connection) => connection.publish(&messages).await,
            Connection::Nats(connection) => connection.publish(messages).await,
        }
    }

    /// Every message of the stream in its order.
    async fn read_back(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<(), PeerError> {
        match self {
            Connection::Redis(connection) => connection.read_back(take).await,
            Connection::Nats(connection) => connection.read_back(take).await,
        }
    }

    async fn remove(&mut self) -> Result<(), PeerError> {
        match self {
            Connection::Redis(connection) => connection.remove().await,
            Connection::Nats(connection) => connection.remove().await,
        }
    }
}

fn message_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if bytes < HEAD_BYTES { Err(format!("a message has at least {HEAD_BYTES} bytes")) } else { Ok(bytes) }
}

/// Runs the command. False when a message went wrong or the run says nothing.
pub(crate) fn run(args: &PeerArgs) -> Result<bool, PeerError> {
    process::pin(args.cpu).map_err(|source| PeerError::Io { what: format!("binding to CPU {}", args.cpu), source })?;
    process::take_precedence();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| PeerError::Io { what: "starting the event loop".to_owned(), source })?;
    runtime.block_on(measure(args))
}

async fn measure(args: &PeerArgs) -> Result<bool, PeerError> {
    let seconds = |name: &str, value: f64| {
        Duration::try_from_secs_f64(value).map_err(|error| PeerError::Usage(format!("--{name} {value}: {error}")))
    };
    let rate = args.saturate.map_or(Rate::PerSecond(args.rate), Rate::Saturate);
    if !(args.rate.is_finite() && args.rate > 0.0) {
        return Err(PeerError::Usage(format!("--rate {}: a positive number is expected", args.rate)));
    }
    let load = Load {
        rate,
        arrival: args.arrival,
        warmup: seconds("warmup", args.warmup)?,
        duration: seconds("duration", args.duration)?,
        message_bytes: args.message_bytes,
        batch_messages_max: args.batch as usize,
        in_flight_max: args.in_flight as usize,
    };
    let mut connections = Vec::new();
    for _ in 0..args.producers {
        connections.push(Connection::open(args.peer, &args.address).await?);
    }
    let mut own = connections[0].clone();
    let driver = own.prepare().await?;
    let clock = CpuClock::now();
    let outcome = load.run(connections).await?;
    let cpu = CpuClock::now().since(&clock);
    let mut delivered = Delivered::default();
    own.read_back(&mut |message| {
        delivered.receive(0, message);
    })
    .await?;
    own.remove().await?;
    let wrong = delivered.judge(&outcome.acknowledged, 0..1);
    let invalid = outcome.invalid();
    if args.json {
        let facts = Facts::read(std::path::Path::new("."));
        let value = json!({
            "peer": args.peer, "driver": driver, "messageSize": args.message_bytes, "producers": args.producers,
            "batchMessagesMax": args.batch, "inFlightMax": args.in_flight, "rate": rate, "arrival": args.arrival,
            "seconds": outcome.seconds(), "offeredPerSecond": outcome.per_second(outcome.offered),
            "ackedPerSecond": outcome.per_second(outcome.acked),
            "publishFromIntendedTime": Percentiles::of(&outcome.publish.intended),
            "publishFromActualTime": Percentiles::of(&outcome.publish.actual),
            "publishDelay": Percentiles::of(&outcome.publish.delay),
            "wrong": wrong, "invalid": invalid, "cpu": cpu, "machine": facts,
        });
        println!("{:#}", record_without_folders(value));
    } else {
        print(&driver, args, &outcome, wrong, &invalid);
    }
    Ok(wrong.is_clean() && invalid.is_empty() && outcome.acked > 0)
}

fn print(driver: &str, args: &PeerArgs, outcome: &Outcome, wrong: Counts, invalid: &[String]) {
    println!("{driver}");
    println!(
        "rate         offered {:.0}/s, acknowledged {:.0}/s = {:.1} MB/s, over {:.1} s",
        outcome.per_second(outcome.offered),
        outcome.per_second(outcome.acked),
        outcome.per_second(outcome.acked) * args.message_bytes as f64 / 1e6,
        outcome.seconds()
    );
    println!("publish      {}", Percentiles::of(&outcome.publish.intended).line());
    println!("  actual     {}", Percentiles::of(&outcome.publish.actual).line());
    println!("  delay      {}", Percentiles::of(&outcome.publish.delay).line());
    println!("messages     {} acknowledged, read back: {wrong}", outcome.acknowledged.count());
    for reason in invalid {
        println!("INVALID      {reason}");
    }
}
