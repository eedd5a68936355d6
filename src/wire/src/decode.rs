//! Keys and values as types: how the bytes of a record become a string or a number, borrowed where that is possible.
//!
//! Numbers are big-endian, as the serializers of Kafka's clients write them, so that a topic can be read from both sides and keys
//! sort as numbers.

use std::str;

use thiserror::Error;

/// Bytes that are not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Not text.
    #[error("{length} bytes are not UTF-8: wrong from byte {valid_up_to}")]
    Utf8 {
        /// How many bytes there are.
        length: usize,
        /// Where the text ends.
        valid_up_to: usize,
    },
    /// Another number of bytes than the type has.
    #[error("{found_bytes} bytes found, {expected_bytes} make a {type_name}")]
    Length {
        /// The type asked for.
        type_name: &'static str,
        /// Its length.
        expected_bytes: usize,
        /// The length found.
        found_bytes: usize,
    },
}

/// A type that can be read from a key or value, borrowing from the batch where it can.
pub trait FromRecordBytes<'a>: Sized {
    /// Reads the whole of `bytes`.
    ///
    /// # Errors
    /// When they are not a `Self`.
    fn from_record_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError>;
}

/// A type that can be written as a key or value.
pub trait ToRecordBytes {
    /// Appends the bytes to `out`; [`FromRecordBytes`] of the same type reads them back.
    fn write_record_bytes(&self, out: &mut Vec<u8>);

    /// The bytes alone.
    fn to_record_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_record_bytes(&mut out);
        out
    }
}

impl<'a> FromRecordBytes<'a> for &'a [u8] {
    fn from_record_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(bytes)
    }
}

impl<'a> FromRecordBytes<'a> for Vec<u8> {
    fn from_record_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
}

impl<'a> FromRecordBytes<'a> for &'a str {
    fn from_record_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        str::from_utf8(bytes).map_err(|error| DecodeError::Utf8 { length: bytes.len(), valid_up_to: error.valid_up_to() })
    }
}

impl<'a> FromRecordBytes<'a> for String {
    fn from_record_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        <&str>::from_record_bytes(bytes).map(str::to_owned)
    }
}

impl ToRecordBytes for [u8] {
    fn write_record_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl ToRecordBytes for str {
    fn write_record_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl<T: ToRecordBytes + ?Sized> ToRecordBytes for &T {
    fn write_record_bytes(&self, out: &mut Vec<u8>) {
        (**self).write_record_bytes(out);
    }
}

impl ToRecordBytes for Vec<u8> {
    fn write_record_bytes(&self, out: &mut Vec<u8>) {
        self.as_slice().write_record_bytes(out);
    }
}

impl ToRecordBytes for String {
    fn write_record_bytes(&self, out: &mut Vec<u8>) {
        self.as_str().write_record_bytes(out);
    }
}

macro_rules! big_endian {
    ($($number:ty),*) => {$(
        impl<'a> FromRecordBytes<'a> for $number {
            fn from_record_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
                bytes.try_into().map(<$number>::from_be_bytes).map_err(|_| DecodeError::Length {
                    type_name: stringify!($number),
                    expected_bytes: size_of::<$number>(),
                    found_bytes: bytes.len(),
                })
            }
        }

        impl ToRecordBytes for $number {
            fn write_record_bytes(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

big_endian!(i16, i32, i64, i128, u16, u32, u64, u128, f32, f64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{DecodeError, FromRecordBytes, ToRecordBytes};

    #[test]
    fn wrong_bytes_say_what_is_wrong() {
        assert_eq!(<&str>::from_record_bytes(b"ab\xff"), Err(DecodeError::Utf8 { length: 3, valid_up_to: 2 }));
        let error = u64::from_record_bytes(&[1, 2, 3]).expect_err("three bytes");
        assert_eq!(error.to_string(), "3 bytes found, 8 make a u64");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text: String, number: i64, bytes: Vec<u8>) {
            prop_assert_eq!(String::from_record_bytes(&text.to_record_bytes()), Ok(text));
            prop_assert_eq!(i64::from_record_bytes(&number.to_record_bytes()), Ok(number));
            prop_assert_eq!(Vec::from_record_bytes(&bytes.to_record_bytes()), Ok(bytes));
        }
    }
}
