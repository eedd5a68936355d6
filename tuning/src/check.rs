//! Every check of the host, in one list.

mod cpu;
mod disk;
mod interrupts;
mod kernel;
mod memory;

use std::path::PathBuf;

use crate::finding::Finding;
use crate::host::Host;

/// Checks the host for a broker with these data directories and shard CPUs. Reads only.
///
/// What the host does not show is a finding with the verdict `Unknown`, never an error.
pub fn run(host: &Host, data_dirs: &[PathBuf], shard_cpus: Option<&[u32]>) -> Vec<Finding> {
    let mut findings = kernel::check(host);
    findings.extend(memory::check(host));
    findings.extend(cpu::check(host));
    let mut disks = Vec::new();
    for data_dir in data_dirs {
        findings.extend(disk::check_file_system(host, data_dir));
        let disk = host.mount_of(data_dir).and_then(|mount| host.disk_of(&mount.device));
        match disk {
            Some(disk) if !disks.contains(&disk) => {
                findings.extend(disk::check_device(host, &disk));
                disks.push(disk);
            }
            Some(_) => {}
            None => findings.push(disk::no_device(data_dir)),
        }
    }
    if let Some(cpus) = shard_cpus {
        findings.extend(interrupts::check(host, cpus));
    }
    findings
}
