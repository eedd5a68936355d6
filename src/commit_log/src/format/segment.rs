//! The file of one segment: header block, batches, and when sealed the index with its trailer.
//!
//! ```text
//!  0        4096                                                index_position          end of file
//!  │ header │ batches … pad │ batches … pad │ … │ batches … pad │ entries │ zeros │ trailer │
//!
//!  header  0 magic "CLS1" │ 4 version u16 │ 6 reserved u16 │ 8 topic id │ 24 partition u32 │ 28 reserved u32 │ 32 base_offset u64
//!         40 storage_id u64 │ 48 incarnation u64 │ 56 crc u32 │ zeros to 4096
//!  trailer 0 magic "CLT1" │ 4 version u16 │ 6 reserved u16 │ 8 base_offset u64 │ 16 end_offset u64 │ 24 index_position u64
//!         32 entries u32 │ 36 entries_crc u32 │ 40 max_timestamp_ms i64 │ 48 partition tag u32 │ 52 reserved to 60 │ 60 crc u32
//! ```
//!
//! The trailer is the last 64 bytes of a file that is cut to whole blocks. Both are under checksums that include the segment's identity.

use wire::checksum::crc32c;
use wire::{Offset, PartitionKey};

use super::bytes::{Reader, Writer, check_crc, seal_crc};
use super::{BLOCK_BYTES, FORMAT_VERSION, FormatError};
use crate::limits::{INDEX_ENTRIES_MAX, SEGMENT_FILE_BYTES_MAX};

pub use super::index::{IndexEntry, SegmentIndex, Stretch};
pub use super::segment_scan::{Run, ScanStop, SegmentScan, SegmentTail};

/// Bytes of the trailer at the end of a sealed segment.
pub const TRAILER_BYTES: usize = 64;

const HEADER_MAGIC: [u8; 4] = *b"CLS1";
const HEADER_WHAT: &str = "segment header";
const HEADER_CRC_AT: usize = 56;

const TRAILER_MAGIC: [u8; 4] = *b"CLT1";
const TRAILER_WHAT: &str = "segment trailer";
const TRAILER_CRC_AT: usize = 60;

/// Which segment a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its partition.
    pub partition: PartitionKey,
    /// Offset of its first batch.
    pub base_offset: Offset,
    /// The shard directory that made it. Informative: partitions move between shards, their files stay.
    pub storage_id: u64,
    /// Tells the file from an older one of the same name: after a cut the name is used again, and a crash may bring the older file back.
    pub incarnation: u64,
}

impl SegmentHeader {
    /// Fills `block`, which has [`BLOCK_BYTES`].
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK_BYTES, "the header takes one block");
        let mut writer = Writer::new(block);
        writer.put(&HEADER_MAGIC).u16(FORMAT_VERSION).u16(0).partition(self.partition).u32(0).u64(self.base_offset.0);
        writer.u64(self.storage_id).u64(self.incarnation).zero_rest();
        seal_crc(block, HEADER_CRC_AT);
    }

    /// Reads the header block of the segment of `partition` that starts at `base_offset` (its folder and name).
    ///
    /// # Errors
    /// What is wrong; [`FormatError::Foreign`] when it is another segment's.
    pub fn decode(block: &[u8], partition: PartitionKey, base_offset: Offset) -> Result<Self, FormatError> {
        let block = Reader::new(HEADER_WHAT, block).take(BLOCK_BYTES)?;
        let mut reader = Reader::new(HEADER_WHAT, block);
        reader.magic(HEADER_MAGIC)?;
        reader.version()?;
        check_crc(HEADER_WHAT, block, HEADER_CRC_AT)?;
        reader.reserved(2)?;
        let found = reader.partition()?;
        reader.belongs("partition", partition_tag(found).into(), partition_tag(partition).into())?;
        reader.reserved(4)?;
        let base = reader.u64()?;
        reader.belongs("base offset", base, base_offset.0)?;
        let storage_id = reader.u64()?;
        let incarnation = reader.u64()?;
        reader.take(4)?;
        reader.reserved(BLOCK_BYTES - HEADER_CRC_AT - 4)?;
        Ok(Self { partition: found, base_offset, storage_id, incarnation })
    }
}

/// What the end of a sealed segment states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentTrailer {
    /// Offset of the first batch.
    pub base_offset: Offset,
    /// First offset that is not in the segment.
    pub end_offset: Offset,
    /// Where the index starts and the batches end.
    pub index_position: u64,
    /// Entries of the index.
    pub entries: u32,
    /// Checksum of the index, from its start to the trailer.
    pub entries_crc: u32,
    /// Greatest timestamp in the segment; `i64::MIN` for none.
    pub max_timestamp_ms: i64,
}

impl SegmentTrailer {
    /// Reads the trailer out of the last bytes of a file of `file_bytes` (`tail`: its last block or more).
    ///
    /// # Errors
    /// What is wrong. A segment that is not sealed has no trailer: [`FormatError::Magic`].
    pub fn decode(tail: &[u8], partition: PartitionKey, base_offset: Offset, file_bytes: u64) -> Result<Self, FormatError> {
        let found_bytes = tail.len();
        let Some(bytes) = tail.last_chunk::<TRAILER_BYTES>() else {
            return Err(FormatError::Truncated { what: TRAILER_WHAT, needed_bytes: TRAILER_BYTES, found_bytes });
        };
        let mut reader = Reader::new(TRAILER_WHAT, bytes);
        reader.magic(TRAILER_MAGIC)?;
        reader.version()?;
        check_crc(TRAILER_WHAT, bytes, TRAILER_CRC_AT)?;
        reader.reserved(2)?;
        let base = reader.u64()?;
        reader.belongs("base offset", base, base_offset.0)?;
        let trailer = Self {
            base_offset,
            end_offset: Offset(reader.u64()?),
            index_position: reader.u64()?,
            entries: reader.u32()?,
            entries_crc: reader.u32()?,
            max_timestamp_ms: reader.i64()?,
        };
        let tag = reader.u32()?;
        reader.belongs("partition", tag.into(), partition_tag(partition).into())?;
        reader.reserved(8)?;
        let entries_end = trailer.index_position.saturating_add(u64::from(trailer.entries) * IndexEntry::BYTES as u64);
        if u64::from(trailer.entries) > INDEX_ENTRIES_MAX || file_bytes > SEGMENT_FILE_BYTES_MAX {
            return Err(reader.field("entries", trailer.entries.into(), "must be within the limit"));
        }
        if trailer.index_position < BLOCK_BYTES as u64 || entries_end + TRAILER_BYTES as u64 > file_bytes {
            return Err(reader.field("index position", trailer.index_position, "the index must lie within the file"));
        }
        Ok(trailer)
    }

    /// Bytes from the start of the index to the end of a file of `file_bytes`: what [`SegmentIndex::decode`] takes.
    pub fn index_bytes(&self, file_bytes: u64) -> u64 {
        file_bytes - self.index_position
    }
}

impl SegmentIndex {
    /// The end of a sealed segment, whole blocks, to be written at `index_position`, where the batches end. The file ends after it.
    pub fn encode(&self, partition: PartitionKey, index_position: u64, end_offset: Offset) -> Vec<u8> {
        assert!(index_position.is_multiple_of(BLOCK_BYTES as u64), "the index starts on a block");
        assert!(end_offset >= self.base_offset(), "a segment ends after it starts");
        let entries_bytes = self.entries().len() * IndexEntry::BYTES;
        let mut bytes = vec![0; (entries_bytes + TRAILER_BYTES).next_multiple_of(BLOCK_BYTES)];
        let trailer_at = bytes.len() - TRAILER_BYTES;
        let (entries, trailer) = bytes.split_at_mut(trailer_at);
        let mut writer = Writer::new(entries);
        for entry in self.entries() {
            writer.u64(entry.offset.0).u64(entry.position).i64(entry.max_timestamp_ms);
        }
        let entries_crc = crc32c(entries);
        let mut writer = Writer::new(trailer);
        writer.put(&TRAILER_MAGIC).u16(FORMAT_VERSION).u16(0).u64(self.base_offset().0).u64(end_offset.0).u64(index_position);
        writer
            .u32(self.entries().len() as u32)
            .u32(entries_crc)
            .i64(self.max_timestamp_ms())
            .u32(partition_tag(partition))
            .zero_rest();
        seal_crc(trailer, TRAILER_CRC_AT);
        bytes
    }

    /// Reads an index: `bytes` from its position to the end of the file, trailer included.
    ///
    /// # Errors
    /// What is wrong. The index is then rebuilt from the batches.
    pub fn decode(bytes: &[u8], trailer: &SegmentTrailer) -> Result<Self, FormatError> {
        const WHAT: &str = "segment index";
        let needed_bytes = trailer.entries as usize * IndexEntry::BYTES + TRAILER_BYTES;
        if bytes.len() < needed_bytes {
            return Err(FormatError::Truncated { what: WHAT, needed_bytes, found_bytes: bytes.len() });
        }
        let area = &bytes[..bytes.len() - TRAILER_BYTES];
        let computed = crc32c(area);
        if computed != trailer.entries_crc {
            return Err(FormatError::Crc { what: WHAT, stated: trailer.entries_crc, computed });
        }
        let mut reader = Reader::new(WHAT, area);
        let mut entries = Vec::with_capacity(trailer.entries as usize);
        for _ in 0..trailer.entries {
            entries.push(IndexEntry { offset: Offset(reader.u64()?), position: reader.u64()?, max_timestamp_ms: reader.i64()? });
        }
        SegmentIndex::from_entries(trailer.base_offset, entries, trailer.max_timestamp_ms)
            .ok_or_else(|| reader.field("entries", trailer.entries.into(), "must ascend and have the greatest timestamp stated"))
    }
}

/// Ties a trailer and a header to their partition.
fn partition_tag(partition: PartitionKey) -> u32 {
    let mut bytes = [0; 20];
    Writer::new(&mut bytes).partition(partition);
    crc32c(&bytes)
}
