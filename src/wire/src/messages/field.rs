//! Fields that are checked one by one, and changed one by one.

use rkyv::{Archive, Deserialize, Serialize};
use thiserror::Error;

use crate::error_code::ErrorCode;

/// A value that a field cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is {found}: {rule}")]
pub struct FieldError {
    /// Name of the field.
    pub field: &'static str,
    /// The value given.
    pub found: String,
    /// What is allowed.
    pub rule: String,
    /// The code to answer with.
    pub code: ErrorCode,
}

/// The rule that a value breaks, if it does.
pub(crate) fn within<T: PartialOrd + std::fmt::Display>(found: T, least: T, most: T) -> Option<String> {
    (found < least || found > most).then(|| format!("{least} to {most} are allowed"))
}

pub(crate) fn require(
    field: &'static str,
    found: impl std::fmt::Display,
    broken_rule: Option<String>,
    code: ErrorCode,
) -> Result<(), FieldError> {
    match broken_rule {
        Some(rule) => Err(FieldError { field, found: found.to_string(), rule, code }),
        None => Ok(()),
    }
}

/// Refuses a text or key of more than `limit` bytes; names its length, since the bytes may be anything.
pub(crate) fn require_bytes(field: &'static str, length: usize, limit: usize, code: ErrorCode) -> Result<(), FieldError> {
    if length > limit {
        let rule = format!("{limit} are allowed");
        return Err(FieldError { field, found: format!("{length} bytes long"), rule, code });
    }
    Ok(())
}

/// A new value for a setting that can also have none; what holds without one is said at the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum Change<T> {
    /// As it was.
    #[default]
    Keep,
    /// None.
    Unset,
    /// This.
    Set(T),
}

impl<T> Change<T> {
    /// The setting after the change.
    pub fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Change::Keep => before,
            Change::Unset => None,
            Change::Set(value) => Some(value),
        }
    }
}
