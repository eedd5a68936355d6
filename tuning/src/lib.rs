//! What the host should be like for a broker, and what its disks can do.
//!
//! ```text
//!   tune check                               tune iobench
//!   ──────────                               ────────────
//!   Host (sysfs, procfs, rlimits) ──► checks   scratch file ──► Ring (io_uring, O_DIRECT)
//!                                      │                          │  one measurement per row
//!                                      ▼                          ▼
//!                       Finding: found, wanted, why, fix    Profile ──► io.toml ──► `corelane serve`
//! ```
//!
//! Invariants:
//! - `check` only reads. It names the command that fixes a setting; it never runs one.
//! - Every path is taken below the root of a [`host::Host`], so that the tests check a made-up machine.
//! - `iobench` writes only its own scratch file and the profile, and removes the scratch file however it ends.

pub mod check;
pub mod finding;
pub mod host;
pub mod iobench;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// Exit code of a check that found something worth a look.
const EXIT_WARNING: u8 = 1;
/// Exit code of a check that found something wrong, and of a command that failed.
const EXIT_WRONG: u8 = 2;

/// Arguments of `corelane tune`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read the host's settings; say what is off, why it matters and the command that fixes it
    ///
    /// Exits with 0 when all is well, 1 when something is worth a look, 2 when something is wrong.
    Check(CheckArgs),
    /// Measure a data disk and write the profile that `corelane serve` uses for its depths and thresholds
    Iobench(iobench::IobenchArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Data directory whose disk is checked; give it once per disk
    #[arg(long = "data-dir", value_name = "DIR", default_value = "corelane-data")]
    data_dirs: Vec<PathBuf>,
    /// CPUs that run shards, as a list such as 2-5,7: disk and network interrupts should stay off them
    #[arg(long, value_name = "CPUS")]
    shard_cpus: Option<String>,
    /// Print one JSON array instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `corelane tune`: prints to standard output, errors to standard error, and returns the process's exit code.
pub fn main(args: Args) -> ExitCode {
    match args.command {
        Command::Check(args) => check_main(&args),
        Command::Iobench(args) => match iobench::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
    }
}

fn check_main(args: &CheckArgs) -> ExitCode {
    let shard_cpus = match args.shard_cpus.as_deref().map(host::parse_cpu_list).transpose() {
        Ok(cpus) => cpus,
        Err(error) => return fail(&format!("--shard-cpus: {error}")),
    };
    let findings = check::run(&host::Host::real(), &args.data_dirs, shard_cpus.as_deref());
    if args.json {
        match serde_json::to_string_pretty(&findings) {
            Ok(text) => println!("{text}"),
            Err(error) => return fail(&error.to_string()),
        }
    } else {
        print!("{}", finding::render(&findings));
    }
    match finding::worst(&findings) {
        finding::Verdict::Good | finding::Verdict::Unknown => ExitCode::SUCCESS,
        finding::Verdict::Warning => ExitCode::from(EXIT_WARNING),
        finding::Verdict::Wrong => ExitCode::from(EXIT_WRONG),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(EXIT_WRONG)
}
