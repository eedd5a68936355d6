//! Compression of a payload: none, lz4 block, zstd frame. The uncompressed length stands in the batch header, so that a reader
//! allocates once, the stated (and bounded) length, and a stream that wants more is an error.

use std::cell::RefCell;
use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use thiserror::Error;

use crate::AlignedVec;

/// How a payload is compressed. The numbers are those of the batch header's low four attribute bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
#[repr(u8)]
pub enum Compression {
    /// As it is.
    #[default]
    None = 0,
    /// One lz4 block without a frame: fastest, about half the size for text.
    Lz4 = 1,
    /// One zstd frame at level 3: smaller, at some cost of the client's processor.
    Zstd = 2,
}

/// Level 3 is zstd's own default: beyond it time grows much faster than size shrinks.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// The compression with that number, if there is one.
    pub const fn from_code(code: u8) -> Option<Compression> {
        match code {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The number in the batch header.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The compression with that name, as written in configuration and on the command line.
    pub fn from_name(name: &str) -> Option<Compression> {
        [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().find(|compression| compression.name() == name)
    }

    /// `none`, `lz4` or `zstd`.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A payload that does not decompress to the length its header states.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{compression} payload of {compressed_bytes} bytes does not decompress to the {expected_bytes} bytes stated: {reason}")]
pub struct DecompressError {
    /// What it claims to be.
    pub compression: Compression,
    /// Length given.
    pub compressed_bytes: usize,
    /// Length wanted.
    pub expected_bytes: usize,
    /// The decompressor's words.
    pub reason: String,
}

// zstd contexts take hundreds of kilobytes: one a thread, made at first use, instead of one a batch.
thread_local! {
    static ZSTD_COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static ZSTD_DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Appends `payload`, compressed, to `out`. Returns `false`, with `out` as it was, when the result would not be smaller than the
/// payload (or there is nothing to do): the caller then stores it as it is.
pub(crate) fn compress_append(compression: Compression, payload: &[u8], out: &mut AlignedVec) -> bool {
    let start = out.len();
    if compression == Compression::None || payload.is_empty() {
        return false;
    }
    // One byte less than the payload: a result that does not fit is not worth having. lz4 demands room for its worst case.
    let room_bytes = match compression {
        Compression::Lz4 => lz4_flex::block::get_maximum_output_size(payload.len()),
        Compression::Zstd | Compression::None => payload.len() - 1,
    };
    out.resize(start + room_bytes, 0);
    let room = &mut out.as_mut_slice()[start..];
    let written = match compression {
        Compression::None => None,
        Compression::Lz4 => lz4_flex::block::compress_into(payload, room).ok(),
        Compression::Zstd => ZSTD_COMPRESSOR.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
            }
            slot.as_mut()?.compress_to_buffer(payload, room).ok()
        }),
    };
    match written {
        Some(bytes) if bytes < payload.len() => {
            out.resize(start + bytes, 0);
            true
        }
        _ => {
            out.resize(start, 0);
            false
        }
    }
}

/// Decompresses into a buffer of exactly `expected_bytes`, which the caller has checked against a limit.
///
/// # Errors
/// When the stream is damaged, or gives fewer or more bytes.
pub(crate) fn decompress(
    compression: Compression,
    compressed: &[u8],
    expected_bytes: usize,
) -> Result<AlignedVec, DecompressError> {
    let fail = |reason: String| DecompressError { compression, compressed_bytes: compressed.len(), expected_bytes, reason };
    let mut out = AlignedVec::with_capacity(expected_bytes);
    out.resize(expected_bytes, 0);
    let written = match compression {
        Compression::None => {
            if compressed.len() != expected_bytes {
                return Err(fail("lengths differ".to_owned()));
            }
            out.as_mut_slice().copy_from_slice(compressed);
            expected_bytes
        }
        Compression::Lz4 => {
            lz4_flex::block::decompress_into(compressed, out.as_mut_slice()).map_err(|error| fail(error.to_string()))?
        }
        Compression::Zstd => ZSTD_DECOMPRESSOR.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = Some(zstd::bulk::Decompressor::new().map_err(|error| fail(error.to_string()))?);
            }
            let decompressor = slot.as_mut().expect("made just above");
            decompressor.decompress_to_buffer(compressed, out.as_mut_slice()).map_err(|error| fail(error.to_string()))
        })?,
    };
    if written != expected_bytes {
        return Err(fail(format!("it gave {written} bytes")));
    }
    Ok(out)
}
