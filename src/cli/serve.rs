//! `corelane serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use broker::{BrokerError, Config};

use super::failure::Failure;
use super::table::print;

const EXAMPLES: &str = "\
Examples:
  corelane serve                                      # ./corelane-data, all cores but one, 127.0.0.1
  corelane serve --config /etc/corelane.toml
  corelane serve --data-dir /nvme0/corelane --listen 0.0.0.0:7311 --cores 2-15
  corelane serve --print-config > corelane.toml       # every key with its default and its meaning
";

/// Runs until SIGINT or SIGTERM, then stops in order: requests finish, the log is flushed
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file (TOML); every key is optional
    #[arg(long, short = 'c', value_name = "FILE", env = "CORELANE_CONFIG")]
    config: Option<PathBuf>,
    /// Print the effective configuration, with comments, and exit
    #[arg(long)]
    print_config: bool,
    /// Data directory, instead of the file's
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address of the native protocol, instead of the file's; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Address of metrics and health, or `off`
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,
    /// Cores that run shards: a list such as 2-15, a count, or auto
    #[arg(long, value_name = "CPUS")]
    cores: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = effective(args)?;
    if args.print_config {
        return print(config.to_commented_toml().as_bytes());
    }
    abort_on_panic();
    broker::run(config).map_err(|error| match error {
        // Some of it is wrong only for this host.
        BrokerError::Config(_) | BrokerError::Cores(_) => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    })
}

/// The file, with the flags on top.
fn effective(args: &Args) -> Result<Config, Failure> {
    let mut config = Config::load(args.config.as_deref()).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(data) = &args.data_dir {
        config.broker.data.clone_from(data);
    }
    if let Some(listen) = args.listen {
        config.listen.address = listen;
    }
    match args.http.as_deref() {
        None => {}
        Some("off") => config.http.enabled = false,
        Some(address) => {
            config.http.enabled = true;
            config.http.address = address
                .parse()
                .map_err(|error| Failure::Usage(format!("--http {address}: {error}; an address with port, or off")))?;
        }
    }
    if let Some(cores) = &args.cores {
        config.cores.shards.clone_from(cores);
    }
    config.validate().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(config)
}

/// A broken invariant ends the process at once, whatever thread meets it: release builds abort anyway, others do so by this.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
