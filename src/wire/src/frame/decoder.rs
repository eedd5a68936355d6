//! Cuts a stream into frames, whatever the pieces in which it arrives. No I/O: it is told what has arrived and says what it needs.

use crate::frame::{FrameError, FrameHeader};
use crate::limits::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// Read at least `missing_bytes` more: the header is not complete.
    Header {
        /// Bytes missing.
        missing_bytes: usize,
    },
    /// Read `missing_bytes` more, into a buffer with room for `header.total_length`: its length has been checked.
    Rest {
        /// The header.
        header: FrameHeader,
        /// Bytes missing.
        missing_bytes: usize,
    },
    /// The first `header.total_length` bytes are a whole frame.
    Complete {
        /// The header.
        header: FrameHeader,
    },
}

/// Decoder of one direction of one connection. The header of a frame is checked once, when its last byte has arrived.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    frame_bytes_max: u32,
    header: Option<FrameHeader>,
}

impl Default for FrameDecoder {
    fn default() -> FrameDecoder {
        FrameDecoder::new(FRAME_BYTES_MAX)
    }
}

impl FrameDecoder {
    /// A decoder that refuses frames above `frame_bytes_max`, or above the protocol's own limit.
    pub fn new(frame_bytes_max: u32) -> FrameDecoder {
        FrameDecoder { frame_bytes_max: frame_bytes_max.min(FRAME_BYTES_MAX), header: None }
    }

    /// Looks at `arrived`: everything that has arrived from the start of the frame on, more of it at each call.
    ///
    /// # Errors
    /// What is wrong with the frame. The connection closes: the place of the next frame is unknown.
    pub fn step(&mut self, arrived: &[u8]) -> Result<FrameStep, FrameError> {
        let header = match self.header {
            Some(header) => header,
            None if arrived.len() < FRAME_HEADER_BYTES => {
                return Ok(FrameStep::Header { missing_bytes: FRAME_HEADER_BYTES - arrived.len() });
            }
            None => self.check(arrived)?,
        };
        let total = header.total_length as usize;
        if arrived.len() < total {
            return Ok(FrameStep::Rest { header, missing_bytes: total - arrived.len() });
        }
        self.header = None;
        Ok(FrameStep::Complete { header })
    }

    fn check(&mut self, arrived: &[u8]) -> Result<FrameHeader, FrameError> {
        let header = FrameHeader::decode(arrived)?;
        if header.total_length > self.frame_bytes_max {
            return Err(FrameError::TooLarge { found_bytes: header.total_length, limit_bytes: self.frame_bytes_max });
        }
        self.header = Some(header);
        Ok(header)
    }

    /// Says whether the stream may end here, with `arrived` bytes of a frame that is not complete.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] when it ends within a frame.
    pub fn finish(&self, arrived: &[u8]) -> Result<(), FrameError> {
        if arrived.is_empty() {
            return Ok(());
        }
        let needed_bytes = self.header.map_or(FRAME_HEADER_BYTES, |header| header.total_length as usize);
        Err(FrameError::Truncated { needed_bytes, found_bytes: arrived.len() })
    }
}
