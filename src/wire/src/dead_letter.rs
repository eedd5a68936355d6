//! What a dead letter looks like: the name of its topic, and the headers that tell where it comes from.
//!
//! The record keeps its key, value and headers; these are added. Numbers are decimal text, so that any tool can show them. Headers of the
//! largest record there may be do not fit beside it: [`HEADER_LEFT_OUT`] says what is left out then.

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
/// Its key once more, as bytes; absent for a record without one, and for one whose key does not fit twice.
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
/// `true` when the record could not be read any more before it became a dead letter (deleted by retention, with its topic or by compaction,
/// or damaged): then only these headers are left of it, and the key by which it was parked.
pub const HEADER_RECORD_GONE: &str = "corelane.dead_letter.record_gone";
/// What of the record did not fit beside these headers and is left out: `key` (the one by which it was parked stands in its place), `value`,
/// `headers` (some or all of its own), separated by commas. Only a record of about the largest size there may be, or with about as many headers,
/// has this.
pub const HEADER_LEFT_OUT: &str = "corelane.dead_letter.left_out";

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
