//! The command line: what can be said, and who does it.

mod cluster;
mod completion;
mod connect;
mod consume;
mod failure;
mod moment;
mod produce;
mod record_format;
mod serve;
mod table;
mod topic;
mod topic_options;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use self::failure::Failure;

/// Of every command but `perf` and `tune check`, which judge and have codes of their own.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed while doing it
  2  the command line is wrong, or the configuration file
  3  no broker answers, or none does any more
  4  not found: a topic, a partition, an offset, a file
  5  exists already
  6  not allowed: a name, a configuration, a record above a limit, a change of what is in use
";

const EXAMPLES: &str = "\
Examples:
  corelane serve --data-dir /nvme0/corelane
  corelane topic create orders --partitions 12 --retention 7d
  echo 'customer-7:12 apples' | corelane produce orders --key-separator :
  corelane consume orders --from beginning --format json
  corelane consume orders --from 2026-11-24T14:00 --until 2026-11-24T15:00
  corelane tune check
";

/// A distributed commit-log message broker, and everything to work with it
#[derive(Debug, Parser)]
#[command(name = "corelane", version, max_term_width = 120, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker
    Serve(serve::Args),
    /// Create, list, describe, alter and delete topics
    Topic(topic::Args),
    /// Send lines or files to a topic
    Produce(produce::Args),
    /// Print records of a topic
    Consume(consume::Args),
    /// Brokers and shards
    Cluster(cluster::Args),
    /// Measure: load, latencies, limits
    Perf(perf::Args),
    /// Check the host's settings and calibrate its disks
    Tune(tuning::Args),
    /// Print the completion script of a shell
    Completion(completion::Args),
}

/// The whole command.
pub(crate) fn main() -> ExitCode {
    let parsed = Cli::from_arg_matches(&command_line().get_matches());
    let command = parsed.unwrap_or_else(|error| error.exit()).command;
    start_logging(matches!(command, Command::Serve(_)));
    let result = match command {
        Command::Serve(args) => serve::run(&args),
        Command::Topic(args) => topic::run(args),
        Command::Produce(args) => produce::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Perf(args) => return perf::main(args),
        Command::Tune(args) => return tuning::main(args),
        Command::Completion(args) => completion::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who read our output has had enough: `corelane consume t | head` is not a failure.
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("corelane: {failure}");
            failure.exit_code()
        }
    }
}

/// What can be said, its long help with the exit codes at the end.
fn command_line() -> clap::Command {
    fn with_exit_codes(command: clap::Command) -> clap::Command {
        let examples = command.get_after_help().map(|examples| format!("{examples}\n")).unwrap_or_default();
        let command = command.after_long_help(format!("{examples}{EXIT_CODES}"));
        command.mut_subcommands(|below| match below.get_name() {
            "perf" | "tune" => below,
            _ => with_exit_codes(below),
        })
    }
    with_exit_codes(Cli::command())
}

/// Logs to standard error; `CORELANE_LOG` chooses what, as `info` or `broker=debug,warn`.
fn start_logging(serving: bool) {
    let default = if serving { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("CORELANE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
        .init();
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command_line().debug_assert();
    }
}
