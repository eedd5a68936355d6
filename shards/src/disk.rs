//! Files of a data directory: direct I/O, no page cache, no surprises.
//!
//! - Writes are whole pages at page positions. A write that the kernel cut short is an error.
//! - Reads may have any position and length; they return what the file holds of it, never more.
//! - After a failed write or sync the caller must take the file for damaged: nothing is retried here.
//! - Dropping the future of a write or sync does not stop it.
//! - At most [`crate::DISK_IN_FLIGHT_MAX`] requests of a shard run at once; more wait in order.

mod error;
mod file;
mod tree;

pub use error::{DiskError, DiskErrorKind};
pub use file::{File, OpenOptions};
pub use tree::{
    DirEntry, FreeSpace, create_dir_all, create_dirs, exists, free_space, list_dir, read_file, remove_dir_all, remove_file,
    rename, sync_dir, syncfs, write_file_atomically,
};
