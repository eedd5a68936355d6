//! Key to partition, as Kafka's clients do it, so that a key lands where users expect.

use crate::ids::PartitionIndex;

/// The partition of a record with `key` in a topic of `partitions`: `toPositive(murmur2(key)) % partitions`.
///
/// # Panics
/// When `partitions` is 0: a topic has at least one.
pub fn partition_for_key(key: &[u8], partitions: u32) -> PartitionIndex {
    assert!(partitions > 0, "a topic has at least one partition");
    PartitionIndex((murmur2(key) & 0x7fff_ffff) % partitions)
}

/// MurmurHash2, 32 bits, with the seed of Kafka's clients.
pub fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SHIFT: u32 = 24;

    // Kafka's hash is defined over Java's 32-bit lengths.
    let mut hash = SEED ^ (bytes.len() as u32);
    let words = bytes.chunks_exact(4);
    let tail = words.remainder();
    for word in words {
        let mut mixed = u32::from_le_bytes(word.try_into().expect("chunks of four")).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let last = tail.iter().rev().fold(0, |last, &byte| last << 8 | u32::from(byte));
        hash = (hash ^ last).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::{murmur2, partition_for_key};
    use crate::ids::PartitionIndex;

    /// From `UtilsTest.testMurmur2` of Kafka's Java client.
    #[test]
    fn the_vectors_of_the_java_client() {
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
        }
    }

    #[test]
    fn a_negative_hash_gives_a_partition_by_its_low_31_bits() {
        let expected = (-973_932_308_i32 & i32::MAX) as u32 % 7;
        assert_eq!(partition_for_key(b"21", 7), PartitionIndex(expected));
        assert_eq!(partition_for_key(b"anything", 1), PartitionIndex(0));
    }
}
