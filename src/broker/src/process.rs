//! What all threads of the broker share: identity that never changes, and the doors to the control and metadata threads.

use crate::{metadata::Command, metrics::ShardSnapshot};
use commit_log::PartitionState;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32},
    mpsc::Sender,
};

/// One per broker. Nothing in it is touched on the data path: the counter when a connection begins or ends, the snapshots once a second.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) broker_id: u32,
    pub(crate) cluster_id: [u8; 16],
    /// Where clients reach this broker.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) started_ms: i64,
    /// The processor of each shard.
    pub(crate) cpus: Vec<u32>,
    /// The disk of each shard.
    pub(crate) disks: Vec<String>,
    pub(crate) connections: Arc<AtomicU32>,
    /// Shards that still use their directories.
    pub(crate) shards_at_work: AtomicU32,
    /// Whether clients are served.
    pub(crate) is_ready: AtomicBool,
    /// The last snapshot of each shard.
    pub(crate) snapshots: Vec<Mutex<Arc<ShardSnapshot>>>,
    /// Groups named in the metrics.
    pub(crate) groups_named_max: usize,
    /// The effective configuration, key by key.
    pub(crate) settings: Vec<(String, String, bool)>,
    pub(crate) commands: Sender<Command>,
    pub(crate) events: Sender<Event>,
}

/// What a shard, the metadata thread or a signal tells the control thread.
#[derive(Debug)]
pub(crate) enum Event {
    /// Phase 1 of the start is done on a shard.
    Recovered {
        /// What its directories held.
        states: Vec<PartitionState>,
    },
    /// A shard has opened its log, or is accepting, or has drained: one step of the start or stop.
    Done,
    /// Something that cannot be gone on from.
    Failed(String),
    /// Stop in order.
    Stop,
}

impl Process {
    /// Tells the control thread. It outlives whoever calls this: if it has gone, the process is ending anyway.
    pub(crate) fn tell(&self, event: Event) {
        let _ended = self.events.send(event);
    }
}
