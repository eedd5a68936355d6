//! The checks behind [`crate::probe`].

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::{IoUring, Probe, opcode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::disk::failed;
use super::shard::{blocking, to_the_end};
use crate::DISK_ALIGNMENT_BYTES;
use crate::disk::{DiskError, DiskErrorKind};
use crate::probe::{DiskReport, LockedMemory, ProbeError};

/// Each shard has three rings, and its memory is registered with every one.
const RINGS_PER_SHARD: u64 = 3;

/// For the rings themselves, and what else the process locks.
const LOCKED_RESERVE_BYTES: u64 = 1 << 20;

/// The number of CAP_IPC_LOCK in the kernel's capability sets.
const CAP_IPC_LOCK: u32 = 14;

/// Also for the alignment of direct I/O in statx; the older 5.19 has the operations alone.
const KERNEL_REMEDY: &str = "use kernel 6.1 or newer";

/// The opcodes without which glommio 0.9.0 ends the process.
const OPCODES: &[(&str, u8)] = &[
    ("NOP", opcode::Nop::CODE),
    ("READV", opcode::Readv::CODE),
    ("WRITEV", opcode::Writev::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("READ_FIXED", opcode::ReadFixed::CODE),
    ("WRITE_FIXED", opcode::WriteFixed::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("POLL_REMOVE", opcode::PollRemove::CODE),
    ("SENDMSG", opcode::SendMsg::CODE),
    ("RECVMSG", opcode::RecvMsg::CODE),
    ("TIMEOUT", opcode::Timeout::CODE),
    ("TIMEOUT_REMOVE", opcode::TimeoutRemove::CODE),
    ("ACCEPT", opcode::Accept::CODE),
    ("LINK_TIMEOUT", opcode::LinkTimeout::CODE),
    ("CONNECT", opcode::Connect::CODE),
    ("FALLOCATE", opcode::Fallocate::CODE),
    ("OPENAT", opcode::OpenAt::CODE),
    ("CLOSE", opcode::Close::CODE),
    ("STATX", opcode::Statx::CODE),
    ("READ", opcode::Read::CODE),
    ("WRITE", opcode::Write::CODE),
    ("SEND", opcode::Send::CODE),
    ("RECV", opcode::Recv::CODE),
];

fn error(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> ProbeError {
    ProbeError { what: what.into(), why: why.into(), remedy: remedy.into() }
}

/// Creates a ring and asks for its opcodes. Returns the kernel's release.
pub(crate) fn io_uring() -> Result<String, ProbeError> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let ring = IoUring::new(8).map_err(|cause| ring_error(&cause, &kernel, Path::new("/proc")))?;
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|cause| error("io_uring", format!("kernel {kernel} cannot list its operations ({cause})"), KERNEL_REMEDY))?;
    let missing: Vec<&str> = OPCODES.iter().filter(|(_, code)| !probe.is_supported(*code)).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(kernel);
    }
    Err(error("io_uring", format!("kernel {kernel} lacks {}", missing.join(", ")), KERNEL_REMEDY))
}

/// Why a ring could not be made, by what the kernel said and what its settings are.
fn ring_error(cause: &std::io::Error, kernel: &str, proc: &Path) -> ProbeError {
    let disabled = fs::read_to_string(proc.join("sys/kernel/io_uring_disabled")).unwrap_or_default();
    match (cause.raw_os_error(), disabled.trim()) {
        (Some(libc::EPERM), "1" | "2") => error(
            "io_uring",
            format!("it is switched off (kernel.io_uring_disabled = {})", disabled.trim()),
            "run `sysctl kernel.io_uring_disabled=0`",
        ),
        (Some(libc::EPERM | libc::EACCES), _) => error(
            "io_uring",
            "a seccomp filter forbids it (the default of Docker and of some services)",
            "run the container with `--security-opt seccomp=unconfined` or a profile that allows io_uring_setup, io_uring_enter \
             and io_uring_register",
        ),
        (Some(libc::ENOSYS), _) => {
            error("io_uring", format!("kernel {kernel} does not have it"), format!("{KERNEL_REMEDY}, built with CONFIG_IO_URING"))
        }
        (Some(libc::ENOMEM), _) => {
            error("io_uring", "the limit of locked memory is used up", "raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity")
        }
        _ => error("io_uring", format!("a ring cannot be made: {cause}"), "see the kernel log"),
    }
}

/// Checks, and raises when allowed, the limit of locked memory.
pub(crate) fn locked_memory(io_memory_bytes_total: u64) -> Result<LockedMemory, ProbeError> {
    let needed = io_memory_bytes_total.saturating_mul(RINGS_PER_SHARD).saturating_add(LOCKED_RESERVE_BYTES);
    if is_privileged() {
        return Ok(LockedMemory::Privileged);
    }
    let limit = getrlimit(Resource::Memlock);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if !enough(limit.current) && enough(limit.maximum) {
        // Within the hard limit a process may raise its own.
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // A refusal shows in the check that follows.
        let _ = setrlimit(Resource::Memlock, raised);
    }
    judge_limit(getrlimit(Resource::Memlock).current, needed)
}

/// Up to the hard limit: [`locked_memory`] raises the soft one.
pub(crate) fn io_memory_bytes_allowed() -> Option<u64> {
    if is_privileged() {
        return None;
    }
    let limit = getrlimit(Resource::Memlock).maximum?;
    Some(limit.saturating_sub(LOCKED_RESERVE_BYTES) / RINGS_PER_SHARD)
}

fn is_privileged() -> bool {
    has_ipc_lock(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

fn judge_limit(limit: Option<u64>, needed: u64) -> Result<LockedMemory, ProbeError> {
    match limit {
        None => Ok(LockedMemory::Unlimited),
        Some(limit) if limit >= needed => Ok(LockedMemory::Limit(limit)),
        Some(limit) => Err(error(
            "locked memory",
            format!("the shards need {needed} bytes, the limit is {limit}"),
            "set `LimitMEMLOCK=infinity` in the service, `ulimit -l unlimited` in the shell, or give less I/O memory per shard",
        )),
    }
}

/// The effective capabilities in the text of /proc/thread-self/status hold CAP_IPC_LOCK.
fn has_ipc_lock(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0)
}

/// Checks that files in `directory` can be read and written directly.
pub(crate) fn disk(directory: &Path) -> Result<DiskReport, ProbeError> {
    let what = format!("data directory {}", directory.display());
    let cannot = |doing: &str, cause: &std::io::Error| {
        error(&what, format!("cannot {doing}: {cause}"), "check the path, its owner and the space left")
    };
    fs::create_dir_all(directory).map_err(|cause| cannot("create it", &cause))?;
    let file = WrittenFile::create(directory).map_err(|cause| cannot("write a file in it", &cause))?;
    let file_system = rustix::fs::statfs(directory).map_err(|cause| cannot("look at its file system", &cause.into()))?;
    let file_system = file_system_name(file_system.f_type as u64);
    let opened = fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&file.path);
    let opened = match opened {
        Ok(opened) => opened,
        Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => {
            return Err(error(&what, format!("{file_system} has no direct I/O"), "use ext4 or xfs on a local disk"));
        }
        Err(cause) => return Err(cannot("open a file directly", &cause)),
    };
    let alignment = direct_alignment(&opened);
    if alignment as usize > DISK_ALIGNMENT_BYTES {
        return Err(error(
            &what,
            format!("direct I/O needs an alignment of {alignment} bytes, more than {DISK_ALIGNMENT_BYTES}"),
            "use a device or file system with blocks of at most 4096 bytes",
        ));
    }
    let stat = rustix::fs::fstat(&opened).map_err(|cause| cannot("look at a file in it", &cause.into()))?;
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let queue = queue_of(device, Path::new("/sys")).map_err(|setting| {
        error(&what, format!("the device {}:{} does not show {setting}", device.0, device.1), "mount /sys, readable")
    })?;
    Ok(DiskReport {
        directory: directory.to_owned(),
        file_system,
        device,
        direct_alignment_bytes: alignment,
        request_bytes_max: queue.as_ref().map(|queue| queue.request_bytes_max),
        polled: queue.is_some_and(|queue| queue.polled),
    })
}

/// The alignment that direct I/O on this file wants; 0 when the file system does not say.
fn direct_alignment(file: &fs::File) -> u32 {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    match statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => stat.stx_dio_mem_align.max(stat.stx_dio_offset_align),
        _ => 0,
    }
}

/// What glommio will read of the device.
#[derive(Debug, PartialEq, Eq)]
struct Queue {
    request_bytes_max: u64,
    polled: bool,
}

/// glommio reads the queue of `MAJ:0`, and panics when an entry is not there. `None`: no such device, which it takes for memory.
fn queue_of((major, _): (u32, u32), sysfs: &Path) -> Result<Option<Queue>, String> {
    let device = sysfs.join(format!("dev/block/{major}:0"));
    if !device.exists() {
        return Ok(None);
    }
    let read = |name: &str| {
        let path = device.join("queue").join(name);
        fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|_| path.display().to_string())
    };
    let number = |name: &str| read(name).and_then(|text| text.parse::<u64>().map_err(|_| format!("a number in {name}")));
    for name in ["rotational", "minimum_io_size", "optimal_io_size", "logical_block_size", "physical_block_size"] {
        number(name)?;
    }
    number("max_segment_size")?;
    match read("write_cache")?.as_str() {
        "write back" | "write through" => {}
        other => return Err(format!("a known write_cache (it says \"{other}\")")),
    }
    let polled = read("io_poll").is_ok_and(|text| text == "1");
    Ok(Some(Queue { request_bytes_max: number("max_sectors_kb")? << 10, polled }))
}

/// The largest request of a device that completes by polling; `None` when it does not, or does not say.
pub(super) fn polled_request_bytes_max(device: u64) -> Option<usize> {
    let queue = queue_of((rustix::fs::major(device), rustix::fs::minor(device)), Path::new("/sys")).ok()??;
    // A device with absurd settings still gets requests of a page.
    let bytes = usize::try_from(queue.request_bytes_max).ok()?;
    queue.polled.then(|| (bytes - bytes % DISK_ALIGNMENT_BYTES).max(DISK_ALIGNMENT_BYTES))
}

fn file_system_name(magic: u64) -> String {
    match magic {
        0xEF53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x794C_7630 => "overlayfs".to_owned(),
        0x6969 => "nfs".to_owned(),
        0x2FC1_2FC1 => "zfs".to_owned(),
        0xF2F5_2010 => "f2fs".to_owned(),
        other => format!("file system {other:#x}"),
    }
}

/// A file of one written and synced page; removed when dropped.
struct WrittenFile {
    path: PathBuf,
}

impl WrittenFile {
    fn create(directory: &Path) -> std::io::Result<WrittenFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let unique = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = WrittenFile { path: directory.join(format!(".probe-{}-{unique}", std::process::id())) };
        let mut created = fs::File::create(&file.path)?;
        created.write_all(&[0xA5; DISK_ALIGNMENT_BYTES])?;
        created.sync_all()?;
        Ok(file)
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        // A leftover is one page; the next start makes its own.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens a written file on this shard, so that what glommio finds out about the device is true.
pub(super) async fn open_written_file(directory: &Path) -> Result<(), DiskError> {
    let owned = directory.to_owned();
    let created = blocking(move || WrittenFile::create(&owned)).await;
    let file = match created {
        Ok(Ok(file)) => file,
        Ok(Err(cause)) => return Err(DiskError::from_io("write a probe file in", directory, &cause)),
        Err(panicked) => {
            return Err(DiskError::new("write a probe file in", directory, DiskErrorKind::Panicked(panicked.message)));
        }
    };
    let path = std::path::absolute(&file.path).map_err(|cause| DiskError::from_io("open", &file.path, &cause))?;
    to_the_end(async move {
        let opened = glommio::io::OpenOptions::new().read(true).dma_open(&path).await;
        let opened = opened.map_err(|cause| failed("open", &path, cause))?;
        opened.close().await.map_err(|cause| failed("close", &path, cause))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_read() {
        assert!(has_ipc_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(has_ipc_lock("CapEff:\t0000000000004000\n"));
        assert!(!has_ipc_lock("CapEff:\t0000000000000000\n"));
        assert!(!has_ipc_lock(""));
    }

    #[test]
    fn a_low_limit_is_refused_with_both_numbers() {
        let refused = judge_limit(Some(8 << 20), 9 << 20).unwrap_err().to_string();
        assert!(refused.contains("9437184"), "{refused}");
        assert!(refused.contains("8388608"), "{refused}");
        assert_eq!(judge_limit(None, u64::MAX), Ok(LockedMemory::Unlimited));
        assert_eq!(judge_limit(Some(10), 10), Ok(LockedMemory::Limit(10)));
    }

    #[test]
    fn the_cause_of_a_missing_ring_is_named() {
        let proc = tempfile::tempdir().unwrap();
        let check = |errno, word: &str| {
            let found = ring_error(&std::io::Error::from_raw_os_error(errno), "6.1", proc.path()).to_string();
            assert!(found.contains(word), "{found}");
            assert!(!found.contains('\n'));
        };
        check(libc::EPERM, "seccomp");
        check(libc::ENOSYS, "6.1");
        check(libc::ENOMEM, "locked memory");
        fs::create_dir_all(proc.path().join("sys/kernel")).unwrap();
        fs::write(proc.path().join("sys/kernel/io_uring_disabled"), "2\n").unwrap();
        check(libc::EPERM, "io_uring_disabled = 2");
    }

    #[test]
    fn the_queue_of_a_device_is_checked_before_the_executor_panics_over_it() {
        let sysfs = tempfile::tempdir().unwrap();
        assert_eq!(queue_of((259, 3), sysfs.path()), Ok(None));
        let queue = sysfs.path().join("dev/block/259:0/queue");
        fs::create_dir_all(&queue).unwrap();
        assert!(queue_of((259, 3), sysfs.path()).is_err());
        for name in ["rotational", "minimum_io_size", "optimal_io_size", "logical_block_size", "physical_block_size"] {
            fs::write(queue.join(name), "0\n").unwrap();
        }
        fs::write(queue.join("max_segment_size"), "65536\n").unwrap();
        fs::write(queue.join("max_sectors_kb"), "1280\n").unwrap();
        fs::write(queue.join("write_cache"), "write back\n").unwrap();
        fs::write(queue.join("io_poll"), "1\n").unwrap();
        assert_eq!(queue_of((259, 3), sysfs.path()), Ok(Some(Queue { request_bytes_max: 1280 << 10, polled: true })));
        fs::write(queue.join("write_cache"), "odd\n").unwrap();
        assert!(queue_of((259, 3), sysfs.path()).unwrap_err().contains("odd"));
    }
}
