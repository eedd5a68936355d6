use std::path::Path;

use super::DiskError;
use crate::buffer::Shared;
use crate::machine::{self, Machine};
use crate::{DISK_ALIGNMENT_BYTES, real, simulated};

/// How a file is opened. Always direct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Create it when it is not there. The caller syncs the directory.
    pub create: bool,
    /// Create it, and fail when it is there.
    pub create_new: bool,
    /// Each write returns when its data is on stable storage (O_DSYNC).
    pub dsync: bool,
}

impl OpenOptions {
    /// To read only.
    pub fn reading() -> OpenOptions {
        OpenOptions { read: true, ..OpenOptions::default() }
    }

    /// To read and write a file that is there.
    pub fn writing() -> OpenOptions {
        OpenOptions { read: true, write: true, ..OpenOptions::default() }
    }

    /// To read and write a new file; fails when it is there.
    pub fn creating_new() -> OpenOptions {
        OpenOptions { read: true, write: true, create_new: true, ..OpenOptions::default() }
    }

    /// The same with `dsync` set.
    pub fn with_dsync(mut self) -> OpenOptions {
        self.dsync = true;
        self
    }
}

/// An open file. Clones share the descriptor.
#[derive(Clone)]
pub struct File {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Real(real::disk::File),
    Simulated(simulated::disk::File),
}

impl File {
    /// Opens a file. Slow (several system calls): open ahead of need.
    pub async fn open(path: &Path, options: OpenOptions) -> Result<File, DiskError> {
        assert!(options.read || options.write);
        let inner = match machine::current() {
            Machine::Real(shard) => Inner::Real(real::disk::File::open(shard, path, options).await?),
            Machine::Simulated(world) => Inner::Simulated(simulated::disk::File::open(&world, path, options).await?),
            Machine::Ordinary => machine::outside("disk::File::open"),
        };
        Ok(File { inner })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        match &self.inner {
            Inner::Real(file) => file.path(),
            Inner::Simulated(file) => file.path(),
        }
    }

    /// Writes all of `bytes` at `position`; both are whole pages. Done means handed to the device, and durable only when the
    /// file was opened with `dsync`; else after [`File::fdatasync`]. Writes in flight together are unordered.
    ///
    /// Without a copy when `bytes` is a whole frozen buffer of [`crate::buffer::allocate`]; other slices are copied first.
    pub async fn write_at(&self, position: u64, bytes: Shared) -> Result<(), DiskError> {
        assert_eq!(position % DISK_ALIGNMENT_BYTES as u64, 0);
        assert_eq!(bytes.len() % DISK_ALIGNMENT_BYTES, 0);
        assert!(!bytes.is_empty());
        match &self.inner {
            Inner::Real(file) => file.write_at(position, bytes).await,
            Inner::Simulated(file) => file.write_at(position, bytes).await,
        }
    }

    /// Reads up to `length` bytes at `position`: fewer when the file ends before.
    pub async fn read_at(&self, position: u64, length: usize) -> Result<Shared, DiskError> {
        if length == 0 {
            return Ok(Shared::empty());
        }
        let bytes = match &self.inner {
            Inner::Real(file) => file.read_at(position, length).await?,
            Inner::Simulated(file) => file.read_at(position, length).await?,
        };
        assert!(bytes.len() <= length);
        Ok(bytes)
    }

    /// Makes all completed writes, and the length they need, durable.
    pub async fn fdatasync(&self) -> Result<(), DiskError> {
        match &self.inner {
            Inner::Real(file) => file.fdatasync().await,
            Inner::Simulated(file) => file.fdatasync().await,
        }
    }

    /// Makes sure that the range has space on the disk, extending the file. Contents that were there stay; new ones read as
    /// zeroes.
    pub async fn fallocate(&self, position: u64, length: u64) -> Result<(), DiskError> {
        match &self.inner {
            Inner::Real(file) => file.fallocate(position, length).await,
            Inner::Simulated(file) => file.fallocate(position, length).await,
        }
    }

    /// Writes zeroes over the range (whole pages), so that later writes there change no metadata. Not durable by itself.
    pub async fn write_zeroes(&self, position: u64, length: u64) -> Result<(), DiskError> {
        assert_eq!(position % DISK_ALIGNMENT_BYTES as u64, 0);
        assert_eq!(length % DISK_ALIGNMENT_BYTES as u64, 0);
        match &self.inner {
            Inner::Real(file) => file.write_zeroes(position, length).await,
            Inner::Simulated(file) => file.write_zeroes(position, length).await,
        }
    }

    /// Sets the length of the file.
    pub async fn truncate(&self, length: u64) -> Result<(), DiskError> {
        match &self.inner {
            Inner::Real(file) => file.truncate(length).await,
            Inner::Simulated(file) => file.truncate(length).await,
        }
    }

    /// The length of the file now, whatever happened to its name.
    pub fn len(&self) -> Result<u64, DiskError> {
        match &self.inner {
            Inner::Real(file) => file.len(),
            Inner::Simulated(file) => file.len(),
        }
    }

    /// The file holds no bytes.
    pub fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Gives up this handle; with the last one the descriptor closes before this returns.
    pub async fn close(self) -> Result<(), DiskError> {
        match self.inner {
            Inner::Real(file) => file.close().await,
            Inner::Simulated(file) => file.close().await,
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("File").field("path", &self.path()).finish()
    }
}
