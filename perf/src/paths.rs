//! Folders of one machine, taken out of what is recorded: results are kept in the repository.

use serde_json::Value;

/// Characters of a path beside letters and digits.
const IN_PATH: &str = "/._-+@~%";
/// What may stand right before a path.
const BEFORE_PATH: &str = "\"'`=:,;([<";

/// The text with each absolute path cut to its last name; relative paths stay.
pub fn without_folders(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = absolute_path(rest, out.chars().next_back()) {
        out.push_str(&rest[..start]);
        let path = &rest[start..];
        let length = path.find(|character: char| !character.is_alphanumeric() && !IN_PATH.contains(character));
        let (path, after) = path.split_at(length.unwrap_or(path.len()));
        out.push_str(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Where an absolute path begins in `text`, whose preceding character is `before`.
fn absolute_path(text: &str, mut before: Option<char>) -> Option<usize> {
    for (at, character) in text.char_indices() {
        let follows = text[at + character.len_utf8()..].chars().next();
        let begins = before.is_none_or(|before| before.is_whitespace() || BEFORE_PATH.contains(before));
        let has_name = follows.is_some_and(|next| next.is_alphanumeric() || "._".contains(next));
        if character == '/' && begins && has_name {
            return Some(at);
        }
        before = Some(character);
    }
    None
}

/// A record whose every text is [`without_folders`].
pub fn record_without_folders(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_folders(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(record_without_folders).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, record_without_folders(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_are_cut_to_their_last_name_and_nothing_else_is() {
        for (text, wanted) in [
            ("/mnt/disk/data", "data"),
            ("/mnt/disk/", "disk"),
            ("--data-dir=/mnt/disk/data", "--data-dir=data"),
            ("open \"/a/b.c\": no such file; /d/e too", "open \"b.c\": no such file; e too"),
            ("./data and ../data/x", "./data and ../data/x"),
            ("0.5 GB/s / 1.7 GB/s, 3/4", "0.5 GB/s / 1.7 GB/s, 3/4"),
            ("usercopy/swapgs http://a/b", "usercopy/swapgs http://a/b"),
            ("lowerdir=/x/y:/x/z,rw", "lowerdir=y:z,rw"),
            ("/ and é/ü /é/ü", "/ and é/ü ü"),
            ("", ""),
        ] {
            assert_eq!(without_folders(text), wanted, "{text}");
        }
    }

    #[test]
    fn every_text_of_a_record_is_cut() {
        let record = serde_json::json!({ "a": ["/x/y", { "b": "in /x/z" }], "c": 1 });
        assert_eq!(record_without_folders(record), serde_json::json!({ "a": ["y", { "b": "in z" }], "c": 1 }));
    }
}
