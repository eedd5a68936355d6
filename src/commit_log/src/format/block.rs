//! A block group of the write-ahead log: the unit of a durable write.
//!
//! ```text
//!  0        96                                                length, k × 4096
//!  │ header │ record │ record │ … │ record │ zeros                    │
//!            └ each a multiple of 16, so that a batch within stands on 16 and can be served from this buffer
//!
//!  header   0 magic "CLW1" │ 4 version u16 │ 6 reserved u16 │ 8 storage_id u64 │ 16 file_sequence u64 │ 24 block_sequence u64
//!          32 position u64 │ 40 durable_sequence u64 │ 48 length_bytes u32 │ 52 records_bytes u32 │ 56 record_count u32
//!          60 previous_crc u32 │ 64 body_crc u32 │ 68 header_crc u32 │ 72 reserved to 96
//! ```
//!
//! `body_crc` covers everything after the header, zeros included; `header_crc` covers the header and with it `body_crc`. So a header says
//! truly where the next block begins even when the body is damaged: that is what lets recovery tell a damaged block from the end of the log.
//! `previous_crc` is the `header_crc` of the block before: two histories of one log cannot be spliced.

use wire::checksum::crc32c;

use super::bytes::{Reader, Writer, check_crc, seal_crc};
use super::{BLOCK_BYTES, FORMAT_VERSION, FormatError};
use crate::limits::{WAL_BLOCK_BYTES_MAX, WAL_FILE_BYTES_MAX};

/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 96;

const MAGIC: [u8; 4] = *b"CLW1";
const WHAT: &str = "log block";
const HEADER_CRC_AT: usize = 68;

const _: () = assert!(BLOCK_HEADER_BYTES.is_multiple_of(16), "batches in the block stand on 16");

/// Where a block stands: part of what its checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Identity of the shard directory, drawn when it was made.
    pub storage_id: u64,
    /// Sequence of the file, in its name and header.
    pub file_sequence: u64,
    /// Byte position in the file.
    pub position: u64,
}

/// The header as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Where it belongs.
    pub place: BlockPlace,
    /// Number of the block in the log, from 1 on, over all files. Never used twice under one storage id.
    pub block_sequence: u64,
    /// Highest block known durable, with all before it, when this one was built.
    pub durable_sequence: u64,
    /// `header_crc` of the block before; 0 for the first block after a start.
    pub previous_crc: u32,
    /// Whole block.
    pub length_bytes: u32,
    /// Records, without the zeros after them.
    pub records_bytes: u32,
    /// Number of records.
    pub record_count: u32,
    /// Checksum of everything after the header.
    pub body_crc: u32,
    /// Checksum of the header.
    pub header_crc: u32,
}

impl BlockHeader {
    /// Reads the header at the start of `bytes` (at least [`BLOCK_HEADER_BYTES`]) and checks all that needs no body.
    ///
    /// # Errors
    /// What is wrong; [`FormatError::Foreign`] for a whole block of another place.
    pub fn decode(bytes: &[u8], place: BlockPlace) -> Result<Self, FormatError> {
        let mut reader = Reader::new(WHAT, bytes);
        let header_bytes = reader.take(BLOCK_HEADER_BYTES)?;
        let mut reader = Reader::new(WHAT, header_bytes);
        reader.magic(MAGIC)?;
        reader.version()?;
        let header_crc = check_crc(WHAT, header_bytes, HEADER_CRC_AT)?;
        reader.reserved(2)?;
        let storage_id = reader.u64()?;
        reader.belongs("storage id", storage_id, place.storage_id)?;
        let file_sequence = reader.u64()?;
        reader.belongs("file sequence", file_sequence, place.file_sequence)?;
        let block_sequence = reader.u64()?;
        let position = reader.u64()?;
        reader.belongs("position", position, place.position)?;
        let header = Self {
            place,
            block_sequence,
            durable_sequence: reader.u64()?,
            length_bytes: reader.u32()?,
            records_bytes: reader.u32()?,
            record_count: reader.u32()?,
            previous_crc: reader.u32()?,
            body_crc: reader.u32()?,
            header_crc,
        };
        reader.take(4)?;
        reader.reserved(BLOCK_HEADER_BYTES - HEADER_CRC_AT - 4)?;
        header.check(&reader)?;
        Ok(header)
    }

    fn check(&self, reader: &Reader<'_>) -> Result<(), FormatError> {
        let length = u64::from(self.length_bytes);
        if self.length_bytes == 0 || !length.is_multiple_of(BLOCK_BYTES as u64) || length > WAL_BLOCK_BYTES_MAX {
            return Err(reader.field("length", length, "must be whole blocks, within the limit"));
        }
        if self.place.position + length > WAL_FILE_BYTES_MAX {
            return Err(reader.field("length", length, "reaches over the end of the file"));
        }
        if BLOCK_HEADER_BYTES as u64 + u64::from(self.records_bytes) > length {
            return Err(reader.field("records length", u64::from(self.records_bytes), "must fit the block"));
        }
        if self.durable_sequence >= self.block_sequence {
            return Err(reader.field("durable sequence", self.durable_sequence, "must be below the block's own"));
        }
        Ok(())
    }

    /// Checks the body of the whole block `bytes` (at least its length) and returns its records' bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], [`FormatError::Crc`].
    pub fn verify_body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let block = Reader::new(WHAT, bytes).take(self.length_bytes as usize)?;
        let computed = crc32c(&block[BLOCK_HEADER_BYTES..]);
        if computed != self.body_crc {
            return Err(FormatError::Crc { what: "log block body", stated: self.body_crc, computed });
        }
        Ok(&block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + self.records_bytes as usize])
    }
}

/// What a block's header states beyond its place and its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockChain {
    /// Number of this block.
    pub block_sequence: u64,
    /// Highest block known durable, with all before it.
    pub durable_sequence: u64,
    /// `header_crc` of the block before; 0 for the first after a start.
    pub previous_crc: u32,
}

/// Closes a block: `block` is the whole buffer (whole 4 KiB blocks) whose records stand from [`BLOCK_HEADER_BYTES`] on and take `records_bytes`.
/// Zeroes what follows them, writes the header, and returns its crc: the next block's `previous_crc`.
pub fn finish_block(block: &mut [u8], records_bytes: usize, record_count: u32, place: BlockPlace, chain: BlockChain) -> u32 {
    assert!(!block.is_empty(), "a block has a header");
    assert!(block.len().is_multiple_of(BLOCK_BYTES), "a block is padded to 4 KiB");
    assert!(block.len() as u64 <= WAL_BLOCK_BYTES_MAX, "a block keeps to its limit");
    assert!(place.position.is_multiple_of(BLOCK_BYTES as u64), "a block starts on 4 KiB");
    assert!(place.position + block.len() as u64 <= WAL_FILE_BYTES_MAX, "a block ends within its file");
    assert!(records_bytes.is_multiple_of(16), "records are multiples of 16");
    assert!(BLOCK_HEADER_BYTES + records_bytes <= block.len(), "the records fit the block");
    assert!(chain.durable_sequence < chain.block_sequence, "a block is not durable before it is built");
    block[BLOCK_HEADER_BYTES + records_bytes..].fill(0);
    let length_bytes = block.len() as u32;
    let (header, body) = block.split_at_mut(BLOCK_HEADER_BYTES);
    let body_crc = crc32c(body);
    let mut writer = Writer::new(header);
    writer.put(&MAGIC).u16(FORMAT_VERSION).u16(0).u64(place.storage_id).u64(place.file_sequence).u64(chain.block_sequence);
    writer.u64(place.position).u64(chain.durable_sequence).u32(length_bytes).u32(records_bytes as u32).u32(record_count);
    writer.u32(chain.previous_crc).u32(body_crc).zero_rest();
    seal_crc(header, HEADER_CRC_AT)
}
