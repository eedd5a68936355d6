//! Records to bytes, and back.

use rkyv::rancor::BoxedError;
use rkyv::util::AlignedVec;
use thiserror::Error;

use super::{StateKey, StateRecord, StateValue};

/// The version of the format that is written, and the only one so far.
const VERSION: u8 = 1;

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// It has no bytes at all.
    #[error("the {what} of a state record is empty")]
    Empty {
        /// Key or value.
        what: &'static str,
    },
    /// A later version wrote it.
    #[error("the {what} of a state record has version {found}: written by a later version?")]
    Version {
        /// Key or value.
        what: &'static str,
        /// The version found.
        found: u8,
    },
    /// Its bytes break the rules of the archive.
    #[error("the {what} of a state record is damaged: {reason}")]
    Archive {
        /// Key or value.
        what: &'static str,
        /// The checker's words.
        reason: String,
    },
    /// Key and value are each right and do not fit each other.
    #[error("a state record has a key and a value of different kinds")]
    Mismatch,
    /// Entries that belong together are not.
    #[error("the state of a group contradicts itself: {0}")]
    Contradiction(String),
}

macro_rules! archived {
    ($name:ident, $what:literal) => {
        impl $name {
            /// Its bytes.
            pub(crate) fn encode(&self) -> Vec<u8> {
                let archive = rkyv::to_bytes::<BoxedError>(self).expect("archiving into memory does not fail");
                let mut bytes = Vec::with_capacity(1 + archive.len());
                bytes.push(VERSION);
                bytes.extend_from_slice(&archive);
                bytes
            }

            fn decode(bytes: &[u8]) -> Result<$name, StateError> {
                let (&version, archive) = bytes.split_first().ok_or(StateError::Empty { what: $what })?;
                if version != VERSION {
                    return Err(StateError::Version { what: $what, found: version });
                }
                let mut aligned = AlignedVec::<16>::with_capacity(archive.len());
                aligned.extend_from_slice(archive);
                let damaged = |error: BoxedError| StateError::Archive { what: $what, reason: error.to_string() };
                rkyv::from_bytes::<$name, BoxedError>(&aligned).map_err(damaged)
            }
        }
    };
}

archived!(StateKey, "key");
archived!(StateValue, "value");

impl StateRecord {
    pub(crate) fn new(key: &StateKey, value: Option<&StateValue>) -> StateRecord {
        StateRecord { key: key.encode(), value: value.map(StateValue::encode) }
    }

    /// What it takes in a batch, but for its frame.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// Reads a record back.
pub(crate) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<(StateKey, Option<StateValue>), StateError> {
    Ok((StateKey::decode(key)?, value.map(StateValue::decode).transpose()?))
}
