//! The body of a request or reply: an rkyv archive of one struct.

use rkyv::rancor::BoxedError;
use thiserror::Error as ThisError;

use crate::AlignedVec;
use crate::api::Api;
use crate::frame::FrameError;
use crate::limits::ALIGNMENT_BYTES;

/// A body that is not an archive of what the frame says it is.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum BodyError {
    /// The bytes break the rules of the archive.
    #[error("{type_name} of {length} bytes: {reason}")]
    Archive {
        /// What was expected.
        type_name: &'static str,
        /// Length given.
        length: usize,
        /// The checker's words.
        reason: String,
    },
    /// The bytes do not start at a multiple of 16, so that they cannot be read in place.
    #[error("{type_name} at an address that is not a multiple of {ALIGNMENT_BYTES}")]
    Misaligned {
        /// What was expected.
        type_name: &'static str,
    },
}

/// A struct that can be the body of a frame.
pub trait Body: Sized {
    /// Its archived form, read in place.
    type Archived;

    /// Appends the archive to `out`, whose length must be a multiple of 16.
    fn write_to(&self, out: AlignedVec) -> AlignedVec;

    /// Checks `bytes` and reads them in place.
    ///
    /// # Errors
    /// [`BodyError::Misaligned`], or [`BodyError::Archive`] when they are not an archive of this type.
    fn access(bytes: &[u8]) -> Result<&Self::Archived, BodyError>;

    /// Checks `bytes` and makes an owned value of them; misaligned bytes are copied first.
    ///
    /// # Errors
    /// [`BodyError::Archive`] when they are not an archive of this type.
    fn decode(bytes: &[u8]) -> Result<Self, BodyError>;

    /// Compares counts with the limits of the protocol; [`crate::decode_body`] does it after decoding.
    ///
    /// # Errors
    /// [`FrameError::TooMany`], for a body that names more of something than it may.
    fn check_limits(&self) -> Result<(), FrameError> {
        Ok(())
    }
}

/// A request: its number, and what answers it.
pub trait Request: Body {
    /// Its number.
    const API: Api;
    /// What answers it.
    type Reply: Body;
}

/// Implements [`Body`] for archived structs; the first of `request = Api => reply` also gets [`Request`], and its method after
/// `within` becomes [`Body::check_limits`].
macro_rules! bodies {
    ($($request:ident $(within $limits:ident)? = $api:ident => $reply:ident;)*) => {$(
        $crate::body::bodies!(@body $request $(within $limits)?);
        $crate::body::bodies!(@body $reply);

        impl $crate::body::Request for $request {
            const API: $crate::api::Api = $crate::api::Api::$api;
            type Reply = $reply;
        }
    )*};
    (@body $name:ident $(within $limits:ident)?) => {
        impl $crate::body::Body for $name {
            type Archived = rkyv::Archived<$name>;

            fn write_to(&self, out: $crate::AlignedVec) -> $crate::AlignedVec {
                $crate::body::assert_aligned_end(&out);
                let written = rkyv::api::high::to_bytes_in::<_, rkyv::rancor::BoxedError>(self, out);
                written.expect("archiving into memory does not fail")
            }

            fn access(bytes: &[u8]) -> Result<&Self::Archived, $crate::body::BodyError> {
                $crate::body::check_alignment(stringify!($name), bytes)?;
                rkyv::access::<Self::Archived, rkyv::rancor::BoxedError>(bytes)
                    .map_err(|error| $crate::body::archive_error(stringify!($name), bytes, &error))
            }

            fn decode(bytes: &[u8]) -> Result<Self, $crate::body::BodyError> {
                $crate::body::with_aligned(bytes, |bytes| {
                    let archived = Self::access(bytes)?;
                    rkyv::deserialize::<Self, rkyv::rancor::BoxedError>(archived)
                        .map_err(|error| $crate::body::archive_error(stringify!($name), bytes, &error))
                })
            }

            $(fn check_limits(&self) -> Result<(), $crate::frame::FrameError> {
                self.$limits()
            })?
        }
    };
}
pub(crate) use bodies;

pub(crate) fn assert_aligned_end(out: &AlignedVec) {
    assert!(out.len().is_multiple_of(ALIGNMENT_BYTES), "a body starts at a multiple of 16, not at {}", out.len());
}

pub(crate) fn check_alignment(type_name: &'static str, bytes: &[u8]) -> Result<(), BodyError> {
    if is_aligned(bytes) { Ok(()) } else { Err(BodyError::Misaligned { type_name }) }
}

pub(crate) fn archive_error(type_name: &'static str, bytes: &[u8], error: &BoxedError) -> BodyError {
    BodyError::Archive { type_name, length: bytes.len(), reason: error.to_string() }
}

pub(crate) fn with_aligned<T>(bytes: &[u8], read: impl FnOnce(&[u8]) -> T) -> T {
    if is_aligned(bytes) {
        return read(bytes);
    }
    let mut aligned = AlignedVec::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    read(&aligned)
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES)
}
