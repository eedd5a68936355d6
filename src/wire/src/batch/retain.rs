//! A stored batch with fewer records: what compaction leaves of it.
//!
//! ```text
//!   before   base 100 │ 100 a  101 b  102 a  103 c │ last offset delta 3, records 4
//!   after    base 100 │        101 b  102 a        │ last offset delta 3, records 2      the offsets are those that readers know
//! ```
//!
//! Everything but the records stays: base, last offset, epoch, producer with its sequence, codec. So batches stand in a log without a hole between
//! them, whatever is taken out of them, and a log that a producer's sequences are read from again gives the same ones.

use crate::AlignedVec;
use crate::batch::record::{PlacedRecord, PlacedRoot, RecordView, place_blob, place_headers, write_array, write_root};
use crate::batch::{BatchHeader, BatchView, PayloadKind, TimestampKind};
use crate::checksum::crc32c;
use crate::compression::{Compression, compress_append};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::{BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BATCH_UNCOMPRESSED_BYTES_MAX, OFFSET_DELTA_MAX, align_up};

impl BatchView<'_> {
    /// The batch with only those records for which `keep` says so, called once for each in their order. Compressed as it was, where that makes
    /// it smaller. The greatest timestamp is that of the records left; without any, the batch keeps the one it had.
    ///
    /// `None` when the result would exceed the limit of a batch: alignment can make some batches of thousands of small records with headers a
    /// little longer than they came. Such a batch stays as it is.
    pub fn retain(&self, mut keep: impl FnMut(&RecordView<'_>) -> bool) -> Option<AlignedVec> {
        let header = self.header();
        let (archived, records) = (self.archived(), self.records());
        let mut buffer = AlignedVec::with_capacity(BATCH_HEADER_BYTES + header.uncompressed_length_bytes as usize);
        buffer.resize(BATCH_HEADER_BYTES, 0);
        let mut placed: Vec<PlacedRecord> = Vec::new();
        let mut scratch = Vec::new();
        for (stored, record) in archived.iter().zip(records) {
            if !keep(&record) {
                continue;
            }
            let key = record.key.map(|bytes| place_blob(bytes, &mut buffer));
            let value = record.value.map(|bytes| place_blob(bytes, &mut buffer));
            let headers = record.headers.iter().map(|header| (header.name, header.value));
            let headers = place_headers(headers, &mut scratch, &mut buffer);
            let (timestamp_delta_ms, offset_delta) = (stored.timestamp_delta_ms(), stored.offset_delta.to_native());
            placed.push(PlacedRecord { timestamp_delta_ms, offset_delta, key, value, headers });
        }
        let (first_timestamp_ms, max_timestamp_ms) = rebase(header, &mut placed);
        let array = write_array(&placed, &mut buffer);
        write_root(PlacedRoot(array), &mut buffer);
        let header = BatchHeader { record_count: placed.len() as u32, first_timestamp_ms, max_timestamp_ms, ..*header };
        finish(header, buffer)
    }
}

/// Bytes of a batch made by [`empty_batch`].
pub const EMPTY_BATCH_BYTES: usize = align_up(BATCH_HEADER_BYTES + EMPTY_ARCHIVE_BYTES);

/// The root alone.
const EMPTY_ARCHIVE_BYTES: usize = 8;

/// A batch without records that stands for the offsets from `base` to `last`, whose records are all gone.
///
/// # Panics
/// When it would stand for more offsets than a batch may: [`OFFSET_DELTA_MAX`].
pub fn empty_batch(base: Offset, last: Offset, epoch: LeaderEpoch) -> AlignedVec {
    let last_offset_delta = last.0.checked_sub(base.0).expect("a batch ends after it begins");
    assert!(last_offset_delta <= u64::from(OFFSET_DELTA_MAX), "{base} to {last} are too many offsets for a batch");
    let header = BatchHeader {
        payload_kind: PayloadKind::Records,
        compression: Compression::None,
        timestamp_kind: TimestampKind::Create,
        total_length_bytes: 0,
        payload_length_bytes: 0,
        base_offset: base,
        leader_epoch: epoch,
        payload_crc: 0,
        record_count: 0,
        last_offset_delta: last_offset_delta as u32,
        producer_epoch: ProducerEpoch::NONE,
        first_timestamp_ms: TimestampMs(i64::MIN),
        max_timestamp_ms: TimestampMs(i64::MIN),
        producer_id: ProducerId::NONE,
        base_sequence: Sequence::NONE,
        uncompressed_length_bytes: 0,
    };
    let mut buffer = AlignedVec::with_capacity(EMPTY_BATCH_BYTES);
    buffer.resize(BATCH_HEADER_BYTES, 0);
    let array = write_array::<PlacedRecord>(&[], &mut buffer);
    write_root(PlacedRoot(array), &mut buffer);
    let batch = finish(header, buffer).expect("it is short");
    assert_eq!(batch.len(), EMPTY_BATCH_BYTES, "an empty batch has a fixed length");
    batch
}

/// Makes the deltas count from the first record left, as in a batch that was built so. Returns the first and the greatest timestamp.
fn rebase(header: &BatchHeader, placed: &mut [PlacedRecord]) -> (TimestampMs, TimestampMs) {
    let unchanged = (header.first_timestamp_ms, header.max_timestamp_ms);
    let Some(first) = placed.first().map(|record| record.timestamp_delta_ms) else { return unchanged };
    if header.timestamp_kind == TimestampKind::Append {
        return unchanged;
    }
    let greatest = placed.iter().map(|record| record.timestamp_delta_ms).max().unwrap_or(first);
    let base_ms = header.first_timestamp_ms.0;
    let at = |delta: i32| base_ms.checked_add(i64::from(delta));
    // Timestamps at the very end of time stay as they are.
    let (Some(first_ms), Some(max_ms)) = (at(first), at(greatest)) else { return unchanged };
    if placed.iter().any(|record| record.timestamp_delta_ms.checked_sub(first).is_none()) {
        // Weeks before and weeks after the old first one: the greatest is not before it.
        return (header.first_timestamp_ms, TimestampMs(max_ms));
    }
    for record in placed {
        record.timestamp_delta_ms -= first;
    }
    (TimestampMs(first_ms), TimestampMs(max_ms))
}

/// Compresses the payload behind the header as `header` says, and writes the header with all that depends on the payload.
fn finish(mut header: BatchHeader, mut buffer: AlignedVec) -> Option<AlignedVec> {
    let uncompressed_bytes = buffer.len() - BATCH_HEADER_BYTES;
    let mut smaller = AlignedVec::new();
    smaller.resize(BATCH_HEADER_BYTES, 0);
    if compress_append(header.compression, &buffer[BATCH_HEADER_BYTES..], &mut smaller) {
        buffer = smaller;
    } else {
        header.compression = Compression::None;
    }
    let payload_bytes = buffer.len() - BATCH_HEADER_BYTES;
    let total_bytes = align_up(buffer.len());
    if uncompressed_bytes > BATCH_UNCOMPRESSED_BYTES_MAX as usize || total_bytes > BATCH_BYTES_MAX as usize {
        return None;
    }
    header.payload_crc = crc32c(&buffer[BATCH_HEADER_BYTES..]);
    header.payload_length_bytes = payload_bytes as u32;
    header.uncompressed_length_bytes = uncompressed_bytes as u32;
    header.total_length_bytes = total_bytes as u32;
    buffer.resize(total_bytes, 0);
    let head = buffer.as_mut_slice().first_chunk_mut().expect("room for the header was made first");
    header.encode(head);
    Some(buffer)
}
