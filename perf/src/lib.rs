//! The load generator, the limits of this machine, and the project's bars.
//!
//! ```text
//!   scenario.toml, OMB yaml ─► workload ─► plan (open loop) ─► driver ──► broker ──► driver ─► verify
//!                                            │ intended time     │ acks               │ messages
//!                                            └──────────► latency: from intended, from actual, delay
//!                                                              │
//!                                    .hlog  .hgrm  result.json  plots  a live line per second
//!
//!   limits    the same disk, sockets and core without a broker: raw writes, loopback, receive-and-drop, bare pipeline
//!   bars      broker / limit, in interleaved pairs; median, spread, verdict
//!   compare   two result files of bars, figure by figure
//!   peer      the same plan, messages and checks against another broker, by its own client (feature `peers`)
//! ```
//!
//! Invariants:
//! - A message's latency counts from the time at which the plan wanted it sent, whether or not the broker was answering then.
//! - A figure is never printed without what makes it true: offered and achieved rate, errors, backlog, sample count.
//! - A message lost, duplicated, reordered or damaged fails the run, whatever its latency.
//! - What is recorded names no folder, host or kernel command line: results are committed as they are.
//! - One generator thread, pinned, on buffers built before the clock starts: what is measured is the broker. Members of consumer groups, which
//!   are the client's own, share a second thread on the same CPU; both together must leave it idle time, or the run is invalid.

pub mod bars;
pub mod broker_process;
pub mod compare;
pub mod driver;
pub mod groups;
pub mod hdr_files;
pub mod latency;
pub mod limits;
pub mod live;
pub mod machine;
pub mod message;
pub mod mock;
pub mod omb;
pub mod paths;
#[cfg(feature = "peers")]
pub mod peer;
pub mod plan;
pub mod plot;
pub mod port;
pub mod process;
pub mod result;
pub mod run;
pub mod saturation;
pub mod scenario;
pub mod trial;
pub mod verify;
pub mod workload;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// Exit code of what was done and is not good.
const EXIT_MISSED: u8 = 1;
/// Exit code of what could not be done.
const EXIT_CANNOT: u8 = 2;

/// Arguments of `corelane perf`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make load, open loop, and check every message; against a running broker or with --embedded
    ///
    /// Exits with 1 when the run is invalid, a message was lost, duplicated, reordered or damaged, the rate was not kept up, or an
    /// objective was missed.
    Run(Box<run::RunArgs>),
    /// Measure the broker against the limits of this machine, in interleaved pairs, and judge each figure
    ///
    /// Exits with 1 when a bar is not passed or could not be measured.
    Bars(bars::BarsArgs),
    /// Compare two result files of `perf bars`, figure by figure: both values, their ratio, better or worse; and a plot
    ///
    /// A figure is better or worse when the medians differ by more than 3 % and the quartiles do not overlap; of a single pair neither is said,
    /// and a warning names it. Exits with 1 when one became worse, with 2 when the files cannot be compared.
    Compare(compare::CompareArgs),
    /// Measure what disk, sockets and one core can do here without a broker: the yardsticks of the bars. Takes minutes
    Limits(limits::LimitsArgs),
    /// The same load against another broker, by its own client; perf/peers/*.sh starts one
    #[cfg(feature = "peers")]
    Peer(peer::PeerArgs),
    /// Draw the publish latencies of result files of `perf run` into one plot
    Plot(PlotArgs),
    /// Print what decides figures on this machine: CPU, kernel, io_uring, disk, file system, limits, steal time
    Machine(MachineArgs),
}

#[derive(Debug, clap::Args)]
struct PlotArgs {
    /// Result files of `perf run --out`
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// The plot
    #[arg(long, value_name = "FILE.svg", default_value = "latency.svg")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct MachineArgs {
    /// Directory whose disk is described
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `corelane perf`: prints to standard output, errors to standard error, and returns the process's exit code.
///
/// 0: done and good. 1: done, but a run was invalid, a message was wrong, an objective was missed or a bar failed. 2: could not be done.
pub fn main(args: Args) -> ExitCode {
    match args.command {
        Command::Run(args) => exit_code(run::run(&args)),
        Command::Compare(args) => exit_code(compare::run(&args)),
        #[cfg(feature = "peers")]
        Command::Peer(args) => exit_code(peer::run(&args)),
        Command::Limits(args) => exit_code(limits::run(&args).map(|()| true)),
        Command::Bars(args) => exit_code(bars::run(&args)),
        Command::Plot(args) => exit_code(plot::compare(&args.results, &args.out).map(|()| {
            println!("{}", args.out.display());
            true
        })),
        Command::Machine(args) => {
            print_machine(&args);
            ExitCode::SUCCESS
        }
    }
}

/// What a command found: good, not good, or why it could not be done, which is printed.
fn exit_code(found: Result<bool, impl Display>) -> ExitCode {
    match found {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_MISSED),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_CANNOT)
        }
    }
}

fn print_machine(args: &MachineArgs) {
    let facts = machine::Facts::read(&args.data_dir);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&facts).expect("facts are plain strings and numbers"));
    } else {
        print!("{facts}");
    }
}
