//! The data directory: one broker at a time, and the identity of what is stored.
//!
//! ```text
//! <data>/broker.lock        held while the broker runs (flock); its text names the holder
//! <data>/superblock         cluster id, broker id, boot number, the disks' storage ids, the shard directories on each
//! <data>/metadata/          topics (metadata.rs)
//! <disk>/disk.lock          as broker.lock, for each [[disk]] that is not the data directory
//! <disk>/disk               storage id and cluster id: a disk of another broker is refused
//! <disk>/shard-…, segments/ the log (commit_log)
//! ```
//!
//! Everything here runs before the first shard starts, on an ordinary thread.

mod file;
mod lock;
mod superblock;

pub use file::FileError;
pub(crate) use file::{read_checked, sync_folder_of, write_checked};
pub use lock::LockError;
pub(crate) use lock::{PortLock, reserve_port};
pub(crate) use superblock::Superblock;

use crate::config::Config;
use commit_log::{ShardDirectory, format::checkpoint};
use lock::{FileLock, lock_file};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use superblock::{DiskIdentity, KnownDisk};

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// The directory cannot be made or entered.
    #[error("cannot use the directory {path}: {source}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A lock is held by another.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// One of the identity files cannot be read, written or trusted.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory belongs to another broker or cluster.
    #[error("{path} belongs to {found}, but this is {wanted}: point the broker at its own directory")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Who wrote it.
        found: String,
        /// Who asks.
        wanted: String,
    },
    /// A disk the broker wrote to before is not configured any more.
    #[error(
        "disk {storage_id} of this broker, last at {path}, is not among the configured disks: its partitions would be missing"
    )]
    DiskMissing {
        /// The storage id.
        storage_id: String,
        /// Where it was at the last start.
        path: PathBuf,
    },
    /// Shard directories the broker wrote to before are gone, or what they must hold is.
    #[error(
        "acknowledged messages may be missing: {missing} is not there, or has no checkpoint; bring it back as it was, or give up everything \
         stored and start with an empty data directory and empty disks"
    )]
    ShardsMissing {
        /// Each directory with its disk.
        missing: String,
    },
}

/// The data directory and its disks, locked for this process until dropped.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    pub(crate) superblock: Superblock,
    pub(crate) metadata: PathBuf,
    /// The disks in the order of the configuration; the data directory itself when none is configured.
    pub(crate) disks: Vec<PathBuf>,
    _locks: Vec<FileLock>,
}

impl DataDirectory {
    /// Makes what is missing, takes every lock, checks every identity, and counts this boot durably.
    pub(crate) fn open(config: &Config) -> Result<DataDirectory, DataDirectoryError> {
        let data = make_directory(&config.broker.data)?;
        let mut locks = vec![lock_file(&data.join("broker.lock"))?];
        let mut disks = Vec::new();
        for disk in &config.disk {
            let path = make_directory(&disk.path)?;
            if path != data {
                locks.push(lock_file(&path.join("disk.lock"))?);
            }
            disks.push(path);
        }
        if disks.is_empty() {
            disks.push(data.clone());
        }

        let superblock_path = data.join("superblock");
        let mut superblock = match read_checked::<Superblock>(&superblock_path)? {
            Some(found) if found.broker_id == config.broker.id => found,
            Some(found) => {
                let found = format!("broker {}", found.broker_id);
                return Err(DataDirectoryError::Foreign { path: data, found, wanted: format!("broker {}", config.broker.id) });
            }
            None => Superblock::new(config.broker.id),
        };
        adopt_disks(&mut superblock, &disks)?;
        find_shards(&superblock)?;
        superblock.boot += 1;
        write_checked(&superblock_path, &superblock)?;

        let metadata = make_directory(&data.join("metadata"))?;
        Ok(DataDirectory { superblock, metadata, disks, _locks: locks })
    }

    /// From now on an empty metadata folder is damage.
    pub(crate) fn remember_metadata(&mut self) -> Result<(), DataDirectoryError> {
        self.change(|superblock| superblock.has_metadata = true)
    }

    /// From now on it is damage when one of these is gone, and no loss when any other is.
    pub(crate) fn remember_shards(&mut self, directories: &[&ShardDirectory]) -> Result<(), DataDirectoryError> {
        self.change(|superblock| {
            for disk in &mut superblock.disks {
                let here = directories.iter().filter(|directory| directory.disk() == disk.path);
                // One that a crash left half made holds nothing that could be lost.
                let here = here.filter(|directory| holds_checkpoint(&directory.path()).unwrap_or(true));
                disk.shards = here.map(|directory| directory.number()).collect();
            }
        })
    }

    /// Durable when it returns.
    fn change(&mut self, change: impl FnOnce(&mut Superblock)) -> Result<(), DataDirectoryError> {
        let mut changed = self.superblock.clone();
        change(&mut changed);
        if changed != self.superblock {
            write_checked(&self.metadata.with_file_name("superblock"), &changed)?;
            self.superblock = changed;
        }
        Ok(())
    }
}

/// Gives each new disk an identity, and refuses a foreign or a missing one.
fn adopt_disks(superblock: &mut Superblock, disks: &[PathBuf]) -> Result<(), DataDirectoryError> {
    let mut present = Vec::new();
    for path in disks {
        let identity_path = path.join("disk");
        let identity = match read_checked::<DiskIdentity>(&identity_path)? {
            Some(found) if found.cluster_id == superblock.cluster_id && found.broker_id == superblock.broker_id => found,
            Some(found) => {
                let name = |cluster: &str, broker: u32| format!("broker {broker} of cluster {cluster}");
                return Err(DataDirectoryError::Foreign {
                    path: path.clone(),
                    found: name(&found.cluster_id, found.broker_id),
                    wanted: name(&superblock.cluster_id, superblock.broker_id),
                });
            }
            None => {
                let identity = DiskIdentity::new(superblock);
                write_checked(&identity_path, &identity)?;
                identity
            }
        };
        let known = superblock.disks.iter().find(|known| known.storage_id == identity.storage_id);
        let shards = known.map(|known| known.shards.clone()).unwrap_or_default();
        present.push(KnownDisk { storage_id: identity.storage_id, path: path.clone(), shards });
    }
    for KnownDisk { storage_id, path, .. } in &superblock.disks {
        if !present.iter().any(|present| present.storage_id == *storage_id) {
            return Err(DataDirectoryError::DiskMissing { storage_id: storage_id.clone(), path: path.clone() });
        }
    }
    superblock.disks = present;
    Ok(())
}

/// Refuses a start without a shard directory that was in use: recovery would take it for one that never was.
fn find_shards(superblock: &Superblock) -> Result<(), DataDirectoryError> {
    let mut missing = Vec::new();
    for disk in &superblock.disks {
        for number in &disk.shards {
            let path = ShardDirectory::new(disk.path.clone(), *number).path();
            // What else is wrong with it, recovery says.
            if !holds_checkpoint(&path).unwrap_or(true) {
                missing.push(path.display().to_string());
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(DataDirectoryError::ShardsMissing { missing: missing.join(", ") }) }
}

/// Whether a shard directory was ever opened: the log writes a checkpoint before it takes the first batch, and is never without one again.
fn holds_checkpoint(path: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        if entry?.file_name().to_str().and_then(checkpoint::parse_file_name).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make_directory(path: &Path) -> Result<PathBuf, DataDirectoryError> {
    let unusable = |source| DataDirectoryError::Unusable { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(unusable)?;
    path.canonicalize().map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Disk;

    fn config(data: &Path, disks: &[PathBuf]) -> Config {
        let mut config = Config::default();
        config.broker.data = data.to_owned();
        config.disk = disks.iter().map(|path| Disk { path: path.clone(), shards: None }).collect();
        config
    }

    #[test]
    fn one_holder_at_a_time_and_each_boot_counts() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), &[]);
        let first = DataDirectory::open(&config).unwrap();
        let refused = DataDirectory::open(&config).unwrap_err().to_string();
        assert!(refused.contains("in use by"), "{refused}");
        assert_eq!(first.superblock.boot, 1);
        let cluster = first.superblock.cluster_id.clone();
        drop(first);
        let second = DataDirectory::open(&config).unwrap();
        assert_eq!((second.superblock.boot, second.superblock.cluster_id), (2, cluster));
    }

    #[test]
    fn foreign_and_missing_disks_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        drop(DataDirectory::open(&config(&path("a"), &[path("d0"), path("d1")])).unwrap());
        let missing = DataDirectory::open(&config(&path("a"), &[path("d0")])).unwrap_err();
        assert!(matches!(missing, DataDirectoryError::DiskMissing { .. }), "{missing}");
        let foreign = DataDirectory::open(&config(&path("b"), &[path("d0")])).unwrap_err();
        assert!(matches!(foreign, DataDirectoryError::Foreign { .. }), "{foreign}");
        // A disk mounted elsewhere is the same disk.
        fs::rename(path("d1"), path("moved")).unwrap();
        drop(DataDirectory::open(&config(&path("a"), &[path("d0"), path("moved")])).unwrap());
    }

    #[test]
    fn another_broker_number_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), &[]);
        drop(DataDirectory::open(&config).unwrap());
        config.broker.id = 2;
        assert!(matches!(DataDirectory::open(&config), Err(DataDirectoryError::Foreign { .. })));
    }

    #[test]
    fn a_damaged_superblock_is_an_error_not_a_new_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), &[]);
        drop(DataDirectory::open(&config).unwrap());
        let path = folder.path().join("superblock");
        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = DataDirectory::open(&config).unwrap_err().to_string();
        assert!(error.contains("superblock"), "{error}");
    }
}
