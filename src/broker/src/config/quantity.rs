//! Sizes and durations as people write them: `"64MiB"`, `"10s"`. A bare number is bytes, or milliseconds.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr, time::Duration};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A length of time, exact to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A value that may be left to the broker: `"auto"` in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Auto<T> {
    /// What fits this host.
    #[default]
    Auto,
    /// As configured.
    Set(T),
}

impl<T> Auto<T> {
    /// The configured value, or what `fit` finds.
    pub(crate) fn unwrap_or_fit(self, fit: impl FnOnce() -> T) -> T {
        match self {
            Auto::Auto => fit(),
            Auto::Set(value) => value,
        }
    }
}

impl<T: Serialize> Serialize for Auto<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Auto::Auto => serializer.serialize_str(AUTO),
            Auto::Set(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Auto<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        if value.as_str() == Some(AUTO) {
            return Ok(Auto::Auto);
        }
        T::deserialize(value).map(Auto::Set).map_err(|error| de::Error::custom(error.message()))
    }
}

const AUTO: &str = "auto";

/// The text is not a quantity of the wanted sort.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not {wanted}")]
pub struct QuantityError {
    text: String,
    wanted: &'static str,
}

const SIZE_WANTED: &str = "a size: write a whole number and one of B, KiB, MiB, GiB, TiB (or KB, MB, GB, TB for powers of 1000)";
const SPAN_WANTED: &str = "a duration: write a whole number and one of ms, s, m, h, d";

const SIZE_UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const SPAN_UNITS: [(&str, u64); 6] = [("", 1), ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl ByteSize {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        ByteSize(n << 20)
    }

    /// The size in bytes, as a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).expect("a size of memory fits the address space: sizes are validated when the file is read")
    }
}

impl Span {
    /// `n` seconds.
    pub const fn seconds(n: u64) -> Self {
        Span(Duration::from_secs(n))
    }

    /// `n` milliseconds.
    pub const fn milliseconds(n: u64) -> Self {
        Span(Duration::from_millis(n))
    }
}

fn parse(text: &str, units: &[(&str, u64)], wanted: &'static str) -> Result<u64, QuantityError> {
    let error = || QuantityError { text: text.to_owned(), wanted };
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(digits_end);
    let number: u64 = digits.replace('_', "").parse().map_err(|_| error())?;
    let unit = unit.trim();
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(error)?;
    number.checked_mul(*factor).ok_or_else(error)
}

impl FromStr for ByteSize {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &SIZE_UNITS, SIZE_WANTED).map(ByteSize)
    }
}

impl FromStr for Span {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &SPAN_UNITS, SPAN_WANTED).map(|ms| Span(Duration::from_millis(ms)))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match self.0 {
            n if whole(40) => write!(f, "{}TiB", n >> 40),
            n if whole(30) => write!(f, "{}GiB", n >> 30),
            n if whole(20) => write!(f, "{}MiB", n >> 20),
            n if whole(10) => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0 => write!(f, "0ms"),
            ms if ms % 86_400_000 == 0 => write!(f, "{}d", ms / 86_400_000),
            ms if ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1_000 == 0 => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Text or a bare number, as TOML may hold either.
struct TextOrNumber(&'static str);

impl de::Visitor<'_> for TextOrNumber {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(TextOrNumber("a size such as \"64MiB\""))?;
        text.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(TextOrNumber("a duration such as \"10s\""))?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_written() {
        for (text, bytes) in [("64MiB", 64 << 20), ("4096", 4096), ("10 KiB", 10 << 10), ("1GB", 1_000_000_000), ("1_000B", 1000)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "3 parsecs", "99999999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_as_written() {
        for (text, ms) in [("10s", 10_000), ("250ms", 250), ("2h", 7_200_000), ("7d", 604_800_000), ("5", 5)] {
            assert_eq!(text.parse::<Span>().unwrap(), Span::milliseconds(ms), "{text}");
        }
        assert!("soon".parse::<Span>().is_err());
    }

    #[test]
    fn what_is_printed_reads_back() {
        for bytes in [0, 1, 1023, 1024, 65536, 10 << 20, 3 << 30, 1 << 40, 1_000_000] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        for ms in [0, 1, 999, 1000, 60_000, 90_000, 3_600_000, 86_400_000] {
            assert_eq!(Span::milliseconds(ms).to_string().parse(), Ok(Span::milliseconds(ms)));
        }
    }
}
