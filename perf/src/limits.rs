//! `perf limits`: what the disk, the sockets and one core can do here, without a broker.
//!
//! ```text
//!   disk        raw io_uring: block size x depth x way of being durable
//!   loopback    source ─► sink, by read size
//!   receive     source ─► drop: CPU per MiB of receiving alone
//!   fan-out     the same buffers ─► ten sockets
//!   pipeline    client (other core) ─► receive ─ crc32c ─ copy ─ durable direct write ─ reply      one core, overlapped
//! ```
//!
//! The bars divide the broker's figures by these, taken in turn with them.

pub mod cold_send;
pub mod disk;
pub mod fan_out;
pub mod memory;
pub mod pipeline;
pub mod receive;
pub mod ring_file;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;

use crate::machine::{CpuClock, Facts};
use crate::process;

/// Arguments of `perf limits`.
#[derive(Debug, clap::Args)]
pub struct LimitsArgs {
    /// Folder on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Limit>,
    /// Bytes of the scratch file
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    file_bytes: u64,
    /// A quarter of a second each and a small file: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Limit {
    /// Raw writes.
    Disk,
    /// Source to sink.
    Loopback,
    /// Receive and drop, with its CPU time.
    Receive,
    /// One source to ten sockets.
    FanOut,
    /// The bare pipeline.
    Pipeline,
}

/// A limit that could not be measured.
#[derive(Debug, Error)]
pub enum LimitError {
    /// A file, a socket or a ring refused.
    #[error("{operation}: {source}")]
    Io {
        /// What we wanted.
        operation: String,
        /// What happened.
        source: std::io::Error,
    },
    /// A read or a write was short: the disk is full or the file is not what it should be.
    #[error("{operation}: {done} of {wanted} bytes were done")]
    Short {
        /// What we wanted.
        operation: String,
        /// Bytes done.
        done: usize,
        /// Bytes wanted.
        wanted: usize,
    },
}

pub(crate) fn io(operation: impl Into<String>) -> impl FnOnce(std::io::Error) -> LimitError {
    let operation = operation.into();
    move |source| LimitError::Io { operation, source }
}

/// CPUs of a measurement with two sides: the first for the client, the last for what is measured.
#[derive(Debug, Clone, Copy)]
pub struct Sides {
    /// The client's.
    pub client_cpu: u32,
    /// That of the side that is measured.
    pub server_cpu: u32,
}

impl Sides {
    /// The first and the last usable CPU.
    pub fn of_machine() -> Sides {
        let cpus = process::usable_cpus();
        Sides { client_cpu: cpus.first().copied().unwrap_or(0), server_cpu: cpus.last().copied().unwrap_or(0) }
    }
}

/// Runs the command.
pub(crate) fn run(args: &LimitsArgs) -> Result<(), LimitError> {
    let time = if args.quick { Duration::from_millis(250) } else { Duration::from_secs_f64(args.seconds.max(0.05)) };
    let file_bytes = if args.quick { args.file_bytes.min(128 << 20) } else { args.file_bytes };
    let wanted = |limit: Limit| args.only.is_empty() || args.only.contains(&limit);
    let facts = Facts::read(&args.data_dir);
    let clock = CpuClock::now();
    let sides = Sides::of_machine();
    let mut out = Output { json: args.json, rows: Vec::new() };
    if !args.json {
        println!("{}\n", facts.summary());
    }
    std::fs::create_dir_all(&args.data_dir).map_err(io("make the data folder"))?;
    if wanted(Limit::Disk) {
        for row in disk::measure(&args.data_dir, file_bytes, time, args.quick)? {
            out.row("disk", &row.text(), row.json());
        }
    }
    if wanted(Limit::Loopback) {
        for read_bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
            let found = receive::run(receive::Options { time, read_bytes, message_bytes: 0, sides })?;
            let text = format!("reads of {:>4} KiB: {:.2} GB/s", read_bytes >> 10, found.gigabytes_per_second());
            out.row("loopback", &text, json!({ "readBytes": read_bytes, "found": found }));
        }
    }
    if wanted(Limit::Receive) {
        for (what, message_bytes) in [("a stream", 0), ("requests of 256 KiB, each answered", 256 << 10)] {
            let found = receive::run(receive::Options { time, read_bytes: 1 << 20, message_bytes, sides })?;
            let text = format!(
                "receive and drop {what}: {:.2} GB/s, {:.3} ms CPU per MiB",
                found.gigabytes_per_second(),
                found.cpu_ms_per_mib()
            );
            out.row(
                "receive",
                &text,
                json!({ "messageBytes": message_bytes, "cpuMsPerMib": found.cpu_ms_per_mib(), "found": found }),
            );
        }
    }
    if wanted(Limit::FanOut) {
        let found = fan_out::run(time, 10, sides)?;
        let text = format!("one source to 10 sockets: {:.2} GB/s together", found.gigabytes_per_second());
        out.row("fan-out", &text, json!({ "sockets": 10, "found": found }));
    }
    if wanted(Limit::Pipeline) {
        for batch_bytes in [256 << 10, 1 << 20] {
            let options = pipeline::Options {
                folder: args.data_dir.clone(),
                time,
                batch_bytes,
                file_bytes,
                sides,
                ..pipeline::Options::default()
            };
            let found = pipeline::run(&options)?;
            out.row("pipeline", &found.text(), json!({ "batchBytes": batch_bytes, "found": found }));
        }
    }
    let cpu = CpuClock::now().since(&clock);
    if args.json {
        println!("{:#}", json!({ "rows": out.rows, "cpu": cpu, "machine": facts }));
    } else {
        println!("\nmachine: {:.1} % busy, {:.1} % stolen", cpu.busy_percent, cpu.steal_percent);
    }
    Ok(())
}

struct Output {
    json: bool,
    rows: Vec<Value>,
}

impl Output {
    fn row(&mut self, limit: &str, text: &str, value: Value) {
        if !self.json {
            println!("{limit:<10} {text}");
        }
        self.rows.push(json!({ "limit": limit, "value": value }));
    }
}
