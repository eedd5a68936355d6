//! Directories, and small files as a whole. Everything here runs on the blocking thread of the shard.

use std::path::Path;

use super::DiskError;
use crate::machine::{self, Machine};
use crate::{real, simulated};

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name, without the directory. An entry whose name is not UTF-8 is not ours and is left out.
    pub name: String,
    /// It is a directory.
    pub is_dir: bool,
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes that this user may still use.
    pub available_bytes: u64,
}

/// Calls the function on the machine of this thread. On an ordinary thread it runs there, blocking: for start and tools.
macro_rules! dispatch {
    ($function:ident($($argument:expr),*)) => {
        match machine::current() {
            Machine::Real(_) | Machine::Ordinary => real::tree::$function($($argument),*).await,
            Machine::Simulated(world) => simulated::disk::$function(&world, $($argument),*).await,
        }
    };
}

/// Creates a directory and those above it. Does not sync: see [`sync_dir`].
pub async fn create_dir_all(path: &Path) -> Result<(), DiskError> {
    dispatch!(create_dir_all(path))
}

/// Creates in `parent` the directories of these names that are not there, in one go. Does not sync: see [`sync_dir`].
pub async fn create_dirs(parent: &Path, names: &[String]) -> Result<(), DiskError> {
    dispatch!(create_dirs(parent, names))
}

/// The entries of a directory, by name.
pub async fn list_dir(path: &Path) -> Result<Vec<DirEntry>, DiskError> {
    dispatch!(list_dir(path))
}

/// There is a file or directory of this name.
pub async fn exists(path: &Path) -> Result<bool, DiskError> {
    dispatch!(exists(path))
}

/// Renames, replacing the target. Durable once the directory is synced.
pub async fn rename(source: &Path, target: &Path) -> Result<(), DiskError> {
    dispatch!(rename(source, target))
}

/// Removes a file.
pub async fn remove_file(path: &Path) -> Result<(), DiskError> {
    dispatch!(remove_file(path))
}

/// Removes a directory with all that is in it.
pub async fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    dispatch!(remove_dir_all(path))
}

/// Makes the names in a directory durable.
pub async fn sync_dir(path: &Path) -> Result<(), DiskError> {
    dispatch!(sync_dir(path))
}

/// Makes everything on the file system of `path` durable.
pub async fn syncfs(path: &Path) -> Result<(), DiskError> {
    dispatch!(syncfs(path))
}

/// Reads a whole file of at most `bytes_max` bytes.
pub async fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    dispatch!(read_file(path, bytes_max))
}

/// Puts `bytes` in place of the file: either the old or the new content is there, whatever happens; durable on return.
pub async fn write_file_atomically(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    dispatch!(write_file_atomically(path, bytes))
}

/// Room on the file system of `path`.
pub async fn free_space(path: &Path) -> Result<FreeSpace, DiskError> {
    dispatch!(free_space(path))
}
