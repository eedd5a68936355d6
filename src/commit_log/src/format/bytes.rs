//! Little-endian numbers in byte slices, with errors that name the place.

use wire::checksum::crc32c;
use wire::{PartitionIndex, PartitionKey, TopicId};

/// What is wrong with bytes from the disk. `what` names the format (such as `"segment header"`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Fewer bytes than the format needs.
    #[error("{what}: {needed_bytes} bytes needed, {found_bytes} found")]
    Truncated {
        /// Format.
        what: &'static str,
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes there.
        found_bytes: usize,
    },
    /// Not of this format, or never written.
    #[error("{what}: magic {found:#010x}")]
    Magic {
        /// Format.
        what: &'static str,
        /// What stands there.
        found: u32,
    },
    /// Written by a newer version of this program.
    #[error("{what}: version {found}, versions 1 to {} are known", super::FORMAT_VERSION)]
    Version {
        /// Format.
        what: &'static str,
        /// What stands there.
        found: u16,
    },
    /// The bytes do not have the checksum they state.
    #[error("{what}: crc {stated:#010x} stated, {computed:#010x} computed")]
    Crc {
        /// Format.
        what: &'static str,
        /// In the bytes.
        stated: u32,
        /// Over the bytes.
        computed: u32,
    },
    /// Whole and undamaged, but it belongs elsewhere: another storage, file or position.
    #[error("{what}: {field} is {found}, {expected} belongs here")]
    Foreign {
        /// Format.
        what: &'static str,
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: u64,
        /// What should.
        expected: u64,
    },
    /// A number outside what its field may hold.
    #[error("{what}: {field} is {found}: {rule}")]
    Field {
        /// Format.
        what: &'static str,
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: u64,
        /// What may stand there.
        rule: &'static str,
    },
}

/// Reads numbers one after the other.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        if count > self.remaining() {
            let needed_bytes = self.at.saturating_add(count);
            return Err(FormatError::Truncated { what: self.what, needed_bytes, found_bytes: self.bytes.len() });
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let taken = self.take(N)?;
        Ok(*taken.first_chunk::<N>().expect("N bytes were taken"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn topic(&mut self) -> Result<TopicId, FormatError> {
        Ok(TopicId(self.array()?))
    }

    pub(crate) fn id(&mut self) -> Result<[u8; 16], FormatError> {
        self.array()
    }

    /// A partition: topic id, then index.
    pub(crate) fn partition(&mut self) -> Result<PartitionKey, FormatError> {
        let topic = self.topic()?;
        Ok(PartitionKey { topic, partition: PartitionIndex(self.u32()?) })
    }

    /// Bytes that this version leaves zero.
    pub(crate) fn reserved(&mut self, count: usize) -> Result<(), FormatError> {
        let bytes = self.take(count)?;
        match bytes.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(found) => Err(self.field("reserved", u64::from(*found), "must be zero")),
        }
    }

    pub(crate) fn magic(&mut self, expected: [u8; 4]) -> Result<(), FormatError> {
        let found = self.u32()?;
        if found == u32::from_le_bytes(expected) { Ok(()) } else { Err(FormatError::Magic { what: self.what, found }) }
    }

    pub(crate) fn version(&mut self) -> Result<(), FormatError> {
        let found = self.u16()?;
        if found == super::FORMAT_VERSION { Ok(()) } else { Err(FormatError::Version { what: self.what, found }) }
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), FormatError> {
        if self.remaining() == 0 {
            return Ok(());
        }
        Err(self.field("length", self.bytes.len() as u64, "bytes are left over"))
    }

    pub(crate) fn field(&self, field: &'static str, found: u64, rule: &'static str) -> FormatError {
        FormatError::Field { what: self.what, field, found, rule }
    }

    /// Asserts nothing, returns an error: `found` must be `expected`, or the bytes belong elsewhere.
    pub(crate) fn belongs(&self, field: &'static str, found: u64, expected: u64) -> Result<(), FormatError> {
        if found == expected { Ok(()) } else { Err(FormatError::Foreign { what: self.what, field, found, expected }) }
    }
}

/// Appends numbers to a fixed slice. Running over its end is a programming error.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn partition(&mut self, key: PartitionKey) -> &mut Self {
        self.put(&key.topic.0).u32(key.partition.0)
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Fills what is left with zeros.
    pub(crate) fn zero_rest(&mut self) {
        self.bytes[self.at..].fill(0);
    }
}

/// Writes the crc of all of `bytes`, taken with the four bytes at `at` zero, to `at`.
pub(crate) fn seal_crc(bytes: &mut [u8], at: usize) -> u32 {
    bytes[at..at + 4].fill(0);
    let crc = crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Checks what [`seal_crc`] wrote. Returns the crc.
pub(crate) fn check_crc(what: &'static str, bytes: &[u8], at: usize) -> Result<u32, FormatError> {
    let stated = u32::from_le_bytes(*bytes[at..].first_chunk::<4>().expect("the caller gives whole structures"));
    let computed = wire::checksum::crc32c_append(wire::checksum::crc32c_append(crc32c(&bytes[..at]), &[0; 4]), &bytes[at + 4..]);
    if stated == computed { Ok(stated) } else { Err(FormatError::Crc { what, stated, computed }) }
}
