//! The record as archived, and as a borrowed view.

use std::slice;

use rkyv::boxed::{ArchivedBox, BoxResolver};
use rkyv::niche::niched_option::NichedOption;
use rkyv::niche::niching::{Niching, Null};
use rkyv::rancor::Failure;
use rkyv::ser::WriterExt as _;
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::{Archive, Place, Portable, bytecheck, munge::munge, rend};

use crate::AlignedVec;
use crate::batch::{BatchHeader, TimestampKind};
use crate::decode::{DecodeError, FromRecordBytes};
use crate::ids::{Offset, TimestampMs};
use crate::limits::{RECORD_FIXED_BYTES, RECORD_HEADER_FIXED_BYTES};

type ArchivedBlob = ArchivedBox<[u8]>;
/// A null relative pointer stands for `None`, so that a missing key costs no tag.
type ArchivedOptionBlob = NichedOption<ArchivedBlob, Null>;

/// One record in the payload: 32 bytes, pointing back at its blobs.
#[derive(Portable, bytecheck::CheckBytes)]
#[bytecheck(crate = rkyv::bytecheck)]
#[repr(C)]
pub(crate) struct ArchivedRecord {
    timestamp_delta_ms: rend::i32_le,
    pub(crate) offset_delta: rend::u32_le,
    key: ArchivedOptionBlob,
    value: ArchivedOptionBlob,
    headers: NichedOption<ArchivedBox<[ArchivedRecordHeader]>, Null>,
}

impl ArchivedRecord {
    /// Distance from the first timestamp of the batch.
    pub(crate) fn timestamp_delta_ms(&self) -> i32 {
        self.timestamp_delta_ms.to_native()
    }
}

/// One header of a record.
#[derive(Portable, bytecheck::CheckBytes)]
#[bytecheck(crate = rkyv::bytecheck)]
#[repr(C)]
pub(crate) struct ArchivedRecordHeader {
    name: ArchivedBox<str>,
    value: ArchivedOptionBlob,
}

const _: () = {
    assert!(size_of::<ArchivedRecord>() == RECORD_FIXED_BYTES);
    assert!(align_of::<ArchivedRecord>() == 4);
    assert!(size_of::<ArchivedRecordHeader>() == RECORD_HEADER_FIXED_BYTES);
    assert!(align_of::<ArchivedRecordHeader>() == 4);
};

/// Bytes already written to the payload.
#[derive(Clone, Copy)]
pub(crate) struct Blob {
    pub(crate) position: usize,
    pub(crate) length: usize,
}

/// An archived array already written.
#[derive(Clone, Copy)]
pub(crate) struct PlacedArray {
    pub(crate) position: usize,
    /// Elements, not bytes.
    pub(crate) length: usize,
}

/// The archived records already written: what the root names.
pub(crate) struct PlacedRoot(pub(crate) PlacedArray);

/// A record whose blobs are written: only the pointers remain to be resolved, so that serialising it needs no second pass.
pub(crate) struct PlacedRecord {
    pub(crate) timestamp_delta_ms: i32,
    pub(crate) offset_delta: u32,
    pub(crate) key: Option<Blob>,
    pub(crate) value: Option<Blob>,
    /// The archived headers, if there are any.
    pub(crate) headers: Option<PlacedArray>,
}

/// A record header whose blobs are written.
pub(crate) struct PlacedHeader {
    pub(crate) name: Blob,
    pub(crate) value: Option<Blob>,
}

impl Archive for PlacedRecord {
    type Archived = ArchivedRecord;
    type Resolver = ();

    fn resolve(&self, (): (), out: Place<ArchivedRecord>) {
        munge!(let ArchivedRecord { timestamp_delta_ms, offset_delta, key, value, headers } = out);
        timestamp_delta_ms.write(self.timestamp_delta_ms.into());
        offset_delta.write(self.offset_delta.into());
        resolve_option(self.key, key);
        resolve_option(self.value, value);
        resolve_option(self.headers, headers);
    }
}

impl Archive for PlacedHeader {
    type Archived = ArchivedRecordHeader;
    type Resolver = ();

    fn resolve(&self, (): (), out: Place<ArchivedRecordHeader>) {
        munge!(let ArchivedRecordHeader { name, value } = out);
        ArchivedBox::resolve_from_raw_parts(BoxResolver::from_pos(self.name.position), metadata(self.name.length), name);
        resolve_option(self.value, value);
    }
}

fn resolve_option<T: Archive<Resolver = ()>>(value: Option<T>, out: Place<NichedOption<T::Archived, Null>>)
where
    Null: Niching<T::Archived>,
{
    NichedOption::resolve_from_option(value.as_ref(), value.as_ref().map(|_| ()), out);
}

impl Archive for Blob {
    type Archived = ArchivedBlob;
    type Resolver = ();

    fn resolve(&self, (): (), out: Place<ArchivedBlob>) {
        ArchivedBox::resolve_from_raw_parts(BoxResolver::from_pos(self.position), metadata(self.length), out);
    }
}

impl Archive for PlacedArray {
    type Archived = ArchivedBox<[ArchivedRecordHeader]>;
    type Resolver = ();

    fn resolve(&self, (): (), out: Place<Self::Archived>) {
        ArchivedBox::resolve_from_raw_parts(BoxResolver::from_pos(self.position), metadata(self.length), out);
    }
}

impl Archive for PlacedRoot {
    type Archived = ArchivedVec<ArchivedRecord>;
    type Resolver = ();

    fn resolve(&self, (): (), out: Place<Self::Archived>) {
        ArchivedVec::resolve_from_len(self.0.length, VecResolver::from_pos(self.0.position), out);
    }
}

fn metadata(length: usize) -> rend::u32_le {
    u32::try_from(length).expect("lengths are bounded by the batch limit").into()
}

/// Appends bytes that a record will point at.
pub(crate) fn place_blob(bytes: &[u8], out: &mut AlignedVec) -> Blob {
    let position = out.len();
    out.extend_from_slice(bytes);
    Blob { position, length: bytes.len() }
}

/// Appends the headers of one record, if it has any. `scratch` is empty before and after.
pub(crate) fn place_headers<'a>(
    headers: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    scratch: &mut Vec<PlacedHeader>,
    out: &mut AlignedVec,
) -> Option<PlacedArray> {
    for (name, value) in headers {
        let name = place_blob(name.as_bytes(), out);
        let value = value.map(|bytes| place_blob(bytes, out));
        scratch.push(PlacedHeader { name, value });
    }
    let array = (!scratch.is_empty()).then(|| write_array(scratch, out));
    scratch.clear();
    array
}

/// Appends `values` as an archived array behind what `out` holds.
pub(crate) fn write_array<T: Archive<Resolver = ()>>(values: &[T], out: &mut AlignedVec) -> PlacedArray {
    let position = write_align::<T>(out);
    for value in values {
        // SAFETY: `out` was aligned for the first value, an archived type's size is a multiple of its alignment, and a resolver
        // of `()` says that there is nothing to serialise.
        let written: Result<usize, Failure> = unsafe { out.resolve_aligned(value, ()) };
        written.expect("writing to memory does not fail");
    }
    PlacedArray { position, length: values.len() }
}

/// Appends the root, which ends the archive.
pub(crate) fn write_root(root: PlacedRoot, out: &mut AlignedVec) {
    write_array(&[root], out);
}

fn write_align<T: Archive>(out: &mut AlignedVec) -> usize {
    let aligned: Result<usize, Failure> = out.align_for::<T::Archived>();
    aligned.expect("writing to memory does not fail")
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// Its position in the partition.
    pub offset: Offset,
    /// Its creation time, or the append time of its batch.
    pub timestamp_ms: TimestampMs,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers, in the order in which they were given.
    pub headers: Headers<'a>,
}

impl<'a> RecordView<'a> {
    /// The key as `T`; `None` where there is none.
    ///
    /// # Errors
    /// When the bytes are not a `T`.
    pub fn key_as<T: FromRecordBytes<'a>>(&self) -> Result<Option<T>, DecodeError> {
        self.key.map(T::from_record_bytes).transpose()
    }

    /// The value as `T`; `None` where there is none.
    ///
    /// # Errors
    /// When the bytes are not a `T`.
    pub fn value_as<T: FromRecordBytes<'a>>(&self) -> Result<Option<T>, DecodeError> {
        self.value.map(T::from_record_bytes).transpose()
    }
}

/// The records of a batch, in order. Reading one allocates nothing.
#[derive(Clone)]
pub struct Records<'a> {
    archived: slice::Iter<'a, ArchivedRecord>,
    base_offset: Offset,
    first_timestamp_ms: i64,
    /// 0 makes every record bear the batch's time, without a branch for each.
    timestamp_delta_factor: i64,
}

impl<'a> Records<'a> {
    pub(crate) fn new(header: &BatchHeader, archived: &'a [ArchivedRecord]) -> Records<'a> {
        let (first_timestamp_ms, timestamp_delta_factor) = match header.timestamp_kind {
            TimestampKind::Create => (header.first_timestamp_ms.0, 1),
            TimestampKind::Append => (header.max_timestamp_ms.0, 0),
        };
        Records { archived: archived.iter(), base_offset: header.base_offset, first_timestamp_ms, timestamp_delta_factor }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordView<'a>;

    #[inline]
    fn next(&mut self) -> Option<RecordView<'a>> {
        let record = self.archived.next()?;
        let delta_ms = i64::from(record.timestamp_delta_ms.to_native()) * self.timestamp_delta_factor;
        Some(RecordView {
            offset: self.base_offset.plus(u64::from(record.offset_delta.to_native())),
            timestamp_ms: TimestampMs(self.first_timestamp_ms.saturating_add(delta_ms)),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: Headers { archived: record.headers.as_deref().unwrap_or(&[]) },
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.archived.size_hint()
    }
}

impl ExactSizeIterator for Records<'_> {}

/// The headers of one record.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    archived: &'a [ArchivedRecordHeader],
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderView<'a> {
    /// Its name; names may repeat.
    pub name: &'a str,
    /// Its value.
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.archived.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.archived.is_empty()
    }

    /// Each in turn.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = HeaderView<'a>> + use<'a> {
        self.archived.iter().map(|header| HeaderView { name: header.name.get(), value: header.value.as_deref() })
    }

    /// The value of the last header with that name, as Kafka's `lastHeader` does: the latest writer wins.
    pub fn last(&self, name: &str) -> Option<HeaderView<'a>> {
        self.iter().filter(|header| header.name == name).last()
    }
}

impl std::fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
