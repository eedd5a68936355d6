//! A host made of files in a temporary folder, well tuned until a test spoils it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tuning::finding::{Finding, Verdict};
use tuning::host::{Host, Limits};

pub(crate) struct FakeHost {
    root: TempDir,
    pub(crate) limits: Limits,
}

impl FakeHost {
    pub(crate) fn well_tuned() -> Self {
        let limits = Limits { open_files_max: Some(1 << 20), locked_memory_bytes_max: None, may_lock_any_memory: false };
        let host = FakeHost { root: tempfile::tempdir().unwrap(), limits };
        host.set("/proc/sys/kernel/osrelease", "6.12.1-amd64");
        host.set("/proc/sys/kernel/io_uring_disabled", "0");
        host.set("/proc/sys/net/core/somaxconn", "4096");
        host.set("/proc/sys/vm/swappiness", "1");
        host.set("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 8 0 -2");
        host.set("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
        host.set("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc");
        host.set("/sys/devices/system/cpu/online", "0-3");
        for cpu in 0..4 {
            host.set(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), "performance");
        }
        host.set("/proc/self/mountinfo", "36 35 259:1 / /nvme0 rw,noatime shared:1 - xfs /dev/nvme0n1p1 rw,attr2");
        host.set("/sys/block/nvme0n1/nvme0n1p1/partition", "1");
        host.set("/sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline");
        host.set("/sys/block/nvme0n1/queue/nomerges", "2");
        host.set("/sys/block/nvme0n1/queue/write_cache", "write through");
        host.set("/sys/block/nvme0n1/queue/fua", "1");
        host.set("/sys/block/nvme0n1/queue/logical_block_size", "4096");
        host.set("/sys/block/nvme0n1/queue/io_poll", "1");
        let link = host.path("/sys/dev/block/259:1");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("../../block/nvme0n1/nvme0n1p1", link).unwrap();
        host.set("/proc/interrupts", "      CPU0 CPU1\n 24: 1 2 PCI-MSIX 1-edge nvme0q1\n 25: 0 0 IO-APIC 4-edge ttyS0");
        host.set("/proc/irq/24/effective_affinity_list", "0");
        host.set("/proc/irq/25/effective_affinity_list", "2");
        host.set("/proc/1/comm", "init");
        host
    }

    pub(crate) fn set(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).unwrap();
    }

    /// Findings for a broker with its data on /nvme0 and shards on CPUs 1 to 3.
    pub(crate) fn check(&self) -> Vec<Finding> {
        let host = Host::fake(self.root.path(), self.limits);
        tuning::check::run(&host, &[PathBuf::from("/nvme0/corelane")], Some(&[1, 2, 3]))
    }

    pub(crate) fn verdict(&self, item: &str) -> Verdict {
        self.finding(item).verdict
    }

    pub(crate) fn finding(&self, item: &str) -> Finding {
        self.check().into_iter().find(|finding| finding.item == item).unwrap_or_else(|| panic!("no finding {item}"))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(Path::new(path).strip_prefix("/").unwrap())
    }
}
