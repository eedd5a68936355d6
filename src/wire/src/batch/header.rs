//! The 80-byte batch header: decode with every check that needs no payload, encode, stamp.

use rkyv::{Archive, Deserialize, Serialize};
use thiserror::Error;

use crate::checksum::{crc32c, crc32c_append};
use crate::compression::{Compression, DecompressError};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::{
    ALIGNMENT_BYTES, BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BATCH_UNCOMPRESSED_BYTES_MAX, OFFSET_DELTA_MAX, OFFSET_MAX,
    PADDING_BYTES_MAX, RECORDS_PER_BATCH_MAX, align_up,
};

/// `CLB1`, read as a little-endian number.
pub const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"CLB1");

/// The version this crate writes; it reads every version from 1 to this one.
pub const BATCH_VERSION: u16 = 1;

/// Attribute bits that have no meaning in this version.
const ATTRIBUTES_UNKNOWN: u8 = 0b1110_0000;
const ATTRIBUTE_APPEND_TIME: u8 = 0b0001_0000;

/// What the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PayloadKind {
    /// An rkyv archive of records.
    Records = 0,
    /// A Kafka v2 record batch, verbatim. It names its own compression.
    KafkaV2 = 1,
    /// Markers for the machinery; consumers skip it.
    Control = 2,
    /// Nothing: it fills a block of a segment.
    Padding = 3,
}

/// Who set the timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
#[repr(u8)]
pub enum TimestampKind {
    /// The producer, per record.
    #[default]
    Create = 0,
    /// The broker, one for the whole batch.
    Append = 1,
}

/// The header as numbers. Its checksum is computed by [`BatchHeader::encode`] and checked by [`BatchHeader::decode`], so that it
/// is not a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// What the payload is.
    pub payload_kind: PayloadKind,
    /// How the payload is compressed; none for a Kafka v2 payload, which names its own.
    pub compression: Compression,
    /// Who set the timestamps.
    pub timestamp_kind: TimestampKind,
    /// Header, payload and zeros up to a multiple of 16.
    pub total_length_bytes: u32,
    /// Payload as stored, without the zeros after it.
    pub payload_length_bytes: u32,
    /// Offset of the first record; stamped by the leader.
    pub base_offset: Offset,
    /// Reign of the leader that stamped it.
    pub leader_epoch: LeaderEpoch,
    /// crc32c of the payload as stored.
    pub payload_crc: u32,
    /// Records in the payload.
    pub record_count: u32,
    /// Offset of the last record, less the base. At least `record_count - 1`; more when offsets have gaps.
    pub last_offset_delta: u32,
    /// Instance of the producer.
    pub producer_epoch: ProducerEpoch,
    /// Timestamp of the first record; deltas in the payload count from it.
    pub first_timestamp_ms: TimestampMs,
    /// Largest timestamp of the records.
    pub max_timestamp_ms: TimestampMs,
    /// The producer, when its retries are recognised.
    pub producer_id: ProducerId,
    /// Sequence of the first record.
    pub base_sequence: Sequence,
    /// Payload after decompression.
    pub uncompressed_length_bytes: u32,
}

/// What is wrong with a batch. Every variant names the field and its values; none can be helped by sending the same bytes again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// Fewer bytes than the header or the stated length needs.
    #[error("batch truncated: {needed_bytes} bytes needed, {found_bytes} found")]
    Truncated {
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes given.
        found_bytes: usize,
    },
    /// The slice does not start at a multiple of 16.
    #[error("batch at an address that is not a multiple of {ALIGNMENT_BYTES}")]
    Misaligned,
    /// Not a batch.
    #[error("batch header byte 0: magic {found:#010x} instead of {BATCH_MAGIC:#010x}")]
    Magic {
        /// What stands there.
        found: u32,
    },
    /// A version this crate does not read.
    #[error("batch header byte 4: version {found}, versions 1 to {BATCH_VERSION} are known")]
    Version {
        /// What stands there.
        found: u16,
    },
    /// The header does not have the checksum it states.
    #[error("batch header byte 28: header crc {found:#010x} stated, {computed:#010x} computed")]
    HeaderCrc {
        /// Stated.
        found: u32,
        /// Computed over the bytes.
        computed: u32,
    },
    /// A number outside what its field may hold.
    #[error("batch header byte {position}: {field} is {found}, {rule}")]
    Field {
        /// Byte within the header.
        position: usize,
        /// Name of the field.
        field: &'static str,
        /// What stands there.
        found: u64,
        /// What may stand there.
        rule: &'static str,
    },
    /// The payload does not have the checksum the header states.
    #[error("batch payload crc {found:#010x} stated, {computed:#010x} computed over {payload_bytes} bytes")]
    PayloadCrc {
        /// Stated.
        found: u32,
        /// Computed over the bytes.
        computed: u32,
        /// Length of the payload.
        payload_bytes: usize,
    },
    /// Bytes between payload and end that are not zero.
    #[error("batch byte {position}: {found:#04x} after the payload, where only zeros may stand")]
    PaddingNotZero {
        /// Byte within the batch.
        position: usize,
        /// What stands there.
        found: u8,
    },
    /// The payload does not decompress.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The payload is not a valid archive of records.
    #[error("batch payload is not an archive of records: {reason}")]
    Archive {
        /// The checker's words.
        reason: String,
    },
    /// The archive holds another number of records than the header states.
    #[error("batch of {found} records whose header states {stated}")]
    RecordCount {
        /// In the header.
        stated: u32,
        /// In the payload.
        found: usize,
    },
    /// The offsets within the archive do not ascend to at most the header's last offset.
    #[error("batch record {index} has offset delta {found}, allowed are {least} to {most}")]
    OffsetDelta {
        /// Record within the batch.
        index: usize,
        /// Its delta.
        found: u32,
        /// Smallest allowed.
        least: u32,
        /// Largest allowed.
        most: u32,
    },
    /// The payload is of another kind than the reader understands.
    #[error("batch payload kind {found:?} holds no records that can be read here")]
    Kind {
        /// The kind.
        found: PayloadKind,
    },
}

impl BatchHeader {
    /// Reads and checks the header at the start of `bytes`: magic, version, checksum, every length against its limit, counts.
    /// It allocates nothing and does not look at the payload, whose bytes need not be there yet.
    ///
    /// # Errors
    /// What is wrong, with its place. After `Ok` the lengths are consistent with each other and within the limits.
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let Some(bytes) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchError::Truncated { needed_bytes: BATCH_HEADER_BYTES, found_bytes: bytes.len() });
        };
        let magic = u32_at(bytes, 0);
        if magic != BATCH_MAGIC {
            return Err(BatchError::Magic { found: magic });
        }
        // The version comes before the checksum: another version may have its checksum elsewhere.
        let version = u16::from_le_bytes(array_at(bytes, 4));
        if version != BATCH_VERSION {
            return Err(BatchError::Version { found: version });
        }
        let header_crc = u32_at(bytes, 28);
        let computed = header_crc_of(bytes);
        if header_crc != computed {
            return Err(BatchError::HeaderCrc { found: header_crc, computed });
        }
        BatchHeader::decode_fields(bytes)
    }

    fn decode_fields(bytes: &[u8; BATCH_HEADER_BYTES]) -> Result<BatchHeader, BatchError> {
        let attributes = bytes[7];
        let payload_kind = match bytes[6] {
            0 => PayloadKind::Records,
            1 => PayloadKind::KafkaV2,
            2 => PayloadKind::Control,
            3 => PayloadKind::Padding,
            found => return Err(field(6, "payload kind", found, "0 to 3 are known")),
        };
        if attributes & ATTRIBUTES_UNKNOWN != 0 {
            return Err(field(7, "attributes", attributes, "bits 5 to 7 must be 0"));
        }
        let compression = Compression::from_code(attributes & 0x0f)
            .ok_or_else(|| field(7, "compression", attributes & 0x0f, "0 to 2 are known"))?;
        let timestamp_kind = if attributes & ATTRIBUTE_APPEND_TIME == 0 { TimestampKind::Create } else { TimestampKind::Append };
        let reserved = u16::from_le_bytes(array_at(bytes, 46));
        if reserved != 0 {
            return Err(field(46, "reserved", reserved, "it must be 0"));
        }
        let header = BatchHeader {
            payload_kind,
            compression,
            timestamp_kind,
            total_length_bytes: u32_at(bytes, 8),
            payload_length_bytes: u32_at(bytes, 12),
            base_offset: Offset(u64::from_le_bytes(array_at(bytes, 16))),
            leader_epoch: LeaderEpoch(u32_at(bytes, 24)),
            payload_crc: u32_at(bytes, 32),
            record_count: u32_at(bytes, 36),
            last_offset_delta: u32_at(bytes, 40),
            producer_epoch: ProducerEpoch(i16::from_le_bytes(array_at(bytes, 44))),
            first_timestamp_ms: TimestampMs(i64::from_le_bytes(array_at(bytes, 48))),
            max_timestamp_ms: TimestampMs(i64::from_le_bytes(array_at(bytes, 56))),
            producer_id: ProducerId(i64::from_le_bytes(array_at(bytes, 64))),
            base_sequence: Sequence(i32::from_le_bytes(array_at(bytes, 72))),
            uncompressed_length_bytes: u32_at(bytes, 76),
        };
        header.check_lengths()?;
        header.check_counts()?;
        Ok(header)
    }

    fn check_lengths(&self) -> Result<(), BatchError> {
        let payload = self.payload_length_bytes;
        let limit = if self.payload_kind == PayloadKind::Padding { PADDING_BYTES_MAX } else { BATCH_BYTES_MAX };
        if self.total_length_bytes > limit {
            return Err(field(8, "total length", self.total_length_bytes, "it is above the limit of a batch"));
        }
        if payload > limit - BATCH_HEADER_BYTES as u32 {
            return Err(field(12, "payload length", payload, "it is above the limit of a batch"));
        }
        if self.total_length_bytes as usize != align_up(BATCH_HEADER_BYTES + payload as usize) {
            return Err(field(8, "total length", self.total_length_bytes, "it is not header + payload, aligned to 16"));
        }
        let uncompressed = self.uncompressed_length_bytes;
        if uncompressed > BATCH_UNCOMPRESSED_BYTES_MAX {
            return Err(field(76, "uncompressed length", uncompressed, "it is above the limit of a payload"));
        }
        if self.compression == Compression::None && uncompressed != payload {
            return Err(field(76, "uncompressed length", uncompressed, "without compression it is the payload length"));
        }
        if self.compression != Compression::None && !matches!(self.payload_kind, PayloadKind::Records) {
            return Err(field(7, "compression", self.compression.code(), "only rkyv records may be compressed"));
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), BatchError> {
        if self.record_count > RECORDS_PER_BATCH_MAX {
            return Err(field(36, "record count", self.record_count, "it is above the limit of a batch"));
        }
        if self.last_offset_delta > OFFSET_DELTA_MAX {
            return Err(field(40, "last offset delta", self.last_offset_delta, "it is above the limit of a batch"));
        }
        if self.record_count > 0 && self.last_offset_delta < self.record_count - 1 {
            return Err(field(40, "last offset delta", self.last_offset_delta, "it must be at least the record count - 1"));
        }
        if self.base_offset.0 > OFFSET_MAX {
            return Err(field(16, "base offset", self.base_offset.0, "it is above the largest offset"));
        }
        if self.payload_kind == PayloadKind::Padding && self.record_count != 0 {
            return Err(field(36, "record count", self.record_count, "padding holds no records"));
        }
        if self.record_count > 0 && self.max_timestamp_ms < self.first_timestamp_ms {
            return Err(field(56, "max timestamp", self.max_timestamp_ms.0 as u64, "it must not be before the first"));
        }
        Ok(())
    }

    /// Checks what a batch fresh from a producer must satisfy beyond [`BatchHeader::decode`]: it holds records, numbered without
    /// gaps.
    ///
    /// # Errors
    /// The field that says otherwise.
    pub fn check_produced(&self) -> Result<(), BatchError> {
        if !matches!(self.payload_kind, PayloadKind::Records | PayloadKind::KafkaV2) {
            return Err(BatchError::Kind { found: self.payload_kind });
        }
        if self.record_count == 0 {
            return Err(field(36, "record count", 0_u32, "a produced batch holds at least one record"));
        }
        if self.last_offset_delta != self.record_count - 1 {
            return Err(field(40, "last offset delta", self.last_offset_delta, "a produced batch has no gaps"));
        }
        Ok(())
    }

    /// Writes the header with its checksum.
    pub fn encode(&self, out: &mut [u8; BATCH_HEADER_BYTES]) {
        debug_assert_eq!(self.check_lengths(), Ok(()));
        debug_assert_eq!(self.check_counts(), Ok(()));
        let mut attributes = self.compression.code();
        if self.timestamp_kind == TimestampKind::Append {
            attributes |= ATTRIBUTE_APPEND_TIME;
        }
        out[0..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&BATCH_VERSION.to_le_bytes());
        out[6] = self.payload_kind as u8;
        out[7] = attributes;
        out[8..12].copy_from_slice(&self.total_length_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_length_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.base_offset.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.leader_epoch.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[36..40].copy_from_slice(&self.record_count.to_le_bytes());
        out[40..44].copy_from_slice(&self.last_offset_delta.to_le_bytes());
        out[44..46].copy_from_slice(&self.producer_epoch.0.to_le_bytes());
        out[46..48].copy_from_slice(&[0; 2]);
        out[48..56].copy_from_slice(&self.first_timestamp_ms.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.max_timestamp_ms.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.producer_id.0.to_le_bytes());
        out[72..76].copy_from_slice(&self.base_sequence.0.to_le_bytes());
        out[76..80].copy_from_slice(&self.uncompressed_length_bytes.to_le_bytes());
        let header_crc = header_crc_of(out);
        out[28..32].copy_from_slice(&header_crc.to_le_bytes());
    }

    /// Gives the batch its place in the log. With `append_time` the batch's timestamps become that time, whatever its producer
    /// said; the payload keeps its bytes.
    ///
    /// # Panics
    /// When `base` is above [`OFFSET_MAX`]: offsets are counted by the leader, never read from bytes.
    pub fn stamp(&mut self, base: Offset, epoch: LeaderEpoch, append_time: Option<TimestampMs>) {
        assert!(base.0 <= OFFSET_MAX, "base offset {base} above the largest offset");
        self.base_offset = base;
        self.leader_epoch = epoch;
        if let Some(now) = append_time {
            self.timestamp_kind = TimestampKind::Append;
            self.first_timestamp_ms = now;
            self.max_timestamp_ms = now;
        }
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(u64::from(self.last_offset_delta))
    }

    /// The offset that follows the batch: the base offset of the next one, if there is no gap. A padding batch takes none.
    pub fn next_offset(&self) -> Offset {
        if self.payload_kind == PayloadKind::Padding { self.base_offset } else { self.last_offset().plus(1) }
    }

    /// Header, payload and zeros: where the next batch begins.
    pub fn total_length(&self) -> usize {
        self.total_length_bytes as usize
    }

    /// The payload's place within the batch.
    pub fn payload_range(&self) -> std::ops::Range<usize> {
        BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + self.payload_length_bytes as usize
    }
}

/// Checks the payload of `batch` (header, payload, zeros; more may follow) against its header: length, crc32c, zeros after it.
///
/// # Errors
/// [`BatchError::Truncated`], [`BatchError::PayloadCrc`] or [`BatchError::PaddingNotZero`].
pub fn verify_payload(header: &BatchHeader, batch: &[u8]) -> Result<(), BatchError> {
    let total = header.total_length();
    if batch.len() < total {
        return Err(BatchError::Truncated { needed_bytes: total, found_bytes: batch.len() });
    }
    let payload = &batch[header.payload_range()];
    let computed = crc32c(payload);
    if computed != header.payload_crc {
        return Err(BatchError::PayloadCrc { found: header.payload_crc, computed, payload_bytes: payload.len() });
    }
    let end = header.payload_range().end;
    match batch[end..total].iter().position(|&byte| byte != 0) {
        Some(at) => Err(BatchError::PaddingNotZero { position: end + at, found: batch[end + at] }),
        None => Ok(()),
    }
}

/// Decodes the header at the start of `bytes` and verifies the payload: everything the broker checks of a batch.
///
/// # Errors
/// As [`BatchHeader::decode`] and [`verify_payload`].
pub fn verify_batch(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::decode(bytes)?;
    verify_payload(&header, bytes)?;
    Ok(header)
}

fn header_crc_of(bytes: &[u8; BATCH_HEADER_BYTES]) -> u32 {
    let crc = crc32c_append(crc32c(&bytes[..28]), &[0; 4]);
    crc32c_append(crc, &bytes[32..])
}

fn field(position: usize, field: &'static str, found: impl Into<u64>, rule: &'static str) -> BatchError {
    BatchError::Field { position, field, found: found.into(), rule }
}

fn array_at<const N: usize>(bytes: &[u8; BATCH_HEADER_BYTES], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("fields lie within the header")
}

fn u32_at(bytes: &[u8; BATCH_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}
