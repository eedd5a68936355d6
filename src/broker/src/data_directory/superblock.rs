//! Who wrote this directory.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, path::PathBuf};
use uuid::Uuid;

/// The identity of a broker's data, and how often it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Superblock {
    /// Shared by all brokers of a cluster; drawn by the first.
    pub(crate) cluster_id: String,
    pub(crate) broker_id: u32,
    /// The number of this start: of two entries for a partition, the one of the later boot counts.
    pub(crate) boot: u64,
    /// Topics were stored under `metadata/`: when they are gone, that is damage and not a fresh start.
    pub(crate) has_metadata: bool,
    pub(crate) disks: Vec<KnownDisk>,
}

/// A disk that the broker writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownDisk {
    pub(crate) storage_id: String,
    /// At the last start.
    pub(crate) path: PathBuf,
    /// Shard directories that may hold what was acknowledged: when one is gone, that is damage and not a fresh start.
    pub(crate) shards: BTreeSet<u16>,
}

/// The identity of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskIdentity {
    pub(crate) storage_id: String,
    pub(crate) cluster_id: String,
    pub(crate) broker_id: u32,
}

impl Superblock {
    pub(super) fn new(broker_id: u32) -> Self {
        let cluster_id = Uuid::new_v4().simple().to_string();
        Superblock { cluster_id, broker_id, boot: 0, has_metadata: false, disks: Vec::new() }
    }

    /// The cluster id as it goes over the wire.
    pub(crate) fn cluster_id_bytes(&self) -> [u8; 16] {
        Uuid::parse_str(&self.cluster_id).map_or([0; 16], Uuid::into_bytes)
    }
}

impl DiskIdentity {
    pub(super) fn new(superblock: &Superblock) -> Self {
        let storage_id = Uuid::new_v4().simple().to_string();
        DiskIdentity { storage_id, cluster_id: superblock.cluster_id.clone(), broker_id: superblock.broker_id }
    }
}
