//! `perf bars`: the project's bars, each the broker's figure divided by a limit of this machine, taken in turn with it.
//!
//! ```text
//!   pair 1: broker, limit    pair 2: limit, broker    pair 3: broker, limit …       A/B/B/A: drift hits both alike
//!   ratio of each pair ─► median, spread (IQR / median); above 15 % the bar is "noisy", which is not passed
//! ```
//!
//! The broker is a process of its own on the last CPU, its housekeeping beside the client on the first.

mod crash;
mod drain;
mod end_to_end;
mod fill;
mod generator;
mod idempotent;
mod large_message;
mod latency;
mod memory;
mod pairs;
mod parked;
mod partitions;
mod produce;
mod readers;
mod retention;
mod rig;
mod shards;
mod time_lookup;
mod under_load;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use thiserror::Error;

use crate::broker_process::BrokerProcessError;
use crate::driver::DriverError;
use crate::limits::LimitError;
use crate::machine::{CpuClock, Facts};
use crate::paths::record_without_folders;
use crate::process;
use pairs::Spread;
use rig::Rig;

/// Arguments of `perf bars`.
#[derive(Debug, clap::Args)]
pub struct BarsArgs {
    /// Only these bars
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    only: Vec<Bar>,
    /// Pairs of each bar
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pairs: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of kill -9
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Size of the log in which times are looked up, in 10^9 bytes
    #[arg(long, value_name = "GB", default_value_t = 10.0)]
    log_gb: f64,
    /// One short pair of each, a tenth of the partitions: shows that everything works and that nothing is lost or wrong. The rest is "not
    /// measured", and fails nothing
    #[arg(long)]
    quick: bool,
    /// Folder on the disk to measure; the broker's data goes below it
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Folder of result files, one JSON object a line and bar
    #[arg(long, value_name = "DIR", default_value = "perf/results")]
    results: PathBuf,
}

const LOG_BYTES_QUICK: u64 = 64 << 20;

/// A bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bar {
    /// The generator itself: a stopped broker must show in p99, and a null sink must be faster than the broker
    Generator,
    /// Durable produce, 16 partitions, 256 KiB batches / bare pipeline; and CPU per MiB / receive and drop
    Produce,
    /// Ten tailing consumers together / one raw source to ten sockets
    Readers,
    /// Saturation at 10,000 partitions / at 10; bytes written / payload at both
    Partitions,
    /// Resident memory per idle partition
    Memory,
    /// Publish p99 at 20 % load / a raw durable 16 KiB write; p99 at 80 % / at 20 %
    Latency,
    /// Publish p99 at 50 % load with retention deleting / without
    Retention,
    /// Producers at 50 % beside a cold consumer: publish p99 / without; its rate / a file read and sent beside them
    Drain,
    /// End-to-end p99 at 50 % load with a consumer group, and the same / publish p99
    EndToEnd,
    /// End-to-end p99 of other keys while one key is parked / without
    Parked,
    /// The offset for a timestamp in a log of --log-gb: p99, bytes read from the disk for it
    TimeLookup,
    /// Half the requests on the wrong shard / none
    WrongShard,
    /// 10 MiB go through, one byte more is refused and the connection goes on
    LargeMessage,
    /// kill -9 under load: lost, duplicated, wrong
    Crash,
    /// kill -9 under idempotent producers that go on: duplicates, gaps
    IdempotentCrash,
    /// kill -9 with 10,000 partitions under load: time until all of them answer
    Restart,
}

const ALL: [Bar; 16] = [
    Bar::Generator,
    Bar::Produce,
    Bar::Readers,
    Bar::Partitions,
    Bar::Memory,
    Bar::Latency,
    Bar::Retention,
    Bar::Drain,
    Bar::EndToEnd,
    Bar::Parked,
    Bar::TimeLookup,
    Bar::WrongShard,
    Bar::LargeMessage,
    Bar::Crash,
    Bar::IdempotentCrash,
    Bar::Restart,
];

/// A bar that could not be measured.
#[derive(Debug, Error)]
pub(crate) enum BarError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Broker(#[from] BrokerProcessError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{0}")]
    Unfit(String),
}

/// Whether larger or smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// One judged figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Judged {
    /// Name in tables and files: never changed, so that results can be compared over time.
    name: &'static str,
    /// What is divided by what.
    what: String,
    limit: Limit,
    /// Median, and the spread where it comes from pairs.
    value: f64,
    spread: Option<Spread>,
    /// The absolute figures behind it.
    detail: String,
    verdict: Verdict,
    /// Says something only when it was measured for long enough.
    #[serde(skip)]
    needs_time: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Noisy,
    /// The run was too short to judge by.
    NotMeasured,
}

impl Judged {
    /// A figure that is a count or a size: noise is no excuse.
    pub(crate) fn exact(name: &'static str, what: impl Into<String>, limit: Limit, value: f64, detail: String) -> Judged {
        let verdict = if limit.holds(value) { Verdict::Pass } else { Verdict::Fail };
        Judged { name, what: what.into(), limit, value, spread: None, detail, verdict, needs_time: true }
    }

    /// What is right or wrong however short the run: messages lost, answers that are not true.
    pub(crate) fn correct(name: &'static str, what: impl Into<String>, limit: Limit, value: f64, detail: String) -> Judged {
        Judged { needs_time: false, ..Judged::exact(name, what, limit, value, detail) }
    }

    /// A ratio from pairs.
    pub(crate) fn ratio(name: &'static str, what: impl Into<String>, limit: Limit, spread: Spread, detail: String) -> Judged {
        let verdict = match (spread.is_noisy(), limit.holds(spread.median)) {
            (true, _) => Verdict::Noisy,
            (false, true) => Verdict::Pass,
            (false, false) => Verdict::Fail,
        };
        Judged { name, what: what.into(), limit, value: spread.median, spread: Some(spread), detail, verdict, needs_time: true }
    }

    /// The same, not passed when a run behind it was invalid or not kept up.
    pub(crate) fn doubted(mut self, doubt: bool) -> Judged {
        if doubt && self.verdict == Verdict::Pass {
            self.verdict = Verdict::Noisy;
        }
        self
    }

    /// The same of a quick run.
    fn quick(mut self) -> Judged {
        if self.needs_time {
            self.verdict = Verdict::NotMeasured;
        }
        self
    }

    /// Whether the command may end well.
    fn is_good(&self) -> bool {
        matches!(self.verdict, Verdict::Pass | Verdict::NotMeasured)
    }

    fn print(&self) {
        let (sign, bound) = match self.limit {
            Limit::AtLeast(bound) => (">=", bound),
            Limit::AtMost(bound) => ("<=", bound),
        };
        let spread = self.spread.as_ref().map_or(String::new(), |spread| {
            format!(" [{:.2} .. {:.2}, IQR {:.0} %, n {}]", spread.low, spread.high, spread.iqr_share * 100.0, spread.count)
        });
        let verdict = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Noisy => "NOISY",
            Verdict::NotMeasured => "not measured",
        };
        println!(
            "{verdict:<12} {:<22} {:>8.3} {sign} {bound:<6} {}{spread}\n      {}",
            self.name, self.value, self.what, self.detail
        );
    }
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Limit::AtLeast(bound) => value >= bound,
            Limit::AtMost(bound) => value <= bound,
        }
    }
}

/// Runs the command. False when a bar is not passed or could not be measured; of a quick one when something did not run or was wrong.
pub(crate) fn run(args: &BarsArgs) -> Result<bool, BarError> {
    let mut rig = rig(args);
    std::fs::create_dir_all(&rig.data_dir).map_err(|source| BarError::Io { what: rig.data_dir.display().to_string(), source })?;
    process::pin(rig.cpus.client_cpu).map_err(|source| BarError::Io { what: "binding to a CPU".to_owned(), source })?;
    process::take_precedence();
    let facts = Facts::read(&args.data_dir);
    println!("{}\n{}\n", facts.version, facts.summary());
    if args.quick {
        println!("quick: one short pair each. Every bar runs, and what must be right is checked; nothing is measured\n");
    }
    let chosen: Vec<Bar> = if args.only.is_empty() { ALL.to_vec() } else { args.only.clone() };
    let clock = CpuClock::now();
    let mut results = ResultFile::open(&args.results, &facts)?;
    let mut good = true;
    for bar in chosen {
        let before = CpuClock::now();
        // One bar that cannot be measured does not keep the others from being measured.
        let judged = match measure(bar, &mut rig) {
            Ok(judged) => judged,
            Err(error) => {
                good = false;
                let name = clap::ValueEnum::to_possible_value(&bar).expect("every bar can be chosen");
                println!("FAIL  {}: could not be measured: {error}", name.get_name());
                results.write(json!({ "bar": bar, "error": error.to_string() }))?;
                continue;
            }
        };
        let cpu = CpuClock::now().since(&before);
        for figure in judged {
            let figure = if args.quick { figure.quick() } else { figure };
            figure.print();
            good &= figure.is_good();
            results.write(json!({ "bar": bar, "judged": figure, "cpu": cpu, "quick": args.quick, "pairs": rig.pairs, "seconds": rig.time.as_secs_f64() }))?;
        }
    }
    let cpu = CpuClock::now().since(&clock);
    println!(
        "\nmachine: {:.1} % busy, {:.1} % stolen; results in {}",
        cpu.busy_percent,
        cpu.steal_percent,
        results.path.display()
    );
    Ok(good)
}

fn rig(args: &BarsArgs) -> Rig {
    Rig {
        data_dir: args.data_dir.clone(),
        pairs: if args.quick { 1 } else { args.pairs },
        time: if args.quick { Duration::from_millis(500) } else { Duration::from_secs_f64(args.seconds.max(0.1)) },
        rounds: if args.quick { 1 } else { args.rounds },
        log_bytes: if args.quick { LOG_BYTES_QUICK } else { (args.log_gb * 1e9) as u64 },
        many_topics: if args.quick { 1 } else { 10 },
        cpus: crate::limits::Sides::of_machine(),
    }
}

fn measure(bar: Bar, rig: &mut Rig) -> Result<Vec<Judged>, BarError> {
    match bar {
        Bar::Generator => generator::measure(rig),
        Bar::Produce => produce::measure(rig),
        Bar::Readers => readers::measure(rig),
        Bar::Partitions => partitions::measure(rig),
        Bar::Memory => memory::measure(rig),
        Bar::Latency => latency::measure(rig),
        Bar::Retention => retention::measure(rig),
        Bar::Drain => drain::measure(rig),
        Bar::EndToEnd => end_to_end::measure(rig),
        Bar::Parked => parked::measure(rig),
        Bar::TimeLookup => time_lookup::measure(rig),
        Bar::WrongShard => shards::measure(rig),
        Bar::LargeMessage => large_message::measure(rig),
        Bar::Crash => crash::measure_rounds(rig),
        Bar::IdempotentCrash => idempotent::measure(rig),
        Bar::Restart => crash::measure_restart(rig),
    }
}

/// A file of results: the machine first, then one line a figure.
struct ResultFile {
    path: PathBuf,
    file: std::fs::File,
}

impl ResultFile {
    fn open(folder: &Path, facts: &Facts) -> Result<ResultFile, BarError> {
        let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = folder.join(format!("bars-{seconds}.jsonl"));
        let io = |source| BarError::Io { what: path.display().to_string(), source };
        std::fs::create_dir_all(folder).map_err(io)?;
        let file = std::fs::File::create(&path).map_err(io)?;
        let mut results = ResultFile { path: path.clone(), file };
        results.write(json!({ "machine": facts, "unixSeconds": seconds }))?;
        Ok(results)
    }

    fn write(&mut self, value: serde_json::Value) -> Result<(), BarError> {
        // The reason of a failure quotes the broker's log.
        writeln!(self.file, "{}", record_without_folders(value))
            .map_err(|source| BarError::Io { what: self.path.display().to_string(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: BarsArgs,
    }

    fn rig_of(words: &[&str]) -> Rig {
        let words = std::iter::once("bars").chain(words.iter().copied());
        rig(&<CommandLine as clap::Parser>::try_parse_from(words).unwrap().args)
    }

    #[test]
    fn five_pairs_of_three_seconds_and_thirty_kills_unless_told_otherwise() {
        let plan = rig_of(&[]);
        assert_eq!((plan.pairs, plan.time, plan.rounds, plan.many_topics), (5, Duration::from_secs(3), 30, 10));
        let quick = rig_of(&["--quick", "--pairs", "9"]);
        assert_eq!((quick.pairs, quick.rounds, quick.many_topics), (1, 1, 1));
        assert!(quick.time < Duration::from_secs(1));
        let chosen = rig_of(&["--pairs", "7", "--seconds", "5", "--rounds", "100"]);
        assert_eq!((chosen.pairs, chosen.time, chosen.rounds), (7, Duration::from_secs(5), 100));
    }

    #[test]
    fn a_quick_run_measures_nothing_and_fails_for_what_is_wrong() {
        let spread = |median| Spread { low: median, median, high: median, iqr_share: 0.0, count: 1 };
        let ratio = |median| Judged::ratio("r", "a / b", Limit::AtLeast(0.5), spread(median), String::new());
        let size = Judged::exact("s", "size", Limit::AtMost(16.0), 20.0, String::new());
        let lost = |count| Judged::correct("l", "lost", Limit::AtMost(0.0), count, String::new());
        for judged in [ratio(0.1), ratio(0.9), ratio(0.9).doubted(true), size.clone()] {
            let quick = judged.quick();
            assert_eq!((quick.verdict, quick.is_good()), (Verdict::NotMeasured, true), "{quick:?}");
            assert_eq!(serde_json::to_value(&quick).unwrap()["verdict"], "not-measured");
        }
        assert_eq!((lost(0.0).quick().verdict, lost(1.0).quick().verdict), (Verdict::Pass, Verdict::Fail));
        assert!(!lost(1.0).quick().is_good() && !size.is_good() && !ratio(0.1).is_good());
    }

    /// A broker that fails is quoted with its log, which names its data directory.
    #[test]
    fn a_result_file_names_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = ResultFile::open(folder.path(), &Facts::read(folder.path())).unwrap();
        let reason = format!("{}: no space", folder.path().join("data/shard-0000").display());
        results.write(json!({ "bar": Bar::Crash, "error": reason })).unwrap();
        let text = std::fs::read_to_string(&results.path).unwrap();
        assert!(!text.contains(folder.path().to_str().unwrap()), "{text}");
        assert!(text.contains("shard-0000: no space"), "{text}");
    }
}
