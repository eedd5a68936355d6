use std::path::{Path, PathBuf};

/// A disk operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {}: {kind}", path.display())]
pub struct DiskError {
    /// What was tried: "open", "write", …
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Why it failed.
    pub kind: DiskErrorKind,
}

/// Why a disk operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskErrorKind {
    /// The kernel said so.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// The kernel wrote less than asked. On a direct file this means that the disk is full.
    #[error("only {written} of {wanted} bytes were written: the disk is full")]
    ShortWrite {
        /// Bytes that reached the file.
        written: u64,
        /// Bytes that were to be written.
        wanted: u64,
    },
    /// The file is larger than the caller allows.
    #[error("it holds {length} bytes, more than the {limit} allowed")]
    TooLarge {
        /// Bytes in the file.
        length: u64,
        /// Bytes that the caller allows.
        limit: u64,
    },
    /// The blocking call that did it panicked.
    #[error("the call panicked: {0}")]
    Panicked(String),
}

impl DiskError {
    /// An error of `operation` on `path`.
    pub fn new(operation: &'static str, path: &Path, kind: DiskErrorKind) -> DiskError {
        DiskError { operation, path: path.to_owned(), kind }
    }

    /// From an error of the standard library.
    pub(crate) fn from_io(operation: &'static str, path: &Path, error: &std::io::Error) -> DiskError {
        // An error without a number comes from a check in the library, e.g. a path with a zero byte.
        DiskError::new(operation, path, DiskErrorKind::Errno(error.raw_os_error().unwrap_or(libc::EINVAL)))
    }

    /// The error number, when the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self.kind {
            DiskErrorKind::Errno(errno) => Some(errno),
            _ => None,
        }
    }

    /// There is no room: ENOSPC, EDQUOT, or a short write.
    pub fn is_full(&self) -> bool {
        match self.kind {
            DiskErrorKind::Errno(errno) => errno == libc::ENOSPC || errno == libc::EDQUOT,
            DiskErrorKind::ShortWrite { .. } => true,
            DiskErrorKind::TooLarge { .. } | DiskErrorKind::Panicked(_) => false,
        }
    }

    /// There is no such file or directory.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// The file exists already.
    pub fn is_already_there(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }
}

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<DiskError>();
};
