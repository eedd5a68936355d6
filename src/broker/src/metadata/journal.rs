//! The journal of topic changes: appended and synced before a change is visible to anybody.
//!
//! ```text
//!  header 64 bytes │ record │ record │ …            journal-<generation>, follows snapshot-<generation>
//!    magic, version, generation, crc
//!                    └ magic u32 │ length u32 │ sequence u64 │ crc32c u32 │ zero u32 │ payload, padded to 8
//! ```
//!
//! One record is one sync: the next is written only after this one is durable. So a record that does not pass is a torn tail, never
//! acknowledged, and may be cut, if and only if no valid record follows it.

use crate::data_directory::sync_folder_of;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use wire::checksum::crc32c;

const HEADER_BYTES: usize = 64;
const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"CLMJ");
const HEADER_VERSION: u32 = 1;
const RECORD_HEADER_BYTES: usize = 24;
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"CLMR");
const RECORD_ALIGNMENT: usize = 8;

/// The most payload of one record: bounds what replay believes a length field about.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Payloads in the order in which they were written.
type Entries = Vec<Vec<u8>>;

/// Why a journal cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refuses.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Acknowledged changes are damaged.
    #[error("{path} is damaged at byte {position} ({what}): restore the metadata folder from a copy; the broker does not guess")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        position: usize,
        /// What does not fit.
        what: &'static str,
    },
    /// Written by a later version.
    #[error("{path} has format version {version}; this broker reads up to {HEADER_VERSION}")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// An open journal, positioned at its end.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    next_sequence: u64,
    bytes: u64,
}

impl Journal {
    /// Makes the empty journal of `generation`, durably.
    pub(super) fn create(folder: &Path, generation: u64) -> Result<Journal, JournalError> {
        let path = journal_path(folder, generation);
        let io_error = |source| JournalError::Io { operation: "create", path: path.clone(), source };
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(io_error)?;
        file.write_all(&encode_header(generation)).map_err(io_error)?;
        file.sync_all().map_err(io_error)?;
        sync_folder_of(&path).map_err(io_error)?;
        Ok(Journal { file, path, next_sequence: 0, bytes: HEADER_BYTES as u64 })
    }

    /// Reads every record of the journal of `generation`, cuts a torn tail, and opens it for appending. `None` when there is none:
    /// the snapshot was written and the journal that follows it was not yet made.
    pub(super) fn replay(folder: &Path, generation: u64) -> Result<Option<(Journal, Entries)>, JournalError> {
        let path = journal_path(folder, generation);
        let io_error = |operation| {
            let path = path.clone();
            move |source| JournalError::Io { operation, path, source }
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error("read")(source)),
        };
        if bytes.len() < HEADER_BYTES || bytes[..HEADER_BYTES].iter().all(|byte| *byte == 0) {
            // Only its creation can leave it so: nothing was appended.
            return Ok(None);
        }
        check_header(&bytes, generation, &path)?;
        let (records, end) =
            scan(&bytes).map_err(|(position, what)| JournalError::Damaged { path: path.clone(), position, what })?;
        let mut file = OpenOptions::new().write(true).open(&path).map_err(io_error("open"))?;
        file.set_len(end as u64).map_err(io_error("cut"))?;
        file.sync_all().map_err(io_error("sync"))?;
        file.seek(SeekFrom::Start(end as u64)).map_err(io_error("seek"))?;
        let next_sequence = records.len() as u64;
        Ok(Some((Journal { file, path, next_sequence, bytes: end as u64 }, records)))
    }

    /// Appends one record and makes it durable. After an error the journal must not be used again: what is on disk is unknown.
    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), JournalError> {
        assert!(payload.len() <= RECORD_BYTES_MAX, "a record of {} bytes could not be replayed", payload.len());
        let record = encode_record(self.next_sequence, payload);
        let io_error = |source| JournalError::Io { operation: "append to", path: self.path.clone(), source };
        self.file.write_all(&record).map_err(io_error)?;
        self.file.sync_data().map_err(io_error)?;
        self.next_sequence += 1;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

pub(super) fn journal_path(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("journal-{generation:016x}"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn encode_header(generation: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&HEADER_MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&HEADER_VERSION.to_le_bytes());
    header[8..16].copy_from_slice(&generation.to_le_bytes());
    let crc = crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn check_header(bytes: &[u8], generation: u64, path: &Path) -> Result<(), JournalError> {
    let damaged = |what| JournalError::Damaged { path: path.to_owned(), position: 0, what };
    if u32_at(bytes, 0) != HEADER_MAGIC {
        return Err(damaged("not a journal"));
    }
    if crc32c(&bytes[..60]) != u32_at(bytes, 60) {
        return Err(damaged("header checksum differs"));
    }
    if u32_at(bytes, 4) > HEADER_VERSION {
        return Err(JournalError::TooNew { path: path.to_owned(), version: u32_at(bytes, 4) });
    }
    if u64_at(bytes, 8) != generation {
        return Err(damaged("the journal of another generation"));
    }
    Ok(())
}

fn encode_record(sequence: u64, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a payload is bounded far below 4 GiB");
    let mut record = Vec::with_capacity(RECORD_HEADER_BYTES + payload.len() + RECORD_ALIGNMENT);
    record.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(&sequence.to_le_bytes());
    record.extend_from_slice(&record_crc(&record, payload).to_le_bytes());
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(payload);
    record.resize(record.len().next_multiple_of(RECORD_ALIGNMENT), 0);
    record
}

/// Over length, sequence and payload.
fn record_crc(header: &[u8], payload: &[u8]) -> u32 {
    wire::checksum::crc32c_append(crc32c(&header[4..16]), payload)
}

/// The record at `at`: its sequence, its payload and where the next one begins.
fn record_at(bytes: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let header = bytes.get(at..at + RECORD_HEADER_BYTES)?;
    let length = usize::try_from(u32_at(header, 4)).ok()?;
    if u32_at(header, 0) != RECORD_MAGIC || length > RECORD_BYTES_MAX {
        return None;
    }
    let payload = bytes.get(at + RECORD_HEADER_BYTES..at + RECORD_HEADER_BYTES + length)?;
    if record_crc(header, payload) != u32_at(header, 16) {
        return None;
    }
    Some((u64_at(header, 8), payload, (at + RECORD_HEADER_BYTES + length).next_multiple_of(RECORD_ALIGNMENT)))
}

/// Every record and the end of the last. An error when a valid record stands behind one that is not.
fn scan(bytes: &[u8]) -> Result<(Entries, usize), (usize, &'static str)> {
    let mut records = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some((sequence, payload, next)) = record_at(bytes, at) {
        if sequence != records.len() as u64 {
            return Err((at, "a record is missing"));
        }
        records.push(payload.to_vec());
        // May lie past the end when the padding was cut: the caller extends the file to it.
        at = next;
    }
    let follows = |position: usize| record_at(bytes, position).is_some_and(|(sequence, _, _)| sequence > records.len() as u64);
    let mut ahead = at + RECORD_ALIGNMENT;
    while ahead < bytes.len() {
        if follows(ahead) {
            return Err((at, "a record does not pass its checksum, and later ones do"));
        }
        ahead += RECORD_ALIGNMENT;
    }
    Ok((records, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal_with(folder: &Path, payloads: &[&[u8]]) -> PathBuf {
        let mut journal = Journal::create(folder, 3).unwrap();
        for payload in payloads {
            journal.append(payload).unwrap();
        }
        journal_path(folder, 3)
    }

    fn replayed(folder: &Path) -> Vec<Vec<u8>> {
        Journal::replay(folder, 3).unwrap().unwrap().1
    }

    #[test]
    fn what_was_appended_is_replayed_and_appending_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        journal_with(folder.path(), &[b"one", b"", b"three"]);
        let (mut journal, records) = Journal::replay(folder.path(), 3).unwrap().unwrap();
        assert_eq!(records, [b"one".to_vec(), vec![], b"three".to_vec()]);
        journal.append(b"four").unwrap();
        assert_eq!(replayed(folder.path()).len(), 4);
    }

    #[test]
    fn any_cut_keeps_the_records_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = journal_with(folder.path(), &[b"first", b"second record", b"third"]);
        let whole = fs::read(&path).unwrap();
        for length in HEADER_BYTES..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let kept = replayed(folder.path());
            let payload_ends = [HEADER_BYTES + 29, HEADER_BYTES + 69, HEADER_BYTES + 101];
            assert_eq!(kept.len(), payload_ends.iter().filter(|end| **end <= length).count(), "{length}");
            Journal::replay(folder.path(), 3).unwrap().unwrap().0.append(b"more").unwrap();
            assert_eq!(replayed(folder.path()).len(), kept.len() + 1);
        }
    }

    #[test]
    fn a_damaged_last_record_is_cut_and_an_earlier_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = journal_with(folder.path(), &[b"first", b"second"]);
        let whole = fs::read(&path).unwrap();
        let mut last = whole.clone();
        *last.last_mut().unwrap() = 0;
        last[HEADER_BYTES + 32 + RECORD_HEADER_BYTES] ^= 1;
        fs::write(&path, &last).unwrap();
        assert_eq!(replayed(folder.path()), [b"first".to_vec()]);
        let mut first = whole;
        first[HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
        fs::write(&path, &first).unwrap();
        assert!(matches!(Journal::replay(folder.path(), 3), Err(JournalError::Damaged { .. })));
    }

    #[test]
    fn another_generation_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = journal_with(folder.path(), &[]);
        fs::rename(path, journal_path(folder.path(), 4)).unwrap();
        assert!(matches!(Journal::replay(folder.path(), 4), Err(JournalError::Damaged { .. })));
    }
}
