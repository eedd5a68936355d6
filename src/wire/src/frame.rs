//! The frame: what a connection carries, back to back, in both directions.
//!
//! ```text
//!  0        32                      32 + body, to 16             total, a multiple of 16
//!  +--------+--------------+--------+----------------------------+
//!  | header | body (rkyv)  | zeros  | attachments: batches       |
//!  +--------+--------------+--------+----------------------------+
//! ```
//!
//! A frame read into a 16-aligned buffer is used in place: body and every batch are aligned with it.

mod decoder;
mod header;

pub use decoder::{FrameDecoder, FrameStep};
pub use header::{FRAME_FLAG_REPLY, FRAME_MAGIC, FrameError, FrameHeader};

use crate::AlignedVec;
use crate::body::{Body, Request};
use crate::limits::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, align_up};

/// A frame without its attachments, which the caller writes behind it: header and body, padded to 16.
///
/// # Panics
/// When the frame would be above the limits: who makes replies bounds them.
pub fn encode_frame<T: Body>(
    api: u16,
    api_version: u16,
    flags: u32,
    correlation_id: u64,
    body: &T,
    attachment_bytes: usize,
) -> AlignedVec {
    let mut frame = AlignedVec::with_capacity(512);
    frame.resize(FRAME_HEADER_BYTES, 0);
    let mut frame = body.write_to(frame);
    let body_length = frame.len() - FRAME_HEADER_BYTES;
    frame.resize(align_up(frame.len()), 0);
    let total_length = frame.len() + attachment_bytes;
    assert!(total_length <= FRAME_BYTES_MAX as usize, "frame of {total_length} bytes is above the limit");
    let header = FrameHeader {
        total_length: total_length as u32,
        api,
        api_version,
        flags,
        correlation_id,
        body_length: body_length as u32,
    };
    header.encode(frame.as_mut_slice().first_chunk_mut().expect("room for the header was made first"));
    frame
}

/// The frame of a request at the largest version this crate speaks, without its attachments.
///
/// # Panics
/// As [`encode_frame`].
pub fn encode_request<R: Request>(correlation_id: u64, body: &R, attachment_bytes: usize) -> AlignedVec {
    encode_frame(R::API.code(), R::API.versions().1, 0, correlation_id, body, attachment_bytes)
}

/// The frame that answers a request with `request`'s header, without its attachments.
///
/// # Panics
/// As [`encode_frame`].
pub fn encode_reply<T: Body>(request: &FrameHeader, body: &T, attachment_bytes: usize) -> AlignedVec {
    encode_frame(request.api, request.api_version, FRAME_FLAG_REPLY, request.correlation_id, body, attachment_bytes)
}

/// A body as an owned value, within the limits of the protocol.
///
/// # Errors
/// When the bytes are not an archive of `T`, or name more of something than a body may.
pub fn decode_body<T: Body>(body: &[u8]) -> Result<T, FrameError> {
    let body = T::decode(body)?;
    body.check_limits()?;
    Ok(body)
}

/// A body read in place.
///
/// # Errors
/// When the bytes are not an archive of `T`, or not 16-aligned.
pub fn access_body<T: Body>(body: &[u8]) -> Result<&T::Archived, FrameError> {
    Ok(T::access(body)?)
}
