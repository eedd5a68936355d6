//! What was sent, while it is sent and at the end.

use std::io::IsTerminal;
use std::time::Duration;

use corelane_client::{AckLevel, Delivery};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::time::Instant;

use super::super::failure::Failure;
use super::super::table::{print, print_json, size_text};

pub(super) struct Report {
    begun: Instant,
    quiet: bool,
    bar: ProgressBar,
    bytes: u64,
    delivered: u64,
    failed: u64,
    relaxed: u64,
    partitions: std::collections::BTreeMap<u32, (u64, u64)>,
}

impl Report {
    /// `files` is their number, 0 for lines.
    pub(super) fn start(quiet: bool, files: usize) -> Self {
        // A person who types lines sees only the prompt of the terminal.
        let visible = !quiet && std::io::stderr().is_terminal() && (files > 0 || !std::io::stdin().is_terminal());
        let bar = match (visible, files) {
            (false, _) => ProgressBar::hidden(),
            (true, 0) => ProgressBar::new_spinner().with_style(style("{spinner} {human_pos} records  {per_sec}  {elapsed}")),
            (true, files) => ProgressBar::new(files as u64).with_style(style("{bar:40} {pos}/{len} files  {elapsed}")),
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            begun: Instant::now(),
            quiet,
            bar,
            bytes: 0,
            delivered: 0,
            failed: 0,
            relaxed: 0,
            partitions: std::collections::BTreeMap::new(),
        }
    }

    pub(super) fn sent(&mut self, value_bytes: usize) {
        self.bytes += value_bytes as u64;
        self.bar.inc(1);
    }

    pub(super) fn delivered(&mut self, delivery: &Delivery) {
        self.delivered += 1;
        self.relaxed += u64::from(delivery.level == AckLevel::Relaxed);
        let (first, last) = self.partitions.entry(delivery.partition).or_insert((delivery.offset.0, delivery.offset.0));
        *first = delivery.offset.0.min(*first);
        *last = delivery.offset.0.max(*last);
    }

    pub(super) fn failed(&mut self) {
        self.failed += 1;
    }

    /// Prints the result.
    pub(super) fn finish(self, topic: &str, as_json: bool) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        let seconds = self.begun.elapsed().as_secs_f64();
        if as_json {
            let partitions: Vec<_> = self
                .partitions
                .iter()
                .map(|(partition, (first, last))| json!({"partition": partition, "first_offset": first, "last_offset": last}))
                .collect();
            return print_json(&json!({
                "topic": topic,
                "records": self.delivered,
                "failed": self.failed,
                "value_bytes": self.bytes,
                "seconds": seconds,
                "level": if self.relaxed == 0 { "stable" } else { "relaxed" },
                "partitions": partitions,
            }));
        }
        if self.quiet {
            return Ok(());
        }
        let level = if self.relaxed == 0 { "on stable storage" } else { "acknowledged, not yet on stable storage" };
        let failed = if self.failed == 0 { String::new() } else { format!(", {} failed", self.failed) };
        let text = format!(
            "{} records ({}) to {} partitions of {topic} in {seconds:.2} s, {level}{failed}\n",
            self.delivered,
            size_text(self.bytes),
            self.partitions.len(),
        );
        print(text.as_bytes())
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant that a test runs")
}

#[cfg(test)]
mod tests {
    #[test]
    fn templates_are_valid() {
        super::style("{spinner} {human_pos} records  {per_sec}  {elapsed}");
        super::style("{bar:40} {pos}/{len} files  {elapsed}");
    }
}
