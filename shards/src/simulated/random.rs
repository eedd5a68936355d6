//! Seeded random streams, one per concern.

/// A random stream (xoshiro256++). The same seed and salt give the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

/// What a stream decides. Streams are salted apart, so that one more draw for the disk does not shift the schedule: a failing seed stays
/// near its failure while the code around it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Which ready task runs next, and which of two simultaneous events comes first.
    Schedule,
    /// How long each disk operation takes.
    Disk,
    /// What a power cut leaves behind.
    Crash,
    /// What the program under test draws through [`crate::random`], and what a test's workload does.
    Workload,
}

impl Random {
    /// The stream of `seed` for one concern.
    pub fn new(seed: u64, concern: Concern) -> Self {
        let salt = match concern {
            Concern::Schedule => 0x5eed_0001,
            Concern::Disk => 0x5eed_0002,
            Concern::Crash => 0x5eed_0003,
            Concern::Workload => 0x5eed_0004,
        };
        Self::from_seed(mix(seed ^ mix(salt)))
    }

    /// A stream of its own.
    pub fn from_seed(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut next = seed;
        for word in &mut state {
            next = next.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *word = mix(next);
        }
        Self { state }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`.
    ///
    /// # Panics
    ///
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        // The bias of the multiplication is 2^-32 at the bounds used here: of no account for a schedule.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range runs upwards");
        low + self.below((high - low).saturating_add(1))
    }

    /// True `chances` times out of `out_of`.
    pub fn chance(&mut self, chances: u64, out_of: u64) -> bool {
        self.below(out_of) < chances
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// SplitMix64's finalizer: spreads every input bit over the whole word.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Concern, Random};

    #[test]
    fn a_seed_repeats_and_concerns_differ() {
        let draw = |concern| {
            let mut random = Random::new(7, concern);
            [random.next_u64(), random.below(10), random.between(3, 5)]
        };
        assert_eq!(draw(Concern::Disk), draw(Concern::Disk));
        assert_ne!(draw(Concern::Disk), draw(Concern::Crash));
    }

    #[test]
    fn numbers_stay_in_range_and_reach_its_ends() {
        let mut random = Random::from_seed(1);
        let mut seen = [false; 3];
        for _ in 0..1000 {
            seen[usize::try_from(random.between(3, 5) - 3).unwrap()] = true;
        }
        assert_eq!(seen, [true; 3]);
    }
}
