//! What runs where: cores, disks, directories, partitions.

use super::{
    Assigned, BrokerError,
    sizes::{Host, Sizes},
};
use crate::{
    config::{Config, ConfigError, PlacementRules, owner},
    data_directory::DataDirectory,
    io_profile,
    metadata::Topic,
};
use commit_log::{LogOptions, PartitionState, ShardDirectory};
use hashbrown::HashMap;
use shards::run::{CorePlan, CoreSpec, parse_cpu_list};
use std::{fs, path::PathBuf, sync::Arc};
use wire::TopicId;

/// The plan of one start.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) cores: CorePlan,
    /// Registered I/O memory of each shard.
    pub(super) io_bytes: u64,
    pub(super) rules: PlacementRules,
    /// Each shard's own directory.
    pub(super) own: Vec<ShardDirectory>,
    /// For each shard the directories it recovers: those found on disk, whatever the number of shards was when they were written.
    pub(super) found: Vec<Vec<ShardDirectory>>,
    pub(super) log: Vec<LogOptions>,
    /// The shards of each topic that the metadata knows.
    pub(super) topics: HashMap<TopicId, Vec<u16>>,
}

impl Plan {
    /// Makes the plan, checks that this host can carry it out, and says what it is.
    pub(super) fn make(config: &Config, directory: &DataDirectory) -> Result<Plan, BrokerError> {
        let cores = cores(config)?;
        let count = cores.shard_count();
        config.validate_shard_count(count)?;
        let sizes = Sizes::fit(config, count, &Host::look());
        tracing::info!("{sizes}");
        let disks: Vec<_> = directory.disks.iter().map(PathBuf::as_path).collect();
        let report = shards::probe::probe(&disks, sizes.io_bytes * u64::from(count))?;
        tracing::info!("{report}");
        for disk in report.disks.iter().filter(|disk| disk.file_system == "tmpfs") {
            tracing::warn!("{}: tmpfs is memory: nothing in it survives a restart of the host", disk.directory.display());
        }
        tracing::info!("{cores}");
        for (one, other) in cores.siblings_in_use() {
            tracing::warn!("cpu {one} and cpu {other} share one physical core: their shards slow each other down");
        }
        let rules = PlacementRules::new(&config.placement, count);
        let rules = rules.map_err(|error| ConfigError::Invalid { key: "placement.topic", what: error.to_string() })?;
        let own: Vec<ShardDirectory> =
            (0..count).map(|shard| ShardDirectory::new(disk_of(config, directory, shard), shard)).collect();
        let log = own.iter().map(|own| log_options(config, &sizes, directory.superblock.boot, own)).collect();
        let found = found_directories(&directory.disks, count)?;
        Ok(Plan { cores, io_bytes: sizes.io_bytes, rules, own, found, log, topics: HashMap::new() })
    }

    /// Learns the names of the topics: they decide who owns a partition.
    pub(super) fn know_topics<'a>(&mut self, topics: impl Iterator<Item = &'a Arc<Topic>>) {
        self.topics.extend(topics.map(|topic| (topic.id, self.rules.shards_of(&topic.name).to_vec())));
    }

    /// Gives every partition to the shard that owns it now. A partition that two directories name has moved: the later boot counts.
    pub(super) fn assign(&self, states: Vec<PartitionState>) -> Assigned {
        let all: Vec<u16> = (0..self.cores.shard_count()).collect();
        let mut assigned: Assigned = all.iter().map(|_| Vec::new()).collect();
        for state in commit_log::newest(states) {
            let key = state.key;
            let shards = self.topics.get(&key.topic).unwrap_or(&all);
            assigned[usize::from(owner(shards, key.topic, key.partition))].push(state);
        }
        for states in &mut assigned {
            states.sort_by_key(|state| state.key);
        }
        assigned
    }
}

fn cores(config: &Config) -> Result<CorePlan, BrokerError> {
    let invalid = |key, what: String| BrokerError::Config(ConfigError::Invalid { key, what });
    let housekeeping = config.cores.housekeeping.trim();
    let housekeeping = if housekeeping.is_empty() { None } else { Some(parse_cpu_list(housekeeping)) };
    let housekeeping = housekeeping.transpose().map_err(|error| invalid("cores.housekeeping", error.to_string()))?;
    let spec = match config.cores.shards.trim() {
        "auto" => CoreSpec::AllButOne,
        text => text.parse().map_err(|error: shards::run::CoreSpecError| invalid("cores.shards", error.to_string()))?,
    };
    match (&spec, config.cores.share) {
        (CoreSpec::Count(count), true) => Ok(CorePlan::shared(*count)?),
        (CoreSpec::AllButOne | CoreSpec::List(_), true) => {
            Err(invalid("cores.share", "needs a count in cores.shards".to_owned()))
        }
        (CoreSpec::AllButOne, false) => Ok(within_locked_memory(CorePlan::detect(&spec, housekeeping.as_deref())?)),
        (CoreSpec::Count(_) | CoreSpec::List(_), false) => Ok(CorePlan::detect(&spec, housekeeping.as_deref())?),
    }
}

/// Nobody asked for so many cores: better fewer shards than no start on a host that was not set up.
fn within_locked_memory(mut cores: CorePlan) -> CorePlan {
    let least = shards::IO_MEMORY_BYTES_MIN as u64;
    let fitting = shards::probe::io_memory_bytes_allowed().map_or(u64::MAX, |bytes| (bytes / least).max(1));
    let found = cores.shards.len();
    if found as u64 > fitting {
        let kept = usize::try_from(fitting).unwrap_or(usize::MAX);
        tracing::warn!(
            "{kept} of {found} cores are used: the limit of locked memory is too low for more shards; raise it \
             (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service)"
        );
        cores.shards.drain(..found - kept);
    }
    cores
}

/// The disk that a shard writes to: the one that names it, else in turn.
fn disk_of(config: &Config, directory: &DataDirectory, shard: u16) -> PathBuf {
    let named = config.disk.iter().position(|disk| disk.shards.as_ref().is_some_and(|shards| shards.as_slice().contains(&shard)));
    directory.disks[named.unwrap_or(usize::from(shard) % directory.disks.len())].clone()
}

fn log_options(config: &Config, sizes: &Sizes, boot: u64, own: &ShardDirectory) -> LogOptions {
    let mut options = LogOptions {
        boot,
        wal_bytes_max: config.log.wal_bytes_max.0,
        wal_file_bytes: config.log.wal_file_bytes.0,
        append_queue_bytes_max: config.memory.append_bytes_max.0,
        tail_cache_bytes_max: sizes.tail_cache_bytes,
        unflushed_bytes_max: sizes.unflushed_bytes,
        read_cache_bytes_max: config.memory.read_cache_bytes.0,
        relaxed_flush_ms_max: u64::try_from(config.log.relaxed_within.0.as_millis()).unwrap_or(u64::MAX),
        producer_idle_ms_max: u64::try_from(config.log.producers_kept.0.as_millis()).unwrap_or(u64::MAX),
        compaction_bytes_per_second: config.log.compaction_bytes_per_second.0,
        scrub_bytes_per_second: config.log.scrub_bytes_per_second.0,
        scrub_pause_ms: u64::try_from(config.log.scrub_interval.0.as_millis()).unwrap_or(u64::MAX),
        compaction_table_bytes_max: config.memory.compaction_bytes.0,
        open_files_max: sizes.open_files_max as usize,
        free_bytes_min: config.log.free_bytes_min.0,
        free_bytes_resume: config.log.free_bytes_resume.0,
        ..LogOptions::default()
    };
    io_profile::apply(&mut options, &config.log.io_profile, own.disk());
    options
}

/// Every shard directory on the disks, each for exactly one shard.
fn found_directories(disks: &[PathBuf], count: u16) -> Result<Vec<Vec<ShardDirectory>>, BrokerError> {
    let mut found = vec![Vec::new(); usize::from(count)];
    for disk in disks {
        let system = |source| BrokerError::System { what: "list a disk's folder", source };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(disk).map_err(system)? {
            let name = entry.map_err(system)?.file_name();
            numbers.extend(name.to_str().and_then(ShardDirectory::parse_name));
        }
        numbers.sort_unstable();
        for number in numbers {
            found[usize::from(number % count)].push(ShardDirectory::new(disk.clone(), number));
        }
    }
    Ok(found)
}
