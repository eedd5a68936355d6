//! Folders and files by name, and which of their entries a power cut may take.
//!
//! A directory entry is durable once a sync of that directory, or of the whole disk, covered it. Until then a crash keeps or drops it,
//! with one rule: of two changes that touch the same name the later survives only if the earlier did.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::crash::{CrashDraw, CrashMode};
use super::file_node::FileNode;

pub(super) type NodeId = u64;
type Entries = BTreeMap<OsString, NodeId>;

pub(super) const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Directory(Directory),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) current: Entries,
    durable: Entries,
    pending: Vec<PendingEntry>,
}

#[derive(Debug, Clone)]
struct PendingEntry {
    sequence: u64,
    change: EntryChange,
}

#[derive(Debug, Clone)]
pub(super) enum EntryChange {
    Link { name: OsString, node: NodeId },
    Unlink { name: OsString },
    Rename { source: OsString, target: OsString, node: NodeId },
}

impl EntryChange {
    fn apply(&self, entries: &mut Entries) {
        match self {
            EntryChange::Link { name, node } => {
                entries.insert(name.clone(), *node);
            }
            EntryChange::Unlink { name } => {
                entries.remove(name);
            }
            EntryChange::Rename { source, target, node } => {
                entries.remove(source);
                entries.insert(target.clone(), *node);
            }
        }
    }

    fn names(&self) -> [&OsString; 2] {
        match self {
            EntryChange::Link { name, .. } | EntryChange::Unlink { name } => [name, name],
            EntryChange::Rename { source, target, .. } => [source, target],
        }
    }
}

impl Directory {
    pub(super) fn change(&mut self, sequence: u64, change: EntryChange) {
        change.apply(&mut self.current);
        self.pending.push(PendingEntry { sequence, change });
    }

    pub(super) fn sync(&mut self, sequence: u64) {
        for pending in std::mem::take(&mut self.pending) {
            if pending.sequence < sequence {
                pending.change.apply(&mut self.durable);
            } else {
                self.pending.push(pending);
            }
        }
    }

    fn crash(&mut self, draw: &mut CrashDraw<'_>) {
        if draw.mode == CrashMode::Kill {
            return;
        }
        // Half of the crashes behave like a journal: a prefix of the changes survives, in order.
        let in_order = draw.random.chance(1, 2);
        let mut lost: BTreeSet<OsString> = BTreeSet::new();
        let mut cut = false;
        for pending in std::mem::take(&mut self.pending) {
            let names = pending.change.names();
            let barred = (cut && in_order) || names.iter().any(|name| lost.contains(*name));
            if !barred && draw.keeps() {
                pending.change.apply(&mut self.durable);
                draw.counts.entries_kept += 1;
            } else {
                lost.extend(names.map(Clone::clone));
                cut = true;
                draw.counts.entries_dropped += 1;
            }
        }
        self.current = self.durable.clone();
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    next_node: NodeId,
}

/// Why a path could not be used, as errno.
pub(super) type Errno = i32;

impl Tree {
    pub(super) fn new() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]), next_node: ROOT + 1 }
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    pub(super) fn find(&self, path: &Path) -> Result<NodeId, Errno> {
        let mut node = ROOT;
        for part in parts(path) {
            node = *self.directory(node)?.current.get(part).ok_or(libc::ENOENT)?;
        }
        Ok(node)
    }

    /// The folder that holds, or would hold, `path`, and the name in it.
    pub(super) fn find_parent(&self, path: &Path) -> Result<(NodeId, OsString), Errno> {
        let name = path.file_name().ok_or(libc::EINVAL)?.to_owned();
        let parent = self.find(path.parent().ok_or(libc::EINVAL)?)?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    pub(super) fn directory(&self, id: NodeId) -> Result<&Directory, Errno> {
        match self.nodes.get(&id) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(libc::ENOTDIR),
            None => Err(libc::ENOENT),
        }
    }

    pub(super) fn directory_mut(&mut self, id: NodeId) -> Result<&mut Directory, Errno> {
        match self.nodes.get_mut(&id) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(libc::ENOTDIR),
            None => Err(libc::ENOENT),
        }
    }

    pub(super) fn file(&self, id: NodeId) -> Result<&FileNode, Errno> {
        match self.nodes.get(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(libc::EISDIR),
            None => Err(libc::EBADF),
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> Result<&mut FileNode, Errno> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(libc::EISDIR),
            None => Err(libc::EBADF),
        }
    }

    pub(super) fn is_directory(&self, id: NodeId) -> bool {
        matches!(self.nodes.get(&id), Some(Node::Directory(_)))
    }

    pub(super) fn sync_all(&mut self, sequence: u64) {
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => file.sync(sequence),
                Node::Directory(directory) => directory.sync(sequence),
            }
        }
        self.collect();
    }

    pub(super) fn abandon_all(&mut self, sequence: u64) {
        for node in self.nodes.values_mut() {
            if let Node::File(file) = node {
                file.abandon(sequence);
            }
        }
    }

    pub(super) fn crash(&mut self, draw: &mut CrashDraw<'_>) {
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => file.crash(draw),
                Node::Directory(directory) => directory.crash(draw),
            }
        }
        self.collect();
    }

    /// Closes every file.
    pub(super) fn release_handles(&mut self) {
        for node in self.nodes.values_mut() {
            if let Node::File(file) = node {
                file.handles = 0;
            }
        }
        self.collect();
    }

    /// Pages that files occupy, those of removed files included while they are open.
    pub(super) fn occupied_pages(&self) -> u64 {
        let mut named = BTreeSet::new();
        for node in self.nodes.values() {
            if let Node::Directory(directory) = node {
                named.extend(directory.current.values().copied());
            }
        }
        let files = self.nodes.iter().filter_map(|(id, node)| match node {
            Node::File(file) if file.handles > 0 || named.contains(id) => Some(file.occupied_pages()),
            _ => None,
        });
        files.sum()
    }

    /// Forgets nodes that no name, now or after a crash, and no handle can reach.
    pub(super) fn collect(&mut self) {
        loop {
            let mut kept = BTreeSet::from([ROOT]);
            for node in self.nodes.values() {
                if let Node::Directory(directory) = node {
                    kept.extend(directory.current.values().chain(directory.durable.values()).copied());
                    for pending in &directory.pending {
                        if let EntryChange::Link { node, .. } | EntryChange::Rename { node, .. } = pending.change {
                            kept.insert(node);
                        }
                    }
                }
            }
            let before = self.nodes.len();
            self.nodes.retain(|id, node| kept.contains(id) || matches!(node, Node::File(file) if file.handles > 0));
            if self.nodes.len() == before {
                return;
            }
        }
    }

    /// Every file with its path, in order of the paths.
    pub(super) fn files(&self) -> Vec<(PathBuf, NodeId)> {
        let mut files = Vec::new();
        let mut open = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = open.pop() {
            match self.nodes.get(&id) {
                Some(Node::Directory(directory)) => {
                    open.extend(directory.current.iter().map(|(name, node)| (path.join(name), *node)));
                }
                Some(Node::File(_)) => files.push((path, id)),
                None => {}
            }
        }
        files.sort();
        files
    }
}

/// The names along `path`, from the root.
pub(super) fn parts(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}
