//! What a dead letter looks like: the name of its topic, and the headers that tell where it comes from.
//!
//! The record keeps its key, value and headers; these are added. Numbers are decimal text, so that any tool can show them.

use crate::checksum::crc32c;
use crate::limits::TOPIC_NAME_BYTES_MAX;
use crate::topic_name::check_topic_name;

/// Topic it was read from.
pub const HEADER_TOPIC: &str = "corelane.dead_letter.topic";
/// Partition it was read from.
pub const HEADER_PARTITION: &str = "corelane.dead_letter.partition";
/// Its offset there.
pub const HEADER_OFFSET: &str = "corelane.dead_letter.offset";
/// Its timestamp there, milliseconds since 1970.
pub const HEADER_TIMESTAMP: &str = "corelane.dead_letter.timestamp_ms";
/// Its key, as bytes; absent for a record without one.
pub const HEADER_KEY: &str = "corelane.dead_letter.key";
/// How often it was tried.
pub const HEADER_ATTEMPTS: &str = "corelane.dead_letter.attempts";
/// When it failed first, milliseconds since 1970.
pub const HEADER_FIRST_FAILURE: &str = "corelane.dead_letter.first_failure_ms";
/// When it failed last, milliseconds since 1970.
pub const HEADER_LAST_FAILURE: &str = "corelane.dead_letter.last_failure_ms";
/// What the consumer said of the last failure.
pub const HEADER_REASON: &str = "corelane.dead_letter.reason";
/// Group whose consumer failed.
pub const HEADER_GROUP: &str = "corelane.dead_letter.group";
/// `true` when retention had deleted the record before it became a dead letter: then only these headers are left of it.
pub const HEADER_RECORD_GONE: &str = "corelane.dead_letter.record_gone";

/// Where dead letters of `group` from `topic` go unless its policy names a topic: `<topic>.dlq.<group>`.
///
/// Characters of the group's name that a topic may not have become `_`, and what is too long is cut; a checksum of both names then stands
/// at the end, so that two groups do not share a topic by chance.
pub fn dead_letter_topic(topic: &str, group: &str) -> String {
    let plain = format!("{topic}.dlq.{group}");
    if check_topic_name(&plain).is_ok() {
        return plain;
    }
    let suffix = format!(".{:08x}", crc32c(plain.as_bytes()));
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    let mut name: String = plain.chars().map(|character| if allowed(character) { character } else { '_' }).collect();
    name.truncate(TOPIC_NAME_BYTES_MAX - suffix.len());
    name + &suffix
}

#[cfg(test)]
mod tests {
    use super::dead_letter_topic;
    use crate::topic_name::check_topic_name;

    #[test]
    fn the_name_is_a_topic_name_whatever_the_group_is_called() {
        assert_eq!(dead_letter_topic("orders", "billing"), "orders.dlq.billing");
        let long = "x".repeat(249);
        let mut names: Vec<String> =
            ["a b", "a_b", "a/b", "caf\u{e9}", "", &long].map(|group| dead_letter_topic(&long, group)).into();
        names.extend(["a b", "a/b", "caf\u{e9}"].map(|group| dead_letter_topic("orders", group)));
        for name in &names {
            assert_eq!(check_topic_name(name), Ok(()), "{name}");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
