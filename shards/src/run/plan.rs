use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use super::cpu_list::{CpuListError, parse_cpu_list, render_cpu_list};
use crate::SHARDS_MAX;

/// Which cores the shards are to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CoreSpec {
    /// All cores but one, which is left for housekeeping; all when there is only one.
    #[default]
    AllButOne,
    /// So many cores, the last ones of those allowed.
    Count(u16),
    /// These processors.
    List(Vec<u32>),
}

/// A text that says neither a count nor a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreSpecError {
    /// Not a list of processors.
    #[error(transparent)]
    List(#[from] CpuListError),
    /// No shards at all.
    #[error("a broker needs at least one core")]
    Zero,
}

impl FromStr for CoreSpec {
    type Err = CoreSpecError;

    /// A single number is a count; "4-4" is the processor 4 alone.
    fn from_str(text: &str) -> Result<CoreSpec, CoreSpecError> {
        match text.trim().parse::<u16>() {
            Ok(0) => Err(CoreSpecError::Zero),
            Ok(count) => Ok(CoreSpec::Count(count)),
            Err(_) => Ok(CoreSpec::List(parse_cpu_list(text)?)),
        }
    }
}

/// A core of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// The processor number.
    pub cpu: u32,
    /// The NUMA node of its memory, when the host says.
    pub numa_node: Option<u32>,
    /// The processors that share the physical core, without this one.
    pub siblings: Vec<u32>,
}

/// Which shard runs where, and what is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorePlan {
    /// One per shard, in the order of the shards.
    pub shards: Vec<Core>,
    /// Processors for all other threads. Those of the shards when nothing is left.
    pub housekeeping: Vec<u32>,
}

/// The plan cannot be made on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorePlanError {
    /// More shards than processors.
    #[error("{wanted} cores are wanted, but this process may use {} ({})", .allowed.len(), render_cpu_list(.allowed))]
    TooMany {
        /// Cores that were asked for.
        wanted: usize,
        /// Processors that this process may use.
        allowed: Vec<u32>,
    },
    /// A processor that is not there or not allowed.
    #[error("processor {cpu} cannot be used; this process may use {}", render_cpu_list(.allowed))]
    NotAllowed {
        /// The processor that was asked for.
        cpu: u32,
        /// Processors that this process may use.
        allowed: Vec<u32>,
    },
    /// A processor for housekeeping is also a shard's.
    #[error("processor {cpu} cannot be both a shard's and for housekeeping")]
    Both {
        /// The processor in both lists.
        cpu: u32,
    },
    /// The kernel did not say which processors may be used.
    #[error("cannot read the affinity of this process: {0}")]
    Affinity(String),
}

impl CorePlan {
    /// The plan on this host, within the affinity of this process (taskset, cgroup cpusets).
    pub fn detect(spec: &CoreSpec, housekeeping: Option<&[u32]>) -> Result<CorePlan, CorePlanError> {
        let allowed = crate::real::affinity::allowed_cpus().map_err(|error| CorePlanError::Affinity(error.to_string()))?;
        CorePlan::plan(spec, housekeeping, &allowed, Path::new("/sys"))
    }

    /// The plan for a host whose sysfs is at `sysfs` and where `allowed` processors (ascending) may be used.
    pub fn plan(spec: &CoreSpec, housekeeping: Option<&[u32]>, allowed: &[u32], sysfs: &Path) -> Result<CorePlan, CorePlanError> {
        assert!(!allowed.is_empty());
        let free: Vec<u32> = allowed.iter().copied().filter(|cpu| !housekeeping.is_some_and(|kept| kept.contains(cpu))).collect();
        let too_many = |wanted| CorePlanError::TooMany { wanted, allowed: allowed.to_vec() };
        let not_allowed = |cpu| CorePlanError::NotAllowed { cpu, allowed: allowed.to_vec() };
        if let Some(cpu) = housekeeping.unwrap_or_default().iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(not_allowed(*cpu));
        }
        let cpus = match spec {
            CoreSpec::AllButOne if housekeeping.is_some() || free.len() == 1 => free,
            CoreSpec::AllButOne => free[1..].to_vec(),
            CoreSpec::Count(count) => {
                let count = usize::from(*count);
                let skipped = free.len().checked_sub(count).ok_or_else(|| too_many(count))?;
                free[skipped..].to_vec()
            }
            CoreSpec::List(cpus) => {
                if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                    return Err(not_allowed(*cpu));
                }
                if let Some(cpu) = cpus.iter().find(|cpu| !free.contains(cpu)) {
                    return Err(CorePlanError::Both { cpu: *cpu });
                }
                cpus.clone()
            }
        };
        if cpus.is_empty() || cpus.len() > SHARDS_MAX {
            return Err(too_many(cpus.len()));
        }
        let left: Vec<u32> = match housekeeping {
            Some(kept) => kept.to_vec(),
            None => allowed.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect(),
        };
        let housekeeping = if left.is_empty() { cpus.clone() } else { left };
        Ok(CorePlan { shards: cpus.into_iter().map(|cpu| Core::read(cpu, sysfs)).collect(), housekeeping })
    }

    /// `count` shards on the allowed processors, several on one when there are not enough: for tests and small machines.
    pub fn shared(count: u16) -> Result<CorePlan, CorePlanError> {
        assert!(count > 0);
        let allowed = crate::real::affinity::allowed_cpus().map_err(|error| CorePlanError::Affinity(error.to_string()))?;
        let cpus = allowed.iter().rev().copied().cycle().take(usize::from(count));
        let shards = cpus.map(|cpu| Core::read(cpu, Path::new("/sys"))).collect();
        Ok(CorePlan { shards, housekeeping: allowed })
    }

    /// Keeps the calling thread, and those that it will start, off the shards' cores as far as there are others. The shards pin
    /// themselves.
    pub fn enter_housekeeping(&self) {
        crate::real::affinity::pin_to(&self.housekeeping);
    }

    /// Number of shards.
    pub fn shard_count(&self) -> u16 {
        u16::try_from(self.shards.len()).expect("a plan has at most SHARDS_MAX shards")
    }

    /// Shards that share a physical core, as pairs of processors: they slow each other down.
    pub fn siblings_in_use(&self) -> Vec<(u32, u32)> {
        let used = |cpu: u32| self.shards.iter().any(|core| core.cpu == cpu);
        let pairs = self.shards.iter().flat_map(|core| core.siblings.iter().map(|sibling| (core.cpu, *sibling)));
        pairs.filter(|(cpu, sibling)| cpu < sibling && used(*sibling)).collect()
    }
}

impl Core {
    fn read(cpu: u32, sysfs: &Path) -> Core {
        let folder = sysfs.join(format!("devices/system/cpu/cpu{cpu}"));
        let siblings = fs::read_to_string(folder.join("topology/thread_siblings_list"))
            .ok()
            .and_then(|text| parse_cpu_list(&text).ok())
            .unwrap_or_default();
        let node = fs::read_dir(&folder).ok().and_then(|entries| {
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).min()
        });
        Core { cpu, numa_node: node, siblings: siblings.into_iter().filter(|sibling| *sibling != cpu).collect() }
    }
}

impl fmt::Display for CorePlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shard, core) in self.shards.iter().enumerate() {
            write!(formatter, "shard {shard}: cpu {}", core.cpu)?;
            if let Some(node) = core.numa_node {
                write!(formatter, ", numa node {node}")?;
            }
            if !core.siblings.is_empty() {
                write!(formatter, ", shares its core with cpu {}", render_cpu_list(&core.siblings))?;
            }
            writeln!(formatter)?;
        }
        write!(formatter, "housekeeping: cpu {}", render_cpu_list(&self.housekeeping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four processors, two per physical core, one NUMA node per core.
    fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for cpu in 0..4u32 {
            let folder = root.path().join(format!("devices/system/cpu/cpu{cpu}"));
            fs::create_dir_all(folder.join("topology")).unwrap();
            fs::create_dir(folder.join(format!("node{}", cpu % 2))).unwrap();
            fs::write(folder.join("topology/thread_siblings_list"), format!("{},{}\n", cpu % 2, cpu % 2 + 2)).unwrap();
        }
        root
    }

    fn check(spec: &str, housekeeping: Option<&[u32]>, allowed: &[u32]) -> Result<(Vec<u32>, Vec<u32>), CorePlanError> {
        let root = host();
        let spec = if spec.is_empty() { CoreSpec::AllButOne } else { spec.parse().unwrap() };
        let plan = CorePlan::plan(&spec, housekeeping, allowed, root.path())?;
        Ok((plan.shards.iter().map(|core| core.cpu).collect(), plan.housekeeping))
    }

    #[test]
    fn the_first_core_is_left_for_housekeeping() {
        assert_eq!(check("", None, &[0, 1, 2, 3]).unwrap(), (vec![1, 2, 3], vec![0]));
        assert_eq!(check("", None, &[2, 3]).unwrap(), (vec![3], vec![2]));
        assert_eq!(check("", None, &[2]).unwrap(), (vec![2], vec![2]));
        assert_eq!(check("2", None, &[0, 1, 2, 3]).unwrap(), (vec![2, 3], vec![0, 1]));
        assert_eq!(check("0-1,3", None, &[0, 1, 2, 3]).unwrap(), (vec![0, 1, 3], vec![2]));
        assert_eq!(check("", Some(&[3]), &[0, 1, 2, 3]).unwrap(), (vec![0, 1, 2], vec![3]));
    }

    #[test]
    fn what_the_host_does_not_allow_is_refused() {
        assert!(matches!(check("3", None, &[0, 1]), Err(CorePlanError::TooMany { wanted: 3, .. })));
        assert!(matches!(check("1-2", None, &[0, 1]), Err(CorePlanError::NotAllowed { cpu: 2, .. })));
        assert!(matches!(check("0-1", Some(&[1]), &[0, 1]), Err(CorePlanError::Both { cpu: 1 })));
        assert!(matches!(check("0-0", Some(&[9]), &[0, 1]), Err(CorePlanError::NotAllowed { cpu: 9, .. })));
        assert_eq!("0".parse::<CoreSpec>(), Err(CoreSpecError::Zero));
    }

    #[test]
    fn the_plan_names_node_and_siblings() {
        let root = host();
        let plan = CorePlan::plan(&CoreSpec::Count(3), None, &[0, 1, 2, 3], root.path()).unwrap();
        assert_eq!(plan.siblings_in_use(), vec![(1, 3)]);
        assert_eq!(
            plan.to_string(),
            "shard 0: cpu 1, numa node 1, shares its core with cpu 3\n\
             shard 1: cpu 2, numa node 0, shares its core with cpu 0\n\
             shard 2: cpu 3, numa node 1, shares its core with cpu 1\n\
             housekeeping: cpu 0"
        );
    }
}
