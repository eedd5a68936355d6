//! Frequency governor and clock source.

use crate::finding::{Finding, Verdict};
use crate::host::Host;

pub(super) fn check(host: &Host) -> Vec<Finding> {
    vec![governor(host), clock_source(host)]
}

fn governor(host: &Host) -> Finding {
    let finding = Finding::new("cpu.governor", "", "a core that clocks down between commits adds its ramp-up to every latency")
        .wanted("performance on every core")
        .fix("cpupower frequency-set -g performance");
    let mut governors: Vec<String> = host
        .list("/sys/devices/system/cpu")
        .iter()
        .filter_map(|cpu| host.read(format!("/sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor")))
        .collect();
    governors.sort();
    governors.dedup();
    if governors.is_empty() {
        return finding.found("no frequency scaling shown (usual on a virtual machine)");
    }
    let good = governors == ["performance"];
    finding.found(governors.join(", ")).judge(good, Verdict::Warning)
}

fn clock_source(host: &Host) -> Finding {
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    /// Sources read in user space by the vDSO.
    const FAST: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];
    let finding =
        Finding::new("cpu.clock_source", "", "other sources make each clock reading a system call or a slow device read")
            .wanted("tsc")
            .fix(format!("echo tsc > {FOLDER}/current_clocksource"));
    let Some(value) = host.read(format!("{FOLDER}/current_clocksource")) else { return finding };
    let good = FAST.contains(&value.as_str());
    finding.found(value).judge(good, Verdict::Warning)
}

/// The word in brackets of a sysfs choice such as `always [madvise] never`; a text without brackets is its own choice.
pub(super) fn chosen(text: &str) -> Option<String> {
    if !text.contains('[') {
        return text.split_whitespace().next().map(str::to_owned);
    }
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}
