//! Huge pages and swapping.

use super::cpu::chosen;
use crate::finding::{Finding, Verdict};
use crate::host::Host;

pub(super) fn check(host: &Host) -> Vec<Finding> {
    vec![huge_pages(host), swappiness(host)]
}

fn huge_pages(host: &Host) -> Finding {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let finding = Finding::new("memory.huge_pages", "", "fewer TLB misses on large buffers; `always` also stalls on compaction")
        .wanted("madvise")
        .fix(format!("echo madvise > {PATH}"));
    let Some(value) = host.read(PATH).and_then(|text| chosen(&text)) else { return finding };
    let good = value == "madvise";
    finding.found(value).judge(good, Verdict::Warning)
}

fn swappiness(host: &Host) -> Finding {
    let finding = Finding::new("memory.swappiness", "", "a shard that waits for a swapped page stops everything it owns")
        .wanted("at most 1, or no swap at all")
        .fix("sysctl -w vm.swappiness=1");
    let swaps = host.read("/proc/swaps").map_or(0, |text| text.lines().skip(1).count());
    let Some(value) = host.read("/proc/sys/vm/swappiness") else { return finding };
    if swaps == 0 {
        return finding.found(format!("{value}, no swap in use")).judge(true, Verdict::Warning);
    }
    let good = value.parse::<u32>().is_ok_and(|value| value <= 1);
    finding.found(format!("{value}, swap in use")).judge(good, Verdict::Warning)
}
