//! What decides figures on this machine, printed beside every result.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::IoUring;
use serde::Serialize;
use tuning::host::Host;

use crate::paths::without_folders;

/// Parameters of the kernel that decide how fast system calls, idle CPUs, timers, memory and drives are.
const RELEVANT_PARAMETERS: [&str; 33] = [
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "cpuidle.off",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "iommu.passthrough",
    "iommu.strict",
    "irqaffinity",
    "isolcpus",
    "kpti",
    "maxcpus",
    "mem",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "nospectre_v2",
    "nvme.poll_queues",
    "nvme.write_queues",
    "preempt",
    "processor.max_cstate",
    "pti",
    "rcu_nocbs",
    "spectre_v2",
    "transparent_hugepage",
    "tsc",
];

/// The machine, as far as it explains a figure. A fact that cannot be read is `None`.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Kernel release and version.
    pub kernel: Option<String>,
    /// Parameters of the kernel's command line that change figures; the rest of it is nobody's business.
    pub kernel_parameters: Vec<String>,
    /// The CPUs.
    pub cpu: Cpu,
    /// Whether hardware counters can be read: without them there are no instruction counts.
    pub hardware_counters: bool,
    /// Hypervisor vendor or product, where the firmware names one.
    pub virtual_machine: Option<String>,
    /// Memory of the machine in bytes.
    pub memory_bytes: Option<u64>,
    /// The io_uring interface.
    pub io_uring: Uring,
    /// Locked memory allowed to this process in bytes; `None` is unlimited.
    pub memlock_bytes_max: Option<u64>,
    /// Open files allowed to this process; `None` is unlimited.
    pub open_files_max: Option<u64>,
    /// The disk below the data directory.
    pub disk: Disk,
    /// Version and commit of this program.
    pub version: String,
    /// The command line of this process, absolute paths cut to their last names.
    pub command_line: Vec<String>,
}

/// The CPUs of the machine.
#[derive(Debug, Clone, Serialize)]
pub struct Cpu {
    /// Model name.
    pub model: Option<String>,
    /// CPUs this process may use.
    pub usable: usize,
    /// CPUs of the machine.
    pub online: Option<String>,
    /// Hardware threads that share a core with CPU 0.
    pub siblings_of_cpu_0: Option<String>,
    /// Frequency governor of CPU 0.
    pub governor: Option<String>,
    /// The clock source: anything but `tsc` makes reading the clock slow.
    pub clock_source: Option<String>,
    /// Mitigations that are switched on, as `name: state`.
    pub mitigations: Vec<String>,
}

/// The io_uring interface of the kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Uring {
    /// Whether a ring can be made.
    pub usable: bool,
    /// Why not.
    pub error: Option<String>,
    /// Features the kernel names, as it names them.
    pub features: Vec<String>,
    /// `kernel.io_uring_disabled`.
    pub disabled_sysctl: Option<String>,
}

/// A disk and its file system.
#[derive(Debug, Clone, Serialize)]
pub struct Disk {
    /// The data directory; of an absolute path the last name.
    pub directory: String,
    /// Kernel name.
    pub name: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// `write back` (volatile cache) or `write through`.
    pub write_cache: Option<String>,
    /// Forced unit access: `1` lets one write be durable without a cache flush.
    pub fua: Option<String>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// `nomerges`.
    pub nomerges: Option<String>,
    /// `io_poll`.
    pub io_poll: Option<String>,
    /// Logical block size in bytes.
    pub logical_block_bytes: Option<String>,
    /// File system.
    pub file_system: Option<String>,
    /// Mount options.
    pub mount_options: Option<String>,
}

impl Facts {
    /// Reads the machine. `data_dir`, or its nearest existing parent, names the disk.
    pub fn read(data_dir: &Path) -> Facts {
        let host = Host::real();
        let cpu_info = host.read("/proc/cpuinfo").unwrap_or_default();
        let limits = host.limits();
        Facts {
            kernel: host
                .read("/proc/sys/kernel/osrelease")
                .map(|release| format!("{release} {}", host.read("/proc/sys/kernel/version").unwrap_or_default())),
            kernel_parameters: relevant_parameters(&host.read("/proc/cmdline").unwrap_or_default()),
            cpu: Cpu::read(&host, &cpu_info),
            hardware_counters: !host.list("/sys/bus/event_source/devices/cpu/events").is_empty(),
            virtual_machine: host
                .read("/sys/class/dmi/id/sys_vendor")
                .or_else(|| cpu_info.contains(" hypervisor").then(|| "yes".to_owned())),
            memory_bytes: host.read("/proc/meminfo").and_then(|text| kib_field(&text, "MemTotal:")).map(|kib| kib * 1024),
            io_uring: Uring::read(&host),
            memlock_bytes_max: if limits.may_lock_any_memory { None } else { limits.locked_memory_bytes_max },
            open_files_max: limits.open_files_max,
            disk: Disk::read(&host, data_dir),
            version: format!("corelane {}{}", env!("CARGO_PKG_VERSION"), commit()),
            command_line: std::env::args().map(|word| without_folders(&word)).collect(),
        }
    }

    /// One line for a live display or a plot's caption.
    pub fn summary(&self) -> String {
        format!(
            "{}, {} CPUs, kernel {}, {} on {}, write cache {}",
            self.cpu.model.as_deref().unwrap_or("unknown CPU"),
            self.cpu.usable,
            self.kernel.as_deref().and_then(|text| text.split_whitespace().next()).unwrap_or("unknown"),
            self.disk.file_system.as_deref().unwrap_or("unknown file system"),
            self.disk.name.as_deref().unwrap_or("unknown disk"),
            self.disk.write_cache.as_deref().unwrap_or("unknown"),
        )
    }
}

impl Cpu {
    fn read(host: &Host, cpu_info: &str) -> Cpu {
        let folder = "/sys/devices/system/cpu/vulnerabilities";
        let mitigations = host
            .list(folder)
            .into_iter()
            .filter_map(|name| {
                let state = host.read(format!("{folder}/{name}"))?;
                state.starts_with("Mitigation").then(|| format!("{name}: {}", state.trim_start_matches("Mitigation: ")))
            })
            .collect();
        Cpu {
            model: cpu_info
                .lines()
                .find(|line| line.starts_with("model name"))
                .and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())),
            usable: crate::process::usable_cpus().len(),
            online: host.read("/sys/devices/system/cpu/online"),
            siblings_of_cpu_0: host.read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"),
            governor: host.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: host.read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            mitigations,
        }
    }
}

impl Uring {
    fn read(host: &Host) -> Uring {
        let disabled_sysctl = host.read("/proc/sys/kernel/io_uring_disabled");
        match IoUring::new(2) {
            Ok(ring) => {
                let parameters = ring.params();
                let features = [
                    ("single_mmap", parameters.is_feature_single_mmap()),
                    ("nodrop", parameters.is_feature_nodrop()),
                    ("submit_stable", parameters.is_feature_submit_stable()),
                    ("rw_cur_pos", parameters.is_feature_rw_cur_pos()),
                    ("fast_poll", parameters.is_feature_fast_poll()),
                    ("ext_arg", parameters.is_feature_ext_arg()),
                    ("native_workers", parameters.is_feature_native_workers()),
                    ("resource_tagging", parameters.is_feature_resource_tagging()),
                ];
                let features = features.iter().filter(|(_, present)| *present).map(|(name, _)| (*name).to_owned()).collect();
                Uring { usable: true, error: None, features, disabled_sysctl }
            }
            Err(error) => Uring { usable: false, error: Some(error.to_string()), features: Vec::new(), disabled_sysctl },
        }
    }
}

impl Disk {
    fn read(host: &Host, data_dir: &Path) -> Disk {
        let absolute = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let mount = absolute.ancestors().find(|path| path.exists()).and_then(|path| host.mount_of(path));
        let name = mount.as_ref().and_then(|mount| host.disk_of(&mount.device));
        let queue = |item: &str| name.as_ref().and_then(|name| host.read(format!("/sys/block/{name}/queue/{item}")));
        Disk {
            directory: without_folders(&data_dir.display().to_string()),
            model: name.as_ref().and_then(|name| host.read(format!("/sys/block/{name}/device/model"))),
            write_cache: queue("write_cache"),
            fua: queue("fua"),
            scheduler: queue("scheduler").map(|text| bracketed(&text)),
            nomerges: queue("nomerges"),
            io_poll: queue("io_poll"),
            logical_block_bytes: queue("logical_block_size"),
            file_system: mount.as_ref().map(|mount| mount.file_system.clone()),
            mount_options: mount.as_ref().map(|mount| without_folders(&mount.options.join(","))),
            name,
        }
    }
}

/// The words of a kernel command line that name one of [`RELEVANT_PARAMETERS`].
fn relevant_parameters(command_line: &str) -> Vec<String> {
    let relevant = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default();
        RELEVANT_PARAMETERS.contains(&name)
    };
    command_line.split_whitespace().filter(relevant).map(without_folders).collect()
}

/// The chosen word of a sysfs choice such as `none [mq-deadline] kyber`.
fn bracketed(text: &str) -> String {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or_else(|| text.to_owned(), |(word, _)| word.to_owned())
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find(|line| line.starts_with(name))?.split_whitespace().nth(1)?.parse().ok()
}

/// The commit of the tree that the program runs in, when it runs in one.
fn commit() -> String {
    let output = std::process::Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    match output {
        Ok(output) if output.status.success() => format!(" ({})", String::from_utf8_lossy(&output.stdout).trim()),
        _ => String::new(),
    }
}

/// How much CPU time the hypervisor took away, and how busy the machine was, over an interval.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock {
    at: Instant,
    steal_ticks: u64,
    idle_ticks: u64,
    total_ticks: u64,
}

/// Shares of all CPUs' time over an interval, in percent.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CpuShares {
    /// Time that the hypervisor gave to others.
    pub steal_percent: f64,
    /// Time that was not idle.
    pub busy_percent: f64,
}

impl CpuClock {
    /// Reads the counters now.
    pub fn now() -> CpuClock {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<u64> = text
            .lines()
            .next()
            .map(|line| line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default();
        let tick = |index: usize| ticks.get(index).copied().unwrap_or(0);
        // user nice system idle iowait irq softirq steal; guest times are inside user.
        CpuClock { at: Instant::now(), steal_ticks: tick(7), idle_ticks: tick(3) + tick(4), total_ticks: (0..8).map(tick).sum() }
    }

    /// Shares since `earlier`.
    pub fn since(&self, earlier: &CpuClock) -> CpuShares {
        let total = self.total_ticks.saturating_sub(earlier.total_ticks).max(1) as f64;
        let percent = |now: u64, then: u64| now.saturating_sub(then) as f64 * 100.0 / total;
        CpuShares {
            steal_percent: percent(self.steal_ticks, earlier.steal_ticks),
            busy_percent: 100.0 - percent(self.idle_ticks, earlier.idle_ticks),
        }
    }

    /// Time since `earlier`.
    pub fn elapsed_since(&self, earlier: &CpuClock) -> Duration {
        self.at.duration_since(earlier.at)
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: Option<String>| writeln!(out, "{name:<20} {}", value.as_deref().unwrap_or("unknown"));
        let limit = |value: Option<u64>| Some(value.map_or("unlimited".to_owned(), |value| value.to_string()));
        row("virtual machine", Some(self.virtual_machine.clone().unwrap_or("no".to_owned())))?;
        row("kernel", self.kernel.clone())?;
        row("kernel parameters", Some(self.kernel_parameters.join(" ")))?;
        row("cpu", self.cpu.model.clone())?;
        row("cpus", Some(format!("{} usable of {}", self.cpu.usable, self.cpu.online.as_deref().unwrap_or("?"))))?;
        row("siblings of cpu 0", self.cpu.siblings_of_cpu_0.clone())?;
        row("governor", self.cpu.governor.clone())?;
        row("clock source", self.cpu.clock_source.clone())?;
        row("mitigations", Some(self.cpu.mitigations.join("; ")))?;
        row("hardware counters", Some(if self.hardware_counters { "yes" } else { "no" }.to_owned()))?;
        row("memory", self.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)))?;
        let ring = match &self.io_uring.error {
            None => format!("yes: {}", self.io_uring.features.join(", ")),
            Some(error) => format!("NO: {error}"),
        };
        row("io_uring", Some(ring))?;
        row("io_uring_disabled", self.io_uring.disabled_sysctl.clone())?;
        row("memlock", limit(self.memlock_bytes_max))?;
        row("open files", limit(self.open_files_max))?;
        row("data directory", Some(self.disk.directory.clone()))?;
        row("disk", self.disk.name.clone())?;
        row("disk model", self.disk.model.clone())?;
        row("write cache", self.disk.write_cache.clone())?;
        row("fua", self.disk.fua.clone())?;
        row("scheduler", self.disk.scheduler.clone())?;
        row("nomerges", self.disk.nomerges.clone())?;
        row("io_poll", self.disk.io_poll.clone())?;
        row("logical block", self.disk.logical_block_bytes.clone())?;
        row("file system", self.disk.file_system.clone())?;
        row("mount options", self.disk.mount_options.clone())?;
        row("version", Some(self.version.clone()))?;
        row("started as", Some(self.command_line.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_name_the_cpu_the_kernel_and_the_disk() {
        let facts = Facts::read(Path::new("/no/such/folder"));
        assert!(facts.kernel.is_some());
        assert!(facts.cpu.usable >= 1);
        let text = facts.to_string();
        for row in ["kernel", "cpu", "io_uring", "memlock", "write cache", "mount options", "clock source"] {
            assert!(text.lines().any(|line| line.starts_with(row)), "{row} is missing in:\n{text}");
        }
    }

    /// Results are committed as they are.
    #[test]
    fn facts_hold_no_folder_and_no_kernel_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let facts = Facts::read(&folder.path().join("data"));
        assert_eq!(facts.disk.directory, "data");
        let text = serde_json::to_string(&facts).unwrap();
        let folders = [folder.path(), Path::new(env!("CARGO_MANIFEST_DIR"))];
        for folder in folders {
            assert!(!text.contains(folder.to_str().unwrap()), "{text}");
        }
        let value = serde_json::to_value(&facts).unwrap();
        assert_eq!(crate::paths::record_without_folders(value.clone()), value, "an absolute path is left");
        let command_line = "root=/dev/vda1 ro mitigations=off console=ttyS0 isolcpus=1-3 token=secret nosmt";
        assert_eq!(relevant_parameters(command_line), ["mitigations=off", "isolcpus=1-3", "nosmt"]);
    }

    #[test]
    fn the_chosen_word_stands_in_brackets() {
        assert_eq!(bracketed("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(bracketed("0"), "0");
    }

    #[test]
    fn shares_lie_between_nothing_and_all() {
        let before = CpuClock::now();
        let shares = CpuClock::now().since(&before);
        assert!((0.0..=100.0).contains(&shares.steal_percent));
        assert!(shares.busy_percent <= 100.0);
    }
}
