//! The file that is measured: written once, so that its extents exist, and removed at the end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fdatasync, ftruncate, statvfs};

use super::IobenchError;
use super::ring::{AlignedBlock, BLOCK_BYTES_MAX};

/// Left free on the disk beside the two scratch files.
const RESERVE_BYTES: u64 = 256 << 20;

/// Two scratch files: one with written extents, one that is allocated afresh for each measurement of unwritten extents.
pub(super) struct Scratch {
    written: File,
    unwritten: File,
    paths: [PathBuf; 2],
    len_bytes: u64,
}

impl Scratch {
    /// Makes both files of `len_bytes` each in `folder` and fills the first one.
    pub(super) fn create(folder: &Path, len_bytes: u64) -> Result<Self, IobenchError> {
        assert!(len_bytes.is_multiple_of(u64::from(BLOCK_BYTES_MAX)));
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source: std::io::Error| IobenchError::File { operation, path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed("creating", folder))?;
        let space = statvfs(folder).map_err(|errno| failed("asking for free space of", folder)(errno.into()))?;
        let (free_bytes, wanted_bytes) = (space.f_bavail * space.f_frsize, 2 * len_bytes + RESERVE_BYTES);
        if free_bytes < wanted_bytes {
            return Err(IobenchError::NoSpace { path: folder.to_owned(), free_bytes, wanted_bytes });
        }
        let name = |kind: &str| folder.join(format!("iobench-{}.{kind}", std::process::id()));
        let paths = [name("written"), name("unwritten")];
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT | libc::O_CLOEXEC);
            options.open(path).map_err(failed("opening for direct I/O", path))
        };
        let remove = Removal(&paths);
        let scratch = Scratch { written: open(&paths[0])?, unwritten: open(&paths[1])?, paths: paths.clone(), len_bytes };
        std::mem::forget(remove);
        scratch.fill().map_err(failed("filling", &scratch.paths[0]))?;
        Ok(scratch)
    }

    /// The file whose extents are written.
    pub(super) fn written(&self) -> &File {
        &self.written
    }

    /// The other file, its extents allocated and not yet written.
    pub(super) fn allocate_unwritten(&self) -> Result<&File, IobenchError> {
        let failed = |errno: rustix::io::Errno| IobenchError::File {
            operation: "allocating",
            path: self.paths[1].clone(),
            source: errno.into(),
        };
        ftruncate(&self.unwritten, 0).map_err(failed)?;
        fallocate(&self.unwritten, FallocateFlags::empty(), 0, self.len_bytes).map_err(failed)?;
        fdatasync(&self.unwritten).map_err(failed)?;
        Ok(&self.unwritten)
    }

    /// Length of each file.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn fill(&self) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let block = AlignedBlock::patterned(BLOCK_BYTES_MAX as usize);
        for position in (0..self.len_bytes).step_by(BLOCK_BYTES_MAX as usize) {
            self.written.write_all_at(block.bytes(), position)?;
        }
        self.written.sync_all()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(Removal(&self.paths));
    }
}

/// Removes the scratch files when dropped. One that cannot be removed is named: it takes the user's space.
struct Removal<'a>(&'a [PathBuf; 2]);

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        for path in self.0 {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    eprintln!("warning: could not remove {}: {error}", path.display());
                }
                _ => {}
            }
        }
    }
}
