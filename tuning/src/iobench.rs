//! Calibrates a data disk: measures it with raw io_uring and derives the depths and thresholds that `serve` uses.

mod measure;
mod profile;
mod ring;
mod scratch;

use std::path::PathBuf;
use std::time::Duration;

pub use measure::{Pattern, Row};
pub use profile::{PROFILE_FILE, Profile, Use};
use scratch::Scratch;

/// Default size of the scratch file in MiB: large against a drive's own cache lines, small against the drive.
const SCRATCH_MEBIBYTES_DEFAULT: u64 = 512;
/// Default time of one measurement in milliseconds.
const MEASURE_MS_DEFAULT: u64 = 500;

/// Arguments of `corelane tune iobench`.
#[derive(Debug, clap::Args)]
pub struct IobenchArgs {
    /// Data directory on the disk to measure; made if it is missing
    #[arg(long, value_name = "DIR", default_value = "corelane-data")]
    pub data_dir: PathBuf,
    /// Where the profile goes; the default is io.toml in the data directory, where serve looks for it
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Size of the scratch file in MiB
    #[arg(long, value_name = "MIB", default_value_t = SCRATCH_MEBIBYTES_DEFAULT, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    pub scratch_mib: u64,
    /// Time of each of the about forty measurements, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = MEASURE_MS_DEFAULT, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub measure_ms: u64,
    /// Print the profile as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Why a disk could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum IobenchError {
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The disk has no room for the scratch file.
    #[error("{}: {free_bytes} bytes are free, {wanted_bytes} are needed; free some space or give a smaller --scratch-mib", path.display())]
    NoSpace {
        /// The data directory.
        path: PathBuf,
        /// Bytes free for this user.
        free_bytes: u64,
        /// Bytes of the scratch files and a reserve.
        wanted_bytes: u64,
    },
    /// The kernel refused a ring.
    #[error("io_uring is not available: {0}; see `corelane tune check`")]
    Ring(std::io::Error),
    /// A measured operation failed or was short.
    #[error("{operation} of {block_bytes} bytes failed: {source}")]
    Io {
        /// What was measured.
        operation: &'static str,
        /// Size of the operation.
        block_bytes: u32,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Measures the disk and writes its profile; prints a table, or JSON.
///
/// # Errors
///
/// When the scratch file cannot be made (no room, no O_DIRECT, no rights), io_uring is refused, or an operation fails.
/// The scratch file is removed in every case.
pub fn run(args: &IobenchArgs) -> Result<(), IobenchError> {
    let profile = measure_disk(args)?;
    let output = args.output.clone().unwrap_or_else(|| args.data_dir.join(PROFILE_FILE));
    profile.write(&output)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&profile).expect("a profile has only string keys and numbers"));
    } else {
        print!("{}", profile.table());
        println!("\nwritten to {}", output.display());
    }
    Ok(())
}

/// Measures the disk of `args.data_dir` and derives a profile, without writing it.
///
/// # Errors
///
/// As for [`run`].
pub fn measure_disk(args: &IobenchArgs) -> Result<Profile, IobenchError> {
    let scratch = Scratch::create(&args.data_dir, args.scratch_mib << 20)?;
    let time = Duration::from_millis(args.measure_ms);
    let mut rows = Vec::new();
    for (pattern, block_bytes, depth) in measure::plan() {
        rows.push(measure::measure(&scratch, pattern, block_bytes, depth, time)?);
    }
    Ok(Profile::derive(rows))
}
