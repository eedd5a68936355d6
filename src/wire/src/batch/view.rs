//! A checked batch, read in place.

use std::ops::Range;
use std::sync::Arc;

use rkyv::rancor::BoxedError;
use rkyv::vec::ArchivedVec;

use crate::AlignedVec;
use crate::batch::record::{ArchivedRecord, Records};
use crate::batch::{BatchError, BatchHeader, PayloadKind, verify_batch};
use crate::compression::{Compression, decompress};
use crate::limits::{ALIGNMENT_BYTES, BATCH_HEADER_BYTES};

type ArchivedRecords = ArchivedVec<ArchivedRecord>;

/// A batch whose header, checksums and archive have been checked. Reading records from it copies and allocates nothing.
pub struct BatchView<'a> {
    header: BatchHeader,
    payload: Payload<'a>,
}

enum Payload<'a> {
    Borrowed(&'a [u8]),
    Decompressed(AlignedVec),
}

impl<'a> BatchView<'a> {
    /// Checks the batch at the start of `bytes` (more may follow) and decompresses it when needed. This is the only moment at which
    /// the archive is checked: once per batch.
    ///
    /// # Errors
    /// What is wrong; [`BatchError::Misaligned`] when `bytes` does not start at a multiple of 16; [`BatchError::Kind`] when the
    /// batch is not of rkyv records.
    pub fn new(bytes: &'a [u8]) -> Result<BatchView<'a>, BatchError> {
        let checked = Checked::new(bytes)?;
        let payload = match checked.decompressed {
            Some(decompressed) => Payload::Decompressed(decompressed),
            None => Payload::Borrowed(&bytes[checked.header.payload_range()]),
        };
        Ok(BatchView { header: checked.header, payload })
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The records, in order of their offsets.
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.header, self.archived())
    }

    /// The records as they are stored.
    pub(crate) fn archived(&self) -> &[ArchivedRecord] {
        let payload = match &self.payload {
            Payload::Borrowed(bytes) => bytes,
            Payload::Decompressed(bytes) => bytes.as_slice(),
        };
        // SAFETY: `new` has checked exactly these bytes, and `self` has kept them borrowed or owned, unchanged, since.
        unsafe { records_unchecked(payload) }
    }
}

/// A checked batch that owns its bytes together with others: a slice of a received frame. Cloning it copies no data.
#[derive(Clone)]
pub struct SharedBatch {
    header: BatchHeader,
    /// The frame, or the decompressed payload.
    bytes: Arc<AlignedVec>,
    payload: Range<usize>,
}

impl SharedBatch {
    /// Checks the batch that begins at `position` of `bytes` (more may follow), as [`BatchView::new`] does.
    ///
    /// # Errors
    /// As [`BatchView::new`]; [`BatchError::Truncated`] when `position` lies beyond the end.
    pub fn new(bytes: &Arc<AlignedVec>, position: usize) -> Result<SharedBatch, BatchError> {
        let Some(batch) = bytes.get(position..) else {
            return Err(BatchError::Truncated { needed_bytes: position + BATCH_HEADER_BYTES, found_bytes: bytes.len() });
        };
        let Checked { header, decompressed } = Checked::new(batch)?;
        Ok(match decompressed {
            Some(payload) => SharedBatch { header, payload: 0..payload.len(), bytes: Arc::new(payload) },
            None => {
                let range = header.payload_range();
                SharedBatch { header, bytes: Arc::clone(bytes), payload: position + range.start..position + range.end }
            }
        })
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes that this batch keeps alive, shared with other batches of the same frame unless it was compressed.
    pub fn retained_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The records, in order of their offsets.
    pub fn records(&self) -> Records<'_> {
        let payload = &self.bytes[self.payload.clone()];
        // SAFETY: `new` has checked exactly these bytes. They lie in an `AlignedVec` behind an `Arc` that `self` has held since:
        // no one can have changed or moved them, for that needs the only handle.
        Records::new(&self.header, unsafe { records_unchecked(payload) })
    }
}

struct Checked {
    header: BatchHeader,
    decompressed: Option<AlignedVec>,
}

impl Checked {
    fn new(bytes: &[u8]) -> Result<Checked, BatchError> {
        if !bytes.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES) {
            return Err(BatchError::Misaligned);
        }
        let header = verify_batch(bytes)?;
        if header.payload_kind != PayloadKind::Records {
            return Err(BatchError::Kind { found: header.payload_kind });
        }
        let stored = &bytes[header.payload_range()];
        let decompressed = match header.compression {
            Compression::None => None,
            compression => Some(decompress(compression, stored, header.uncompressed_length_bytes as usize)?),
        };
        check_records(&header, decompressed.as_ref().map_or(stored, AlignedVec::as_slice))?;
        Ok(Checked { header, decompressed })
    }
}

fn check_records(header: &BatchHeader, payload: &[u8]) -> Result<(), BatchError> {
    // An empty archive is one root; rkyv's own check of a shorter slice gives an error, not a panic.
    let records = rkyv::api::low::access::<ArchivedRecords, BoxedError>(payload)
        .map_err(|error| BatchError::Archive { reason: error.to_string() })?;
    if records.len() != header.record_count as usize {
        return Err(BatchError::RecordCount { stated: header.record_count, found: records.len() });
    }
    let mut least = 0;
    for (index, record) in records.iter().enumerate() {
        let found = record.offset_delta.to_native();
        let most = header.last_offset_delta;
        if found < least || found > most {
            return Err(BatchError::OffsetDelta { index, found, least, most });
        }
        // No overflow: `found` is at most `OFFSET_DELTA_MAX`.
        least = found + 1;
    }
    Ok(())
}

/// # Safety
/// `check_records` must have accepted these bytes at this address.
unsafe fn records_unchecked(payload: &[u8]) -> &[ArchivedRecord] {
    // SAFETY: the caller's promise is that of `access_unchecked`: the bytes are a valid archive of this type.
    unsafe { rkyv::access_unchecked::<ArchivedRecords>(payload) }.as_slice()
}
