//! Operations: submitted, in flight for a drawn time, applied when they complete.
//!
//! Operations in flight complete in any order, and nothing of one is visible before it completes. Its future may be dropped; the
//! operation goes on, as in the kernel.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::fault::{FaultKind, Target};
use super::file_node::{Change, FileNode, PAGE_BYTES, Page};
use super::tree::{Directory, EntryChange, Errno, Node, NodeId, parts};
use super::{Disk, DiskState, OperationId};
use crate::simulated::random::{Random, mix};
use crate::simulated::world::{Step, World};

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Open { path: PathBuf, create: bool, create_new: bool },
    Write { node: NodeId, position: u64, pages: Vec<Rc<Page>>, durably: bool },
    Read { node: NodeId, position: u64, length: usize },
    SyncFile { node: NodeId },
    Allocate { node: NodeId, end: u64 },
    SetLength { node: NodeId, length: u64 },
    CreateFolders { within: Option<PathBuf>, paths: Vec<PathBuf> },
    List { path: PathBuf },
    Rename { source: PathBuf, target: PathBuf },
    RemoveFile { path: PathBuf },
    RemoveTree { path: PathBuf },
    SyncFolder { path: PathBuf },
    SyncDisk,
}

impl Request {
    fn target(&self) -> Target {
        match self {
            Request::Open { create: false, create_new: false, .. } | Request::Read { .. } | Request::List { .. } => Target::Read,
            Request::Open { .. } | Request::CreateFolders { .. } => Target::Create,
            Request::Write { .. } => Target::Write,
            Request::SyncFile { .. } | Request::SyncFolder { .. } | Request::SyncDisk => Target::Sync,
            Request::Allocate { .. } => Target::Allocate,
            Request::SetLength { .. } | Request::Rename { .. } | Request::RemoveFile { .. } | Request::RemoveTree { .. } => {
                Target::Change
            }
        }
    }

    /// What a trace records of the request: enough that two runs which wrote different bytes differ.
    fn fingerprint(&self) -> u64 {
        let text = |kind: u64, path: &Path| {
            path.as_os_str().as_encoded_bytes().iter().fold(kind, |hash, byte| mix(hash ^ u64::from(*byte)))
        };
        match self {
            Request::Write { node, position, pages, .. } => {
                let mut hash = mix(*node ^ mix(*position));
                for page in pages {
                    let (words, _) = page.as_chunks::<8>();
                    for word in words {
                        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95);
                    }
                }
                hash
            }
            Request::Read { node, position, length } => mix(*node ^ mix(*position ^ mix(*length as u64))),
            Request::SyncFile { node } => mix(0x10 ^ *node),
            Request::Allocate { node, end } => mix(0x20 ^ *node ^ mix(*end)),
            Request::SetLength { node, length } => mix(0x30 ^ *node ^ mix(*length)),
            Request::Open { path, .. } => text(0x40, path),
            Request::CreateFolders { paths, .. } => paths.iter().fold(0x50, |hash, path| text(hash, path)),
            Request::List { path } => text(0x60, path),
            Request::Rename { source, target } => text(text(0x70, source), target),
            Request::RemoveFile { path } => text(0x80, path),
            Request::RemoveTree { path } => text(0x90, path),
            Request::SyncFolder { path } => text(0xa0, path),
            Request::SyncDisk => 0xb0,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Reply {
    Done,
    Opened(NodeId),
    Bytes(Vec<u8>),
    /// Names, and whether each is a folder.
    Names(Vec<(std::ffi::OsString, bool)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    Errno(Errno),
    ShortWrite { written: usize },
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        Problem::Errno(errno)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Operation {
    request: Request,
    /// Changes that completed before this number are covered, when this is a sync.
    sequence: u64,
    fault: Option<FaultKind>,
    waiter: Option<Waker>,
    abandoned: bool,
}

impl Operation {
    /// The same operation in a copy of the disk, where nobody awaits it.
    pub(super) fn unattended(&self) -> Self {
        Self { request: self.request.clone(), sequence: self.sequence, fault: self.fault, waiter: None, abandoned: true }
    }
}

/// Submits `request` on `disk` and waits until it completes. `path` is what faults are matched against.
pub(crate) fn perform(world: &World, disk: &Disk, path: &Path, request: Request) -> Completion {
    let target = request.target();
    world.count_io();
    world.trace(Step::DiskSubmit, request.fingerprint());
    let mut state = disk.state.borrow_mut();
    let fault = state.faults.strike(target, path);
    let mut delay_ns = world.with_disk_stream(|random| state.latency.draw(target, request.bytes(), random));
    if let Some(FaultKind::Stall(stall)) = fault {
        delay_ns += u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX / 2);
    }
    let id = state.next_operation;
    state.next_operation += 1;
    let sequence = state.sequence;
    state.in_flight.insert(id, Operation { request, sequence, fault, waiter: None, abandoned: false });
    drop(state);
    world.disk_done_after(delay_ns, disk.clone(), id);
    Completion { disk: disk.clone(), id, taken: false }
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Request::Write { pages, .. } => pages.len() * PAGE_BYTES,
            Request::Read { length, .. } => *length,
            _ => 0,
        }
    }
}

/// The result of an operation, once it is there.
#[must_use = "an operation nobody awaits still happens, but its failure goes unseen"]
pub(crate) struct Completion {
    disk: Disk,
    id: OperationId,
    taken: bool,
}

impl Future for Completion {
    type Output = Result<Reply, Problem>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let disk = self.disk.clone();
        let mut state = disk.state.borrow_mut();
        if let Some(result) = state.completed.remove(&self.id) {
            self.taken = true;
            return Poll::Ready(result);
        }
        if let Some(operation) = state.in_flight.get_mut(&self.id) {
            operation.waiter = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.taken {
            let mut state = self.disk.state.borrow_mut();
            state.completed.remove(&self.id);
            if let Some(operation) = state.in_flight.get_mut(&self.id) {
                operation.abandoned = true;
                operation.waiter = None;
            }
        }
    }
}

impl Disk {
    pub(crate) fn complete(&self, world: &World, id: OperationId) {
        let mut state = self.state.borrow_mut();
        let Some(operation) = state.in_flight.remove(&id) else { return };
        world.count_io();
        world.trace(Step::DiskDone, id);
        let result = world.with_disk_stream(|random| state.apply(&operation, random));
        state.statistics.count(&operation.request);
        let waiter = operation.waiter.clone();
        if !operation.abandoned {
            state.completed.insert(id, result);
        } else if let Ok(Reply::Opened(node)) = result
            && let Ok(file) = state.tree.file_mut(node)
        {
            // Nobody got the handle.
            file.handles -= 1;
        }
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl DiskState {
    /// Does what the operation asks for. The result is what its caller is told, which under a fault is not what happened.
    pub(super) fn apply(&mut self, operation: &Operation, random: &mut Random) -> Result<Reply, Problem> {
        self.sequence += 1;
        let sequence = self.sequence;
        match operation.fault {
            Some(FaultKind::Errno(errno)) => {
                self.fail(operation, errno, random);
                return Err(Problem::Errno(errno));
            }
            Some(FaultKind::LostWrite | FaultKind::MisdirectedWrite) => self.pretend(operation)?,
            _ => {}
        }
        match &operation.request {
            Request::Write { .. } if operation.fault == Some(FaultKind::LostWrite) => Ok(Reply::Done),
            Request::Open { path, create, create_new } => self.open(path, *create, *create_new, sequence).map(Reply::Opened),
            Request::Write { node, position, pages, durably } => {
                self.write(*node, *position, pages, *durably, operation.fault, random)
            }
            Request::Read { node, position, length } => Ok(Reply::Bytes(self.tree.file(*node)?.current.read(*position, *length))),
            Request::SyncFile { node } => {
                self.tree.file_mut(*node)?.sync(operation.sequence + 1);
                Ok(Reply::Done)
            }
            Request::Allocate { node, end } => {
                self.reserve(*node, *end)?;
                self.tree.file_mut(*node)?.change(sequence, Change::Allocated(*end));
                Ok(Reply::Done)
            }
            Request::SetLength { node, length } => {
                self.tree.file_mut(*node)?.change(sequence, Change::Length(*length));
                Ok(Reply::Done)
            }
            Request::CreateFolders { within, paths } => {
                // All that leads to them is made too, unless they are to be within a folder: that must be there.
                if let Some(parent) = within {
                    self.tree.directory(self.tree.find(parent)?)?;
                }
                for path in paths {
                    self.create_folders(path, sequence)?;
                }
                Ok(Reply::Done)
            }
            Request::List { path } => {
                let directory = self.tree.directory(self.tree.find(path)?)?;
                Ok(Reply::Names(
                    directory.current.iter().map(|(name, node)| (name.clone(), self.tree.is_directory(*node))).collect(),
                ))
            }
            Request::Rename { source, target } => self.rename(source, target, sequence),
            Request::RemoveFile { path } => {
                let (parent, name) = self.tree.find_parent(path)?;
                let node = self.tree.find(path)?;
                self.tree.file(node)?;
                self.tree.directory_mut(parent)?.change(sequence, EntryChange::Unlink { name });
                Ok(Reply::Done)
            }
            Request::RemoveTree { path } => {
                let (parent, name) = self.tree.find_parent(path)?;
                let node = self.tree.find(path)?;
                self.tree.directory(node)?;
                self.empty_folder(node, sequence);
                self.tree.directory_mut(parent)?.change(sequence, EntryChange::Unlink { name });
                Ok(Reply::Done)
            }
            Request::SyncFolder { path } => {
                let node = self.tree.find(path)?;
                self.tree.directory_mut(node)?.sync(operation.sequence + 1);
                self.tree.collect();
                Ok(Reply::Done)
            }
            Request::SyncDisk => {
                self.tree.sync_all(operation.sequence + 1);
                Ok(Reply::Done)
            }
        }
    }

    /// An operation in flight when the machine went down. What it did is then drawn like everything else that was not durable.
    pub(super) fn cut_short(&mut self, operation: &Operation, random: &mut Random) {
        match &operation.request {
            Request::Write { node, position, pages, .. } if operation.fault != Some(FaultKind::LostWrite) => {
                self.sequence += 1;
                let sequence = self.sequence;
                if let Ok(file) = self.tree.file_mut(*node) {
                    file.change(sequence, Change::Data { first_page: position / PAGE_BYTES as u64, pages: pages.clone() });
                }
            }
            Request::SyncFile { .. }
            | Request::SyncFolder { .. }
            | Request::SyncDisk
            | Request::Write { .. }
            | Request::Read { .. } => {}
            _ if random.chance(1, 2) => {
                // Its caller is gone: whether it worked is of no account.
                let _ = self.apply(operation, random);
            }
            _ => {}
        }
    }

    /// A write that the device does not do, or does elsewhere: the file system believes it, and the file has the length it would have.
    fn pretend(&mut self, operation: &Operation) -> Result<(), Problem> {
        let Request::Write { node, position, pages, durably } = &operation.request else { return Ok(()) };
        let end = position + (pages.len() * PAGE_BYTES) as u64;
        self.reserve(*node, end)?;
        let sequence = self.sequence;
        let file = self.tree.file_mut(*node)?;
        if file.current.length < end {
            file.change(sequence, Change::Length(end));
        }
        if *durably {
            file.write_durably(0, Vec::new());
        }
        Ok(())
    }

    /// What an operation that reports an error did all the same.
    fn fail(&mut self, operation: &Operation, errno: Errno, random: &mut Random) {
        let sequence = self.sequence;
        match &operation.request {
            Request::Write { node, position, pages, durably } if errno != libc::ENOSPC => {
                let first_page = position / PAGE_BYTES as u64;
                let Ok(file) = self.tree.file_mut(*node) else { return };
                if *durably && random.chance(1, 2) {
                    // The transfer went well, and what failed is the sync behind it.
                    return file.change_in_cache(sequence, Change::Data { first_page, pages: pages.clone() });
                }
                for (number, page) in (first_page..).zip(pages) {
                    if random.chance(1, 2) {
                        file.change(sequence, Change::Data { first_page: number, pages: vec![page.clone()] });
                    }
                }
            }
            Request::SyncFile { node } => {
                if let Ok(file) = self.tree.file_mut(*node) {
                    file.abandon(operation.sequence + 1);
                }
            }
            Request::SyncDisk => self.tree.abandon_all(operation.sequence + 1),
            _ => {}
        }
    }

    fn open(&mut self, path: &Path, create: bool, create_new: bool, sequence: u64) -> Result<NodeId, Problem> {
        let node = match self.tree.find(path) {
            Ok(_) if create_new => return Err(libc::EEXIST.into()),
            Ok(node) => node,
            Err(libc::ENOENT) if create || create_new => {
                let (parent, name) = self.tree.find_parent(path)?;
                let node = self.tree.add(Node::File(FileNode::default()));
                self.tree.directory_mut(parent)?.change(sequence, EntryChange::Link { name, node });
                node
            }
            Err(errno) => return Err(errno.into()),
        };
        self.tree.file_mut(node)?.handles += 1;
        Ok(node)
    }

    fn write(
        &mut self,
        node: NodeId,
        position: u64,
        pages: &[Rc<Page>],
        durably: bool,
        fault: Option<FaultKind>,
        random: &mut Random,
    ) -> Result<Reply, Problem> {
        let mut first_page = position / PAGE_BYTES as u64;
        let mut landed = pages;
        if fault == Some(FaultKind::MisdirectedWrite) {
            let file_pages = self.tree.file(node)?.current.length.div_ceil(PAGE_BYTES as u64);
            let room = file_pages.saturating_sub(pages.len() as u64);
            first_page = random.between(0, room);
        } else {
            self.reserve(node, position + (pages.len() * PAGE_BYTES) as u64)?;
        }
        let short = fault == Some(FaultKind::ShortWrite);
        if short {
            let kept = random.below(pages.len().max(1) as u64);
            landed = &pages[..usize::try_from(kept).expect("fewer than the pages written")];
        }
        let sequence = self.sequence;
        let file = self.tree.file_mut(node)?;
        if !landed.is_empty() {
            if durably {
                file.write_durably(first_page, landed.to_vec());
            } else {
                file.change(sequence, Change::Data { first_page, pages: landed.to_vec() });
            }
        }
        if short { Err(Problem::ShortWrite { written: landed.len() * PAGE_BYTES }) } else { Ok(Reply::Done) }
    }

    /// Refuses what the disk has no room for.
    fn reserve(&mut self, node: NodeId, end: u64) -> Result<(), Problem> {
        let grown = end.div_ceil(PAGE_BYTES as u64).saturating_sub(self.tree.file(node)?.occupied_pages());
        if grown > 0 && (self.tree.occupied_pages() + grown) * PAGE_BYTES as u64 > self.capacity_bytes {
            self.faults.counts.disk_full += 1;
            return Err(libc::ENOSPC.into());
        }
        Ok(())
    }

    fn create_folders(&mut self, path: &Path, sequence: u64) -> Result<(), Problem> {
        let mut node = super::tree::ROOT;
        for part in parts(path) {
            let next = self.tree.directory(node)?.current.get(part).copied();
            node = match next {
                Some(next) => next,
                None => {
                    let created = self.tree.add(Node::Directory(Directory::default()));
                    let change = EntryChange::Link { name: part.to_owned(), node: created };
                    self.tree.directory_mut(node)?.change(sequence, change);
                    created
                }
            };
        }
        self.tree.directory(node)?;
        Ok(())
    }

    fn rename(&mut self, source: &Path, target: &Path, sequence: u64) -> Result<Reply, Problem> {
        let node = self.tree.find(source)?;
        let (source_parent, source_name) = self.tree.find_parent(source)?;
        let (target_parent, target_name) = self.tree.find_parent(target)?;
        if source_parent == target_parent {
            let change = EntryChange::Rename { source: source_name, target: target_name, node };
            self.tree.directory_mut(source_parent)?.change(sequence, change);
        } else {
            self.tree.directory_mut(target_parent)?.change(sequence, EntryChange::Link { name: target_name, node });
            self.tree.directory_mut(source_parent)?.change(sequence, EntryChange::Unlink { name: source_name });
        }
        Ok(Reply::Done)
    }

    fn empty_folder(&mut self, node: NodeId, sequence: u64) {
        let children: Vec<_> = match self.tree.directory(node) {
            Ok(directory) => directory.current.iter().map(|(name, child)| (name.clone(), *child)).collect(),
            Err(_) => return,
        };
        for (name, child) in children {
            self.empty_folder(child, sequence);
            if let Ok(directory) = self.tree.directory_mut(node) {
                directory.change(sequence, EntryChange::Unlink { name });
            }
        }
    }
}
