//! The first block of a write-ahead file: which file it is and where the one before it ended.
//!
//! ```text
//!  0 magic "CLF0" │ 4 version u16 │ 6 reserved u16 │ 8 storage_id u64 │ 16 file_sequence u64 │ 24 first_block_sequence u64
//! 32 previous_file_sequence u64 │ 40 previous_end_position u64 │ 48 previous_end_block_sequence u64 │ 56 crc u32 │ zeros to 4096
//! ```
//!
//! A file is recycled under a new sequence: its old blocks name the old one and fail. After a recovery the next file names the end that
//! recovery found: valid blocks of the previous file past that end are never looked at again.

use super::bytes::{Reader, Writer, check_crc, seal_crc};
use super::{BLOCK_BYTES, FORMAT_VERSION, FormatError};

const MAGIC: [u8; 4] = *b"CLF0";
const WHAT: &str = "log file header";
const CRC_AT: usize = 56;

/// Where one file stops and the next goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviousFile {
    /// Sequence of the previous file; 0 when there is none.
    pub file_sequence: u64,
    /// Position in it after its last block.
    pub end_position: u64,
    /// Number of the first block that it does not hold.
    pub end_block_sequence: u64,
}

/// The header block as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Identity of the shard directory.
    pub storage_id: u64,
    /// Sequence of this file, from 1 on.
    pub file_sequence: u64,
    /// Number of the block at position 4096. Equal to `previous.end_block_sequence` when the log rolled from file to file; greater after a
    /// recovery, which leaves a gap so that a number is never used twice.
    pub first_block_sequence: u64,
    /// The file before.
    pub previous: PreviousFile,
}

impl FileHeader {
    /// Fills `block`, which has [`BLOCK_BYTES`].
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK_BYTES, "the header takes one block");
        assert!(self.file_sequence > self.previous.file_sequence, "files are numbered upwards");
        assert!(self.first_block_sequence >= self.previous.end_block_sequence, "blocks are numbered upwards");
        let mut writer = Writer::new(block);
        writer.put(&MAGIC).u16(FORMAT_VERSION).u16(0).u64(self.storage_id).u64(self.file_sequence).u64(self.first_block_sequence);
        writer.u64(self.previous.file_sequence).u64(self.previous.end_position).u64(self.previous.end_block_sequence).zero_rest();
        seal_crc(block, CRC_AT);
    }

    /// Reads a header block of the file numbered `file_sequence` (its name) of this storage.
    ///
    /// # Errors
    /// What is wrong; [`FormatError::Magic`] with 0 for a file that was made ready and not yet used.
    pub fn decode(block: &[u8], storage_id: u64, file_sequence: u64) -> Result<Self, FormatError> {
        let block = Reader::new(WHAT, block).take(BLOCK_BYTES)?;
        let mut reader = Reader::new(WHAT, block);
        reader.magic(MAGIC)?;
        reader.version()?;
        check_crc(WHAT, block, CRC_AT)?;
        reader.reserved(2)?;
        let found = reader.u64()?;
        reader.belongs("storage id", found, storage_id)?;
        let found = reader.u64()?;
        reader.belongs("file sequence", found, file_sequence)?;
        let first_block_sequence = reader.u64()?;
        let previous =
            PreviousFile { file_sequence: reader.u64()?, end_position: reader.u64()?, end_block_sequence: reader.u64()? };
        reader.take(4)?;
        reader.reserved(BLOCK_BYTES - CRC_AT - 4)?;
        if previous.file_sequence >= file_sequence {
            return Err(reader.field("previous file", previous.file_sequence, "must be below the file's own sequence"));
        }
        if first_block_sequence == 0 || first_block_sequence < previous.end_block_sequence {
            return Err(reader.field("first block", first_block_sequence, "must not be below the end of the previous file"));
        }
        Ok(Self { storage_id, file_sequence, first_block_sequence, previous })
    }
}

/// Name of the file numbered `file_sequence`.
pub fn file_name(file_sequence: u64) -> String {
    format!("wal-{file_sequence:016x}.log")
}

/// The reverse of [`file_name`]; `None` for any other name.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?.strip_suffix(".log")?;
    parse_sequence(digits)
}

/// Sixteen lower-case hexadecimal digits.
pub(crate) fn parse_sequence(digits: &str) -> Option<u64> {
    let plain = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(digits, 16).ok() } else { None }
}
