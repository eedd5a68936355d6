use std::ops::{Bound, Deref, RangeBounds};
use std::ptr::NonNull;
use std::rc::Rc;

use super::{BufferMut, PlainBlock, Portable};
use crate::machine;
use crate::real::memory::{DmaBlock, ReadBlock};

/// Immutable bytes, shared on one shard. Cloning and slicing count a reference and copy nothing.
///
/// A slice keeps its whole block alive: copy out what is small and lives long.
#[derive(Clone)]
pub struct Shared {
    storage: Rc<Storage>,
    start: NonNull<u8>,
    length: usize,
}

pub(crate) enum Storage {
    Dma(DmaBlock),
    Plain(PlainBlock),
    Read(ReadBlock),
    Vec(Vec<u8>),
}

impl Storage {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Storage::Dma(block) => block.as_slice(),
            Storage::Plain(block) => block.as_slice(),
            Storage::Read(block) => block.as_slice(),
            Storage::Vec(bytes) => bytes,
        }
    }
}

impl Shared {
    /// The first `length` bytes of `storage`.
    pub(crate) fn new(storage: Storage, length: usize) -> Shared {
        let storage = Rc::new(storage);
        let bytes = storage.as_slice();
        assert!(length <= bytes.len());
        let start = NonNull::from(bytes).cast();
        Shared { storage, start, length }
    }

    /// No bytes.
    pub fn empty() -> Shared {
        Shared::from_vec(Vec::new())
    }

    /// A copy of `bytes`.
    pub fn copy_from_slice(bytes: &[u8]) -> Shared {
        Shared::from_vec(bytes.to_vec())
    }

    /// The bytes of a vector, without a copy.
    pub fn from_vec(bytes: Vec<u8>) -> Shared {
        let length = bytes.len();
        Shared::new(Storage::Vec(bytes), length)
    }

    /// A part of these bytes. Panics when the range is outside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Shared {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.length,
        };
        let part = &self[start..end];
        Shared { storage: Rc::clone(&self.storage), start: NonNull::from(part).cast(), length: part.len() }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// There are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of memory that this reference keeps alive.
    pub fn block_bytes(&self) -> usize {
        self.storage.as_slice().len()
    }

    /// `other` continues these bytes in the same block, so that both can be one slice: see [`Shared::join`].
    pub fn continues_with(&self, other: &Shared) -> bool {
        Rc::ptr_eq(&self.storage, &other.storage) && self.start.addr().get() + self.length == other.start.addr().get()
    }

    /// These bytes and those of `next` as one slice, when they are neighbours in one block.
    pub fn join(&self, next: &Shared) -> Option<Shared> {
        self.continues_with(next).then(|| Shared {
            storage: Rc::clone(&self.storage),
            start: self.start,
            length: self.length + next.length,
        })
    }

    /// These bytes stand at the start of a block for disk I/O with room for `bytes`: with [`Shared::into_buffer`] they can be
    /// completed and written from where they are.
    pub fn starts_io_block(&self, bytes: usize) -> bool {
        let is_io = match &*self.storage {
            Storage::Dma(_) => true,
            // On the simulated machine there is no other memory.
            Storage::Plain(_) => !machine::is_real(),
            Storage::Read(_) | Storage::Vec(_) => false,
        };
        let storage = self.storage.as_slice();
        is_io && self.start.addr().get() == storage.as_ptr().addr() && bytes <= storage.len()
    }

    /// Makes the block writable again, when this is the only reference to it and begins where the block does.
    pub fn into_buffer(self) -> Result<BufferMut, Shared> {
        match self.into_sole_storage() {
            Ok((Storage::Dma(block), 0, length)) => Ok(BufferMut::from_dma(block, length)),
            Ok((Storage::Plain(block), 0, length)) => Ok(BufferMut::from_plain(block, length)),
            Ok((storage, offset, length)) => Err(Shared::new(storage, offset + length).slice(offset..)),
            Err(shared) => Err(shared),
        }
    }

    /// The storage and the place in it, for I/O without a copy.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Gives up the reference; gives the storage when it was the last one, with the range of this slice.
    pub(super) fn into_sole_storage(self) -> Result<(Storage, usize, usize), Shared> {
        let offset = self.start.addr().get() - self.storage.as_slice().as_ptr().addr();
        let (start, length) = (self.start, self.length);
        Rc::try_unwrap(self.storage).map(|storage| (storage, offset, length)).map_err(|storage| Shared { storage, start, length })
    }
}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` and `length` are a part of the storage (checked slices in `new`, `slice` and `join`); the storage is
        // kept alive by our reference, does not move its bytes, and nobody changes it any more.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Shared {
    fn from(bytes: Vec<u8>) -> Shared {
        Shared::from_vec(bytes)
    }
}

impl From<Portable> for Shared {
    fn from(portable: Portable) -> Shared {
        portable.into_shared()
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Shared) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("len", &self.length).finish()
    }
}
