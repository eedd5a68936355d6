//! Randomness. In a simulation it comes from the seed; otherwise from a fast generator seeded by the kernel. Not for secrets.

use crate::machine::{self, Machine};
use crate::real;

/// A random number.
pub fn u64() -> u64 {
    machine::with(|machine| match machine {
        Machine::Simulated(world) => world.random_u64(),
        Machine::Real(_) | Machine::Ordinary => real::random::next_u64(),
    })
}

/// A random number below `limit`, each equally likely. `limit` is not 0.
pub fn below(limit: u64) -> u64 {
    assert!(limit > 0);
    // Lemire's method: the high half of a product, rejecting the few values that would favour some results.
    let threshold = limit.wrapping_neg() % limit;
    loop {
        let product = u128::from(u64()) * u128::from(limit);
        if product as u64 >= threshold {
            return (product >> 64) as u64;
        }
    }
}

/// Fills `bytes` with random bytes.
pub fn fill(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let random = u64().to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
}
