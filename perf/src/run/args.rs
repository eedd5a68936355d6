//! What `perf run` is told: a workload from a file or from flags, against whom, and what becomes of the result.

use std::path::PathBuf;
use std::time::Duration;

use super::RunError;
use crate::plan::Arrival;
use crate::workload::{Rate, Workload};
use crate::{omb, scenario};

/// Arguments of `perf run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Scenario file (perf/scenarios/*.toml)
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub(super) scenario: Option<PathBuf>,
    /// Workload file of the OpenMessaging Benchmark, read unchanged
    #[arg(long, value_name = "FILE")]
    pub(super) workload: Option<PathBuf>,
    /// Address of the broker
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7311", conflicts_with_all = ["embedded", "null"])]
    pub(super) broker: String,
    /// Start a broker for this run, in a process of its own with data below --data-dir, and stop it afterwards
    #[arg(long)]
    pub(super) embedded: bool,
    /// Run against a sink that keeps nothing: what the generator itself can do
    #[arg(long, conflicts_with = "embedded")]
    pub(super) null: bool,
    /// Folder below which the broker of --embedded keeps its data
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) data_dir: PathBuf,
    /// Messages per second of all producers together
    #[arg(long, value_name = "N", conflicts_with_all = ["search", "saturate"])]
    pub(super) rate: Option<f64>,
    /// Search for the highest rate that keeps the p99 objective with a flat backlog
    #[arg(long, conflicts_with = "saturate")]
    pub(super) search: bool,
    /// Closed loop with this many messages unanswered per producer: throughput only, no latency
    #[arg(long, value_name = "N")]
    pub(super) saturate: Option<u64>,
    /// How messages are spaced
    #[arg(long, value_enum)]
    pub(super) arrival: Option<Arrival>,
    /// Measured time in seconds
    #[arg(long, value_name = "S")]
    pub(super) duration: Option<f64>,
    /// Load before it, in seconds
    #[arg(long, value_name = "S")]
    pub(super) warmup: Option<f64>,
    /// Length of a message's value
    #[arg(long, value_name = "BYTES")]
    pub(super) message_bytes: Option<usize>,
    /// Topics
    #[arg(long, value_name = "N")]
    pub(super) topics: Option<u32>,
    /// Partitions of each topic
    #[arg(long, value_name = "N")]
    pub(super) partitions: Option<u32>,
    /// Producers of each topic
    #[arg(long, value_name = "N")]
    pub(super) producers: Option<u32>,
    /// Consumers of each subscription; 0 for no subscription
    #[arg(long, value_name = "N")]
    pub(super) consumers: Option<u32>,
    /// Consumer groups, each of which reads everything through the client; they take the place of consumers unless --consumers is given
    #[arg(long, value_name = "N")]
    pub(super) groups: Option<u32>,
    /// Members that share the partitions of each group
    #[arg(long, value_name = "N")]
    pub(super) members: Option<u32>,
    /// How long a batch waits to become larger, in microseconds
    #[arg(long, value_name = "US")]
    pub(super) linger_us: Option<u64>,
    /// Largest batch
    #[arg(long, value_name = "BYTES")]
    pub(super) batch_bytes: Option<usize>,
    /// p99 of publish latency that must be kept, in milliseconds
    #[arg(long, value_name = "MS")]
    publish_p99_ms: Option<f64>,
    /// A small version that takes seconds: shows that the workload goes through and no message goes wrong, and measures nothing
    #[arg(long)]
    pub(super) quick: bool,
    /// Do not check messages: the generator then costs about half as much
    #[arg(long)]
    pub(super) no_verify: bool,
    /// CPU of the generator
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub(super) cpu: u32,
    /// Folder for result.json, .hlog, .hgrm and plots
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Keep the run's topics
    #[arg(long)]
    pub(super) keep_topics: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// No line per second
    #[arg(long)]
    pub(super) quiet: bool,
}

/// The workload that the arguments name, and what its file says it is for.
pub(super) fn workload(args: &RunArgs) -> Result<(Workload, String), RunError> {
    let (mut workload, about) = match (&args.scenario, &args.workload) {
        (Some(path), _) => scenario::read(path)?,
        (None, Some(path)) => (omb::read(path)?, String::new()),
        (None, None) => (Workload::default(), String::new()),
    };
    if args.quick {
        workload = workload.quick();
    }
    let seconds = |field: &'static str, value: f64| {
        Duration::try_from_secs_f64(value).map_err(|error| RunError::Usage(format!("{field} {value}: {error}")))
    };
    if let Some(value) = args.duration {
        workload.duration = seconds("--duration", value)?;
    }
    if let Some(value) = args.warmup {
        workload.warmup = seconds("--warmup", value)?;
    }
    workload.rate = match (args.rate, args.search, args.saturate) {
        (Some(rate), _, _) => Rate::PerSecond(rate),
        (None, true, _) => Rate::Search,
        (None, false, Some(unanswered)) => Rate::Saturate(unanswered),
        (None, false, None) => workload.rate,
    };
    workload.arrival = args.arrival.unwrap_or(workload.arrival);
    workload.message_bytes = args.message_bytes.unwrap_or(workload.message_bytes);
    workload.topics = args.topics.unwrap_or(workload.topics);
    workload.partitions_per_topic = args.partitions.unwrap_or(workload.partitions_per_topic);
    workload.producers_per_topic = args.producers.unwrap_or(workload.producers_per_topic);
    if let Some(groups) = args.groups {
        workload.groups = groups;
        workload.subscriptions_per_topic = if groups > 0 { 0 } else { workload.subscriptions_per_topic };
    }
    workload.members_per_group = args.members.unwrap_or(workload.members_per_group);
    if let Some(consumers) = args.consumers {
        workload.consumers_per_subscription = consumers;
        workload.subscriptions_per_topic = if consumers == 0 { 0 } else { workload.subscriptions_per_topic.max(1) };
    }
    if args.null {
        // A null sink has nothing to consume.
        workload.subscriptions_per_topic = 0;
        workload.groups = 0;
        workload.backlog = None;
    }
    if let Some(linger_us) = args.linger_us {
        workload.requests.linger_ns = linger_us * 1000;
    }
    workload.requests.batch_bytes_max = args.batch_bytes.unwrap_or(workload.requests.batch_bytes_max);
    workload.requests.request_bytes_max = workload.requests.request_bytes_max.max(workload.requests.batch_bytes_max);
    workload.objective.publish_p99_ms = args.publish_p99_ms.or(workload.objective.publish_p99_ms);
    workload.check()?;
    Ok((workload, about))
}
