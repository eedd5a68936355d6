//! The host as files below a root: the real one, or a made-up one in a test.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// A host whose `sys`, `proc` and data directories stand below one root.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
    limits: Limits,
}

/// Resource limits of the process that asks, in force for a broker started from the same shell or unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open files (RLIMIT_NOFILE, soft); `None` is unlimited.
    pub open_files_max: Option<u64>,
    /// Locked memory (RLIMIT_MEMLOCK, soft); `None` is unlimited.
    pub locked_memory_bytes_max: Option<u64>,
    /// Whether the process may lock memory beyond the limit (CAP_IPC_LOCK).
    pub may_lock_any_memory: bool,
}

/// One mounted file system, from `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the device.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// File system type, such as `xfs`.
    pub file_system: String,
    /// Mount options of the mount and of the file system.
    pub options: Vec<String>,
}

impl Host {
    /// The machine that this process runs on.
    pub fn real() -> Self {
        let soft = |resource| getrlimit(resource).current;
        let capabilities = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = Limits {
            open_files_max: soft(Resource::Nofile),
            locked_memory_bytes_max: soft(Resource::Memlock),
            may_lock_any_memory: has_ipc_lock(&capabilities),
        };
        Host { root: PathBuf::from("/"), limits }
    }

    /// A host made of files below `root`, for tests.
    pub fn fake(root: impl Into<PathBuf>, limits: Limits) -> Self {
        Host { root: root.into(), limits }
    }

    /// The resource limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The trimmed text of a file given by its absolute path, or `None` where it cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.below(path.as_ref())).ok()?;
        Some(text.trim().to_owned())
    }

    /// Names in a folder given by its absolute path, sorted; empty where there is none.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.below(path.as_ref())) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
        names.sort();
        names
    }

    /// Every mounted file system.
    pub fn mounts(&self) -> Vec<Mount> {
        self.read("/proc/self/mountinfo").unwrap_or_default().lines().filter_map(parse_mount).collect()
    }

    /// The mount that holds `path`: the one with the longest mount point that is a prefix of it.
    ///
    /// A path that does not exist yet belongs to the mount of its nearest existing parent, which is the same one.
    pub fn mount_of(&self, path: &Path) -> Option<Mount> {
        let absolute = self.absolute(path);
        let mounts = self.mounts().into_iter().filter(|mount| absolute.starts_with(&mount.mount_point));
        mounts.max_by_key(|mount| mount.mount_point.as_os_str().len())
    }

    /// Name of the whole disk (`nvme0n1`, `vda`) behind `major:minor`, also where that is a partition.
    pub fn disk_of(&self, device: &str) -> Option<String> {
        let link = std::fs::read_link(self.below(Path::new(&format!("/sys/dev/block/{device}")))).ok()?;
        let name = link.file_name()?.to_string_lossy().into_owned();
        let is_partition = self.read(format!("/sys/dev/block/{device}/partition")).is_some();
        if !is_partition {
            return Some(name);
        }
        Some(link.parent()?.file_name()?.to_string_lossy().into_owned())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        let joined = match (path.is_absolute(), std::env::current_dir()) {
            (false, Ok(folder)) => folder.join(path),
            _ => path.to_owned(),
        };
        if self.root != Path::new("/") {
            return joined;
        }
        let mut existing = joined.as_path();
        while !existing.exists() {
            let Some(parent) = existing.parent() else { return joined };
            existing = parent;
        }
        match (existing.canonicalize(), joined.strip_prefix(existing)) {
            (Ok(real), Ok(rest)) => real.join(rest),
            _ => joined,
        }
    }

    fn below(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// The CPUs of a list such as `0-3,8`.
///
/// # Errors
///
/// What is wrong with the text: an empty part, not a number, a range that runs backwards.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, String> {
    let number = |part: &str| part.trim().parse::<u32>().map_err(|_| format!("`{part}` is not a CPU number"));
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => cpus.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first || last - first > CPUS_MAX {
                    return Err(format!("`{part}` is not a range of CPUs"));
                }
                cpus.extend(first..=last);
            }
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Longest range that a CPU list may name; Linux itself stops at 8,192 CPUs.
const CPUS_MAX: u32 = 8192;

/// Bit of CAP_IPC_LOCK in the capability masks of `/proc/self/status` (linux/capability.h).
const CAP_IPC_LOCK_BIT: u32 = 14;

fn has_ipc_lock(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << CAP_IPC_LOCK_BIT) != 0)
}

/// Parses a line of mountinfo (proc(5)): `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    let mut rest = file_system.split(' ');
    let kind = rest.next()?;
    let super_options = rest.nth(1).unwrap_or_default();
    let options = fields.get(5)?.split(',').chain(super_options.split(',')).filter(|option| !option.is_empty());
    Some(Mount {
        device: (*fields.get(2)?).to_owned(),
        mount_point: PathBuf::from(unescape(fields.get(4)?)),
        file_system: kind.to_owned(),
        options: options.map(str::to_owned).collect(),
    })
}

/// Undoes the octal escapes of mountinfo for blank, tab, newline and backslash.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5"), Ok(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list("3,3,1"), Ok(vec![1, 3]));
        for bad in ["", "a", "3-1", "1-", "0-999999999"] {
            assert!(parse_cpu_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mount_point_with_a_blank_is_read() {
        let mount = parse_mount("36 35 259:1 / /my\\040disk rw,noatime shared:1 - xfs /dev/nvme0n1p1 rw,attr2").unwrap();
        assert_eq!(mount.mount_point, Path::new("/my disk"));
        assert_eq!(mount.device, "259:1");
        assert_eq!(mount.file_system, "xfs");
        assert_eq!(mount.options, ["rw", "noatime", "rw", "attr2"]);
    }

    #[test]
    fn the_lock_capability_is_bit_14() {
        assert!(has_ipc_lock("Name:\tx\nCapEff:\t0000000000004000\n"));
        assert!(!has_ipc_lock("Name:\tx\nCapEff:\t0000000000003fff\n"));
    }
}
