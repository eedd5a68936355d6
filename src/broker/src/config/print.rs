//! The effective configuration as a file that reads back to the same values.

use super::{
    Config,
    keys::{KEYS, TABLES, Table},
};
use std::fmt::Write;

/// Comments start at this column when the value leaves room.
const COMMENT_COLUMN: usize = 56;

impl Config {
    /// The effective configuration, every key with a comment. Parsing the text gives `self` again.
    pub fn to_commented_toml(&self) -> String {
        let values = toml::Table::try_from(self).expect("a configuration is plain tables, text and numbers");
        let mut out = String::from("# Corelane configuration: the values in effect. Every key may be left out.\n");
        for table in &TABLES {
            writeln!(out, "\n# {}", table.comment).expect("writing to a string");
            print_table(&mut out, table, values.get(table.name));
        }
        out
    }

    /// Every setting as (`table.key`, value, differs from the default), ordered by key. Tables of a list are numbered.
    pub(crate) fn settings(&self) -> Vec<(String, String, bool)> {
        let values = toml::Table::try_from(self).expect("a configuration is plain tables, text and numbers");
        let defaults = toml::Table::try_from(Config::default()).expect("a configuration is plain tables, text and numbers");
        let mut settings = Vec::new();
        for (table, value) in &values {
            let plain = value.as_table().into_iter().map(|keys| (table.clone(), keys));
            let items = value.as_array().into_iter().flatten().filter_map(toml::Value::as_table).enumerate();
            let listed = items.map(|(number, keys)| (format!("{table}.{number}"), keys));
            for (prefix, keys) in plain.chain(listed) {
                for (key, value) in keys {
                    let default = defaults.get(table).and_then(|table| table.get(key));
                    settings.push((format!("{prefix}.{key}"), value.to_string(), default != Some(value)));
                }
            }
        }
        settings.sort();
        settings
    }
}

fn print_table(out: &mut String, table: &Table, value: Option<&toml::Value>) {
    match value {
        Some(toml::Value::Array(items)) if !items.is_empty() => {
            for item in items {
                print_keys(out, table, item.as_table(), "");
            }
        }
        Some(toml::Value::Table(keys)) => print_keys(out, table, Some(keys), ""),
        _ => print_keys(out, table, None, "# "),
    }
}

fn print_keys(out: &mut String, table: &Table, values: Option<&toml::Table>, prefix: &str) {
    let (open, close) = if table.is_list { ("[[", "]]") } else { ("[", "]") };
    writeln!(out, "{prefix}{open}{}{close}", table.name).expect("writing to a string");
    for key in KEYS.iter().filter(|key| key.table == table.name) {
        let line = match values.and_then(|values| values.get(key.name)) {
            Some(value) => format!("{prefix}{} = {value}", key.name),
            None => format!("# {} =", key.name),
        };
        writeln!(out, "{line:<COMMENT_COLUMN$} # {}", key.comment).expect("writing to a string");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Disk, Placement};

    #[test]
    fn printed_configuration_reads_back() {
        let mut config = Config::default();
        assert_eq!(Config::parse(&config.to_commented_toml(), "printed").unwrap(), config);
        config.disk.push(Disk { path: "/nvme0".into(), shards: Some("0-3".parse().unwrap()) });
        config.disk.push(Disk { path: "/nvme1".into(), shards: None });
        config.placement.push(Placement { topic: "a.*".to_owned(), shards: "1".parse().unwrap() });
        config.cores.shards = "2-15".to_owned();
        assert_eq!(Config::parse(&config.to_commented_toml(), "printed").unwrap(), config);
    }

    #[test]
    fn keys_and_struct_agree() {
        let mut config = Config::default();
        config.disk.push(Disk { path: "/a".into(), shards: Some("0".parse().unwrap()) });
        config.placement.push(Placement { topic: "a".to_owned(), shards: "0".parse().unwrap() });
        let values = toml::Table::try_from(&config).unwrap();
        let mut in_struct = Vec::new();
        for (table, value) in &values {
            let keys = value.as_table().or_else(|| value.as_array().and_then(|list| list[0].as_table())).unwrap();
            in_struct.extend(keys.keys().map(|key| format!("{table}.{key}")));
        }
        let mut in_list: Vec<_> = KEYS.iter().map(|key| format!("{}.{}", key.table, key.name)).collect();
        in_struct.sort();
        in_list.sort();
        assert_eq!(in_struct, in_list);
    }
}
