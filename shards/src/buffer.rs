//! Bytes: filled once, then shared without copies on one shard.
//!
//! ```text
//!   allocate(n) ─► BufferMut ─ freeze ─► Shared ─ slice ─► Shared      (one block, counted references)
//!   4096-aligned    unique                 │
//!                                          └─ Portable ─► another shard  (moves the block, or copies)
//! ```
//!
//! Two kinds of memory, and the caller says which:
//! - [`allocate`]: for disk I/O. On a real shard it comes from the block that is registered with the kernel; when that is used
//!   up, from the heap, at the price of pinned pages per I/O. It belongs to its shard.
//! - [`allocate_plain`]: for sockets and for bytes that travel. Ordinary aligned memory, recycled on this thread.
//!
//! All memory is initialised (never undefined), but its contents are arbitrary unless said otherwise.

mod budget;
mod plain;
mod portable;
mod shared;

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

pub use budget::{Budget, Reservation};
pub(crate) use plain::PlainBlock;
pub use portable::Portable;
pub use shared::Shared;
pub(crate) use shared::Storage;

use crate::DISK_ALIGNMENT_BYTES;
use crate::machine;
use crate::real::memory::DmaBlock;

thread_local! {
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Memory for disk I/O: `length_bytes` usable bytes at a multiple of 4096. At least 1.
///
/// Takes a power of two of the registered memory: ask for powers of two where you can.
pub fn allocate(length_bytes: usize) -> BufferMut {
    assert!(length_bytes > 0);
    let capacity = align_up(length_bytes);
    let block =
        if machine::is_real() { Block::Dma(DmaBlock::allocate(capacity)) } else { Block::Plain(PlainBlock::allocate(capacity)) };
    BufferMut { block, length: length_bytes }
}

/// Memory for sockets and for bytes that go to other shards: `length_bytes` usable bytes at a multiple of 4096. At least 1.
pub fn allocate_plain(length_bytes: usize) -> BufferMut {
    assert!(length_bytes > 0);
    BufferMut { block: Block::Plain(PlainBlock::allocate(align_up(length_bytes))), length: length_bytes }
}

/// Bytes of all blocks that this thread holds, by capacity. Bounds are [`Budget`]s; this is for statistics.
pub fn allocated_bytes() -> usize {
    ALLOCATED_BYTES.with(Cell::get)
}

fn account(change: isize) {
    // A block may be freed while the thread ends, when the counter is gone: nobody asks any more.
    let _ = ALLOCATED_BYTES.try_with(|bytes| bytes.set(bytes.get().saturating_add_signed(change)));
}

/// The next multiple of the disk alignment.
pub fn align_up(length_bytes: usize) -> usize {
    length_bytes.next_multiple_of(DISK_ALIGNMENT_BYTES)
}

/// A block of memory that one owner fills.
pub struct BufferMut {
    block: Block,
    length: usize,
}

enum Block {
    Dma(DmaBlock),
    Plain(PlainBlock),
}

impl BufferMut {
    fn from_dma(block: DmaBlock, length: usize) -> BufferMut {
        BufferMut { block: Block::Dma(block), length }
    }

    fn from_plain(block: PlainBlock, length: usize) -> BufferMut {
        BufferMut { block: Block::Plain(block), length }
    }

    /// Lengthens the buffer to `length_bytes`, which are at most its capacity. What is added has arbitrary contents.
    pub fn extend(&mut self, length_bytes: usize) {
        assert!(length_bytes >= self.length);
        assert!(length_bytes <= self.capacity());
        self.length = length_bytes;
    }

    /// Bytes that can be used without another block: a multiple of 4096.
    pub fn capacity(&self) -> usize {
        match &self.block {
            Block::Dma(block) => block.capacity(),
            Block::Plain(block) => block.capacity(),
        }
    }

    /// Shortens the buffer. `length_bytes` is at most the present length and not 0.
    pub fn truncate(&mut self, length_bytes: usize) {
        assert!(length_bytes > 0);
        assert!(length_bytes <= self.length);
        self.length = length_bytes;
    }

    /// Makes it immutable and shareable. What lies beyond the length is given up.
    pub fn freeze(self) -> Shared {
        let length = self.length;
        match self.block {
            // A write sends a whole block without a copy, so the block ends where the last used page ends.
            Block::Dma(mut block) => {
                block.trim(align_up(length));
                Shared::new(Storage::Dma(block), length)
            }
            Block::Plain(block) => Shared::new(Storage::Plain(block), length),
        }
    }

    /// Makes it a value that can go to another shard; without a copy when it was allocated plain.
    pub fn into_portable(self) -> Portable {
        match self.block {
            Block::Plain(block) => Portable::from_plain(block, self.length),
            Block::Dma(_) => Portable::from_vec(self.to_vec()),
        }
    }
}

impl Deref for BufferMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.block {
            Block::Dma(block) => &block.as_slice()[..self.length],
            Block::Plain(block) => &block.as_slice()[..self.length],
        }
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.block {
            Block::Dma(block) => &mut block.as_mut_slice()[..self.length],
            Block::Plain(block) => &mut block.as_mut_slice()[..self.length],
        }
    }
}

impl std::fmt::Debug for BufferMut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BufferMut").field("len", &self.length).field("capacity", &self.capacity()).finish()
    }
}

pub(crate) struct Accounted(usize);

impl Accounted {
    /// Counts `bytes` as held by this thread until dropped. It must be dropped on the thread that made it, or re-made there.
    pub(crate) fn new(bytes: usize) -> Accounted {
        account(isize::try_from(bytes).unwrap_or(isize::MAX));
        Accounted(bytes)
    }
}

impl Drop for Accounted {
    fn drop(&mut self) {
        account(-isize::try_from(self.0).unwrap_or(isize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_rounds_up() {
        let buffer = allocate(5000);
        assert_eq!(buffer.len(), 5000);
        assert!(buffer.capacity() >= 8192);
        assert_eq!(buffer.capacity() % DISK_ALIGNMENT_BYTES, 0);
        assert_eq!(buffer.as_ptr().addr() % DISK_ALIGNMENT_BYTES, 0);
    }

    #[test]
    fn slices_share_the_block_and_keep_it_alive() {
        let mut buffer = allocate_plain(100);
        buffer.iter_mut().zip(0u8..).for_each(|(byte, value)| *byte = value);
        let shared = buffer.freeze();
        let slice = shared.slice(10..20).slice(2..5);
        drop(shared);
        assert_eq!(&slice[..], &[12, 13, 14]);
    }

    #[test]
    fn allocated_bytes_follow_the_blocks() {
        let before = allocated_bytes();
        let buffer = allocate(4096);
        assert!(allocated_bytes() >= before + 4096);
        let portable = buffer.into_portable();
        let shared = std::thread::spawn(move || portable.into_shared().len()).join().unwrap();
        assert_eq!(shared, 4096);
        assert_eq!(allocated_bytes(), before);
    }

    #[test]
    fn a_sole_plain_block_travels_without_a_copy() {
        let mut buffer = allocate_plain(64 << 10);
        buffer[1] = 7;
        let address = buffer.as_ptr().addr();
        let portable = Portable::from(buffer.freeze());
        let (there, byte) = std::thread::spawn(move || {
            let shared = portable.into_shared();
            (shared.as_ptr().addr(), shared[1])
        })
        .join()
        .unwrap();
        assert_eq!(there, address);
        assert_eq!(byte, 7);
    }

    #[test]
    fn a_shared_block_travels_as_a_copy() {
        let shared = Shared::copy_from_slice(b"hello");
        let portable = Portable::from(shared.slice(1..3));
        assert_eq!(&portable.into_shared()[..], b"el");
        assert_eq!(&shared[..], b"hello");
    }

    #[test]
    fn a_block_is_writable_again_for_its_only_reference() {
        let mut buffer = allocate(8192);
        buffer[..3].copy_from_slice(b"abc");
        let whole = buffer.freeze();
        let other = whole.clone();
        let start = whole.slice(..3);
        drop(whole);
        assert!(start.starts_io_block(8192));
        assert!(!start.starts_io_block(8193));
        assert!(!other.slice(1..).starts_io_block(1));
        let start = start.into_buffer().unwrap_err();
        drop(other);
        let mut again = start.into_buffer().unwrap();
        assert_eq!(&again[..], b"abc");
        again.extend(8192);
        again[8191] = 9;
        assert_eq!(again.freeze()[8191], 9);
    }

    #[test]
    fn freed_blocks_are_used_again() {
        let first = allocate_plain(128 << 10);
        let address = first.as_ptr().addr();
        drop(first);
        let second = allocate_plain(128 << 10);
        assert_eq!(second.as_ptr().addr(), address);
    }
}
