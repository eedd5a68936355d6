//! Small files that say who they are: one line of magic, version, length and crc32c, then JSON. Replaced whole, never changed in place.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};
use wire::checksum::crc32c;

/// A checked file cannot be read, written or trusted.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// `read` or `write`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The content is not what was written.
    #[error("{path} is damaged ({what}): restore it from a copy; the broker does not guess")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Written by a later version.
    #[error("{path} has format version {version}; this broker reads up to {VERSION}")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

const MAGIC: &str = "corelane";
const VERSION: u32 = 1;

/// Reads `path`; `None` when it does not exist.
pub(crate) fn read_checked<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FileError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FileError::Io { operation: "read", path: path.to_owned(), source }),
    };
    let damaged = |what: &str| FileError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let line_end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("no header line"))?;
    let line = std::str::from_utf8(&bytes[..line_end]).map_err(|_| damaged("header is not text"))?;
    let fields: Vec<&str> = line.split(' ').collect();
    let [MAGIC, version, length, crc] = fields[..] else { return Err(damaged("header does not fit")) };
    let version: u32 = version.parse().map_err(|_| damaged("version is not a number"))?;
    if version > VERSION {
        return Err(FileError::TooNew { path: path.to_owned(), version });
    }
    let body = &bytes[line_end + 1..];
    if length.parse() != Ok(body.len()) {
        return Err(damaged("length differs"));
    }
    if u32::from_str_radix(crc, 16) != Ok(crc32c(body)) {
        return Err(damaged("checksum differs"));
    }
    serde_json::from_slice(body).map(Some).map_err(|error| damaged(&error.to_string()))
}

/// Replaces `path` atomically: a crash leaves the old content or the new.
pub(crate) fn write_checked<T: Serialize>(path: &Path, value: &T) -> Result<(), FileError> {
    let body = serde_json::to_vec(value).expect("identity files are plain data");
    let header = format!("{MAGIC} {VERSION} {} {:08x}\n", body.len(), crc32c(&body));
    replace(path, &[header.as_bytes(), &body]).map_err(|source| FileError::Io {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

/// Writes the parts to a new file beside `path`, syncs it, renames it over `path`, and syncs the folder.
pub(crate) fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder_of(path)
}

/// Makes the entry of `path` in its folder durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().expect("files of the broker stand in a folder"))?.sync_all()
}
