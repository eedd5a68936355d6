//! Where messages go: which partition, with which key.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use wire::partition_for_key;

use super::template::KEY_BYTES;

/// Where messages go.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Spread {
    /// One partition after the other, no keys.
    #[default]
    RoundRobin,
    /// Keys one after the other out of so many; a key's partition is its hash's.
    KeysRoundRobin(u32),
    /// Keys at random out of so many.
    KeysRandom(u32),
    /// Keys at random, key n with a weight of 1 / (n + 1)^exponent: a few hot ones.
    KeysZipf {
        /// How many.
        keys: u32,
        /// 0 for all alike.
        exponent: f64,
    },
    /// Partition n with a weight of 1 / (n + 1)^exponent: a few hot ones.
    Zipf(f64),
}

impl Spread {
    /// How many keys there are; 0 when messages have none.
    pub fn keys(self) -> u32 {
        match self {
            Spread::KeysRoundRobin(keys) | Spread::KeysRandom(keys) | Spread::KeysZipf { keys, .. } => keys,
            Spread::RoundRobin | Spread::Zipf(_) => 0,
        }
    }

    /// Whether messages have keys.
    pub fn keyed(self) -> bool {
        self.keys() > 0
    }
}

/// Chooses partition and key of one message after the other.
#[derive(Debug)]
pub(super) struct Chooser {
    spread: Spread,
    next: usize,
    random: SmallRng,
    /// Partition of each key.
    key_lanes: Vec<u32>,
    /// Sum of the weights up to each partition, or to each key.
    weights: Vec<f64>,
}

impl Chooser {
    pub(super) fn new(spread: Spread, lanes: usize, seed: u64) -> Chooser {
        let key_lanes = (0..spread.keys()).map(|key| partition_for_key(&key_bytes(key), lanes as u32).0).collect();
        let weights = match spread {
            Spread::Zipf(exponent) => zipf_sums(lanes, exponent),
            Spread::KeysZipf { keys, exponent } => zipf_sums(keys as usize, exponent),
            Spread::RoundRobin | Spread::KeysRoundRobin(_) | Spread::KeysRandom(_) => Vec::new(),
        };
        // Producers start at different partitions, so that round robin does not move in step.
        Chooser { spread, next: seed as usize, random: SmallRng::seed_from_u64(seed), key_lanes, weights }
    }

    pub(super) fn choose(&mut self, lanes: usize) -> (usize, u32) {
        self.next = self.next.wrapping_add(1);
        match self.spread {
            Spread::RoundRobin => (self.next % lanes, 0),
            Spread::KeysRoundRobin(keys) => {
                let key = (self.next % keys as usize) as u32;
                (self.key_lanes[key as usize] as usize, key)
            }
            Spread::KeysRandom(keys) => {
                let key = self.random.random_range(0..keys);
                (self.key_lanes[key as usize] as usize, key)
            }
            Spread::KeysZipf { .. } => {
                let key = self.weighted();
                (self.key_lanes[key] as usize, key as u32)
            }
            Spread::Zipf(_) => (self.weighted(), 0),
        }
    }

    fn weighted(&mut self) -> usize {
        let total = self.weights.last().copied().unwrap_or(1.0);
        let point = self.random.random::<f64>() * total;
        self.weights.partition_point(|&sum| sum < point).min(self.weights.len() - 1)
    }
}

/// Sums of the weights 1 / 1^exponent, 1 / 2^exponent ... up to each.
fn zipf_sums(count: usize, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=count).map(|place| 1.0 / (place as f64).powf(exponent));
    weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

/// The key of this number: eight hexadecimal digits.
pub fn key_bytes(key: u32) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|index| DIGITS[(key >> (28 - 4 * index) & 15) as usize])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn keys_are_eight_hexadecimal_digits() {
        assert_eq!(&key_bytes(0), b"00000000");
        assert_eq!(&key_bytes(0xdead_beef), b"deadbeef");
    }

    #[test]
    fn round_robin_visits_all_and_zipf_prefers_the_first() {
        let mut even = Chooser::new(Spread::RoundRobin, 7, 3);
        let mut skewed = Chooser::new(Spread::Zipf(1.0), 7, 3);
        let (mut evenly, mut skewedly) = ([0; 7], [0; 7]);
        for _ in 0..7000 {
            evenly[even.choose(7).0] += 1;
            skewedly[skewed.choose(7).0] += 1;
        }
        assert_eq!(evenly, [1000; 7]);
        assert!(skewedly[0] > 2 * skewedly[2] && skewedly[6] > 100, "{skewedly:?}");
    }

    #[test]
    fn a_key_has_one_partition() {
        let mut keys = Chooser::new(Spread::KeysRoundRobin(100), 16, 0);
        let mut partitions = HashMap::new();
        for _ in 0..1000 {
            let (lane, key) = keys.choose(16);
            assert_eq!(*partitions.entry(key).or_insert(lane), lane);
        }
        assert_eq!(partitions.len(), 100);
    }

    #[test]
    fn hot_keys_come_often_and_each_has_one_partition() {
        let mut keys = Chooser::new(Spread::KeysZipf { keys: 50, exponent: 1.0 }, 16, 5);
        let (mut counts, mut partitions) = ([0; 50], HashMap::new());
        for _ in 0..10_000 {
            let (lane, key) = keys.choose(16);
            counts[key as usize] += 1;
            assert_eq!(*partitions.entry(key).or_insert(lane), lane);
        }
        assert_eq!(partitions.len(), 50);
        // The weights of the first, the second and the last are 1, 1/2 and 1/50 of a sum of 4.5.
        assert!((1900..2600).contains(&counts[0]) && (850..1400).contains(&counts[1]) && counts[49] < 150, "{counts:?}");
    }
}
