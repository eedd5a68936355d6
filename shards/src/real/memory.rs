//! I/O memory of a shard: glommio's buddy allocator over the block that is registered with the rings.
//!
//! When that block is used up, glommio silently hands out heap memory. We tell the two apart by address, for two reasons:
//! heap memory is not initialised, and the registered block is (by us, once); and heap blocks are kept for the next write,
//! because the page faults of fresh memory cost more than the copy into it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use glommio::io::{DmaBuffer, ReadResult};

use crate::DISK_ALIGNMENT_BYTES;
use crate::buffer::Accounted;

thread_local! {
    /// Addresses of the registered block of this shard; empty before it is measured.
    static REGISTERED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Freed heap blocks of this many bytes in all are kept per shard.
const KEPT_BYTES_MAX: usize = 32 << 20;

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::new(Kept::default());
}

/// A block for writes. Trimming shortens what a write sends; the allocator still gets the whole block back.
pub(crate) struct DmaBlock {
    dma: Rc<DmaBuffer>,
    /// Of a block of the heap: its bytes before any trimming. 0 for a registered one.
    heap_bytes: usize,
    _accounted: Accounted,
}

/// Initialised heap blocks by their length.
#[derive(Default)]
struct Kept {
    blocks: BTreeMap<usize, Vec<HeapBlock>>,
    bytes: usize,
}

struct HeapBlock {
    dma: Rc<DmaBuffer>,
    heap_bytes: usize,
}

impl Kept {
    /// The smallest block of at least `capacity` bytes that does not waste more than a quarter. Sizes of writes repeat or are close.
    fn take(&mut self, capacity: usize) -> Option<HeapBlock> {
        let (&length, blocks) = self.blocks.range_mut(capacity..=capacity + capacity / 4).next()?;
        let block = blocks.pop().expect("no list is empty");
        if blocks.is_empty() {
            self.blocks.remove(&length);
        }
        self.bytes -= block.heap_bytes;
        Some(block)
    }

    fn put(&mut self, block: HeapBlock) {
        if self.bytes + block.heap_bytes <= KEPT_BYTES_MAX {
            self.bytes += block.heap_bytes;
            self.blocks.entry(block.dma.len()).or_default().push(block);
        }
    }
}

impl DmaBlock {
    /// Only on a shard. `capacity` is a multiple of the disk alignment above 0.
    pub(crate) fn allocate(capacity: usize) -> DmaBlock {
        assert!(capacity > 0);
        assert_eq!(capacity % DISK_ALIGNMENT_BYTES, 0);
        // First, because whether registered memory is left shows only after a fresh block was taken from the heap.
        if let Some(HeapBlock { dma, heap_bytes }) = KEPT.with_borrow_mut(|kept| kept.take(capacity)) {
            return DmaBlock { dma, heap_bytes, _accounted: Accounted::new(heap_bytes) };
        }
        let mut dma = glommio::allocate_dma_buffer(capacity);
        assert_eq!(dma.len(), capacity);
        assert_eq!(dma.as_ptr().addr() % DISK_ALIGNMENT_BYTES, 0);
        if is_registered(&dma) {
            return DmaBlock { dma: Rc::new(dma), heap_bytes: 0, _accounted: Accounted::new(capacity) };
        }
        // SAFETY: the buffer owns `capacity` writable bytes at this address; no reference to them exists yet.
        unsafe { dma.as_mut_ptr().write_bytes(0, capacity) };
        DmaBlock { dma: Rc::new(dma), heap_bytes: capacity, _accounted: Accounted::new(capacity) }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.dma.len()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.dma.as_bytes()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        Rc::get_mut(&mut self.dma).expect("a block is written only once it is frozen").as_bytes_mut()
    }

    pub(crate) fn trim(&mut self, length: usize) {
        if length < self.dma.len() {
            Rc::get_mut(&mut self.dma).expect("a block is written only once it is frozen").trim_to_size(length);
        }
    }

    #[cfg(test)]
    pub(super) fn is_registered(&self) -> bool {
        is_registered(&self.dma)
    }

    /// The buffer, for a write of all of it.
    pub(super) fn whole(&self) -> Rc<DmaBuffer> {
        Rc::clone(&self.dma)
    }
}

impl Drop for DmaBlock {
    fn drop(&mut self) {
        // A block that has been trimmed to less than half of its memory is worth a fresh one. A write in flight keeps its own.
        if self.heap_bytes > 0 && 2 * self.dma.len() >= self.heap_bytes && Rc::strong_count(&self.dma) == 1 {
            let block = HeapBlock { dma: Rc::clone(&self.dma), heap_bytes: self.heap_bytes };
            // At the end of the thread the list is gone.
            let _ = KEPT.try_with(|kept| kept.borrow_mut().put(block));
        }
    }
}

/// The result of a read. Holds memory of the shard until it is dropped.
pub(crate) struct ReadBlock {
    result: ReadResult,
    _accounted: Accounted,
}

impl ReadBlock {
    pub(super) fn new(result: ReadResult) -> ReadBlock {
        let accounted = Accounted::new(result.len());
        ReadBlock { result, _accounted: accounted }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.result
    }
}

fn is_registered(dma: &DmaBuffer) -> bool {
    let (start, end) = REGISTERED.get();
    (start..end).contains(&dma.as_ptr().addr())
}

/// The registered block could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotRegistered;

/// Finds where the registered block of this shard lies, and initialises it. Called once, before any other allocation.
pub(super) fn measure(io_memory_bytes: usize) -> Result<Range<usize>, NotRegistered> {
    let mut held = Vec::new();
    let (mut start, mut end) = (usize::MAX, 0);
    let mut size = io_memory_bytes.next_power_of_two();
    while size >= DISK_ALIGNMENT_BYTES {
        let mut dma = glommio::allocate_dma_buffer(size);
        if !is_fixed(&dma) {
            size /= 2;
            continue;
        }
        // SAFETY: the buffer owns `size` writable bytes at this address; no reference to them exists yet.
        unsafe { dma.as_mut_ptr().write_bytes(0, size) };
        start = start.min(dma.as_ptr().addr());
        end = end.max(dma.as_ptr().addr() + size);
        held.push(dma);
    }
    if held.is_empty() {
        return Err(NotRegistered);
    }
    REGISTERED.set((start, end));
    Ok(start..end)
}

/// The buffer lies in registered memory. Version 0.9.0 tells it only in the text for debugging; were that text to change, no
/// memory would look registered, and the shard would refuse to start.
fn is_fixed(dma: &DmaBuffer) -> bool {
    format!("{dma:?}").contains("uring_buffer_id: Some(")
}
