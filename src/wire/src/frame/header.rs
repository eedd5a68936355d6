//! The 32-byte frame header.

use std::ops::Range;

use thiserror::Error;

use crate::body::BodyError;
use crate::checksum::crc32c;
use crate::error_code::ErrorCode;
use crate::limits::{
    ALIGNMENT_BYTES, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, REPLY_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MAX, align_up,
};

/// `CLF1`, read as a little-endian number.
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"CLF1");

/// Set in the flags of a reply.
pub const FRAME_FLAG_REPLY: u32 = 1;

/// The header as numbers. Its checksum is computed by [`FrameHeader::encode`] and checked by [`FrameHeader::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Header, body padded to 16, attachments.
    pub total_length: u32,
    /// Number of the request; [`crate::Api::from_code`] tells whether it is known.
    pub api: u16,
    /// Version of request and reply.
    pub api_version: u16,
    /// [`FRAME_FLAG_REPLY`] or 0.
    pub flags: u32,
    /// Chosen by the client, returned in the reply.
    pub correlation_id: u64,
    /// Body without its padding.
    pub body_length: u32,
}

/// What is wrong with a frame. After any of these but [`FrameError::Body`] the place of the next frame is unknown: the connection
/// closes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The stream ended within a frame.
    #[error("frame truncated: the stream ended after {found_bytes} of {needed_bytes} bytes")]
    Truncated {
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes that arrived.
        found_bytes: usize,
    },
    /// Not a frame.
    #[error(
        "frame header byte 0: magic {found:#010x} instead of {FRAME_MAGIC:#010x}: not this protocol, or a frame went wrong before"
    )]
    Magic {
        /// What stands there.
        found: u32,
    },
    /// The header does not have the checksum it states.
    #[error("frame header byte 28: header crc {found:#010x} stated, {computed:#010x} computed")]
    HeaderCrc {
        /// Stated.
        found: u32,
        /// Computed over the bytes.
        computed: u32,
    },
    /// Larger than the reader allows.
    #[error("frame header byte 4: frame of {found_bytes} bytes, {limit_bytes} are allowed")]
    TooLarge {
        /// Stated.
        found_bytes: u32,
        /// The reader's limit.
        limit_bytes: u32,
    },
    /// A number outside what its field may hold.
    #[error("frame header byte {position}: {field} is {found}, {rule}")]
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
    /// The body is not what the header says.
    #[error("frame body: {0}")]
    Body(#[from] BodyError),
    /// Lengths of batches in the body that do not add up to the attachments.
    #[error("frame attachments: {reason} ({stated_bytes} bytes stated in the body, {found_bytes} attached)")]
    Attachments {
        /// What does not fit.
        reason: &'static str,
        /// Sum of the lengths in the body.
        stated_bytes: u64,
        /// Length of the attachments.
        found_bytes: usize,
    },
    /// More of something than one request may name.
    #[error("frame body: {found} {what}, {limit} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

impl FrameError {
    /// The code with which a broker answers, before it closes the connection.
    pub const fn code(&self) -> ErrorCode {
        match self {
            FrameError::TooLarge { .. } => ErrorCode::FrameTooLarge,
            FrameError::TooMany { .. } => ErrorCode::InvalidRequest,
            FrameError::Truncated { .. }
            | FrameError::Magic { .. }
            | FrameError::HeaderCrc { .. }
            | FrameError::Field { .. }
            | FrameError::Body(_)
            | FrameError::Attachments { .. } => ErrorCode::CorruptFrame,
        }
    }
}

impl FrameHeader {
    /// Reads and checks the header: magic, checksum, every length against its limit. It allocates nothing.
    ///
    /// # Errors
    /// What is wrong, with its place. After `Ok` the lengths are consistent with each other and within the limits.
    pub fn decode(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        let Some(bytes) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Err(FrameError::Truncated { needed_bytes: FRAME_HEADER_BYTES, found_bytes: bytes.len() });
        };
        let magic = u32_at(bytes, 0);
        if magic != FRAME_MAGIC {
            return Err(FrameError::Magic { found: magic });
        }
        let header_crc = u32_at(bytes, 28);
        let computed = crc32c(&bytes[..28]);
        if header_crc != computed {
            return Err(FrameError::HeaderCrc { found: header_crc, computed });
        }
        let header = FrameHeader {
            total_length: u32_at(bytes, 4),
            api: u16::from_le_bytes(array_at(bytes, 8)),
            api_version: u16::from_le_bytes(array_at(bytes, 10)),
            flags: u32_at(bytes, 12),
            correlation_id: u64::from_le_bytes(array_at(bytes, 16)),
            body_length: u32_at(bytes, 24),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FrameError> {
        if self.total_length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge { found_bytes: self.total_length, limit_bytes: FRAME_BYTES_MAX });
        }
        if self.flags & !FRAME_FLAG_REPLY != 0 {
            return Err(field(12, "flags", self.flags, "bits 1 to 31 must be 0"));
        }
        let body_limit = if self.is_reply() { REPLY_BODY_BYTES_MAX } else { REQUEST_BODY_BYTES_MAX };
        if self.body_length > body_limit {
            return Err(field(24, "body length", self.body_length, "it is above the limit of a body"));
        }
        if !(self.total_length as usize).is_multiple_of(ALIGNMENT_BYTES) {
            return Err(field(4, "total length", self.total_length, "it must be a multiple of 16"));
        }
        if (self.total_length as usize) < self.body_end() {
            return Err(field(4, "total length", self.total_length, "it is too short for header and body"));
        }
        Ok(())
    }

    /// Writes the header with its checksum.
    pub fn encode(&self, out: &mut [u8; FRAME_HEADER_BYTES]) {
        debug_assert_eq!(self.check(), Ok(()));
        out[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&self.total_length.to_le_bytes());
        out[8..10].copy_from_slice(&self.api.to_le_bytes());
        out[10..12].copy_from_slice(&self.api_version.to_le_bytes());
        out[12..16].copy_from_slice(&self.flags.to_le_bytes());
        out[16..24].copy_from_slice(&self.correlation_id.to_le_bytes());
        out[24..28].copy_from_slice(&self.body_length.to_le_bytes());
        let header_crc = crc32c(&out[..28]);
        out[28..32].copy_from_slice(&header_crc.to_le_bytes());
    }

    /// Whether it answers a request.
    pub fn is_reply(&self) -> bool {
        self.flags & FRAME_FLAG_REPLY != 0
    }

    /// The body's place within the frame.
    pub fn body_range(&self) -> Range<usize> {
        FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + self.body_length as usize
    }

    /// The attachments' place within the frame.
    pub fn attachment_range(&self) -> Range<usize> {
        self.body_end()..self.total_length as usize
    }

    /// Length of the attachments.
    pub fn attachment_bytes(&self) -> usize {
        self.total_length as usize - self.body_end()
    }

    fn body_end(&self) -> usize {
        align_up(FRAME_HEADER_BYTES + self.body_length as usize)
    }
}

fn field(position: usize, field: &'static str, found: impl Into<u64>, rule: &'static str) -> FrameError {
    FrameError::Field { position, field, found: found.into(), rule }
}

fn array_at<const N: usize>(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("fields lie within the header")
}

fn u32_at(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}
