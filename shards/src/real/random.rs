use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

thread_local! {
    static STATE: Cell<[u64; 4]> = Cell::new(seed());
}

/// The standard library takes the keys of its hash maps from the kernel; each `RandomState` differs.
fn seed() -> [u64; 4] {
    std::array::from_fn(|word| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_usize(word);
        // All words zero is the one state that the generator cannot leave.
        hasher.finish() | 1
    })
}

/// xoshiro256++ by Blackman and Vigna.
pub(crate) fn next_u64() -> u64 {
    STATE.with(|state| {
        let mut s = state.get();
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        state.set(s);
        result
    })
}
