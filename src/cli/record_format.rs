//! A record as text.

use std::io::{self, Write};

use corelane_client::RecordView;
use serde::Serialize;

/// How `consume` prints a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RecordFormat {
    /// The value as it is, and a newline
    Value,
    /// Key, separator, value, newline
    KeyValue,
    /// One JSON object a line; what is not UTF-8 in base64, under a name that says so
    Json,
}

#[derive(Serialize)]
struct JsonRecord<'a> {
    topic: &'a str,
    partition: u32,
    offset: u64,
    timestamp_ms: i64,
    #[serde(flatten)]
    key: JsonKey<'a>,
    #[serde(flatten)]
    value: JsonValue<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<JsonHeader<'a>>,
}

/// One of the two: the text, or the base64 of what is no text. Both absent fields are left out; a missing key is `null`.
#[derive(Serialize)]
enum JsonKey<'a> {
    #[serde(rename = "key")]
    Text(Option<&'a str>),
    #[serde(rename = "key_base64")]
    Binary(String),
}

#[derive(Serialize)]
enum JsonValue<'a> {
    #[serde(rename = "value")]
    Text(Option<&'a str>),
    #[serde(rename = "value_base64")]
    Binary(String),
}

#[derive(Serialize)]
struct JsonHeader<'a> {
    name: &'a str,
    #[serde(flatten)]
    value: JsonValue<'a>,
}

impl<'a> From<Option<&'a [u8]>> for JsonKey<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Self {
        match bytes.map(std::str::from_utf8) {
            None => JsonKey::Text(None),
            Some(Ok(text)) => JsonKey::Text(Some(text)),
            Some(Err(_)) => JsonKey::Binary(base64(bytes.unwrap_or_default())),
        }
    }
}

impl<'a> From<Option<&'a [u8]>> for JsonValue<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Self {
        match JsonKey::from(bytes) {
            JsonKey::Text(text) => JsonValue::Text(text),
            JsonKey::Binary(text) => JsonValue::Binary(text),
        }
    }
}

/// Writes one record, its newline included.
pub(crate) fn write_record(
    out: &mut impl Write,
    format: RecordFormat,
    separator: &str,
    topic: &str,
    partition: u32,
    record: &RecordView<'_>,
) -> io::Result<()> {
    match format {
        RecordFormat::Value => out.write_all(record.value.unwrap_or_default())?,
        RecordFormat::KeyValue => {
            out.write_all(record.key.unwrap_or_default())?;
            out.write_all(separator.as_bytes())?;
            out.write_all(record.value.unwrap_or_default())?;
        }
        RecordFormat::Json => {
            let headers =
                record.headers.iter().map(|header| JsonHeader { name: header.name, value: header.value.into() }).collect();
            let json = JsonRecord {
                topic,
                partition,
                offset: record.offset.0,
                timestamp_ms: record.timestamp_ms.0,
                key: record.key.into(),
                value: record.value.into(),
                headers,
            };
            serde_json::to_writer(&mut *out, &json)?;
        }
    }
    out.write_all(b"\n")
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for index in 0..4 {
            if index <= group.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * index) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_rfc() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, text) in cases {
            assert_eq!(base64(plain.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
