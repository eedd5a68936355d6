//! Builds a batch record by record. Keys and values are copied once, to where they stay in the archive.

use rkyv::vec::ArchivedVec;
use thiserror::Error;

use crate::AlignedVec;
use crate::batch::record::{
    ArchivedRecord, PlacedHeader, PlacedRecord, PlacedRoot, place_blob, place_headers, write_array, write_root,
};
use crate::batch::{BatchHeader, PayloadKind, TimestampKind};
use crate::checksum::crc32c;
use crate::compression::{Compression, compress_append};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_HEADER_BYTES, HEADER_NAME_BYTES_MAX, HEADERS_PER_RECORD_MAX, MESSAGE_BYTES_MAX_CEILING,
    MESSAGE_BYTES_MAX_DEFAULT, RECORD_FIXED_BYTES, RECORD_HEADER_FIXED_BYTES, RECORDS_PER_BATCH_MAX, align_up,
};

/// Room for what stands in a payload beside records and blobs: the root, and alignment before the record array.
const PAYLOAD_FIXED_BYTES: usize = size_of::<ArchivedVec<ArchivedRecord>>() + 8;

/// How a batch is built.
#[derive(Clone, Copy, Debug)]
pub struct BuilderOptions {
    /// Applied by [`BatchBuilder::build`]; a payload that does not shrink is stored as it is.
    pub compression: Compression,
    /// Who sets the timestamps.
    pub timestamp_kind: TimestampKind,
    /// Size, before compression, at which the batch is full. A first record goes in whatever this says.
    pub batch_bytes_max: u32,
    /// Key + value + headers of one record.
    pub message_bytes_max: u32,
}

impl Default for BuilderOptions {
    fn default() -> BuilderOptions {
        BuilderOptions {
            compression: Compression::None,
            timestamp_kind: TimestampKind::Create,
            batch_bytes_max: 1024 * 1024,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
        }
    }
}

/// Why a record was not added. The builder is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PushError {
    /// Build this batch, then push the record to the next.
    #[error("the batch is full: the record belongs into the next one")]
    Full,
    /// The record fits no batch.
    #[error("the record has {message_bytes} bytes, {message_bytes_max} are allowed")]
    TooLarge {
        /// Key + value + headers.
        message_bytes: usize,
        /// The limit.
        message_bytes_max: u32,
    },
    /// The record has too many headers.
    #[error("the record has {headers} headers, {HEADERS_PER_RECORD_MAX} are allowed")]
    TooManyHeaders {
        /// How many.
        headers: usize,
    },
    /// A header's name is too long.
    #[error("a header's name has {name_bytes} bytes, {HEADER_NAME_BYTES_MAX} are allowed")]
    HeaderNameTooLong {
        /// How long.
        name_bytes: usize,
    },
}

/// A batch being filled.
///
/// ```
/// use wire::batch::{BatchBuilder, BatchView, BuilderOptions};
/// use wire::TimestampMs;
///
/// let mut builder = BatchBuilder::new(BuilderOptions::default());
/// builder.push(TimestampMs(1_700_000_000_000), Some(b"key"), Some(b"value"), &[("trace", Some(b"7"))]).unwrap();
/// let bytes = builder.build();
/// let view = BatchView::new(&bytes).unwrap();
/// assert_eq!(view.records().next().unwrap().value, Some(&b"value"[..]));
/// ```
pub struct BatchBuilder {
    options: BuilderOptions,
    /// Room for the header, then the blobs.
    buffer: AlignedVec,
    records: Vec<PlacedRecord>,
    /// Scratch for the headers of one record.
    headers: Vec<PlacedHeader>,
    first_timestamp_ms: i64,
    max_timestamp_ms: i64,
    producer: ProducerStamp,
}

#[derive(Clone, Copy)]
struct ProducerStamp {
    id: ProducerId,
    epoch: ProducerEpoch,
    base_sequence: Sequence,
}

const NO_PRODUCER: ProducerStamp =
    ProducerStamp { id: ProducerId::NONE, epoch: ProducerEpoch::NONE, base_sequence: Sequence::NONE };

impl BatchBuilder {
    /// An empty batch.
    ///
    /// # Panics
    /// When a limit in `options` is above the protocol's: those who configure check first.
    pub fn new(options: BuilderOptions) -> BatchBuilder {
        assert!(options.batch_bytes_max <= BATCH_BYTES_MAX, "batch limit above the protocol's");
        assert!(options.message_bytes_max <= MESSAGE_BYTES_MAX_CEILING, "message limit above the protocol's");
        let mut builder = BatchBuilder {
            options,
            buffer: AlignedVec::new(),
            records: Vec::new(),
            headers: Vec::new(),
            first_timestamp_ms: 0,
            max_timestamp_ms: 0,
            producer: NO_PRODUCER,
        };
        builder.clear();
        builder
    }

    /// Names the idempotent producer of the batch. It holds for this batch only.
    pub fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence) {
        self.producer = ProducerStamp { id, epoch, base_sequence };
    }

    /// Adds a record behind the others.
    ///
    /// # Errors
    /// [`PushError::Full`] when it belongs into the next batch, otherwise what is wrong with it.
    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<(), PushError> {
        let message_bytes = self.check_record(key, value, headers)?;
        let timestamp_delta_ms = if self.records.is_empty() {
            0
        } else {
            let delta_ms = timestamp.0.checked_sub(self.first_timestamp_ms).and_then(|delta| i32::try_from(delta).ok());
            // Deltas have 32 bits, 24 days: a record further off starts a batch of its own.
            delta_ms.ok_or(PushError::Full)?
        };
        // Alignment costs at most 3 bytes before the header array.
        let added_bytes = message_bytes + RECORD_FIXED_BYTES + headers.len() * RECORD_HEADER_FIXED_BYTES + 3;
        let full = self.len_bytes() + added_bytes > self.options.batch_bytes_max as usize
            || self.records.len() >= RECORDS_PER_BATCH_MAX as usize;
        if full && !self.records.is_empty() {
            return Err(PushError::Full);
        }
        if self.records.is_empty() {
            self.first_timestamp_ms = timestamp.0;
            self.max_timestamp_ms = timestamp.0;
        }
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp.0);
        let key = key.map(|bytes| place_blob(bytes, &mut self.buffer));
        let value = value.map(|bytes| place_blob(bytes, &mut self.buffer));
        let headers = place_headers(headers.iter().copied(), &mut self.headers, &mut self.buffer);
        let offset_delta = self.records.len() as u32;
        self.records.push(PlacedRecord { timestamp_delta_ms, offset_delta, key, value, headers });
        Ok(())
    }

    fn check_record(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<usize, PushError> {
        if headers.len() > HEADERS_PER_RECORD_MAX {
            return Err(PushError::TooManyHeaders { headers: headers.len() });
        }
        if let Some((name, _)) = headers.iter().find(|(name, _)| name.len() > HEADER_NAME_BYTES_MAX) {
            return Err(PushError::HeaderNameTooLong { name_bytes: name.len() });
        }
        let message_bytes = message_bytes(key, value, headers);
        let message_bytes_max = self.options.message_bytes_max;
        if message_bytes > message_bytes_max as usize {
            return Err(PushError::TooLarge { message_bytes, message_bytes_max });
        }
        Ok(message_bytes)
    }

    /// Number of records.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// Whether there is nothing to build.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Length of the batch if it were built now without compression; at most some alignment bytes more than it will be.
    pub fn len_bytes(&self) -> usize {
        align_up(self.buffer.len() + self.records.len() * RECORD_FIXED_BYTES + PAYLOAD_FIXED_BYTES)
    }

    /// The whole batch, ready to be sent; base offset and leader epoch 0. The builder is empty afterwards.
    ///
    /// # Panics
    /// When it holds no record: the caller asks [`BatchBuilder::is_empty`].
    pub fn build(&mut self) -> AlignedVec {
        assert!(!self.records.is_empty(), "a batch has at least one record");
        let record_count = self.records.len() as u32;
        let records = write_array(&self.records, &mut self.buffer);
        write_root(PlacedRoot(records), &mut self.buffer);
        let uncompressed_length_bytes = (self.buffer.len() - BATCH_HEADER_BYTES) as u32;
        let compression = self.compress();
        let payload_length_bytes = (self.buffer.len() - BATCH_HEADER_BYTES) as u32;
        let payload_crc = crc32c(&self.buffer[BATCH_HEADER_BYTES..]);
        self.buffer.resize(align_up(self.buffer.len()), 0);
        let header = BatchHeader {
            payload_kind: PayloadKind::Records,
            compression,
            timestamp_kind: self.options.timestamp_kind,
            total_length_bytes: self.buffer.len() as u32,
            payload_length_bytes,
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch(0),
            payload_crc,
            record_count,
            last_offset_delta: record_count - 1,
            producer_epoch: self.producer.epoch,
            first_timestamp_ms: TimestampMs(self.first_timestamp_ms),
            max_timestamp_ms: TimestampMs(self.max_timestamp_ms),
            producer_id: self.producer.id,
            base_sequence: self.producer.base_sequence,
            uncompressed_length_bytes,
        };
        assert!(header.total_length_bytes <= BATCH_BYTES_MAX, "push bounds what a batch can become");
        let head = self.buffer.as_mut_slice().first_chunk_mut().expect("room for the header was made first");
        header.encode(head);
        let built = std::mem::replace(&mut self.buffer, AlignedVec::new());
        self.clear();
        built
    }

    /// Forgets everything pushed.
    pub fn clear(&mut self) {
        self.records.clear();
        self.buffer.clear();
        self.buffer.resize(BATCH_HEADER_BYTES, 0);
        self.producer = NO_PRODUCER;
    }

    fn compress(&mut self) -> Compression {
        let wanted = self.options.compression;
        let mut smaller = AlignedVec::new();
        if wanted == Compression::None {
            return Compression::None;
        }
        smaller.resize(BATCH_HEADER_BYTES, 0);
        if !compress_append(wanted, &self.buffer[BATCH_HEADER_BYTES..], &mut smaller) {
            return Compression::None;
        }
        self.buffer = smaller;
        wanted
    }
}

/// What one record counts against the message limit: key, value, header names and values.
pub(crate) fn message_bytes(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)]) -> usize {
    let header_bytes: usize = headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
    key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + header_bytes
}
