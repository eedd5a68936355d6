//! The bytes on the disk, and nothing else: no file is opened here.
//!
//! ```text
//!  superblock        whose storage a shard directory is: cluster, broker, storage id, boot
//!  checkpoint-<n>    where every partition of the shard stood, and from where the write-ahead log is replayed
//!  wal-<seq>.log     │ file header │ block │ block │ …          a block: header, records, zeros, all under two checksums
//!  <…>-<base>.seg    │ header │ batches … pad │ … │ index, trailer │
//! ```
//!
//! Invariants:
//! - Everything is little-endian, written in whole blocks of [`BLOCK_BYTES`] (superblock and checkpoint: whole files replaced by rename), and
//!   carries magic, version and crc32c. Each bit of each file is under some checksum.
//! - What a checksum covers includes *where* the bytes belong (storage id, file sequence, position), so that stale and misdirected bytes fail.
//! - Bytes from the disk are input: decoding returns a typed error, allocates nothing that the bytes given do not back, and never panics.

mod bytes;
mod producers_section;

pub mod block;
pub mod checkpoint;
pub mod file_header;
pub mod index;
pub mod record;
pub mod segment;
pub mod segment_scan;
pub mod superblock;

pub use bytes::FormatError;

/// The unit of direct I/O and of padding: what every NVMe device and file system accepts, and one page.
pub const BLOCK_BYTES: usize = 4096;

/// The highest version of each format that this code reads, and the one it writes.
pub const FORMAT_VERSION: u16 = 1;

/// Whether `bytes` holds only zeros. Sixteen bytes at a time: it runs over padding on the hot path of recovery.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
