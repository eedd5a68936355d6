//! A set of shard numbers, written `"0-3,6"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// The most shards one broker runs; bounds what a range in the configuration can expand to.
pub(super) const SHARDS_MAX: u16 = 1024;

/// A non-empty, ascending set of shard numbers below `SHARDS_MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSet(Vec<u16>);

/// The text is not a set of shards.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a set of shards: write numbers and ranges such as \"0-3,6\", each below {SHARDS_MAX}")]
pub struct ShardSetError(String);

impl ShardSet {
    /// The shards, ascending, at least one.
    pub fn as_slice(&self) -> &[u16] {
        &self.0
    }

    /// The greatest shard number.
    pub fn greatest(&self) -> u16 {
        *self.0.last().expect("a shard set is never empty")
    }
}

impl FromStr for ShardSet {
    type Err = ShardSetError;
    fn from_str(text: &str) -> Result<Self, ShardSetError> {
        let error = || ShardSetError(text.to_owned());
        let mut shards = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u16 = first.trim().parse().map_err(|_| error())?;
            let last: u16 = last.trim().parse().map_err(|_| error())?;
            if first > last || last >= SHARDS_MAX {
                return Err(error());
            }
            shards.extend(first..=last);
        }
        shards.sort_unstable();
        shards.dedup();
        Ok(ShardSet(shards))
    }
}

impl fmt::Display for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        while at < self.0.len() {
            let mut end = at;
            while end + 1 < self.0.len() && self.0[end + 1] == self.0[end] + 1 {
                end += 1;
            }
            let comma = if at == 0 { "" } else { "," };
            if end == at {
                write!(f, "{comma}{}", self.0[at])?;
            } else {
                write!(f, "{comma}{}-{}", self.0[at], self.0[end])?;
            }
            at = end + 1;
        }
        Ok(())
    }
}

impl Serialize for ShardSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ShardSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::read::text_or_number(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_read_and_print() {
        for (text, shards, printed) in
            [("0-3", vec![0, 1, 2, 3], "0-3"), ("6, 0-1,1", vec![0, 1, 6], "0-1,6"), ("5", vec![5], "5")]
        {
            let set: ShardSet = text.parse().unwrap();
            assert_eq!(set.as_slice(), shards);
            assert_eq!(set.to_string(), printed);
        }
        for text in ["", "3-1", "a", "0-70000", "1024", "-1"] {
            assert!(text.parse::<ShardSet>().is_err(), "{text}");
        }
    }
}
