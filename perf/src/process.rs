//! What a process costs: CPU time, bytes written to disk, resident memory.

use std::sync::OnceLock;
use std::time::Duration;

use serde::Serialize;

/// Counters of a process since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// CPU time of all threads, from `/proc/PID/task/*/schedstat`.
    pub cpu: Duration,
    /// Bytes that the process caused to be written to disks, from `/proc/PID/io`.
    pub written_bytes: u64,
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Resident memory.
    pub resident_bytes: u64,
}

impl Usage {
    /// Reads the counters of process `pid`; `None` when it is gone or not ours to look at.
    pub fn read(pid: u32) -> Option<Usage> {
        let mut cpu_ns = 0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            // A thread may end between the listing and the reading.
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            cpu_ns += text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |text: &str, name: &str| -> Option<u64> {
            text.lines().find(|line| line.starts_with(name))?.split_whitespace().nth(1)?.parse().ok()
        };
        Some(Usage {
            cpu: Duration::from_nanos(cpu_ns),
            written_bytes: field(&io, "write_bytes:")?,
            read_bytes: field(&io, "read_bytes:")?,
            resident_bytes: field(&status, "VmRSS:")? * 1024,
        })
    }

    /// What was used since `earlier`; resident memory as it is now.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            resident_bytes: self.resident_bytes,
        }
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Binds the calling thread to a CPU; threads made from now on inherit it.
///
/// # Errors
/// When the machine has no such CPU, or it is not ours.
pub fn pin(cpu: u32) -> std::io::Result<()> {
    // Asked before this thread is bound: afterwards it could use only one.
    usable_cpus();
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &set).map_err(std::io::Error::from)
}

/// The CPUs that this process could use when it was first asked.
pub fn usable_cpus() -> &'static [u32] {
    static USABLE: OnceLock<Vec<u32>> = OnceLock::new();
    USABLE.get_or_init(|| {
        let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something_and_uses_more() {
        let before = Usage::read(std::process::id()).unwrap();
        assert!(before.resident_bytes > 0);
        let mut sum = 0_u64;
        while thread_cpu() < Duration::from_millis(20) {
            sum = std::hint::black_box(sum + 1);
        }
        let used = Usage::read(std::process::id()).unwrap().since(&before);
        assert!(used.cpu > Duration::ZERO);
        assert_eq!(Usage::read(0), None);
    }
}
