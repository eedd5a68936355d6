//! Kernel version, io_uring and the process's limits.

use crate::finding::{Finding, Verdict};
use crate::host::Host;

/// Oldest kernel with every io_uring operation that the runtime uses and DIOALIGN in statx (6.1).
const KERNEL_MIN: (u32, u32) = (6, 1);
/// Open files wanted: 100,000 partitions with a bounded set of segment handles, and connections.
const OPEN_FILES_WANTED: u64 = 65_536;
/// Locked memory below which an executor with its three rings cannot even start.
const LOCKED_MEMORY_BYTES_MIN: u64 = 512 * 1024;
/// Locked memory wanted: three registrations of a 10 MiB buffer block for each of many shards.
const LOCKED_MEMORY_BYTES_WANTED: u64 = 1 << 30;

pub(super) fn check(host: &Host) -> Vec<Finding> {
    vec![version(host), io_uring(host), open_files(host), locked_memory(host), backlog(host)]
}

fn version(host: &Host) -> Finding {
    let finding = Finding::new("kernel.version", "", "older kernels lack io_uring operations or answer them wrongly")
        .wanted(format!("{}.{} or newer", KERNEL_MIN.0, KERNEL_MIN.1))
        .fix("install a newer kernel");
    let Some(release) = host.read("/proc/sys/kernel/osrelease") else { return finding };
    let Some(version) = parse_version(&release) else { return finding.found(release) };
    finding.found(release).judge(version >= KERNEL_MIN, Verdict::Wrong)
}

fn io_uring(host: &Host) -> Finding {
    let finding = Finding::new("kernel.io_uring", "", "the broker does all disk and network work through io_uring")
        .wanted("0 (allowed)")
        .fix("sysctl -w kernel.io_uring_disabled=0");
    // The switch came with Linux 6.6: without it, io_uring is always allowed.
    let value = host.read("/proc/sys/kernel/io_uring_disabled").unwrap_or_else(|| "0".into());
    let good = value == "0";
    finding.found(value).judge(good, Verdict::Wrong)
}

fn open_files(host: &Host) -> Finding {
    let limit = host.limits().open_files_max;
    Finding::new("limit.open_files", "", "each connection and each open segment takes a file descriptor")
        .found(show(limit))
        .wanted(format!("at least {OPEN_FILES_WANTED}"))
        .fix(format!("ulimit -n {OPEN_FILES_WANTED}   (unit file: LimitNOFILE={OPEN_FILES_WANTED})"))
        .judge(limit.is_none_or(|limit| limit >= OPEN_FILES_WANTED), Verdict::Warning)
}

fn locked_memory(host: &Host) -> Finding {
    let limits = host.limits();
    let finding = Finding::new("limit.locked_memory", "", "I/O buffers are registered with the kernel, three times per shard")
        .wanted("unlimited, or the capability CAP_IPC_LOCK")
        .fix("ulimit -l unlimited   (unit file: LimitMEMLOCK=infinity)");
    if limits.may_lock_any_memory {
        return finding.found("CAP_IPC_LOCK is held").judge(true, Verdict::Warning);
    }
    let severity = match limits.locked_memory_bytes_max {
        Some(bytes) if bytes < LOCKED_MEMORY_BYTES_MIN => Verdict::Wrong,
        _ => Verdict::Warning,
    };
    let good = limits.locked_memory_bytes_max.is_none_or(|bytes| bytes >= LOCKED_MEMORY_BYTES_WANTED);
    finding.found(format!("{} bytes", show(limits.locked_memory_bytes_max))).judge(good, severity)
}

fn backlog(host: &Host) -> Finding {
    let finding = Finding::new("network.backlog", "", "a burst of reconnecting clients overflows a short accept queue")
        .wanted("at least 4096")
        .fix("sysctl -w net.core.somaxconn=4096");
    let Some(value) = host.read("/proc/sys/net/core/somaxconn") else { return finding };
    let good = value.parse::<u64>().is_ok_and(|length| length >= 4096);
    finding.found(value).judge(good, Verdict::Warning)
}

fn show(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
