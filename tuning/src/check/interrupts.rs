//! Interrupts of disks and network cards against the core plan.

use crate::finding::{Finding, Verdict};
use crate::host::{Host, parse_cpu_list};

/// How an interrupt of a disk or network queue is named in `/proc/interrupts`.
const DEVICE_NAMES: [&str; 8] = ["nvme", "virtio", "eth", "ens", "enp", "mlx", "ena", "eno"];
/// Interrupts named one by one before the rest is only counted.
const NAMED_MAX: usize = 4;

pub(super) fn check(host: &Host, shard_cpus: &[u32]) -> Vec<Finding> {
    vec![affinity(host, shard_cpus), balancer(host)]
}

fn affinity(host: &Host, shard_cpus: &[u32]) -> Finding {
    let finding =
        Finding::new("interrupts.affinity", "", "an interrupt on a shard's core stops the shard in the middle of its work");
    let Some(table) = host.read("/proc/interrupts") else { return finding };
    let online = host.read("/sys/devices/system/cpu/online").and_then(|text| parse_cpu_list(&text).ok()).unwrap_or_default();
    let spare: Vec<String> = online.iter().filter(|cpu| !shard_cpus.contains(cpu)).map(u32::to_string).collect();
    if spare.is_empty() {
        return finding.found("every CPU runs a shard: interrupts have nowhere else to go");
    }
    let mut on_shards = Vec::new();
    for (number, name) in table.lines().filter_map(device_interrupt) {
        let path = format!("/proc/irq/{number}/effective_affinity_list");
        let cpus = host.read(path).and_then(|text| parse_cpu_list(&text).ok()).unwrap_or_default();
        if cpus.iter().any(|cpu| shard_cpus.contains(cpu)) {
            on_shards.push((number, name));
        }
    }
    let spare = spare.join(",");
    let mut text: Vec<String> = on_shards.iter().take(NAMED_MAX).map(|(number, name)| format!("{name} (irq {number})")).collect();
    if on_shards.len() > NAMED_MAX {
        text.push(format!("{} more", on_shards.len() - NAMED_MAX));
    }
    let numbers: Vec<String> = on_shards.iter().map(|(number, _)| number.to_string()).collect();
    let finding = finding
        .wanted(format!("disk and network interrupts on CPUs {spare}"))
        .fix(format!("for irq in {}; do echo {spare} > /proc/irq/$irq/smp_affinity_list; done", numbers.join(" ")));
    match on_shards.is_empty() {
        true => finding.found("no disk or network interrupt on a shard's CPU").judge(true, Verdict::Warning),
        false => finding.found(format!("on shard CPUs: {}", text.join(", "))).judge(false, Verdict::Warning),
    }
}

fn balancer(host: &Host) -> Finding {
    let finding = Finding::new("interrupts.irqbalance", "", "irqbalance moves interrupts back onto the shards' cores")
        .wanted("not running, or told the shards' cores by IRQBALANCE_BANNED_CPULIST")
        .fix("systemctl disable --now irqbalance");
    let is_balancer = |pid: &String| host.read(format!("/proc/{pid}/comm")).is_some_and(|name| name == "irqbalance");
    let running = host.list("/proc").iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).any(is_balancer);
    finding.found(if running { "running" } else { "not running" }).judge(!running, Verdict::Warning)
}

/// Number and name of a line of `/proc/interrupts` that belongs to a disk or network queue.
fn device_interrupt(line: &str) -> Option<(u32, String)> {
    let (number, rest) = line.trim_start().split_once(':')?;
    let number = number.parse().ok()?;
    let name = rest.split_whitespace().last()?;
    let is_device = DEVICE_NAMES.iter().any(|device| name.starts_with(device)) && !name.ends_with("config");
    is_device.then(|| (number, name.to_owned()))
}
