use std::alloc::Layout;
use std::cell::RefCell;
use std::ptr::NonNull;

use super::Accounted;
use crate::DISK_ALIGNMENT_BYTES;

/// Freed blocks of this many bytes in all are kept per thread for the next allocation: fresh memory of this size comes from
/// `mmap`, and its page faults would cost more than the copy into it.
const RECYCLED_BYTES_MAX: usize = 32 << 20;

/// Larger blocks are rare and go back to the system.
const RECYCLED_BLOCK_BYTES_MAX: usize = 4 << 20;

/// Classes are powers of two from 4096 to `RECYCLED_BLOCK_BYTES_MAX`.
const CLASSES: usize = (RECYCLED_BLOCK_BYTES_MAX / DISK_ALIGNMENT_BYTES).ilog2() as usize + 1;

thread_local! {
    static RECYCLED: RefCell<Recycled> = RefCell::new(Recycled::default());
}

#[derive(Default)]
struct Recycled {
    classes: [Vec<RawBlock>; CLASSES],
    bytes: usize,
}

/// An owned, initialised, page-aligned piece of the heap.
pub(crate) struct PlainBlock {
    raw: Option<RawBlock>,
    _accounted: Accounted,
}

struct RawBlock {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a RawBlock is the only owner of its memory, which comes from the global allocator and may be freed on any thread.
unsafe impl Send for RawBlock {}

impl PlainBlock {
    /// A block of at least `capacity` bytes, a multiple of the disk alignment.
    pub(crate) fn allocate(capacity: usize) -> PlainBlock {
        assert!(capacity > 0);
        assert_eq!(capacity % DISK_ALIGNMENT_BYTES, 0);
        let raw = match class_of(capacity) {
            None => RawBlock::allocate(capacity),
            Some(class) => {
                let recycled = RECYCLED.try_with(|recycled| recycled.borrow_mut().take(class)).ok().flatten();
                recycled.unwrap_or_else(|| RawBlock::allocate(DISK_ALIGNMENT_BYTES << class))
            }
        };
        PlainBlock::from_raw(raw)
    }

    fn from_raw(raw: RawBlock) -> PlainBlock {
        let accounted = Accounted::new(raw.capacity);
        PlainBlock { raw: Some(raw), _accounted: accounted }
    }

    /// Takes the memory out of the account of this thread.
    pub(super) fn into_travelling(mut self) -> Travelling {
        Travelling { raw: self.raw.take() }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.raw().capacity
    }

    fn raw(&self) -> &RawBlock {
        self.raw.as_ref().expect("a block holds its memory until it is dropped")
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        let raw = self.raw();
        // SAFETY: `start` points to `capacity` initialised bytes (zeroed when allocated) that this block owns.
        unsafe { std::slice::from_raw_parts(raw.start.as_ptr(), raw.capacity) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let raw = self.raw.as_mut().expect("a block holds its memory until it is dropped");
        // SAFETY: as in `as_slice`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(raw.start.as_ptr(), raw.capacity) }
    }
}

impl Drop for PlainBlock {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            raw.recycle();
        }
    }
}

/// A block between two threads: in nobody's account.
pub(super) struct Travelling {
    raw: Option<RawBlock>,
}

impl Travelling {
    pub(super) fn arrive(mut self) -> PlainBlock {
        PlainBlock::from_raw(self.raw.take().expect("a travelling block holds its memory until it arrives"))
    }
}

impl Drop for Travelling {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            raw.recycle();
        }
    }
}

impl Recycled {
    fn take(&mut self, class: usize) -> Option<RawBlock> {
        let raw = self.classes[class].pop()?;
        self.bytes -= raw.capacity;
        Some(raw)
    }

    fn put(&mut self, class: usize, raw: RawBlock) {
        if self.bytes + raw.capacity <= RECYCLED_BYTES_MAX {
            self.bytes += raw.capacity;
            self.classes[class].push(raw);
        }
    }
}

impl RawBlock {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, DISK_ALIGNMENT_BYTES).expect("a capacity is far below isize::MAX")
    }

    fn allocate(capacity: usize) -> RawBlock {
        let layout = RawBlock::layout(capacity);
        // SAFETY: the layout has a size above 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { std::alloc::handle_alloc_error(layout) };
        RawBlock { start, capacity }
    }

    fn recycle(self) {
        if let Some(class) = class_of(self.capacity) {
            // At the end of the thread the list is gone: then the block is freed when the closure is dropped.
            let _ = RECYCLED.try_with(move |recycled| recycled.borrow_mut().put(class, self));
        }
    }
}

impl Drop for RawBlock {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout and is freed once, here.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), RawBlock::layout(self.capacity)) }
    }
}

fn class_of(capacity: usize) -> Option<usize> {
    let rounded = capacity.next_power_of_two();
    (rounded <= RECYCLED_BLOCK_BYTES_MAX).then(|| (rounded / DISK_ALIGNMENT_BYTES).ilog2() as usize)
}
