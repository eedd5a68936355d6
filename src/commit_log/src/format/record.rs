//! Records within a block of the write-ahead log.
//!
//! ```text
//!  0      1            4            8                   28         32                      length
//!  │ kind │ reserved   │ body_bytes │ topic id, partition │ reserved │ body │ zeros to 16   │
//! ```
//!
//! A record always names its partition. The block's checksum covers it, so that decoding checks meaning only. A batch's body stands on 16.

use std::ops::Range;

use wire::{LeaderEpoch, Offset, PartitionKey};

use super::bytes::{Reader, Writer};
use super::{BLOCK_BYTES, FormatError};
use crate::{Durability, PartitionOptions};

/// Bytes before a record's body.
pub const RECORD_HEADER_BYTES: usize = 32;

const WHAT: &str = "log record";

/// Bytes that a record with a body of `body_bytes` takes in a block.
pub const fn record_bytes(body_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + body_bytes.next_multiple_of(16)
}

/// A part of a segment file, as notes name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Base offset: the name of the segment.
    pub base: Offset,
    /// The incarnation in the header of its file; 0 when the file is the one that the checkpoint before names.
    pub incarnation: u64,
    /// A position in it, on a block.
    pub position: u64,
    /// The offset of the first batch at or after `position`.
    pub offset: Offset,
}

/// A segment that compaction has dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactedSegment {
    /// First offset: of the name, and of the first segment that it stands for.
    pub base: Offset,
    /// Offset after the last: the end of the last segment that it stands for.
    pub end: Offset,
    /// Of the name. That of a segment which is there already when it only becomes known what is in it.
    pub generation: u32,
    /// Position after its batches.
    pub end_position: u64,
    /// Greatest timestamp in it; `i64::MIN` for none.
    pub max_timestamp_ms: i64,
    /// Since when its deleting records have no older values; `None` when it has none of those.
    pub tombstones_since_ms: Option<i64>,
}

/// What a record says of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A stamped batch, as it stands in a segment.
    Batch(&'a [u8]),
    /// Everything from this offset on is cut, with the epochs that start there or after. A segment that holds more is sealed at it.
    Truncate(Offset),
    /// Batches from `start` on are of `epoch`.
    EpochStart {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Its first offset.
        start: Offset,
    },
    /// Everything below this offset may be deleted, and is not served any more.
    LogStart(Offset),
    /// The partition begins to exist, empty, with its log at `start`.
    Created {
        /// Its options.
        options: PartitionOptions,
        /// First offset.
        start: Offset,
    },
    /// The partition exists no more.
    Deleted,
    /// The options from here on.
    Options(PartitionOptions),
    /// A high watermark that was reached. A hint: it is not written for each move.
    HighWatermark(Offset),
    /// From here on batches may go into this segment, from this position and offset on, without passing through the log.
    DirectStart(SegmentEnd),
    /// Everything of this segment below this position is on stable storage and acknowledged up to this offset.
    DirectEnd(SegmentEnd),
    /// This segment, which is on stable storage, stands from here on for all that began in its offsets.
    Compacted(CompactedSegment),
    /// No key has two records below this offset any more.
    CleanEnd(Offset),
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its partition.
    pub key: PartitionKey,
    /// What it says.
    pub entry: Entry<'a>,
}

/// The largest body of a record that is not a batch.
const ENTRY_BODY_BYTES_MAX: usize = 48;

/// Bytes that every record but a batch takes at most.
pub const ENTRY_BYTES_MAX: usize = record_bytes(ENTRY_BODY_BYTES_MAX);

impl Record<'_> {
    /// Bytes that it takes in a block.
    pub fn encoded_bytes(&self) -> usize {
        let mut body = [0; ENTRY_BODY_BYTES_MAX];
        match self.entry {
            Entry::Batch(bytes) => record_bytes(bytes.len()),
            entry => record_bytes(encode_body(entry, &mut body)),
        }
    }
}

/// Writes records one after the other into a block's buffer.
#[derive(Debug)]
pub struct RecordWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
    count: u32,
}

impl<'a> RecordWriter<'a> {
    /// Into `bytes`: the part of a block after its header.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, count: 0 }
    }

    /// Bytes of the records written so far.
    pub fn bytes(&self) -> usize {
        self.at
    }

    /// Number of records written so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes still free.
    pub fn room(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Writes one record. The caller has counted: one that does not fit is a programming error.
    pub fn push(&mut self, record: &Record<'_>) {
        let mut body = [0; ENTRY_BODY_BYTES_MAX];
        match record.entry {
            Entry::Batch(bytes) => {
                self.push_batch(record.key, bytes.len(), |target| target.copy_from_slice(bytes));
            }
            entry => {
                let length = encode_body(entry, &mut body);
                self.push_body(record.key, kind(entry), length, |target| target.copy_from_slice(&body[..length]));
            }
        }
    }

    /// Writes a batch record whose `length` bytes `fill` provides (header stamped, payload copied once), and returns their range within the
    /// writer's bytes.
    pub fn push_batch(&mut self, key: PartitionKey, length: usize, fill: impl FnOnce(&mut [u8])) -> Range<usize> {
        assert!(length.is_multiple_of(16), "a batch is a multiple of 16");
        self.push_body(key, KIND_BATCH, length, fill)
    }

    fn push_body(&mut self, key: PartitionKey, kind: u8, length: usize, fill: impl FnOnce(&mut [u8])) -> Range<usize> {
        let end = self.at + record_bytes(length);
        assert!(end <= self.bytes.len(), "the caller counted the room");
        let record = &mut self.bytes[self.at..end];
        let (header, body) = record.split_at_mut(RECORD_HEADER_BYTES);
        Writer::new(header).u8(kind).put(&[0; 3]).u32(length as u32).partition(key).u32(0);
        fill(&mut body[..length]);
        body[length..].fill(0);
        let start = self.at + RECORD_HEADER_BYTES;
        self.at = end;
        self.count += 1;
        start..start + length
    }
}

/// Iterates the records of a verified block without copying.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    failed: bool,
}

impl<'a> Records<'a> {
    /// Over what [`super::block::BlockHeader::verify_body`] returned.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, failed: false }
    }

    fn decode_next(&mut self) -> Result<Record<'a>, FormatError> {
        let mut reader = Reader::new(WHAT, self.bytes);
        let kind = reader.u8()?;
        reader.reserved(3)?;
        let length = reader.u32()? as usize;
        let key = reader.partition()?;
        reader.reserved(4)?;
        let body = reader.take(length)?;
        reader.reserved(length.next_multiple_of(16) - length)?;
        self.bytes = &self.bytes[record_bytes(length)..];
        Ok(Record { key, entry: decode_body(kind, body)? })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.bytes.is_empty() {
            return None;
        }
        let record = self.decode_next();
        self.failed = record.is_err();
        Some(record)
    }
}

const KIND_BATCH: u8 = 1;

fn kind(entry: Entry<'_>) -> u8 {
    match entry {
        Entry::Batch(_) => KIND_BATCH,
        Entry::Truncate(_) => 2,
        Entry::EpochStart { .. } => 3,
        Entry::LogStart(_) => 4,
        Entry::Created { .. } => 5,
        Entry::Deleted => 6,
        Entry::Options(_) => 7,
        Entry::HighWatermark(_) => 8,
        Entry::DirectStart(_) => 9,
        Entry::DirectEnd(_) => 10,
        Entry::Compacted(_) => 11,
        Entry::CleanEnd(_) => 12,
    }
}

fn encode_body(entry: Entry<'_>, body: &mut [u8]) -> usize {
    let mut writer = Writer::new(body);
    match entry {
        Entry::Batch(_) => unreachable!("a batch is its own body"),
        Entry::Truncate(offset) | Entry::LogStart(offset) | Entry::HighWatermark(offset) | Entry::CleanEnd(offset) => {
            writer.u64(offset.0)
        }
        Entry::EpochStart { epoch, start } => writer.u64(start.0).u32(epoch.0),
        Entry::Created { options, start } => {
            encode_options(&mut writer, &options);
            writer.u64(start.0)
        }
        Entry::Deleted => &mut writer,
        Entry::Options(options) => {
            encode_options(&mut writer, &options);
            &mut writer
        }
        Entry::DirectStart(end) | Entry::DirectEnd(end) => {
            writer.u64(end.base.0).u64(end.incarnation).u64(end.position).u64(end.offset.0)
        }
        Entry::Compacted(segment) => {
            writer.u64(segment.base.0).u64(segment.end.0).u64(segment.end_position).i64(segment.max_timestamp_ms);
            writer.i64(segment.tombstones_since_ms.unwrap_or(NO_TOMBSTONES)).u32(segment.generation)
        }
    };
    writer.at()
}

fn decode_body(kind: u8, body: &[u8]) -> Result<Entry<'_>, FormatError> {
    let mut reader = Reader::new(WHAT, body);
    let entry = match kind {
        KIND_BATCH => Entry::Batch(reader.take(body.len())?),
        2 => Entry::Truncate(Offset(reader.u64()?)),
        3 => {
            let start = Offset(reader.u64()?);
            Entry::EpochStart { epoch: LeaderEpoch(reader.u32()?), start }
        }
        4 => Entry::LogStart(Offset(reader.u64()?)),
        5 => Entry::Created { options: decode_options(&mut reader)?, start: Offset(reader.u64()?) },
        6 => Entry::Deleted,
        7 => Entry::Options(decode_options(&mut reader)?),
        8 => Entry::HighWatermark(Offset(reader.u64()?)),
        9 => Entry::DirectStart(segment_end(&mut reader)?),
        10 => Entry::DirectEnd(segment_end(&mut reader)?),
        11 => Entry::Compacted(compacted_segment(&mut reader)?),
        12 => Entry::CleanEnd(Offset(reader.u64()?)),
        other => return Err(reader.field("kind", u64::from(other), "1 to 12 are known")),
    };
    reader.end()?;
    Ok(entry)
}

fn segment_end(reader: &mut Reader<'_>) -> Result<SegmentEnd, FormatError> {
    let (base, incarnation) = (Offset(reader.u64()?), reader.u64()?);
    Ok(SegmentEnd { base, incarnation, position: reader.u64()?, offset: Offset(reader.u64()?) })
}

fn compacted_segment(reader: &mut Reader<'_>) -> Result<CompactedSegment, FormatError> {
    let segment = CompactedSegment {
        base: Offset(reader.u64()?),
        end: Offset(reader.u64()?),
        end_position: reader.u64()?,
        max_timestamp_ms: reader.i64()?,
        tombstones_since_ms: since(reader.i64()?),
        generation: reader.u32()?,
    };
    if segment.base >= segment.end || !segment.end_position.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(reader.field("compacted segment", segment.base.0, "must end after it starts, on a block"));
    }
    Ok(segment)
}

/// How the formats write that a segment has no tombstones with a time.
pub(crate) const NO_TOMBSTONES: i64 = i64::MIN;

/// The reverse.
pub(crate) fn since(stored_ms: i64) -> Option<i64> {
    (stored_ms != NO_TOMBSTONES).then_some(stored_ms)
}

/// Options take 24 bytes: segment_bytes u64, segment_ms u64, durability u8, reserved to 24.
pub(crate) fn encode_options(writer: &mut Writer<'_>, options: &PartitionOptions) {
    let durability = match options.durability {
        Durability::Stable => 0,
        Durability::Relaxed => 1,
    };
    writer.u64(options.segment_bytes).u64(options.segment_ms).u8(durability).put(&[0; 7]);
}

pub(crate) fn decode_options(reader: &mut Reader<'_>) -> Result<PartitionOptions, FormatError> {
    let segment_bytes = reader.u64()?;
    let segment_ms = reader.u64()?;
    let durability = match reader.u8()? {
        0 => Durability::Stable,
        1 => Durability::Relaxed,
        other => return Err(reader.field("durability", u64::from(other), "0 and 1 are known")),
    };
    reader.reserved(7)?;
    Ok(PartitionOptions { segment_bytes, segment_ms, durability })
}
