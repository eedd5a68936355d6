//! `perf run`: one workload against a broker, with everything that a figure needs to be believed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::broker_process::{BrokerOptions, BrokerProcess, BrokerProcessError};
use crate::driver::DriverError;
use crate::driver::engine::Second;
use crate::driver::session::{Session, resolve};
use crate::hdr_files::{IntervalLog, write_hgrm};
use crate::latency::{Percentiles, percentile_ms};
use crate::live::Live;
use crate::machine::{CpuClock, Facts};
use crate::mock::{Behaviour, Mock};
use crate::plan::Arrival;
use crate::plot::{self, Line};
use crate::process;
use crate::result::{Cost, Report, Series};
use crate::saturation::Search;
use crate::trial::{Findings, Trial, read_back};
use crate::workload::{Rate, Workload, WorkloadError};
use crate::{EXIT_CANNOT, EXIT_MISSED, omb, scenario};

/// Where a search starts, in messages per second.
const SEARCH_START: f64 = 20_000.0;
/// How exactly a search finds the rate.
const SEARCH_TOLERANCE: f64 = 0.05;
/// The latency that a search keeps when the workload names none, in milliseconds.
const SEARCH_P99_MS_DEFAULT: f64 = 50.0;

/// Arguments of `perf run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Scenario file (perf/scenarios/*.toml)
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    scenario: Option<PathBuf>,
    /// Workload file of the OpenMessaging Benchmark, read unchanged
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Address of the broker
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7311", conflicts_with_all = ["embedded", "null"])]
    broker: String,
    /// Start a broker for this run, in a process of its own with data below --data-dir, and stop it afterwards
    #[arg(long)]
    embedded: bool,
    /// Run against a sink that keeps nothing: what the generator itself can do
    #[arg(long, conflicts_with = "embedded")]
    null: bool,
    /// Folder below which the broker of --embedded keeps its data
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Messages per second of all producers together
    #[arg(long, value_name = "N", conflicts_with_all = ["search", "saturate"])]
    rate: Option<f64>,
    /// Search for the highest rate that keeps the p99 objective with a flat backlog
    #[arg(long, conflicts_with = "saturate")]
    search: bool,
    /// Closed loop with this many messages unanswered per producer: throughput only, no latency
    #[arg(long, value_name = "N")]
    saturate: Option<u64>,
    /// How messages are spaced
    #[arg(long, value_enum)]
    arrival: Option<Arrival>,
    /// Measured time in seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Load before it, in seconds
    #[arg(long, value_name = "S")]
    warmup: Option<f64>,
    /// Length of a message's value
    #[arg(long, value_name = "BYTES")]
    message_bytes: Option<usize>,
    /// Topics
    #[arg(long, value_name = "N")]
    topics: Option<u32>,
    /// Partitions of each topic
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Producers of each topic
    #[arg(long, value_name = "N")]
    producers: Option<u32>,
    /// Consumers of each subscription; 0 for no subscription
    #[arg(long, value_name = "N")]
    consumers: Option<u32>,
    /// How long a batch waits to become larger, in microseconds
    #[arg(long, value_name = "US")]
    linger_us: Option<u64>,
    /// Largest batch
    #[arg(long, value_name = "BYTES")]
    batch_bytes: Option<usize>,
    /// p99 of publish latency that must be kept, in milliseconds
    #[arg(long, value_name = "MS")]
    publish_p99_ms: Option<f64>,
    /// Do not check messages: the generator then costs about half as much
    #[arg(long)]
    no_verify: bool,
    /// CPU of the generator
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    cpu: u32,
    /// Folder for result.json, .hlog, .hgrm and plots
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the run's topics
    #[arg(long)]
    keep_topics: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// No line per second
    #[arg(long)]
    quiet: bool,
}

/// A run that could not be done.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Broker(#[from] BrokerProcessError),
    #[error(transparent)]
    Plot(#[from] plot::PlotError),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{0}")]
    Usage(String),
}

/// Runs the command.
pub fn main(args: &RunArgs) -> ExitCode {
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_MISSED),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_CANNOT)
        }
    }
}

/// Who answers.
enum Target {
    Given,
    Own(Box<BrokerProcess>),
    Null,
}

struct Runner<'a> {
    args: &'a RunArgs,
    workload: Workload,
    target: Target,
    address: SocketAddr,
    driver: String,
    facts: Facts,
    prefix: String,
    trials: u32,
}

fn run(args: &RunArgs) -> Result<bool, RunError> {
    let (workload, about) = workload(args)?;
    if !about.is_empty() && !args.quiet {
        eprintln!("{}: {about}", workload.name);
    }
    if workload.kill_after.is_some() && !args.embedded {
        return Err(RunError::Usage("this scenario kills the broker: it needs --embedded".to_owned()));
    }
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|source| RunError::Io { what: out.display().to_string(), source })?;
    }
    // The broker's process is started before this thread is bound to its CPU.
    let (target, address) = if args.embedded {
        let broker = BrokerProcess::start(BrokerOptions::beside(&args.data_dir)?)?;
        let address = broker.address();
        (Target::Own(Box::new(broker)), address)
    } else if args.null {
        let mock = Mock::start(Behaviour::default()).map_err(|source| RunError::Io { what: "null sink".to_owned(), source })?;
        (Target::Null, mock.address())
    } else {
        (Target::Given, resolve(&args.broker)?)
    };
    process::pin(args.cpu).map_err(|source| RunError::Io { what: format!("binding to CPU {}", args.cpu), source })?;
    let driver = Session::connect(address)?.hello().server.clone();
    let facts = Facts::read(&args.data_dir);
    if !args.quiet {
        eprintln!("{driver} at {address}; {}", facts.summary());
    }
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let prefix = format!("perf-{}-{}", since_epoch.as_secs(), std::process::id());
    let mut runner = Runner { args, workload, target, address, driver, facts, prefix, trials: 0 };
    let good = if let Some(after) = runner.workload.kill_after {
        runner.kill_and_restart(after)?
    } else if runner.workload.rate == Rate::Search || !runner.workload.curve_percent.is_empty() {
        runner.search_and_curve()?
    } else {
        let rate = runner.workload.rate;
        runner.one(rate, "")?.1
    };
    if let Target::Own(broker) = runner.target {
        broker.stop()?;
    }
    Ok(good)
}

fn workload(args: &RunArgs) -> Result<(Workload, String), RunError> {
    let (mut workload, about) = match (&args.scenario, &args.workload) {
        (Some(path), _) => scenario::read(path)?,
        (None, Some(path)) => (omb::read(path)?, String::new()),
        (None, None) => (Workload::default(), String::new()),
    };
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
    if let Some(consumers) = args.consumers {
        workload.consumers_per_subscription = consumers;
        workload.subscriptions_per_topic = if consumers == 0 { 0 } else { workload.subscriptions_per_topic.max(1) };
    }
    if args.null {
        // A null sink has nothing to consume.
        workload.subscriptions_per_topic = 0;
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

impl Runner<'_> {
    /// One trial with everything around it; returns what it found and whether it was good.
    fn one(&mut self, rate: Rate, suffix: &str) -> Result<(Findings, bool), RunError> {
        self.trials += 1;
        let prefix = format!("{}-{}", self.prefix, self.trials);
        let trial = Trial {
            broker: self.address,
            prefix: &prefix,
            rate,
            verify: !self.args.no_verify && !self.args.null,
            delete_topics: !self.args.keep_topics,
            expect_disconnect: false,
            producers_from: 0,
        };
        let name = format!("{}{suffix}", file_name(&self.workload.name));
        let mut log = match &self.args.out {
            Some(out) => {
                let path = out.join(format!("{name}.hlog"));
                let log = IntervalLog::create(&path, std::time::SystemTime::now(), &format!("corelane perf, {}", self.driver));
                Some(log.map_err(|source| RunError::Io { what: path.display().to_string(), source })?)
            }
            None => None,
        };
        let live = Live::new(self.workload.message_bytes, self.args.quiet);
        let (usage, clock) = (self.usage(), CpuClock::now());
        let mut series = Series::default();
        let mut log_error = None;
        let findings = trial.run(&self.workload, &mut |second| {
            live.show(second);
            if second.measured {
                series.add(second);
            }
            if let Some(log) = &mut log {
                log_error = log_second(log, second).err().or(log_error.take());
            }
        });
        live.finish();
        let findings = findings?;
        if let Some(source) = log_error {
            return Err(RunError::Io { what: format!("{name}.hlog"), source });
        }
        if let Some(log) = log {
            log.finish().map_err(|source| RunError::Io { what: format!("{name}.hlog"), source })?;
        }
        let payload_bytes = findings.acked_total * self.workload.message_bytes as u64;
        let cost = usage.zip(self.usage()).map(|(before, after)| Cost::of(&after.since(&before), payload_bytes));
        let missed = missed(&self.workload, &findings);
        let report = Report {
            workload: &self.workload,
            driver: self.driver.clone(),
            findings: &findings,
            series: &series,
            facts: &self.facts,
            cost,
            cpu: CpuClock::now().since(&clock),
            missed: &missed,
        };
        let text = text(&report);
        if self.args.json {
            println!("{}", report.json());
        } else {
            print!("{text}");
        }
        if let Some(out) = &self.args.out {
            write_files(out, &name, &report)?;
        }
        let good = findings.figures.is_valid() && findings.figures.not_sustained.is_empty() && missed.is_empty();
        Ok((findings, good))
    }

    fn usage(&self) -> Option<process::Usage> {
        match &self.target {
            Target::Own(broker) => Some(broker.usage()),
            Target::Given | Target::Null => None,
        }
    }

    /// Finds the highest rate that keeps the objective, then measures the steps of the curve.
    fn search_and_curve(&mut self) -> Result<bool, RunError> {
        let limit_ms = self.workload.objective.publish_p99_ms.unwrap_or(SEARCH_P99_MS_DEFAULT);
        let highest = match self.workload.rate {
            Rate::PerSecond(rate) => rate,
            _ => self.search(limit_ms)?,
        };
        println!(
            "highest rate with publish p99 <= {limit_ms} ms and a flat backlog: {highest:.0} messages/s, {:.1} MB/s",
            highest * self.workload.message_bytes as f64 / 1e6
        );
        if highest == 0.0 {
            return Ok(false);
        }
        let mut curve = Vec::new();
        let mut valid = true;
        for percent in self.workload.curve_percent.clone() {
            println!("\nat {percent} %:");
            let (found, _) = self.one(Rate::PerSecond(highest * percent / 100.0), &format!("-{percent}"))?;
            valid &= found.figures.is_valid();
            curve.push((percent, found.figures.acked_per_second, Percentiles::of(&found.publish.intended)));
        }
        if let Some(out) = self.args.out.as_ref().filter(|_| !curve.is_empty()) {
            let name = file_name(&self.workload.name);
            let line = |name: &str, value: fn(&Percentiles) -> Option<f64>| Line {
                name: name.to_owned(),
                points: curve.iter().filter_map(|(_, rate, stated)| Some((*rate, value(stated)?))).collect(),
            };
            let lines = [line("p50", |p| p.p50_ms), line("p99", |p| p.p99_ms), line("p99.9", |p| p.p999_ms)];
            let path = out.join(format!("{name}-load.svg"));
            plot::against_load(&path, &format!("{name}: publish latency against load"), &self.facts.summary(), &lines)?;
            let steps: Vec<_> = curve
                .iter()
                .map(|(percent, rate, stated)| json!({ "percent": percent, "ackedPerSecond": rate, "publish": stated }))
                .collect();
            let value =
                json!({ "highestPerSecond": highest, "publishP99LimitMs": limit_ms, "steps": steps, "machine": self.facts });
            let path = out.join(format!("{name}-curve.json"));
            std::fs::write(&path, format!("{value:#}\n"))
                .map_err(|source| RunError::Io { what: path.display().to_string(), source })?;
        }
        Ok(valid)
    }

    fn search(&mut self, limit_ms: f64) -> Result<f64, RunError> {
        let mut search = Search::new(SEARCH_START, SEARCH_TOLERANCE);
        while let Some(rate) = search.next_rate() {
            self.trials += 1;
            let prefix = format!("{}-{}", self.prefix, self.trials);
            let trial = Trial {
                broker: self.address,
                prefix: &prefix,
                rate: Rate::PerSecond(rate),
                verify: false,
                delete_topics: true,
                expect_disconnect: false,
                producers_from: 0,
            };
            let found = trial.run(&self.workload, &mut |_| {})?;
            let p99 = percentile_ms(&found.publish.intended, 0.99);
            let sustained =
                found.figures.is_valid() && found.figures.not_sustained.is_empty() && p99.is_some_and(|p99| p99 <= limit_ms);
            search.tried(rate, sustained);
            if !self.args.quiet {
                let reasons = [found.figures.invalid, found.figures.not_sustained].concat().join("; ");
                let p99 = p99.map_or("-".to_owned(), |p99| format!("{p99:.2}"));
                eprintln!("{rate:>10.0}/s: {} p99 {p99} ms {reasons}", if sustained { "sustained" } else { "too much" });
            }
        }
        Ok(search.highest())
    }

    /// Kills the broker under load, starts it again, and reads everything back.
    fn kill_and_restart(&mut self, after: Duration) -> Result<bool, RunError> {
        let Target::Own(broker) = &mut self.target else {
            return Err(RunError::Usage("only a broker of our own can be killed".to_owned()));
        };
        let prefix = format!("{}-kill", self.prefix);
        let trial = Trial {
            broker: self.address,
            prefix: &prefix,
            rate: self.workload.rate,
            verify: true,
            delete_topics: false,
            expect_disconnect: true,
            producers_from: 0,
        };
        let live = Live::new(self.workload.message_bytes, self.args.quiet);
        let killer = std::cell::RefCell::new(None);
        let findings = {
            let broker = &*broker;
            let mut show = |second: &Second| live.show(second);
            trial.run_observed(&self.workload, &mut show, &mut || {
                killer.replace(Some(broker.kill_later(after)));
            })
        };
        live.finish();
        let findings = findings?;
        if let Some(killer) = killer.into_inner() {
            killer.join().expect("the killing thread only sends a signal");
        }
        if findings.disconnected.is_none() {
            return Err(RunError::Usage(
                "the load ended before the broker was killed: --duration must exceed the kill time".to_owned(),
            ));
        }
        let ready = broker.restart()?;
        let acknowledged = findings.acknowledged.as_ref().expect("the trial verified");
        let (counts, messages) = read_back(self.address, &findings.topics, acknowledged)?;
        println!(
            "killed after {} acknowledged messages in {} partitions; ready after {:.2} s; {messages} messages read back: {counts}",
            acknowledged.count(),
            self.workload.partitions(),
            ready.as_secs_f64()
        );
        let slow = self.workload.objective.restart_s.filter(|limit| ready.as_secs_f64() > *limit);
        if let Some(limit) = slow {
            println!("MISSED: ready after {:.2} s, the objective is {limit} s", ready.as_secs_f64());
        }
        Ok(counts.is_clean() && slow.is_none())
    }
}

fn log_second(log: &mut IntervalLog, second: &Second) -> std::io::Result<()> {
    log.write("publish", second.start, second.length, &second.publish.intended)?;
    if !second.end_to_end.is_empty() {
        log.write("e2e", second.start, second.length, &second.end_to_end)?;
    }
    Ok(())
}

fn missed(workload: &Workload, findings: &Findings) -> Vec<String> {
    let check = |what: &str, limit: Option<f64>, found: Option<f64>| {
        let limit = limit?;
        match found {
            Some(found) if found <= limit => None,
            Some(found) => Some(format!("{what} p99 {found:.2} ms is above {limit} ms")),
            None => Some(format!("{what} p99 is unknown: fewer than 1000 samples")),
        }
    };
    let publish = percentile_ms(&findings.publish.intended, 0.99);
    let end_to_end = percentile_ms(&findings.end_to_end, 0.99);
    [
        check("publish", workload.objective.publish_p99_ms, publish),
        check("end-to-end", workload.objective.end_to_end_p99_ms, end_to_end),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn text(report: &Report<'_>) -> String {
    let figures = &report.findings.figures;
    let mut text = String::new();
    let mut row = |name: &str, value: String| writeln!(text, "{name:<12} {value}").expect("writing to a string does not fail");
    let offered = figures.offered_per_second.map_or("closed loop".to_owned(), |rate| format!("{rate:.0}/s"));
    row(
        "rate",
        format!(
            "offered {offered}, acknowledged {:.0}/s = {:.1} MB/s, consumed {:.0}/s, {:.1} messages per request, over {:.1} s",
            figures.acked_per_second,
            figures.acked_mb_per_second,
            figures.consumed_per_second,
            figures.messages_per_request,
            figures.seconds
        ),
    );
    row("publish", Percentiles::of(&report.findings.publish.intended).line());
    row("  actual", Percentiles::of(&report.findings.publish.actual).line());
    row("  delay", Percentiles::of(&report.findings.publish.delay).line());
    if !report.findings.end_to_end.is_empty() {
        row("end to end", Percentiles::of(&report.findings.end_to_end).line());
    }
    let refusal = figures.last_refusal.as_ref().map(|text| format!(" (last: {text})")).unwrap_or_default();
    row("errors", format!("{} failed, {} sent again{refusal}", figures.failed, figures.retried));
    row(
        "backlog",
        format!(
            "unanswered {} -> {}, unconsumed {} -> {}, {} unsettled",
            figures.unanswered.0, figures.unanswered.1, figures.backlog.0, figures.backlog.1, figures.unsettled
        ),
    );
    if let Some(seconds) = figures.drained_in_seconds {
        row("drained", format!("in {seconds:.1} s"));
    }
    row("messages", figures.wrong.map_or("not checked".to_owned(), |counts| counts.to_string()));
    if let Some(cost) = report.cost {
        row(
            "broker",
            format!(
                "{:.2} CPU-s, {:.3} ms per MiB, wrote {:.1} MB = {:.2} x payload, {:.1} MB resident",
                cost.cpu_seconds,
                cost.cpu_ms_per_mib,
                cost.written_bytes as f64 / 1e6,
                cost.written_per_payload,
                cost.resident_bytes as f64 / 1e6
            ),
        );
    }
    row("machine", format!("{:.1} % busy, {:.1} % stolen", report.cpu.busy_percent, report.cpu.steal_percent));
    for reason in &figures.invalid {
        row("INVALID", reason.clone());
    }
    for reason in &figures.not_sustained {
        row("NOT KEPT UP", reason.clone());
    }
    if figures.wrong.is_some_and(|counts| !counts.is_clean()) {
        row("FAILED", "messages went wrong".to_owned());
    }
    for reason in report.missed {
        row("MISSED", reason.clone());
    }
    text
}

fn write_files(out: &Path, name: &str, report: &Report<'_>) -> Result<(), RunError> {
    let io = |path: &Path| {
        let what = path.display().to_string();
        move |source| RunError::Io { what, source }
    };
    let path = out.join(format!("{name}.json"));
    std::fs::write(&path, format!("{:#}\n", report.json())).map_err(io(&path))?;
    let mut lines = Vec::new();
    for (kind, latencies) in [("publish", &report.findings.publish.intended), ("e2e", &report.findings.end_to_end)] {
        if latencies.is_empty() {
            continue;
        }
        let path = out.join(format!("{name}-{kind}.hgrm"));
        write_hgrm(&path, latencies).map_err(io(&path))?;
        lines.push(plot::percentile_line(kind, latencies));
    }
    match plot::by_percentile(&out.join(format!("{name}.svg")), name, &report.facts.summary(), &lines) {
        // A very short run has no percentile to draw.
        Ok(()) | Err(plot::PlotError::Empty) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A name as a file name: OMB's names have slashes and spaces.
fn file_name(name: &str) -> String {
    name.chars()
        .map(|character| if character.is_ascii_alphanumeric() || "-._".contains(character) { character } else { '-' })
        .collect()
}
