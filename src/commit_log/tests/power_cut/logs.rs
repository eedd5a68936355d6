//! The logs of all shards of one start, as a broker starts them: recover what is there, open what there is to be, forget what has moved.

use std::path::Path;

use commit_log::{LogFailed, LogOptions, PartitionLog, PartitionState, ShardDirectory, ShardLog, newest, recover, retire};
use shards::disk;
use wire::PartitionKey;

use crate::coverage::Coverage;

/// One log for each shard.
#[derive(Clone, Default)]
pub(crate) struct Logs {
    logs: Vec<ShardLog>,
}

/// What recovery of all directories came to.
#[derive(Default)]
pub(crate) struct Found {
    directories: Vec<ShardDirectory>,
    states: Vec<PartitionState>,
    boot_max: u64,
    pub(crate) lossy: Vec<(PartitionKey, String)>,
}

impl Found {
    /// Recovers every shard directory of the disk.
    pub(crate) async fn recover(disk: &Path, coverage: impl Fn(&mut dyn FnMut(&mut Coverage))) -> Result<Self, String> {
        let mut found = Self::default();
        let entries = disk::list_dir(disk).await.map_err(|error| error.to_string())?;
        let numbers = entries.iter().filter_map(|entry| ShardDirectory::parse_name(&entry.name));
        found.directories = numbers.map(|number| ShardDirectory::new(disk, number)).collect();
        for directory in &found.directories {
            let recovered = recover(directory).await.map_err(|error| error.to_string())?;
            coverage(&mut |coverage| {
                coverage.blocks_replayed += recovered.report.replayed_blocks;
                coverage.batches_replayed += recovered.report.replayed_batches;
                coverage.direct_bytes_recovered += recovered.report.direct_bytes;
            });
            found.boot_max = found.boot_max.max(recovered.boot_max);
            found.states.extend(recovered.partitions);
            found.lossy.extend(recovered.report.lossy);
        }
        found.states = newest(found.states);
        Ok(found)
    }

    /// Those of the partitions that lost something.
    pub(crate) fn hit(&self) -> Vec<&PartitionState> {
        self.states.iter().filter(|state| self.lossy.iter().any(|(key, _)| *key == state.key)).collect()
    }

    /// Opens the logs of `shards` shards.
    pub(crate) async fn open(self, disk: &Path, options: &LogOptions, shards: u16) -> Result<Logs, String> {
        let mut logs = Logs::default();
        for shard in 0..shards {
            let owned = self.states.iter().filter(|state| owner(state.key, shards) == shard).cloned().collect();
            let options = LogOptions { boot: self.boot_max + 1, ..options.clone() };
            let opened = ShardLog::open(options, ShardDirectory::new(disk, shard), owned).await;
            logs.logs.push(opened.map_err(|error| error.to_string())?);
        }
        for log in &logs.logs {
            log.forget_moved().await.map_err(|error| error.to_string())?;
        }
        for directory in self.directories.iter().filter(|directory| directory.number() >= shards) {
            retire(directory).await.map_err(|error| error.to_string())?;
        }
        Ok(logs)
    }
}

fn owner(key: PartitionKey, shards: u16) -> u16 {
    (key.partition.0 % u32::from(shards)) as u16
}

impl Logs {
    pub(crate) fn all(&self) -> &[ShardLog] {
        &self.logs
    }

    /// The log that has, or would have, a partition.
    pub(crate) fn of(&self, key: PartitionKey) -> &ShardLog {
        &self.logs[usize::from(owner(key, self.logs.len() as u16))]
    }

    pub(crate) fn partition(&self, key: PartitionKey) -> Option<PartitionLog> {
        self.of(key).partition(key)
    }

    /// All partitions, in the order of their keys.
    pub(crate) fn partitions(&self) -> Vec<PartitionLog> {
        let mut partitions: Vec<_> = self.logs.iter().flat_map(ShardLog::partitions).collect();
        partitions.sort_by_key(PartitionLog::key);
        partitions
    }

    pub(crate) fn failure(&self) -> Option<LogFailed> {
        self.logs.iter().find_map(ShardLog::failure)
    }

    pub(crate) async fn close(&self) -> Result<(), LogFailed> {
        for log in &self.logs {
            log.close().await?;
        }
        Ok(())
    }
}
