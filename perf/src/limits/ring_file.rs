//! Scratch files for raw writes: made in the state that a way of writing needs, gone when dropped.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;

use super::memory::AlignedBuffer;
use super::{LimitError, io};

/// Bytes of one write while a file is filled.
const FILL_BYTES: usize = 4 << 20;

/// What the file's extents are when the measurement starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extents {
    /// Written once: overwriting changes no metadata.
    Written,
    /// Allocated, not written: the first write of each changes metadata.
    Fallocated,
}

/// A file opened for direct writes.
#[derive(Debug)]
pub struct RingFile {
    file: File,
    bytes: u64,
    /// Removes the file when dropped.
    _name: tempfile::TempPath,
}

impl RingFile {
    /// Makes a file of `bytes` in `folder`. With `dsync` every write is durable when it completes.
    ///
    /// # Errors
    /// When the file system refuses: no space, or no O_DIRECT.
    pub fn create(folder: &Path, bytes: u64, extents: Extents, dsync: bool) -> Result<RingFile, LimitError> {
        assert!(bytes.is_multiple_of(FILL_BYTES as u64), "a scratch file is a multiple of {FILL_BYTES} bytes");
        let name = tempfile::Builder::new()
            .prefix("corelane-limit-")
            .tempfile_in(folder)
            .map_err(io("make a scratch file"))?
            .into_temp_path();
        let open = |flags: i32| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&name);
        let plain = open(libc::O_DIRECT).map_err(io("open a scratch file with O_DIRECT"))?;
        fallocate(&plain, FallocateFlags::empty(), 0, bytes).map_err(|error| io("allocate a scratch file")(error.into()))?;
        if extents == Extents::Written {
            let zeros = AlignedBuffer::zeroed(FILL_BYTES);
            for position in (0..bytes).step_by(FILL_BYTES) {
                plain.write_all_at(&zeros, position).map_err(io("fill a scratch file"))?;
            }
        }
        plain.sync_all().map_err(io("sync a scratch file"))?;
        let file =
            if dsync { open(libc::O_DIRECT | libc::O_DSYNC).map_err(io("open a scratch file with O_DSYNC"))? } else { plain };
        Ok(RingFile { file, bytes, _name: name })
    }

    /// For the ring.
    pub fn fd(&self) -> io_uring::types::Fd {
        io_uring::types::Fd(self.file.as_raw_fd())
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
