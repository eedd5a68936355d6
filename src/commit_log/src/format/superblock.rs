//! Whose storage a shard directory is.
//!
//! ```text
//!  0 magic "CLSB" │ 4 version u16 │ 6 shard u16 │ 8 cluster id │ 24 broker u32 │ 28 reserved u32 │ 32 storage_id u64 │ 40 boot u64
//! 48 crc u32 │ zeros to 4096
//! ```
//!
//! Replaced by rename at every start, with the boot number one higher. A directory of another cluster or broker is refused.

use super::bytes::{Reader, Writer, check_crc, seal_crc};
use super::{BLOCK_BYTES, FORMAT_VERSION, FormatError};

const MAGIC: [u8; 4] = *b"CLSB";
const WHAT: &str = "superblock";
const CRC_AT: usize = 48;

/// Name of the file in a shard directory.
pub const SUPERBLOCK_NAME: &str = "superblock";

/// The superblock as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The broker in it.
    pub broker_id: u32,
    /// Number of the shard directory, as in its name.
    pub shard: u16,
    /// Drawn at random when the directory was made: blocks of another life of the disk do not pass.
    pub storage_id: u64,
    /// Number of the latest start that used the directory.
    pub boot: u64,
}

impl Superblock {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&MAGIC).u16(FORMAT_VERSION).u16(self.shard).put(&self.cluster_id).u32(self.broker_id).u32(0);
        writer.u64(self.storage_id).u64(self.boot).zero_rest();
        seal_crc(&mut bytes, CRC_AT);
        bytes
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = Reader::new(WHAT, bytes).take(BLOCK_BYTES)?;
        let mut reader = Reader::new(WHAT, bytes);
        reader.magic(MAGIC)?;
        reader.version()?;
        check_crc(WHAT, bytes, CRC_AT)?;
        let shard = reader.u16()?;
        let cluster_id = reader.id()?;
        let broker_id = reader.u32()?;
        reader.reserved(4)?;
        let superblock = Self { cluster_id, broker_id, shard, storage_id: reader.u64()?, boot: reader.u64()? };
        reader.take(4)?;
        reader.reserved(BLOCK_BYTES - CRC_AT - 4)?;
        Ok(superblock)
    }
}
