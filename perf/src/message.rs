//! The value of a generated message: who sent it, its number, when it was due, and a hash over all of it.
//!
//! ```text
//!  0     4          8          16            24          28     32
//!  +-----+----------+----------+-------------+-----------+------+----------------------
//!  | MSG | producer | sequence | intended ns | partition | hash | body
//!  +-----+----------+----------+-------------+-----------+------+----------------------
//!    little-endian; hash = crc32c(bytes 0..28, then crc32c(body))
//! ```
//!
//! The body's checksum stands for the body, so that a prebuilt batch is stamped anew without touching its bodies.

use wire::checksum::{crc32c, crc32c_append};

/// Bytes before the body, hence the smallest message.
pub const HEAD_BYTES: usize = 32;
/// `CLPM`, read as a little-endian number.
const MAGIC: u32 = u32::from_le_bytes(*b"CLPM");
const HASHED_BYTES: usize = 28;

/// What identifies a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the producer in this run.
    pub producer: u32,
    /// Number of the message among those of this producer in this partition, from 0 without gaps.
    pub sequence: u64,
    /// When the plan wanted it sent, in nanoseconds of the monotonic clock.
    pub intended_ns: u64,
    /// Number of the partition in this run, over all topics.
    pub partition: u32,
}

impl Stamp {
    /// Writes the head of a message whose body has the checksum `body_crc`.
    pub fn write(&self, head: &mut [u8; HEAD_BYTES], body_crc: u32) {
        head[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&self.producer.to_le_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        head[16..24].copy_from_slice(&self.intended_ns.to_le_bytes());
        head[24..28].copy_from_slice(&self.partition.to_le_bytes());
        let hash = hash(&head[..HASHED_BYTES], body_crc);
        head[28..32].copy_from_slice(&hash.to_le_bytes());
    }

    /// Reads a message; `None` when it is damaged or was not made by this generator.
    pub fn read(message: &[u8]) -> Option<Stamp> {
        let (head, body) = message.split_first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != MAGIC || word(28) != hash(&head[..HASHED_BYTES], crc32c(body)) {
            return None;
        }
        Some(Stamp { producer: word(4), sequence: long(8), intended_ns: long(16), partition: word(24) })
    }
}

fn hash(head: &[u8], body_crc: u32) -> u32 {
    crc32c_append(crc32c(head), &body_crc.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_reads_back_and_any_changed_bit_shows(
            producer: u32, sequence: u64, intended_ns: u64, partition: u32,
            body in prop::collection::vec(any::<u8>(), 0..200), bit in any::<prop::sample::Index>(),
        ) {
            let stamp = Stamp { producer, sequence, intended_ns, partition };
            let mut message = vec![0; HEAD_BYTES];
            stamp.write(message.first_chunk_mut().unwrap(), crc32c(&body));
            message.extend_from_slice(&body);
            prop_assert_eq!(Stamp::read(&message), Some(stamp));
            let bit = bit.index(message.len() * 8);
            message[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Stamp::read(&message), None);
        }
    }

    #[test]
    fn a_short_message_is_not_ours() {
        assert_eq!(Stamp::read(&[0; HEAD_BYTES - 1]), None);
    }
}
