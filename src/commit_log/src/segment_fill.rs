//! Batches laid out for a segment: back to back in one aligned buffer, padded to whole blocks. A large batch that has landed at the start of
//! a block of its own is written from there, without a copy.

use shards::buffer::{self, BufferMut, Shared};
use wire::batch::{HEADER_BYTES, write_padding};
use wire::{LeaderEpoch, Offset};

use crate::format::BLOCK_BYTES;

/// One write into a segment: large enough for full disk speed, small enough that several overlap.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Whether a batch has landed at the start of a block that can be written as it is.
pub(crate) fn has_landed(bytes: &Shared) -> bool {
    bytes.starts_io_block(padded_bytes(bytes.len()))
}

/// A batch to lay out: its bytes, and the stamped header that replaces the first 80 of them if it was not written before.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) header: Option<&'a [u8; HEADER_BYTES]>,
    pub(crate) bytes: &'a [u8],
}

/// Copies a batch to where it is going to be written from.
pub(crate) fn copy_batch(target: &mut [u8], header: Option<&[u8; HEADER_BYTES]>, bytes: &[u8]) {
    assert_eq!(target.len(), bytes.len(), "a batch keeps its length");
    match header {
        None => target.copy_from_slice(bytes),
        Some(header) => {
            target[..HEADER_BYTES].copy_from_slice(header);
            target[HEADER_BYTES..].copy_from_slice(&bytes[HEADER_BYTES..]);
        }
    }
}

/// Bytes in the file for `length` bytes of batches: whole blocks, with room for a padding batch if the last one is not full.
pub(crate) fn padded_bytes(length: usize) -> usize {
    let rest = length.next_multiple_of(BLOCK_BYTES) - length;
    if rest != 0 && rest < HEADER_BYTES { length + rest + BLOCK_BYTES } else { length + rest }
}

/// The batches of one buffer: how many, their bytes, and with padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) count: usize,
    pub(crate) length: usize,
    pub(crate) padded: usize,
    /// The one batch has landed where it can be written from.
    pub(crate) landed: bool,
}

/// Divides batches of these lengths into buffers of at most [`CHUNK_BYTES_MAX`] (a longer batch has its own, and so has one that has
/// landed), so that each buffer is one write and can be let go by itself.
pub(crate) fn chunks(batches: impl Iterator<Item = (usize, bool)>) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for (length, landed) in batches {
        match chunks.last_mut() {
            Some(chunk) if !landed && !chunk.landed && padded_bytes(chunk.length + length) <= CHUNK_BYTES_MAX => {
                chunk.count += 1;
                chunk.length += length;
            }
            _ => chunks.push(Chunk { count: 1, length, padded: 0, landed }),
        }
    }
    for chunk in &mut chunks {
        chunk.padded = padded_bytes(chunk.length);
    }
    chunks
}

/// Lays the pieces of one chunk out one after the other. `next` is the offset after the last of them.
pub(crate) fn fill<'a>(pieces: impl Iterator<Item = Piece<'a>>, chunk: Chunk, next: Offset, epoch: LeaderEpoch) -> Shared {
    let mut buffer = buffer::allocate(chunk.padded);
    let mut position = 0;
    for piece in pieces {
        let end = position + piece.bytes.len();
        copy_batch(&mut buffer[position..end], piece.header, piece.bytes);
        position = end;
    }
    assert_eq!(position, chunk.length, "the pieces have the length that was counted");
    if position < chunk.padded {
        write_padding(&mut buffer[position..chunk.padded], next, epoch);
    }
    buffer.freeze()
}

/// Completes a landed batch in its block: stamped header in front, padding behind. Copies it when somebody else still holds the block.
pub(crate) fn complete_landed(
    bytes: Shared,
    header: &[u8; HEADER_BYTES],
    chunk: Chunk,
    next: Offset,
    epoch: LeaderEpoch,
) -> Shared {
    assert_eq!(bytes.len(), chunk.length, "a landed batch has a chunk of its own");
    let mut buffer: BufferMut = match bytes.into_buffer() {
        Ok(buffer) => buffer,
        Err(bytes) => return fill(std::iter::once(Piece { header: Some(header), bytes: &bytes }), chunk, next, epoch),
    };
    buffer.extend(chunk.padded);
    buffer[..HEADER_BYTES].copy_from_slice(header);
    if chunk.length < chunk.padded {
        write_padding(&mut buffer[chunk.length..], next, epoch);
    }
    buffer.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_has_room_for_its_header() {
        for length in (16..3 * BLOCK_BYTES).step_by(16) {
            let padded = padded_bytes(length);
            let rest = padded - length;
            assert!(padded.is_multiple_of(BLOCK_BYTES), "{length}");
            assert!(rest == 0 || rest >= HEADER_BYTES, "{length}");
            assert!(rest < BLOCK_BYTES + HEADER_BYTES, "{length}");
        }
    }

    #[test]
    fn chunks_keep_every_batch_and_the_bound() {
        let lengths = [80, 600 << 10, 400 << 10, 3 << 20, 16, 1 << 20, 4096 - 16, 64];
        let chunks = chunks(lengths.iter().map(|length| (*length, false)));
        assert_eq!(chunks.iter().map(|chunk| chunk.count).sum::<usize>(), lengths.len());
        assert_eq!(chunks.iter().map(|chunk| chunk.length).sum::<usize>(), lengths.iter().sum());
        for chunk in chunks {
            assert!(chunk.count == 1 || chunk.padded <= CHUNK_BYTES_MAX);
            assert_eq!(chunk.padded, padded_bytes(chunk.length));
        }
    }

    #[test]
    fn a_landed_batch_is_a_chunk_of_its_own() {
        let chunks = chunks([(160, false), (160, false), (200 << 10, true), (160, false)].into_iter());
        let found: Vec<_> = chunks.iter().map(|chunk| (chunk.count, chunk.landed)).collect();
        assert_eq!(found, [(2, false), (1, true), (1, false)]);
    }

    #[test]
    fn a_landed_batch_becomes_the_bytes_that_a_copy_would_be() {
        let length = (128 << 10) + 160;
        let header = [7; HEADER_BYTES];
        let landed = || {
            let mut block = buffer::allocate(padded_bytes(length));
            block.iter_mut().zip((0..=250).cycle()).for_each(|(byte, value)| *byte = value);
            block.freeze().slice(..length)
        };
        let chunk = chunks(std::iter::once((length, true)))[0];
        let (next, epoch) = (Offset(9), LeaderEpoch(1));
        let copied = {
            let bytes = landed();
            fill(std::iter::once(Piece { header: Some(&header), bytes: &bytes }), chunk, next, epoch)
        };
        let bytes = landed();
        let address = bytes.as_ptr();
        let in_place = complete_landed(bytes, &header, chunk, next, epoch);
        assert_eq!(in_place, copied);
        assert_eq!(in_place.as_ptr(), address);

        let bytes = landed();
        let held = bytes.clone();
        let apart = complete_landed(bytes, &header, chunk, next, epoch);
        assert_eq!(apart, copied);
        assert_ne!(apart.as_ptr(), held.as_ptr());
    }
}
