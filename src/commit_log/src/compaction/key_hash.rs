//! Keys as 128 bits: SipHash-2-4 with 128 bits of output, under a secret drawn for each pass.
//!
//! Two keys with the same hash would be taken for one, and the older record of the other would be lost. Of 2^32 keys any two meet by chance in one
//! pass of 2^65; and who chooses keys to make them meet does not know the secret.

/// A key as compaction knows it.
pub(crate) type KeyHash = u128;

/// The hash of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyHasher {
    secret: [u64; 2],
}

impl KeyHasher {
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        Self { secret }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut state = State::new(self.secret);
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = key.len() as u8;
        state.absorb(u64::from_le_bytes(last));
        state.v[2] ^= 0xee;
        let low = state.squeeze();
        state.v[1] ^= 0xdd;
        let high = state.squeeze();
        u128::from(high) << 64 | u128::from(low)
    }
}

struct State {
    v: [u64; 4],
}

impl State {
    fn new([k0, k1]: [u64; 2]) -> Self {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { v }
    }

    fn absorb(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    fn squeeze(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }

    #[inline]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.v = [v0, v1, v2, v3];
    }
}

#[cfg(test)]
mod tests {
    use super::KeyHasher;

    /// The key of the reference implementation's vectors: bytes 0 to 15.
    const SECRET: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    #[test]
    fn known_vectors_of_the_reference_implementation() {
        let hash = |length: u8| KeyHasher::new(SECRET).hash(&(0..length).collect::<Vec<u8>>()).to_le_bytes();
        assert_eq!(hash(0), 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes());
        assert_eq!(hash(1), 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes());
        assert_eq!(hash(2), 0x8177_228d_a4a4_5dc7_fca3_8bde_f60a_ffe4_u128.to_be_bytes());
    }

    #[test]
    fn keys_of_every_length_and_other_secrets_differ() {
        let keys: Vec<Vec<u8>> = (0..300).map(|length| vec![7; length]).collect();
        let mut hashes: Vec<u128> = keys.iter().map(|key| KeyHasher::new(SECRET).hash(key)).collect();
        hashes.extend(keys.iter().map(|key| KeyHasher::new([1, 2]).hash(key)));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 600);
    }
}
