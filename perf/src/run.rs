//! `perf run`: one workload against a broker, with everything that a figure needs to be believed.

mod args;
mod files;
mod kill;
mod search;
mod text;

use std::net::SocketAddr;

use crate::broker_process::{BrokerOptions, BrokerProcess, BrokerProcessError};
use crate::driver::DriverError;
use crate::driver::session::{Session, resolve};
use crate::hdr_files::IntervalLog;
use crate::latency::percentile_ms;
use crate::live::Live;
use crate::machine::{CpuClock, Facts};
use crate::mock::{Behaviour, Mock};
use crate::plot;
use crate::process;
use crate::result::{Cost, Report, Series};
use crate::trial::{Findings, Trial};
use crate::workload::{Rate, Workload, WorkloadError};
pub use args::RunArgs;
use files::{file_name, log_second};

/// A run that could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
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

/// Runs the command. False when the run is not good.
pub(crate) fn run(args: &RunArgs) -> Result<bool, RunError> {
    let (workload, about) = args::workload(args)?;
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
    process::take_precedence();
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
        let (usage, clock) = (self.usage()?, CpuClock::now());
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
        let cost = usage.zip(self.usage()?).map(|(before, after)| Cost::of(&after.since(&before), payload_bytes));
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
        let text = text::text(&report);
        if self.args.json {
            println!("{}", report.json());
        } else {
            print!("{text}");
        }
        if let Some(out) = &self.args.out {
            files::write_files(out, &name, &report)?;
        }
        let good = if self.args.quick {
            findings.is_complete()
        } else {
            findings.figures.is_valid() && findings.figures.not_sustained.is_empty() && missed.is_empty()
        };
        Ok((findings, good))
    }

    fn usage(&self) -> Result<Option<process::Usage>, RunError> {
        match &self.target {
            Target::Own(broker) => Ok(Some(broker.usage()?)),
            Target::Given | Target::Null => Ok(None),
        }
    }
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
