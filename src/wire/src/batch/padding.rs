//! The padding batch: fills the rest of a block in a segment, so that a reader walks from batch to batch without special cases.

use crate::batch::{BatchHeader, PayloadKind, TimestampKind};
use crate::checksum::crc32c;
use crate::compression::Compression;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::{ALIGNMENT_BYTES, BATCH_HEADER_BYTES, PADDING_BYTES_MAX};

/// Fills `out` with one padding batch whose base offset is that of the batch to come.
///
/// # Panics
/// When `out` is shorter than a header, longer than [`PADDING_BYTES_MAX`], or not a multiple of 16: the caller cuts blocks.
pub fn write_padding(out: &mut [u8], next: Offset, epoch: LeaderEpoch) {
    assert!(out.len() >= BATCH_HEADER_BYTES, "{} bytes are too few for a padding batch", out.len());
    assert!(out.len() <= PADDING_BYTES_MAX as usize, "{} bytes are too many for a padding batch", out.len());
    assert!(out.len().is_multiple_of(ALIGNMENT_BYTES), "{} bytes are not whole units of 16", out.len());
    let total_length_bytes = out.len() as u32;
    let (head, payload) = out.split_first_chunk_mut::<BATCH_HEADER_BYTES>().expect("asserted above");
    payload.fill(0);
    let header = BatchHeader {
        payload_kind: PayloadKind::Padding,
        compression: Compression::None,
        timestamp_kind: TimestampKind::Create,
        total_length_bytes,
        payload_length_bytes: payload.len() as u32,
        base_offset: next,
        leader_epoch: epoch,
        payload_crc: crc32c(payload),
        record_count: 0,
        last_offset_delta: 0,
        producer_epoch: ProducerEpoch::NONE,
        first_timestamp_ms: TimestampMs(0),
        max_timestamp_ms: TimestampMs(0),
        producer_id: ProducerId::NONE,
        base_sequence: Sequence::NONE,
        uncompressed_length_bytes: payload.len() as u32,
    };
    header.encode(head);
}
