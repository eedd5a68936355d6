//! A disk that can lose power.
//!
//! ```text
//!    write ──in flight──► completed ──sync──► durable
//!             │               │
//!    crash:   keep, drop or garbage per 512-byte sector        kept
//! ```
//!
//! A [`Disk`] outlives the [`Simulation`](super::Simulation) that uses it: it is mounted, crashes with it, and is mounted by the next.
//!
//! What is durable:
//! - a write through a handle opened with `dsync`, once it completed, together with the length of the file;
//! - any other write, allocation or change of length, once a sync of the file or the disk that began after it completed has completed;
//! - a created, renamed or removed entry, once a sync of its folder or the disk that began later has completed. A sync of the file does
//!   not cover its name.

mod crash;
mod fault;
mod file;
mod file_node;
mod folder;
mod operation;
mod tree;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub use crash::{CrashCounts, CrashMode};
pub use fault::{Fault, FaultCounts, FaultKind, Target};
pub(crate) use file::File;
pub(crate) use folder::{
    create_dir_all, create_dirs, exists, free_space, list_dir, read_file, remove_dir_all, remove_file, rename, sync_dir, syncfs,
    write_file_atomically,
};
use operation::{Completion, Problem, Reply, Request, perform};
use tree::NodeId;

use super::random::{Concern, Random};
use crash::CrashDraw;
use fault::Faults;
use file_node::{PAGE_BYTES, to_pages};
use operation::Operation;
use tree::Tree;

pub(crate) type OperationId = u64;

/// A simulated disk. Clones are handles of the same disk.
#[derive(Clone)]
pub struct Disk {
    state: Rc<RefCell<DiskState>>,
}

/// Settings of a disk.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// Bytes that files can occupy together.
    pub capacity_bytes: u64,
    /// How long operations take.
    pub latency: Latency,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { capacity_bytes: 64 << 30, latency: Latency::default() }
    }
}

/// Ranges from which the duration of each operation is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// A read or write, without its transfer.
    pub transfer_ns: (u64, u64),
    /// Added for each page of 4 KiB.
    pub page_ns: u64,
    /// A sync.
    pub sync_ns: (u64, u64),
    /// A change of a folder, an allocation.
    pub metadata_ns: (u64, u64),
    /// One operation in this many takes up to `slow_ns` longer.
    pub slow_one_in: u64,
    /// See `slow_one_in`.
    pub slow_ns: u64,
}

impl Default for Latency {
    /// An NVMe disk, as measured; wide ranges, so that operations overtake each other.
    fn default() -> Self {
        Self {
            transfer_ns: (40_000, 400_000),
            page_ns: 1_500,
            sync_ns: (80_000, 1_500_000),
            metadata_ns: (10_000, 300_000),
            slow_one_in: 200,
            slow_ns: 40_000_000,
        }
    }
}

impl Latency {
    fn draw(&self, target: Target, bytes: usize, random: &mut Random) -> u64 {
        let (low, high) = match target {
            Target::Read | Target::Write => self.transfer_ns,
            Target::Sync => self.sync_ns,
            Target::Allocate | Target::Create | Target::Change => self.metadata_ns,
        };
        let mut delay_ns = random.between(low, high) + (bytes / PAGE_BYTES) as u64 * self.page_ns;
        if self.slow_one_in > 0 && random.chance(1, self.slow_one_in) {
            delay_ns += random.below(self.slow_ns.max(1));
        }
        delay_ns
    }
}

/// Operations that completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStatistics {
    /// Reads of file contents.
    pub reads: u64,
    /// Writes that had to be durable when they completed.
    pub durable_writes: u64,
    /// Other writes.
    pub writes: u64,
    /// Syncs of a file.
    pub file_syncs: u64,
    /// Syncs of a folder.
    pub folder_syncs: u64,
    /// Syncs of the disk.
    pub disk_syncs: u64,
}

impl DiskStatistics {
    fn count(&mut self, request: &Request) {
        match request {
            Request::Read { .. } => self.reads += 1,
            Request::Write { durably: true, .. } => self.durable_writes += 1,
            Request::Write { durably: false, .. } => self.writes += 1,
            Request::SyncFile { .. } => self.file_syncs += 1,
            Request::SyncFolder { .. } => self.folder_syncs += 1,
            Request::SyncDisk => self.disk_syncs += 1,
            _ => {}
        }
    }
}

pub(crate) struct DiskState {
    tree: Tree,
    capacity_bytes: u64,
    latency: Latency,
    faults: Faults,
    /// Completed operations.
    sequence: u64,
    next_operation: OperationId,
    in_flight: BTreeMap<OperationId, Operation>,
    completed: BTreeMap<OperationId, Result<Reply, Problem>>,
    crash_counts: CrashCounts,
    statistics: DiskStatistics,
}

impl Disk {
    /// An empty disk.
    pub fn new(options: DiskOptions) -> Self {
        Self {
            state: Rc::new(RefCell::new(DiskState {
                tree: Tree::new(),
                capacity_bytes: options.capacity_bytes,
                latency: options.latency,
                faults: Faults::default(),
                sequence: 0,
                next_operation: 1,
                in_flight: BTreeMap::new(),
                completed: BTreeMap::new(),
                crash_counts: CrashCounts::default(),
                statistics: DiskStatistics::default(),
            })),
        }
    }

    /// A copy as of now, with the operations in flight still in flight. A crash of the copy tells what would survive a crash at this
    /// instant, while this disk goes on. Armed faults are not copied.
    #[must_use]
    pub fn fork(&self) -> Disk {
        let state = self.state.borrow();
        Disk {
            state: Rc::new(RefCell::new(DiskState {
                tree: state.tree.clone(),
                capacity_bytes: state.capacity_bytes,
                latency: state.latency,
                faults: Faults::default(),
                sequence: state.sequence,
                next_operation: state.next_operation,
                in_flight: state.in_flight.iter().map(|(id, operation)| (*id, operation.unattended())).collect(),
                completed: BTreeMap::new(),
                crash_counts: CrashCounts::default(),
                statistics: DiskStatistics::default(),
            })),
        }
    }

    /// Takes the power, or kills the process, that used the disk. `seed` draws what is left. Call it when no simulation runs on the disk;
    /// a simulation that reaches its [`CrashPoint`](super::CrashPoint) calls it itself.
    pub fn crash(&self, mode: CrashMode, seed: u64) {
        let mut random = Random::new(seed, Concern::Crash);
        self.crash_with(mode, &mut random);
    }

    pub(super) fn crash_with(&self, mode: CrashMode, random: &mut Random) {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let mut in_flight: Vec<_> = std::mem::take(&mut state.in_flight).into_values().collect();
        while !in_flight.is_empty() {
            let index = usize::try_from(random.below(in_flight.len() as u64)).expect("an index into a Vec");
            let operation = in_flight.swap_remove(index);
            state.cut_short(&operation, random);
        }
        state.completed.clear();
        state.crash_counts.crashes += 1;
        state.tree.crash(&mut CrashDraw { mode, random, counts: &mut state.crash_counts });
    }

    /// Lets what is in flight complete, after a simulation that ended in order.
    pub(super) fn settle(&self) {
        let mut random = Random::from_seed(0);
        let mut state = self.state.borrow_mut();
        let in_flight = std::mem::take(&mut state.in_flight);
        for operation in in_flight.into_values() {
            // Nobody is left to be told.
            let _ = state.apply(&operation, &mut random);
        }
        state.completed.clear();
        state.tree.release_handles();
    }

    /// Arms a fault.
    pub fn inject(&self, fault: Fault) {
        self.state.borrow_mut().faults.arm(fault);
    }

    /// Disarms every fault.
    pub fn clear_faults(&self) {
        self.state.borrow_mut().faults.clear();
    }

    /// How often faults struck so far.
    pub fn fault_counts(&self) -> FaultCounts {
        self.state.borrow().faults.counts
    }

    /// What crashes did so far.
    pub fn crash_counts(&self) -> CrashCounts {
        self.state.borrow().crash_counts
    }

    /// What completed so far.
    pub fn statistics(&self) -> DiskStatistics {
        self.state.borrow().statistics
    }

    /// Changes the size of the disk; below what is occupied it is full.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.state.borrow_mut().capacity_bytes = bytes;
    }

    /// Size of the disk, and what is left of it.
    pub fn space(&self) -> (u64, u64) {
        let state = self.state.borrow();
        let occupied = state.tree.occupied_pages() * PAGE_BYTES as u64;
        (state.capacity_bytes, state.capacity_bytes.saturating_sub(occupied))
    }

    /// Every file and its length in bytes, in order of the paths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.borrow();
        let files = state.tree.files().into_iter();
        files.map(|(path, node)| (path, state.tree.file(node).map_or(0, |file| file.current.length))).collect()
    }

    /// The bytes of a file as a read would return them; None without such a file.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.borrow();
        let node = state.tree.find(path).ok()?;
        let image = &state.tree.file(node).ok()?.current;
        Some(image.read(0, usize::try_from(image.length).ok()?))
    }

    /// Flips one bit at rest. False when the file has no such byte.
    pub fn flip_bit(&self, path: &Path, byte_position: u64, bit: u8) -> bool {
        self.state.borrow_mut().faults.counts.bit_flips += 1;
        self.damage(path, byte_position, 1, |bytes| bytes[0] ^= 1 << (bit & 7))
    }

    /// Changes bytes at rest, whatever the program believes to be there. False when the file ends before them.
    pub fn damage(&self, path: &Path, position: u64, length: usize, mut change: impl FnMut(&mut [u8])) -> bool {
        let mut state = self.state.borrow_mut();
        let Ok(node) = state.tree.find(path) else { return false };
        let Ok(file) = state.tree.file_mut(node) else { return false };
        if position + length as u64 > file.current.length {
            return false;
        }
        for image in [&mut file.current, &mut file.durable] {
            let first_page = position / PAGE_BYTES as u64;
            let pages = (position + length as u64).div_ceil(PAGE_BYTES as u64) - first_page;
            let mut bytes = Vec::new();
            for number in first_page..first_page + pages {
                bytes.extend_from_slice(&*image.page(number));
            }
            let offset = usize::try_from(position % PAGE_BYTES as u64).expect("less than a page");
            change(&mut bytes[offset..offset + length]);
            for (number, page) in (first_page..).zip(to_pages(&bytes)) {
                image.pages.insert(number, page);
            }
        }
        true
    }

    pub(crate) fn length(&self, node: NodeId) -> Result<u64, Problem> {
        Ok(self.state.borrow().tree.file(node)?.current.length)
    }

    /// Gives a handle back.
    pub(crate) fn close(&self, node: NodeId) {
        if let Ok(file) = self.state.borrow_mut().tree.file_mut(node) {
            file.handles = file.handles.saturating_sub(1);
        }
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Disk").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}
