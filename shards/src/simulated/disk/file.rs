//! Open files of a simulated disk.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Completion, Disk, NodeId, Problem, Reply, Request, perform, to_pages};
use crate::DISK_ALIGNMENT_BYTES;
use crate::buffer::{self, Shared};
use crate::disk::{DiskError, DiskErrorKind, OpenOptions};
use crate::simulated::world::World;

/// An open file. Clones share the handle.
#[derive(Clone)]
pub(crate) struct File {
    handle: Rc<Handle>,
}

struct Handle {
    world: std::rc::Weak<World>,
    disk: Disk,
    node: NodeId,
    path: PathBuf,
    durably: bool,
    writable: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.disk.close(self.node);
    }
}

/// The error of `operation` on `path`. `wanted` is what a write was asked to write.
pub(super) fn error(operation: &'static str, path: &Path, problem: Problem, wanted: u64) -> DiskError {
    let kind = match problem {
        Problem::Errno(errno) => DiskErrorKind::Errno(errno),
        Problem::ShortWrite { written } => DiskErrorKind::ShortWrite { written: written as u64, wanted },
    };
    DiskError::new(operation, path, kind)
}

impl File {
    pub(crate) async fn open(world: &Rc<World>, path: &Path, options: OpenOptions) -> Result<File, DiskError> {
        let fail = |problem| error("open", path, problem, 0);
        let disk = world.disk_of(path).ok_or_else(|| fail(Problem::Errno(libc::ENOENT)))?;
        let request = Request::Open { path: path.to_owned(), create: options.create, create_new: options.create_new };
        let Reply::Opened(node) = perform(world, &disk, path, request).await.map_err(fail)? else {
            unreachable!("an open replies with a node")
        };
        let handle = Handle {
            world: Rc::downgrade(world),
            disk,
            node,
            path: path.to_owned(),
            durably: options.dsync,
            writable: options.write,
        };
        Ok(File { handle: Rc::new(handle) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.handle.path
    }

    pub(crate) async fn write_at(&self, position: u64, bytes: Shared) -> Result<(), DiskError> {
        self.write_pages(position, &bytes).await
    }

    async fn write_pages(&self, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        if !self.handle.writable {
            return Err(error("write", self.path(), Problem::Errno(libc::EBADF), 0));
        }
        let request = Request::Write { node: self.handle.node, position, pages: to_pages(bytes), durably: self.handle.durably };
        let wanted = bytes.len() as u64;
        self.perform(request)?.await.map_err(|problem| error("write", self.path(), problem, wanted))?;
        Ok(())
    }

    pub(crate) async fn read_at(&self, position: u64, length: usize) -> Result<Shared, DiskError> {
        let bytes = self.read_bytes(position, length).await?;
        if bytes.is_empty() {
            return Ok(Shared::empty());
        }
        let mut aligned = buffer::allocate(bytes.len().next_multiple_of(DISK_ALIGNMENT_BYTES));
        aligned[..bytes.len()].copy_from_slice(&bytes);
        Ok(aligned.freeze().slice(0..bytes.len()))
    }

    pub(super) async fn read_bytes(&self, position: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let request = Request::Read { node: self.handle.node, position, length };
        let reply = self.perform(request)?.await.map_err(|problem| error("read", self.path(), problem, 0))?;
        let Reply::Bytes(bytes) = reply else { unreachable!("a read replies with bytes") };
        Ok(bytes)
    }

    pub(crate) async fn fdatasync(&self) -> Result<(), DiskError> {
        self.run("sync", Request::SyncFile { node: self.handle.node }).await
    }

    pub(crate) async fn fallocate(&self, position: u64, length: u64) -> Result<(), DiskError> {
        self.run("fallocate", Request::Allocate { node: self.handle.node, end: position + length }).await
    }

    /// In pieces, as the real machine does it, so that a crash finds it half done.
    pub(crate) async fn write_zeroes(&self, position: u64, length: u64) -> Result<(), DiskError> {
        const PIECE_BYTES: u64 = 1 << 20;
        let zeroes = vec![0; usize::try_from(PIECE_BYTES.min(length)).expect("at most a piece")];
        let mut at = position;
        while at < position + length {
            let count = PIECE_BYTES.min(position + length - at);
            self.write_pages(at, &zeroes[..usize::try_from(count).expect("at most a piece")]).await?;
            at += count;
        }
        Ok(())
    }

    pub(crate) async fn truncate(&self, length: u64) -> Result<(), DiskError> {
        self.run("truncate", Request::SetLength { node: self.handle.node, length }).await
    }

    pub(crate) fn len(&self) -> Result<u64, DiskError> {
        self.handle.disk.length(self.handle.node).map_err(|problem| error("stat", self.path(), problem, 0))
    }

    pub(crate) async fn close(self) -> Result<(), DiskError> {
        Ok(())
    }

    async fn run(&self, operation: &'static str, request: Request) -> Result<(), DiskError> {
        self.perform(request)?.await.map_err(|problem| error(operation, self.path(), problem, 0))?;
        Ok(())
    }

    fn perform(&self, request: Request) -> Result<Completion, DiskError> {
        // A file that outlived its machine: a program error in a test, answered like a vanished device.
        let world = self.handle.world.upgrade().ok_or_else(|| error("use", self.path(), Problem::Errno(libc::ENODEV), 0))?;
        Ok(perform(&world, &self.handle.disk, self.path(), request))
    }
}
