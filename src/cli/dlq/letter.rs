//! A dead letter: where it is from, and whether it is wanted.

use corelane_client::{RecordView, dead_letter};

/// Every dead letter, or only some.
#[derive(Debug, clap::Args)]
pub(super) struct Filter {
    /// Only those whose last failure says this
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only those of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only those from this partition of the topic they came from
    #[arg(long, value_name = "N")]
    origin_partition: Option<u32>,
}

impl Filter {
    pub(super) fn is_everything(&self) -> bool {
        self.reason.is_none() && self.key.is_none() && self.origin_partition.is_none()
    }

    pub(super) fn admits(&self, record: &RecordView<'_>) -> bool {
        let reason = self.reason.as_ref().is_none_or(|part| text(record, dead_letter::HEADER_REASON).contains(part.as_str()));
        let key = self.key.as_ref().is_none_or(|key| record.key == Some(key.as_bytes()));
        let partition =
            self.origin_partition.is_none_or(|wanted| text(record, dead_letter::HEADER_PARTITION).parse() == Ok(wanted));
        reason && key && partition
    }
}

/// The text of a header; empty when there is none.
pub(super) fn text<'a>(record: &RecordView<'a>, name: &str) -> &'a str {
    let value = record.headers.last(name).and_then(|header| header.value);
    value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
}
