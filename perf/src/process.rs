//! What a process costs: CPU time, bytes written to disk, resident memory.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde::Serialize;

/// Counters of a process since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// CPU time of all threads, those that have ended too, from the process's CPU clock.
    pub cpu: Duration,
    /// The part of it that threads named `shard-N` used, and the io_uring workers that the kernel runs for them, from
    /// `/proc/PID/task/*/schedstat`.
    pub shard_cpu: Duration,
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
        let folders = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        // A thread may end between the listing and the reading.
        let tasks: Vec<Task> = folders.filter_map(|entry| Task::read(&entry.path())).collect();
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |text: &str, name: &str| -> Option<u64> {
            text.lines().find(|line| line.starts_with(name))?.split_whitespace().nth(1)?.parse().ok()
        };
        Some(Usage {
            cpu: process_cpu(pid)?,
            shard_cpu: Duration::from_nanos(shard_cpu_ns(&tasks)),
            written_bytes: field(&io, "write_bytes:")?,
            read_bytes: field(&io, "read_bytes:")?,
            resident_bytes: field(&status, "VmRSS:")? * 1024,
        })
    }

    /// What was used since `earlier`; resident memory as it is now.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            shard_cpu: self.shard_cpu.saturating_sub(earlier.shard_cpu),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            resident_bytes: self.resident_bytes,
        }
    }
}

/// The highest precedence that is not of another scheduling class.
const NICE_FIRST: i32 = -20;

/// A thread of a process.
#[derive(Debug)]
struct Task {
    id: String,
    name: String,
    cpu_ns: u64,
}

impl Task {
    fn read(folder: &Path) -> Option<Task> {
        let read = |item: &str| std::fs::read_to_string(folder.join(item)).ok();
        Some(Task {
            id: folder.file_name()?.to_str()?.to_owned(),
            name: read("comm")?.trim_end().to_owned(),
            cpu_ns: read("schedstat")?.split_whitespace().next()?.parse().ok()?,
        })
    }
}

/// CPU time of the shards' threads. What io_uring hands to workers, named after the thread whose ring it is, is the shard's work too.
fn shard_cpu_ns(tasks: &[Task]) -> u64 {
    let is_shard = |task: &Task| {
        let number = task.name.strip_prefix("shard-");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let works_for_shard = |task: &Task| {
        let owner = task.name.strip_prefix("iou-wrk-");
        owner.is_some_and(|owner| tasks.iter().any(|task| task.id == owner && is_shard(task)))
    };
    tasks.iter().filter(|task| is_shard(task) || works_for_shard(task)).map(|task| task.cpu_ns).sum()
}

/// CPU time of a process. A sum over its threads would lose what those used that have ended.
fn process_cpu(pid: u32) -> Option<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the calls write one value each to places of ours; the clock is used only when it was found.
    let read = unsafe {
        libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    read.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of a thread of this process; `None` when it has ended.
pub fn cpu_of_thread(thread: rustix::thread::Pid) -> Option<Duration> {
    let task = Task::read(Path::new(&format!("/proc/self/task/{}", thread.as_raw_nonzero())))?;
    Some(Duration::from_nanos(task.cpu_ns))
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

/// Lets the calling thread, and those it makes from now on, go before others on its CPU, if this process may: a generator that waits for
/// its CPU is late.
pub fn take_precedence() {
    // Without the right to it the run goes on; that the generator is late it will say itself.
    let _refused = rustix::process::setpriority_process(None, NICE_FIRST);
}

/// Lets the calling thread wait its turn like any other.
///
/// # Errors
/// None that Linux has: everybody may go back.
pub fn give_up_precedence() -> std::io::Result<()> {
    rustix::process::setpriority_process(None, 0).map_err(std::io::Error::from)
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
    fn shards_and_their_workers_are_told_from_other_threads() {
        let task = |id: &str, name: &str, cpu_ns| Task { id: id.to_owned(), name: name.to_owned(), cpu_ns };
        let tasks = [
            task("10", "corelane", 1),
            task("11", "shard-0", 20),
            task("12", "shard-15", 300),
            task("13", "shard-monitor", 4_000),
            task("14", "iou-wrk-11", 50_000),
            task("15", "iou-wrk-10", 600_000),
        ];
        assert_eq!(shard_cpu_ns(&tasks), 50_320);
        assert_eq!(shard_cpu_ns(&[]), 0);
    }

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
        assert_eq!(Usage::read(u32::MAX), None);
    }

    #[test]
    fn precedence_can_be_given_up_again() {
        let priorities = std::thread::spawn(|| {
            take_precedence();
            let taken = rustix::process::getpriority_process(None).unwrap();
            give_up_precedence().unwrap();
            (taken, rustix::process::getpriority_process(None).unwrap())
        });
        let (taken, given_up) = priorities.join().unwrap();
        assert!(taken <= 0);
        assert_eq!(given_up, 0);
    }

    /// A sum over the threads that live would become less.
    #[test]
    fn what_a_thread_used_counts_after_its_end() {
        let spend = || {
            let mut sum = 0_u64;
            while thread_cpu() < Duration::from_millis(20) {
                sum = std::hint::black_box(sum + 1);
            }
        };
        let before = Usage::read(std::process::id()).unwrap();
        std::thread::spawn(spend).join().unwrap();
        let used = Usage::read(std::process::id()).unwrap().since(&before);
        assert!(used.cpu >= Duration::from_millis(20), "{:?}", used.cpu);
    }
}
