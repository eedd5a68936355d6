//! The data disk: queue settings, write cache, block size, file system and mount options.

use std::path::Path;

use super::cpu::chosen;
use crate::finding::{Finding, Verdict};
use crate::host::Host;

/// File systems on which direct, asynchronous, overlapping writes are known to work well.
const FILE_SYSTEMS_GOOD: [&str; 2] = ["xfs", "ext4"];
/// File systems without O_DIRECT, or where a sync does not reach a disk.
const FILE_SYSTEMS_UNFIT: [&str; 6] = ["tmpfs", "overlay", "nfs", "nfs4", "fuse", "9p"];
/// The broker's block: positions, lengths and buffers of every direct write are multiples of it.
const BLOCK_BYTES: u64 = 4096;

pub(super) fn no_device(data_dir: &Path) -> Finding {
    Finding::new(
        "disk.device",
        data_dir.display().to_string(),
        "settings of the device behind a data directory decide its latency",
    )
    .found("no block device found behind this directory (tmpfs, overlay or network storage)")
}

pub(super) fn check_device(host: &Host, disk: &str) -> Vec<Finding> {
    let queue = format!("/sys/block/{disk}/queue");
    vec![
        scheduler(host, disk, &queue),
        no_merges(host, disk, &queue),
        write_cache(host, disk, &queue),
        block_size(host, disk, &queue),
        poll(host, disk, &queue),
    ]
}

fn scheduler(host: &Host, disk: &str, queue: &str) -> Finding {
    let path = format!("{queue}/scheduler");
    let finding = Finding::new("disk.scheduler", disk, "the broker orders its own I/O; a scheduler adds CPU time and latency")
        .wanted("none")
        .fix(format!("echo none > {path}"));
    let Some(value) = host.read(&path).and_then(|text| chosen(&text)) else { return finding };
    let good = value == "none";
    finding.found(value).judge(good, Verdict::Warning)
}

fn no_merges(host: &Host, disk: &str, queue: &str) -> Finding {
    let path = format!("{queue}/nomerges");
    let finding = Finding::new("disk.nomerges", disk, "writes come in their final size: looking for merges only costs CPU time")
        .wanted("2")
        .fix(format!("echo 2 > {path}"));
    let Some(value) = host.read(&path) else { return finding };
    let good = value == "2";
    finding.found(value).judge(good, Verdict::Warning)
}

fn write_cache(host: &Host, disk: &str, queue: &str) -> Finding {
    let finding = Finding::new(
        "disk.write_cache",
        disk,
        "with a volatile cache every commit pays a cache flush; the data is safe either way",
    )
    .wanted("write through (a drive with power-loss protection says so)")
    .fix("use a drive with power-loss protection; do not set write_cache by hand: it would skip the flush, and lose data");
    let Some(value) = host.read(format!("{queue}/write_cache")) else { return finding };
    let fua = host.read(format!("{queue}/fua")).is_some_and(|fua| fua == "1");
    let good = value == "write through";
    let note = if fua { " (FUA: durable writes skip the full flush)" } else { "" };
    finding.found(format!("{value}{note}")).judge(good, Verdict::Warning)
}

fn block_size(host: &Host, disk: &str, queue: &str) -> Finding {
    let finding = Finding::new(
        "disk.block_size",
        disk,
        "a block above 4096 bytes cannot take the log's writes; NVMe drives run best formatted to 4096",
    )
    .wanted("4096 (512 works)")
    .fix(format!("nvme id-ns -H /dev/{disk} | grep 'LBA Format'   (then, which erases the drive: nvme format --lbaf=N)"));
    let size = host.read(format!("{queue}/logical_block_size")).and_then(|text| text.parse::<u64>().ok());
    let Some(size) = size else { return finding };
    let severity = if size > BLOCK_BYTES { Verdict::Wrong } else { Verdict::Warning };
    let good = size == BLOCK_BYTES || (size < BLOCK_BYTES && !disk.starts_with("nvme"));
    finding.found(format!("{size} bytes")).judge(good, severity)
}

fn poll(host: &Host, disk: &str, queue: &str) -> Finding {
    let finding = Finding::new("disk.io_poll", disk, "polled completions save an interrupt per read on fast NVMe drives")
        .wanted("1 where the driver has poll queues (nvme.poll_queues=N at boot)");
    match host.read(format!("{queue}/io_poll")) {
        Some(value) => finding.found(value).judge(true, Verdict::Warning),
        None => finding,
    }
}

pub(super) fn check_file_system(host: &Host, data_dir: &Path) -> Vec<Finding> {
    let subject = data_dir.display().to_string();
    let kind = Finding::new("disk.file_system", subject.clone(), "the log needs O_DIRECT and a sync that reaches the disk")
        .wanted("xfs or ext4")
        .fix("put the data directory on an xfs or ext4 file system of a local drive");
    let options =
        Finding::new("disk.mount_options", subject, "access times turn reads into writes; without barriers a sync is a lie")
            .wanted("noatime (or relatime), and barriers on");
    let Some(mount) = host.mount_of(data_dir) else { return vec![kind, options] };
    let unfit = FILE_SYSTEMS_UNFIT.contains(&mount.file_system.as_str());
    let severity = if unfit { Verdict::Wrong } else { Verdict::Warning };
    let good = FILE_SYSTEMS_GOOD.contains(&mount.file_system.as_str());
    let point = mount.mount_point.display().to_string();
    let has = |wanted: &str| mount.options.iter().any(|option| option == wanted);
    let no_barrier = has("nobarrier") || has("barrier=0");
    let access_times = !has("noatime") && !has("relatime");
    let remedy =
        if no_barrier { format!("mount -o remount,barrier=1 {point}") } else { format!("mount -o remount,noatime {point}") };
    let severity_options = if no_barrier { Verdict::Wrong } else { Verdict::Warning };
    let options = options.found(mount.options.join(",")).fix(remedy);
    vec![
        kind.found(format!("{} on {point}", mount.file_system)).judge(good, severity),
        options.judge(!no_barrier && !access_times, severity_options),
    ]
}
