use super::plain::Travelling;
use super::{PlainBlock, Shared, Storage};

/// Bytes that can go to another shard, inside a mesh message.
///
/// Made from a [`Shared`] that is the only reference to plain memory, the memory itself moves; otherwise the bytes are copied.
pub struct Portable {
    content: Content,
    offset: usize,
    length: usize,
}

enum Content {
    Plain(Travelling),
    Vec(Vec<u8>),
}

impl Portable {
    pub(super) fn from_plain(block: PlainBlock, length: usize) -> Portable {
        Portable { content: Content::Plain(block.into_travelling()), offset: 0, length }
    }

    /// The bytes of a vector, without a copy.
    pub fn from_vec(bytes: Vec<u8>) -> Portable {
        let length = bytes.len();
        Portable { content: Content::Vec(bytes), offset: 0, length }
    }

    /// A copy of `bytes`.
    pub fn copy_from_slice(bytes: &[u8]) -> Portable {
        Portable::from_vec(bytes.to_vec())
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// There are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes on the shard where they arrived, without a copy.
    pub fn into_shared(self) -> Shared {
        let storage = match self.content {
            Content::Plain(travelling) => Storage::Plain(travelling.arrive()),
            Content::Vec(bytes) => Storage::Vec(bytes),
        };
        let whole = Shared::new(storage, self.offset + self.length);
        if self.offset == 0 { whole } else { whole.slice(self.offset..) }
    }
}

impl From<Shared> for Portable {
    fn from(shared: Shared) -> Portable {
        match shared.into_sole_storage() {
            Ok((Storage::Plain(block), offset, length)) => {
                Portable { content: Content::Plain(block.into_travelling()), offset, length }
            }
            Ok((Storage::Vec(bytes), offset, length)) => Portable { content: Content::Vec(bytes), offset, length },
            Ok((storage, offset, length)) => Portable::copy_from_slice(&storage.as_slice()[offset..offset + length]),
            Err(shared) => Portable::copy_from_slice(&shared),
        }
    }
}

impl std::fmt::Debug for Portable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Portable").field("len", &self.length).finish()
    }
}
