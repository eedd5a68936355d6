//! The bytes by which a key is parked.

use std::borrow::Cow;

use crate::checksum::crc64;
use crate::limits::PARKING_KEY_BYTES_MAX;

/// What stands behind the beginning of a key that is longer than the limit.
const DIGEST_BYTES: usize = 8;

/// The bytes by which a key is named where its records are parked: the key itself, or, when it is longer than [`PARKING_KEY_BYTES_MAX`],
/// its beginning and a checksum of all of it.
///
/// Two keys that come out the same wait behind each other, in order: that costs time and breaks no promise.
pub fn parking_key(key: &[u8]) -> Cow<'_, [u8]> {
    if key.len() <= PARKING_KEY_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    let mut short = Vec::with_capacity(PARKING_KEY_BYTES_MAX);
    short.extend_from_slice(&key[..PARKING_KEY_BYTES_MAX - DIGEST_BYTES]);
    short.extend_from_slice(&crc64(key).to_le_bytes());
    Cow::Owned(short)
}

#[cfg(test)]
mod tests {
    use super::parking_key;
    use crate::limits::PARKING_KEY_BYTES_MAX;

    #[test]
    fn a_long_key_is_bounded_and_told_from_one_that_begins_the_same() {
        let key = vec![7; PARKING_KEY_BYTES_MAX];
        assert_eq!(*parking_key(&key), key);
        let mut long = vec![7; 10_000];
        let short = parking_key(&long).into_owned();
        assert_eq!(short.len(), PARKING_KEY_BYTES_MAX);
        long[9_999] = 8;
        assert_ne!(*parking_key(&long), short);
        long.truncate(9_999);
        assert_ne!(*parking_key(&long), short);
    }
}
