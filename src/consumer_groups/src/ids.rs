//! Names of groups and members, each a type of its own so that they cannot be mixed up. A copy shares the text.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::limits::{GROUP_ID_BYTES_MAX, INSTANCE_ID_BYTES_MAX, MEMBER_ID_BYTES_MAX};

/// A name that breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It has no letters.
    #[error("the {what} is empty")]
    Empty {
        /// What it should name.
        what: &'static str,
    },
    /// Above its limit.
    #[error("the {what} has {found} bytes; {limit} are allowed")]
    TooLong {
        /// What it should name.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// It has control characters, which would spoil logs and tables.
    #[error("the {what} has a control character")]
    Control {
        /// What it should name.
        what: &'static str,
    },
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $limit:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name, when it keeps the rules: 1 byte to the limit, no control characters.
            ///
            /// # Errors
            /// The rule it breaks.
            pub fn new(text: &str) -> Result<$name, NameError> {
                check(text, $what, $limit)?;
                Ok($name(text.into()))
            }

            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    )*};
}

names! {
    /// Name of a group.
    GroupId, "group id", GROUP_ID_BYTES_MAX;
    /// Name that a member makes for itself when it starts. After it has left it takes another: a late copy of its leaving must not hit it.
    MemberId, "member id", MEMBER_ID_BYTES_MAX;
    /// Name of a static member: the same over restarts of its process.
    InstanceId, "instance id", INSTANCE_ID_BYTES_MAX;
}

fn check(text: &str, what: &'static str, limit: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > limit {
        return Err(NameError::TooLong { what, found: text.len(), limit });
    }
    if text.chars().any(char::is_control) {
        return Err(NameError::Control { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{GroupId, NameError};

    #[test]
    fn a_name_keeps_the_rules() {
        assert!(GroupId::new("billing").is_ok());
        assert!(GroupId::new(&"x".repeat(249)).is_ok());
        assert!(matches!(GroupId::new(&"x".repeat(250)), Err(NameError::TooLong { found: 250, .. })));
        assert!(matches!(GroupId::new(""), Err(NameError::Empty { .. })));
        assert!(matches!(GroupId::new("a\nb"), Err(NameError::Control { .. })));
    }
}
