//! Each setting, spoiled alone, is the only one that is found.

use tuning::finding::{self, Verdict};

use crate::fake_host::FakeHost;

#[test]
fn a_well_tuned_host_has_nothing_to_fix() {
    let findings = FakeHost::well_tuned().check();
    let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Good).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(findings.len(), 18);
}

#[test]
fn each_spoiled_setting_is_found_alone_with_its_remedy() {
    let cases = [
        ("/proc/sys/kernel/osrelease", "5.10.0-9", "kernel.version", Verdict::Wrong),
        ("/proc/sys/kernel/io_uring_disabled", "2", "kernel.io_uring", Verdict::Wrong),
        ("/proc/sys/net/core/somaxconn", "128", "network.backlog", Verdict::Warning),
        ("/proc/sys/vm/swappiness", "60", "memory.swappiness", Verdict::Warning),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "memory.huge_pages", Verdict::Warning),
        ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet", "cpu.clock_source", Verdict::Warning),
        ("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave", "cpu.governor", Verdict::Warning),
        ("/sys/block/nvme0n1/queue/scheduler", "none [bfq]", "disk.scheduler", Verdict::Warning),
        ("/sys/block/nvme0n1/queue/nomerges", "0", "disk.nomerges", Verdict::Warning),
        ("/sys/block/nvme0n1/queue/write_cache", "write back", "disk.write_cache", Verdict::Warning),
        ("/sys/block/nvme0n1/queue/logical_block_size", "512", "disk.block_size", Verdict::Warning),
        ("/sys/block/nvme0n1/queue/logical_block_size", "16384", "disk.block_size", Verdict::Wrong),
        ("/proc/self/mountinfo", "36 35 259:1 / / rw,noatime - btrfs /dev/x rw", "disk.file_system", Verdict::Warning),
        ("/proc/self/mountinfo", "36 35 259:1 / / rw,noatime - tmpfs x rw", "disk.file_system", Verdict::Wrong),
        ("/proc/self/mountinfo", "36 35 259:1 / / rw - xfs /dev/x rw", "disk.mount_options", Verdict::Warning),
        ("/proc/self/mountinfo", "36 35 259:1 / / rw,noatime - ext4 /dev/x rw,nobarrier", "disk.mount_options", Verdict::Wrong),
        ("/proc/irq/24/effective_affinity_list", "2", "interrupts.affinity", Verdict::Warning),
        ("/proc/77/comm", "irqbalance", "interrupts.irqbalance", Verdict::Warning),
    ];
    for (path, text, item, verdict) in cases {
        let host = FakeHost::well_tuned();
        host.set(path, text);
        let found: Vec<_> = host.check().into_iter().filter(|finding| finding.verdict != Verdict::Good).collect();
        assert_eq!(found.len(), 1, "{path} = {text}: {found:#?}");
        assert_eq!((found[0].item, found[0].verdict), (item, verdict), "{path} = {text}");
        assert!(found[0].fix.is_some(), "{item} names no remedy");
        assert_eq!(finding::worst(&found), verdict);
    }
}

#[test]
fn limits_are_judged() {
    let mut host = FakeHost::well_tuned();
    host.limits.open_files_max = Some(1024);
    host.limits.locked_memory_bytes_max = Some(8 << 20);
    assert_eq!(host.verdict("limit.open_files"), Verdict::Warning);
    assert_eq!(host.verdict("limit.locked_memory"), Verdict::Warning);
    host.limits.locked_memory_bytes_max = Some(64 << 10);
    assert_eq!(host.verdict("limit.locked_memory"), Verdict::Wrong);
    host.limits.may_lock_any_memory = true;
    assert_eq!(host.verdict("limit.locked_memory"), Verdict::Good);
}

#[test]
fn what_the_host_hides_is_unknown_and_not_an_error() {
    let host = FakeHost::well_tuned();
    host.remove("/sys/block/nvme0n1/queue/nomerges");
    for cpu in 0..4 {
        host.remove(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
    }
    assert_eq!(host.verdict("disk.nomerges"), Verdict::Unknown);
    assert_eq!(host.verdict("cpu.governor"), Verdict::Unknown);
}

#[test]
fn the_text_names_what_was_found_why_and_the_remedy() {
    let host = FakeHost::well_tuned();
    host.set("/sys/block/nvme0n1/queue/scheduler", "none [bfq]");
    let text = finding::render(&host.check());
    let expected = "warn  disk.scheduler nvme0n1: bfq\n        wanted: none\n        why:    the broker orders its own I/O; \
                    a scheduler adds CPU time and latency\n        fix:    echo none > /sys/block/nvme0n1/queue/scheduler\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with("17 good, 1 to look at, 0 wrong, 0 not readable here\n"), "{text}");
}

#[test]
fn interrupts_have_nowhere_to_go_when_every_cpu_runs_a_shard() {
    let host = FakeHost::well_tuned();
    host.set("/sys/devices/system/cpu/online", "1-3");
    assert_eq!(host.verdict("interrupts.affinity"), Verdict::Unknown);
}
