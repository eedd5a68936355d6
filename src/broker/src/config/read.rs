//! Text to [`Config`]: every fault is named with its place in the file.

use super::{
    Config, QuantityError,
    keys::{KEYS, TABLES},
};
use serde::{Deserializer, de};
use std::{
    fmt, fs, io,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::de::{DeTable, DeValue};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}`{}", nearest_text(.nearest.as_deref()))]
    UnknownKey {
        /// `file:line:column`.
        place: String,
        /// The key as written, with its table.
        key: String,
        /// The known key that looks most like it.
        nearest: Option<String>,
    },
    /// Not TOML, or a value of the wrong sort.
    #[error("{place}: {what}")]
    Syntax {
        /// `file:line:column`.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A value that cannot work.
    #[error("configuration: {key}: {what}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A quantity given outside a file is malformed.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

fn nearest_text(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

impl Config {
    /// Reads and validates the file at `path`; without one, the default.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let Some(path) = path else { return Ok(Config::default()) };
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Config::parse(&text, &path.display().to_string())
    }

    /// Reads and validates `text`.
    pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, "configuration")
    }

    /// Reads and validates `text`; `name` stands for the file in errors.
    pub fn parse(text: &str, name: &str) -> Result<Config, ConfigError> {
        let syntax = |error: toml::de::Error| {
            let what = error.message().trim_end().replace('\n', ", ");
            ConfigError::Syntax { place: place(name, text, error.span()), what }
        };
        let document = DeTable::parse(text).map_err(syntax)?;
        check_keys(document.get_ref(), text, name)?;
        let config: Config = toml::from_str(text).map_err(syntax)?;
        config.validate()?;
        Ok(config)
    }
}

/// Walks the document: every table and key must be one that [`KEYS`] names.
fn check_keys(document: &DeTable<'_>, text: &str, name: &str) -> Result<(), ConfigError> {
    for (table, content) in document {
        let table_name = table.get_ref().as_ref();
        if !TABLES.iter().any(|known| known.name == table_name) {
            // A key written outside its table is the likeliest mistake after a misspelt table.
            let nearest = nearest(table_name, TABLES.iter().map(|known| (known.name, known.name.to_owned())))
                .or_else(|| nearest(table_name, KEYS.iter().map(|key| (key.name, format!("[{}] {}", key.table, key.name)))));
            return Err(unknown(table_name.to_owned(), nearest, place(name, text, Some(table.span()))));
        }
        match content.get_ref() {
            DeValue::Table(keys) => check_table(table_name, keys, text, name)?,
            DeValue::Array(list) => {
                for item in list {
                    if let DeValue::Table(keys) = item.get_ref() {
                        check_table(table_name, keys, text, name)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_table(table: &str, keys: &DeTable<'_>, text: &str, name: &str) -> Result<(), ConfigError> {
    for (key, _) in keys {
        let key_name = key.get_ref().as_ref();
        if !KEYS.iter().any(|known| known.table == table && known.name == key_name) {
            let here = KEYS.iter().filter(|known| known.table == table).map(|known| (known.name, known.name.to_owned()));
            let elsewhere = || KEYS.iter().map(|known| (known.name, format!("[{}] {}", known.table, known.name)));
            let nearest = nearest(key_name, here).or_else(|| nearest(key_name, elsewhere()));
            return Err(unknown(format!("{table}.{key_name}"), nearest, place(name, text, Some(key.span()))));
        }
    }
    Ok(())
}

fn unknown(key: String, nearest: Option<String>, place: String) -> ConfigError {
    ConfigError::UnknownKey { place, key, nearest }
}

/// The best of `known` (name compared, name shown), if any is close enough to be meant.
fn nearest(key: &str, known: impl Iterator<Item = (&'static str, String)>) -> Option<String> {
    const SIMILARITY_MIN: f64 = 0.8;
    known
        .map(|(name, shown)| (strsim::jaro_winkler(key, name), shown))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, shown)| shown)
}

/// `file:line:column`, counted from 1.
fn place(name: &str, text: &str, span: Option<Range<usize>>) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else { return name.to_owned() };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{name}:{line}:{column}")
}

/// Reads a string, or a whole number as the text it is written with.
pub(super) fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string such as \"2-15\", or a whole number")
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
    deserializer.deserialize_any(Visitor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, Span};

    #[test]
    fn empty_file_is_the_default() {
        assert_eq!(Config::parse("", "c.toml").unwrap(), Config::default());
    }

    #[test]
    fn values_are_taken() {
        let text = "[broker]\nid = 7\n[cores]\nshards = 3\n[limits]\nmessage_bytes_max = \"1MiB\"\n[stop]\ndrain_within = \"3s\"\n\
                    [[disk]]\npath = \"/a\"\n[[placement]]\ntopic = \"x.*\"\nshards = \"0-1\"\n";
        let config = Config::parse(text, "c.toml").unwrap();
        assert_eq!(config.broker.id, 7);
        assert_eq!(config.cores.shards, "3");
        assert_eq!(config.limits.message_bytes_max, ByteSize::mib(1));
        assert_eq!(config.stop.drain_within, Span::seconds(3));
        assert_eq!(config.disk[0].path, Path::new("/a"));
        assert_eq!(config.placement[0].shards.as_slice(), [0, 1]);
    }

    #[test]
    fn faults_are_named_with_their_place() {
        for (text, message) in [
            (
                "[limits]\nmesage_bytes_max = 1\n",
                "c.toml:2:1: unknown key `limits.mesage_bytes_max`; did you mean `message_bytes_max`?",
            ),
            ("[limit]\n", "c.toml:1:2: unknown key `limit`; did you mean `limits`?"),
            ("drain_within = 1\n", "c.toml:1:1: unknown key `drain_within`; did you mean `[stop] drain_within`?"),
            ("[http]\nqqqq = 1\n", "c.toml:2:1: unknown key `http.qqqq`"),
            ("[[disk]]\npath = \"a\"\nshard = 1\n", "c.toml:3:1: unknown key `disk.shard`; did you mean `shards`?"),
            ("[memory]\n\nio_bytes = \"3 cows\"\n", "c.toml:3:12: `3 cows` is not a size"),
            ("[broker]\nid = \"x\"\n", "c.toml:2:6: invalid type"),
            ("[broker\n", "c.toml:1:"),
        ] {
            let error = Config::parse(text, "c.toml").unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?} gave {error:?}");
        }
    }
}
