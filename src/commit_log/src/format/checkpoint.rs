//! Where every partition of a shard stood, in one file that is replaced by rename.
//!
//! ```text
//!  0        128
//!  │ header │ disks: length u16, path │ … │ partition │ partition │ … │
//!
//!  header    0 magic "CLC1" │ 4 version u16 │ 6 reserved u16 │ 8 storage_id u64 │ 16 sequence u64 │ 24 boot u64 │ 32 replay file u64
//!           40 replay position u64 │ 48 replay block u64 │ 56 body_bytes u32 │ 60 body_crc u32 │ 64 partitions u32 │ 68 disks u32
//!           72 reserved │ 124 crc u32
//!  partition 0 topic id, index │ 20 flags u32 (bit 0 lossy) │ 24 boot u64 │ 32 options (24) │ 56 log_start u64 │ 64 high_watermark u64
//!           72 as_of_block u64 │ 80 segments u32 │ 84 epochs u32 │ 88 lost u32 │ 92 sections_bytes u32 │ 96 clean_end u64 │ segments (56 each)
//!           epochs (12) │ lost (16) │ sections
//!  segment   0 base u64 │ 8 end u64 │ 16 end_position u64 │ 24 max_timestamp_ms i64 │ 32 created_ms i64 │ 40 tombstones_since_ms i64
//!           48 generation u32 │ 52 disk u16 │ 54 flags u16 (bit 0 sealed)
//! ```
//!
//! Sections are for what later versions keep per partition (first of all the state of producers): each would be kind u16, version u16, length
//! u32, bytes. Version 1 knows none and refuses a file that has some, because leaving out what it does not understand would lose it.

use std::path::Path;
use std::sync::Arc;

use wire::checksum::crc32c;
use wire::{LeaderEpoch, Offset};

use super::bytes::{Reader, Writer, check_crc, seal_crc};
use super::file_header::parse_sequence;
use super::record::{NO_TOMBSTONES, decode_options, encode_options, since};
use super::{FORMAT_VERSION, FormatError};
use crate::epochs::{EpochStart, Epochs};
use crate::limits::{
    CHECKPOINT_BYTES_MAX, CHECKPOINT_PARTITIONS_MAX, EPOCHS_PER_PARTITION_MAX, LOST_RANGES_PER_PARTITION_MAX,
    SEGMENTS_PER_PARTITION_MAX,
};
use crate::partition_state::{OffsetRange, PartitionState, SegmentState};

const MAGIC: [u8; 4] = *b"CLC1";
const WHAT: &str = "checkpoint";
const HEADER_BYTES: usize = 128;
const CRC_AT: usize = 124;
const PARTITION_BYTES: usize = 104;
const SEGMENT_BYTES: usize = 56;
const EPOCH_BYTES: usize = 12;
const LOST_BYTES: usize = 16;
const FLAG_LOSSY: u32 = 1;
const SEGMENT_SEALED: u16 = 1;
const DISKS_MAX: u32 = 256;

/// Where replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayStart {
    /// The first write-ahead file that is looked at; files below it are free. It need not exist yet.
    pub file_sequence: u64,
    /// Position in it.
    pub position: u64,
    /// Number of the first block that is replayed.
    pub block_sequence: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Identity of the shard directory.
    pub storage_id: u64,
    /// Number of the checkpoint, in its name; the highest that decodes is used.
    pub sequence: u64,
    /// Start of the broker under which it was written.
    pub boot: u64,
    /// Where replay begins.
    pub replay_from: ReplayStart,
    /// All partitions of the shard, ascending by key.
    pub partitions: Vec<PartitionState>,
}

/// Name of the file of checkpoint `sequence`.
pub fn file_name(sequence: u64) -> String {
    format!("checkpoint-{sequence:016x}")
}

/// The reverse of [`file_name`]; `None` for any other name.
pub fn parse_file_name(name: &str) -> Option<u64> {
    parse_sequence(name.strip_prefix("checkpoint-")?)
}

/// Encodes a checkpoint partition by partition, so that the driver can yield between them and need not hold all states at once.
#[derive(Debug)]
pub struct CheckpointWriter {
    bytes: Vec<u8>,
    disks: Vec<Arc<Path>>,
    disks_bytes: Vec<u8>,
    last: Option<wire::PartitionKey>,
    partitions: u32,
}

impl CheckpointWriter {
    /// Starts a checkpoint of a shard directory that stands on `disk`.
    pub fn new(disk: &Arc<Path>) -> Self {
        let mut writer = Self { bytes: Vec::new(), disks: Vec::new(), disks_bytes: Vec::new(), last: None, partitions: 0 };
        // The disk that holds the checkpoint has the empty path: a data directory may be moved.
        writer.disks.push(disk.clone());
        writer.disks_bytes.extend_from_slice(&0_u16.to_le_bytes());
        writer
    }

    /// Adds a partition. They come in ascending order of their keys.
    pub fn add(&mut self, state: &PartitionState) {
        assert!(self.last.is_none_or(|last| last < state.key), "partitions ascend");
        assert!(self.partitions < CHECKPOINT_PARTITIONS_MAX, "a checkpoint is bounded");
        state.check();
        self.last = Some(state.key);
        self.partitions += 1;
        let disks: Vec<u16> = state.segments.iter().map(|segment| self.disk(&segment.disk)).collect();
        let start = self.bytes.len();
        self.bytes.resize(start + partition_bytes(state), 0);
        let mut writer = Writer::new(&mut self.bytes[start..]);
        writer.partition(state.key).u32(if state.lossy { FLAG_LOSSY } else { 0 }).u64(state.boot);
        encode_options(&mut writer, &state.options);
        writer.u64(state.log_start.0).u64(state.high_watermark.0).u64(state.as_of_block);
        let epochs = state.epochs.entries();
        writer
            .u32(state.segments.len() as u32)
            .u32(epochs.len() as u32)
            .u32(state.lost.len() as u32)
            .u32(0)
            .u64(state.clean_end.0);
        for (segment, disk) in state.segments.iter().zip(disks) {
            writer.u64(segment.base.0).u64(segment.end.0).u64(segment.end_position).i64(segment.max_timestamp_ms);
            writer.i64(segment.created_ms).i64(segment.tombstones_since_ms.unwrap_or(NO_TOMBSTONES)).u32(segment.generation);
            writer.u16(disk).u16(if segment.sealed { SEGMENT_SEALED } else { 0 });
        }
        for entry in epochs {
            writer.u64(entry.start.0).u32(entry.epoch.0);
        }
        for range in &state.lost {
            writer.u64(range.start.0).u64(range.end.0);
        }
    }

    /// The file's bytes.
    pub fn finish(self, storage_id: u64, sequence: u64, boot: u64, replay_from: ReplayStart) -> Vec<u8> {
        let body_bytes = self.disks_bytes.len() + self.bytes.len();
        assert!((HEADER_BYTES + body_bytes) as u64 <= CHECKPOINT_BYTES_MAX, "a checkpoint is bounded");
        let mut file = vec![0; HEADER_BYTES];
        file.reserve_exact(body_bytes);
        file.extend_from_slice(&self.disks_bytes);
        file.extend_from_slice(&self.bytes);
        let (header, body) = file.split_at_mut(HEADER_BYTES);
        let mut writer = Writer::new(header);
        writer.put(&MAGIC).u16(FORMAT_VERSION).u16(0).u64(storage_id).u64(sequence).u64(boot);
        writer.u64(replay_from.file_sequence).u64(replay_from.position).u64(replay_from.block_sequence);
        writer.u32(body_bytes as u32).u32(crc32c(body)).u32(self.partitions).u32(self.disks.len() as u32).zero_rest();
        seal_crc(header, CRC_AT);
        file
    }

    fn disk(&mut self, disk: &Arc<Path>) -> u16 {
        if let Some(found) = self.disks.iter().position(|known| known == disk) {
            return found as u16;
        }
        assert!(self.disks.len() < DISKS_MAX as usize, "a broker has a bounded number of disks");
        let path = disk.as_os_str().as_encoded_bytes();
        let length = u16::try_from(path.len()).expect("a path is shorter than 64 KiB");
        self.disks_bytes.extend_from_slice(&length.to_le_bytes());
        self.disks_bytes.extend_from_slice(path);
        self.disks.push(disk.clone());
        (self.disks.len() - 1) as u16
    }
}

fn partition_bytes(state: &PartitionState) -> usize {
    PARTITION_BYTES
        + state.segments.len() * SEGMENT_BYTES
        + state.epochs.entries().len() * EPOCH_BYTES
        + state.lost.len() * LOST_BYTES
}

impl Checkpoint {
    /// The file's bytes, for a shard directory on `disk`.
    pub fn encode(&self, disk: &Arc<Path>) -> Vec<u8> {
        let mut writer = CheckpointWriter::new(disk);
        for state in &self.partitions {
            writer.add(state);
        }
        writer.finish(self.storage_id, self.sequence, self.boot, self.replay_from)
    }

    /// Reads the file of checkpoint `sequence` (its name), found in a shard directory of this storage on `disk`.
    ///
    /// # Errors
    /// What is wrong. Damage is an error as a whole: half a checkpoint would be data lost silently.
    pub fn decode(file: &[u8], storage_id: u64, sequence: u64, disk: &Arc<Path>) -> Result<Self, FormatError> {
        let header = Reader::new(WHAT, file).take(HEADER_BYTES)?;
        let mut reader = Reader::new(WHAT, header);
        reader.magic(MAGIC)?;
        reader.version()?;
        check_crc(WHAT, header, CRC_AT)?;
        reader.reserved(2)?;
        let found = reader.u64()?;
        reader.belongs("storage id", found, storage_id)?;
        let found = reader.u64()?;
        reader.belongs("sequence", found, sequence)?;
        let boot = reader.u64()?;
        let replay_from = ReplayStart { file_sequence: reader.u64()?, position: reader.u64()?, block_sequence: reader.u64()? };
        let body_bytes = reader.u32()? as usize;
        let stated = reader.u32()?;
        let partition_count = reader.u32()?;
        let disk_count = reader.u32()?;
        reader.reserved(CRC_AT - 72)?;
        if file.len() as u64 > CHECKPOINT_BYTES_MAX || file.len() != HEADER_BYTES + body_bytes {
            return Err(reader.field("body length", body_bytes as u64, "must be the rest of the file, within the limit"));
        }
        if partition_count > CHECKPOINT_PARTITIONS_MAX {
            return Err(reader.field("partitions", partition_count.into(), "must be within the limit"));
        }
        if disk_count == 0 || disk_count > DISKS_MAX {
            return Err(reader.field("disks", disk_count.into(), "must be within the limit"));
        }
        let body = &file[HEADER_BYTES..];
        let computed = crc32c(body);
        if computed != stated {
            return Err(FormatError::Crc { what: "checkpoint body", stated, computed });
        }
        let mut reader = Reader::new("checkpoint body", body);
        let disks = decode_disks(&mut reader, disk_count, disk)?;
        let mut partitions: Vec<PartitionState> =
            Vec::with_capacity((partition_count as usize).min(body.len() / PARTITION_BYTES));
        for _ in 0..partition_count {
            let state = decode_partition(&mut reader, &disks)?;
            if partitions.last().is_some_and(|last| last.key >= state.key) {
                return Err(reader.field("partition", state.key.partition.0.into(), "keys must ascend"));
            }
            partitions.push(state);
        }
        reader.end()?;
        Ok(Self { storage_id, sequence, boot, replay_from, partitions })
    }
}

fn decode_disks(reader: &mut Reader<'_>, count: u32, own: &Arc<Path>) -> Result<Vec<Arc<Path>>, FormatError> {
    let mut disks = Vec::new();
    for _ in 0..count {
        let length = reader.u16()?;
        let bytes = reader.take(length.into())?;
        if length == 0 {
            disks.push(own.clone());
            continue;
        }
        let path = std::str::from_utf8(bytes).map_err(|_| reader.field("disk path", length.into(), "must be UTF-8"))?;
        disks.push(Arc::from(Path::new(path)));
    }
    Ok(disks)
}

fn decode_partition(reader: &mut Reader<'_>, disks: &[Arc<Path>]) -> Result<PartitionState, FormatError> {
    let key = reader.partition()?;
    let flags = reader.u32()?;
    if flags & !FLAG_LOSSY != 0 {
        return Err(reader.field("flags", flags.into(), "bit 0 is known"));
    }
    let boot = reader.u64()?;
    let options = decode_options(reader)?;
    let mut state = PartitionState::new(key, boot, options, Offset(reader.u64()?));
    state.high_watermark = Offset(reader.u64()?);
    state.as_of_block = reader.u64()?;
    state.lossy = flags & FLAG_LOSSY != 0;
    let segments = reader.u32()?;
    let epochs = reader.u32()?;
    let lost = reader.u32()?;
    let sections_bytes = reader.u32()?;
    state.clean_end = Offset(reader.u64()?);
    if segments > SEGMENTS_PER_PARTITION_MAX {
        return Err(reader.field("segments", segments.into(), "must be within the limit"));
    }
    if epochs > EPOCHS_PER_PARTITION_MAX {
        return Err(reader.field("epochs", epochs.into(), "must be within the limit"));
    }
    if lost as usize > LOST_RANGES_PER_PARTITION_MAX {
        return Err(reader.field("lost ranges", lost.into(), "must be within the limit"));
    }
    if sections_bytes != 0 {
        return Err(reader.field("sections", sections_bytes.into(), "this version knows none"));
    }
    for left in (0..segments).rev() {
        let segment = decode_segment(reader, disks)?;
        let follows = state.segments.last().is_none_or(|last| last.end <= segment.base);
        if !follows || (left > 0 && !segment.sealed) {
            return Err(reader.field("segment", segment.base.0, "must follow the one before, which is sealed"));
        }
        state.segments.push(segment);
    }
    let mut starts = Vec::with_capacity((epochs as usize).min(reader.remaining() / EPOCH_BYTES));
    for _ in 0..epochs {
        let start = Offset(reader.u64()?);
        starts.push(EpochStart { epoch: LeaderEpoch(reader.u32()?), start });
    }
    state.epochs = Epochs::from_entries(starts).ok_or_else(|| reader.field("epochs", epochs.into(), "must ascend"))?;
    for _ in 0..lost {
        let range = OffsetRange { start: Offset(reader.u64()?), end: Offset(reader.u64()?) };
        let follows = state.lost.last().is_none_or(|last| last.end < range.start);
        if range.is_empty() || !follows {
            return Err(reader.field("lost range", range.start.0, "must ascend"));
        }
        state.lost.push(range);
    }
    Ok(state)
}

fn decode_segment(reader: &mut Reader<'_>, disks: &[Arc<Path>]) -> Result<SegmentState, FormatError> {
    let (base, end, end_position) = (Offset(reader.u64()?), Offset(reader.u64()?), reader.u64()?);
    let (max_timestamp_ms, created_ms) = (reader.i64()?, reader.i64()?);
    let (tombstones_since_ms, generation) = (since(reader.i64()?), reader.u32()?);
    let (disk, flags) = (reader.u16()?, reader.u16()?);
    let Some(disk) = disks.get(usize::from(disk)) else {
        return Err(reader.field("disk", disk.into(), "must be in the table"));
    };
    if flags & !SEGMENT_SEALED != 0 {
        return Err(reader.field("segment flags", flags.into(), "bit 0 is known"));
    }
    if base > end || !end_position.is_multiple_of(super::BLOCK_BYTES as u64) || end_position < super::BLOCK_BYTES as u64 {
        return Err(reader.field("segment", base.0, "must end after it starts, on a block"));
    }
    let sealed = flags & SEGMENT_SEALED != 0;
    if generation > 0 && !sealed {
        return Err(reader.field("generation", generation.into(), "only a sealed segment has one"));
    }
    let disk = disk.clone();
    Ok(SegmentState { disk, base, end, end_position, max_timestamp_ms, created_ms, sealed, generation, tombstones_since_ms })
}
