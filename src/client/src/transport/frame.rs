//! A received frame: one buffer, 16-aligned, shared by everything that points into it.

use std::ops::Range;
use std::sync::Arc;

use wire::{AlignedVec, BatchError, FrameHeader, SharedBatch};

use crate::limits::{FRAME_POOLED_BYTES_MAX, FRAME_POOLED_BYTES_MIN, FRAMES_POOLED_BYTES_MAX, FRAMES_POOLED_MAX};

/// The large buffers lately used on a connection. One whose batches are all gone is used again: a fresh one would have to be
/// mapped, faulted in and zeroed.
#[derive(Default)]
pub(crate) struct FramePool {
    recent: Vec<Arc<AlignedVec>>,
}

impl FramePool {
    /// A buffer of at least `bytes` initialised bytes that nothing else refers to; its contents are arbitrary.
    pub(crate) fn take(&mut self, bytes: usize) -> Arc<AlignedVec> {
        let idle = self.recent.iter_mut().position(|buffer| {
            let fits = buffer.len() >= bytes && buffer.len() / 4 <= bytes;
            fits && Arc::get_mut(buffer).is_some()
        });
        if let Some(index) = idle {
            return self.recent.swap_remove(index);
        }
        let pooled = (FRAME_POOLED_BYTES_MIN..=FRAME_POOLED_BYTES_MAX).contains(&bytes);
        // Rounded up, so that frames of about the same size fit each other's buffers.
        let capacity = if pooled { bytes.next_multiple_of(FRAME_POOLED_BYTES_MIN) } else { bytes };
        let mut buffer = AlignedVec::with_capacity(capacity);
        buffer.resize(capacity, 0);
        Arc::new(buffer)
    }

    /// Remembers a buffer that is in use, for when it no longer is.
    pub(crate) fn remember(&mut self, buffer: &Arc<AlignedVec>) {
        if !(FRAME_POOLED_BYTES_MIN..=FRAME_POOLED_BYTES_MAX).contains(&buffer.len()) {
            return;
        }
        self.recent.push(Arc::clone(buffer));
        while self.recent.len() > FRAMES_POOLED_MAX || self.bytes() > FRAMES_POOLED_BYTES_MAX {
            self.recent.remove(0);
        }
    }

    fn bytes(&self) -> usize {
        self.recent.iter().map(|buffer| buffer.len()).sum()
    }
}

/// A whole frame: header, body, attachments.
///
/// ```text
///  0        32            32 + body    (rounded up to 16)     total length     buffer length
///  | header | body (rkyv) | padding    | batch | batch | …    | not of this frame   |
/// ```
#[derive(Clone)]
pub(crate) struct Frame {
    header: FrameHeader,
    buffer: Arc<AlignedVec>,
}

impl Frame {
    /// `buffer` begins with the frame that `header` announces, the 32 bytes of the header included.
    pub(crate) fn new(header: FrameHeader, buffer: Arc<AlignedVec>) -> Self {
        assert!(header.total_length as usize <= buffer.len());
        Self { header, buffer }
    }

    pub(crate) fn header(&self) -> &FrameHeader {
        &self.header
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.buffer[self.header.body_range()]
    }

    /// The place of the attachments within the frame.
    pub(crate) fn attachments(&self) -> Range<usize> {
        self.header.attachment_range()
    }

    /// The bytes of the frame from `position` on.
    pub(crate) fn bytes_from(&self, position: usize) -> &[u8] {
        &self.buffer[position..self.header.total_length as usize]
    }

    /// The batch at `position`, checked; it shares this frame's buffer.
    pub(crate) fn batch(&self, position: usize) -> Result<SharedBatch, BatchError> {
        SharedBatch::new(&self.buffer, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nothing_refers_to_it() {
        let mut pool = FramePool::default();
        let bytes = FRAME_POOLED_BYTES_MIN * 3 + 1;
        let first = pool.take(bytes);
        pool.remember(&first);
        let address = first.as_ptr();
        let second = pool.take(bytes);
        assert_ne!(second.as_ptr(), address, "the first is still referred to");
        pool.remember(&second);
        drop(first);
        let third = pool.take(bytes - 100);
        assert_eq!(third.as_ptr(), address);
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_bytes() {
        for bytes in [FRAME_POOLED_BYTES_MIN, FRAME_POOLED_BYTES_MAX / 3, FRAME_POOLED_BYTES_MAX] {
            let mut pool = FramePool::default();
            let mut in_use = Vec::new();
            for _ in 0..2 * FRAMES_POOLED_MAX {
                let buffer = pool.take(bytes);
                pool.remember(&buffer);
                in_use.push(buffer);
                assert!(pool.recent.len() <= FRAMES_POOLED_MAX);
                assert!(pool.bytes() <= FRAMES_POOLED_BYTES_MAX);
            }
        }
    }

    #[test]
    fn a_small_frame_does_not_hold_a_large_buffer() {
        let mut pool = FramePool::default();
        let large = pool.take(FRAME_POOLED_BYTES_MAX);
        pool.remember(&large);
        drop(large);
        assert_eq!(pool.take(100).len(), 100);
    }
}
