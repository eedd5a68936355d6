//! Memory for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// What O_DIRECT asks of addresses, lengths and positions.
pub const BLOCK_BYTES: usize = 4096;

/// Zeroed memory that starts at a multiple of [`BLOCK_BYTES`].
#[derive(Debug)]
pub struct AlignedBuffer {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory alone; nothing in it is bound to a thread.
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of zeros.
    ///
    /// # Panics
    /// When the length is 0 or beyond the address space.
    pub fn zeroed(length: usize) -> AlignedBuffer {
        assert!(length > 0, "a buffer has a length");
        let layout = Layout::from_size_align(length, BLOCK_BYTES).expect("the length is within the address space");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        AlignedBuffer { pointer, layout }
    }

    /// A buffer of bytes that neither compress nor repeat: some drives do both.
    pub fn random(length: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(length);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for word in buffer.chunks_mut(8) {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        buffer
    }

    /// Address for the kernel.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is ours, initialised by `alloc_zeroed`, and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and self is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}
