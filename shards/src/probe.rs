//! What must hold before a shard may start: each failure is one line with its cause and the remedy.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::real;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// The running kernel, e.g. "6.18.1".
    pub kernel: String,
    /// How the I/O memory may be locked.
    pub locked_memory: LockedMemory,
    /// One per data directory.
    pub disks: Vec<DiskReport>,
}

/// Why the I/O memory of the shards may be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockedMemory {
    /// The process has CAP_IPC_LOCK: no limit holds.
    Privileged,
    /// The limit is this many bytes; the shards need fewer.
    Limit(u64),
    /// There is no limit.
    Unlimited,
}

/// A data directory and the device under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskReport {
    /// The data directory.
    pub directory: PathBuf,
    /// "ext4", "xfs", …
    pub file_system: String,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Alignment that direct I/O wants here, in bytes.
    pub direct_alignment_bytes: u32,
    /// The largest request of the device, in bytes, when it has a queue of its own.
    pub request_bytes_max: Option<u64>,
    /// The device completes reads by polling.
    pub polled: bool,
}

/// The machine cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct ProbeError {
    /// What does not work.
    pub what: String,
    /// The cause.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// Checks io_uring, locked memory and every data directory (created when it is not there, with a probe file in it).
///
/// `io_memory_bytes_total` is that of all shards together. Raises the limit of locked memory of this process when it may.
pub fn probe(directories: &[&Path], io_memory_bytes_total: u64) -> Result<ProbeReport, ProbeError> {
    let kernel = real::probe::io_uring()?;
    let locked_memory = real::probe::locked_memory(io_memory_bytes_total)?;
    let disks = directories.iter().map(|directory| real::probe::disk(directory)).collect::<Result<_, _>>()?;
    Ok(ProbeReport { kernel, locked_memory, disks })
}

/// The most I/O memory that the shards of this process may have together under the limit of locked memory; `None` when nothing limits it.
pub fn io_memory_bytes_allowed() -> Option<u64> {
    real::probe::io_memory_bytes_allowed()
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "kernel {}; locked memory: ", self.kernel)?;
        match self.locked_memory {
            LockedMemory::Privileged => formatter.write_str("CAP_IPC_LOCK")?,
            LockedMemory::Limit(bytes) => write!(formatter, "limit {bytes} bytes")?,
            LockedMemory::Unlimited => formatter.write_str("unlimited")?,
        }
        for disk in &self.disks {
            write!(
                formatter,
                "\n{}: {} on {}:{}, direct I/O by {} bytes",
                disk.directory.display(),
                disk.file_system,
                disk.device.0,
                disk.device.1,
                disk.direct_alignment_bytes
            )?;
            if let Some(bytes) = disk.request_bytes_max {
                write!(formatter, ", requests up to {} KiB", bytes >> 10)?;
            }
            if disk.polled {
                formatter.write_str(", polled reads")?;
            }
        }
        Ok(())
    }
}
