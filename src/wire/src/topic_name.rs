//! What a topic may be called.

use thiserror::Error;

use crate::limits::TOPIC_NAME_BYTES_MAX;

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopicNameError {
    /// Nothing.
    #[error("a topic's name must not be empty")]
    Empty,
    /// Longer than [`TOPIC_NAME_BYTES_MAX`].
    #[error("a topic's name of {length} bytes is too long, {TOPIC_NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// A character that is not allowed.
    #[error("topic name: {found:?} at byte {position}; letters a-z A-Z, digits, '.', '_' and '-' are allowed")]
    Character {
        /// The first such character.
        found: char,
        /// Its place.
        position: usize,
    },
    /// `.` or `..`, which are folders.
    #[error("a topic must not be called '.' or '..'")]
    Dots,
}

/// How the names of topics begin that the broker makes for itself: users may read them, not create, write, alter or delete them.
pub const INTERNAL_TOPIC_PREFIX: &str = "__";

/// Whether a topic of that name is the broker's own; see [`INTERNAL_TOPIC_PREFIX`].
pub fn is_internal_topic(name: &str) -> bool {
    name.starts_with(INTERNAL_TOPIC_PREFIX)
}

/// Checks a topic's name: 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..` (Kafka's rules, so that topics can move both ways).
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_topic_name(name: &str) -> Result<(), TopicNameError> {
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(TopicNameError::TooLong { length: name.len() });
    }
    if let Some((position, found)) = name.char_indices().find(|&(_, character)| !is_name_character(character)) {
        return Err(TopicNameError::Character { found, position });
    }
    if name == "." || name == ".." {
        return Err(TopicNameError::Dots);
    }
    Ok(())
}

pub(crate) fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::{TopicNameError, check_topic_name, is_internal_topic};

    #[test]
    fn two_underscores_make_a_topic_the_brokers_own() {
        assert!(is_internal_topic("__groups"));
        assert!(!is_internal_topic("_groups"));
        assert!(!is_internal_topic("my__groups"));
    }

    #[test]
    fn names_by_the_rules() {
        for name in ["a", "payments.eu-west_1", "...", "-", &"x".repeat(249)] {
            assert_eq!(check_topic_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_topic_name(""), Err(TopicNameError::Empty));
        assert_eq!(check_topic_name(".."), Err(TopicNameError::Dots));
        assert_eq!(check_topic_name(&"x".repeat(250)), Err(TopicNameError::TooLong { length: 250 }));
        for (name, found, position) in [("a/b", '/', 1), ("a b", ' ', 1), ("caf\u{e9}", '\u{e9}', 3), ("a\0", '\0', 1)] {
            assert_eq!(check_topic_name(name), Err(TopicNameError::Character { found, position }), "{name}");
        }
    }
}
