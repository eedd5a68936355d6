//! Names of groups and members, each a type of its own so that they cannot be mixed up. A copy shares the text.
//!
//! The rules for them are the protocol's ([`wire::check_group_id`] and its like), and are checked where requests enter.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(text.into())
            }
        }

        /// Maps by name are asked with a text; both are ordered alike.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
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
    GroupId;
    /// Name that a member makes for itself when it starts. Once it has left, or was removed, it takes another: a late copy of its leaving
    /// must not hit its next life.
    MemberId;
    /// Name of a static member: the same over restarts of its process.
    InstanceId;
}
