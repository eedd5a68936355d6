//! What was sent, while it is sent and at the end.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use corelane_client::{AckLevel, ClientError, Delivery, ErrorCode, ErrorKind};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::failure::Failure;
use super::super::table::{print, print_json, size_text};

/// Failures that are kept; what comes after them is only counted.
const FAILURES_KEPT_MAX: usize = 100;

pub(super) struct Report {
    begun: Instant,
    quiet: bool,
    /// Empty for lines of standard input.
    files: Vec<PathBuf>,
    sent: u64,
    failed: u64,
    hopeless: bool,
    bar: ProgressBar,
    bytes: u64,
    delivered: u64,
    failures: Vec<Failed>,
    relaxed: u64,
    partitions: std::collections::BTreeMap<u32, (u64, u64)>,
}

impl Report {
    /// `files` are empty for lines of standard input.
    pub(super) fn start(quiet: bool, files: &[PathBuf]) -> Self {
        // A person who types lines sees only the prompt of the terminal.
        let visible = !quiet && std::io::stderr().is_terminal() && (!files.is_empty() || !std::io::stdin().is_terminal());
        let bar = match (visible, files.len()) {
            (false, _) => ProgressBar::hidden(),
            (true, 0) => ProgressBar::new_spinner().with_style(style("{spinner} {human_pos} records  {per_sec}  {elapsed}")),
            (true, files) => ProgressBar::new(files as u64).with_style(style("{bar:40} {pos}/{len} files  {elapsed}")),
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            begun: Instant::now(),
            quiet,
            files: files.to_vec(),
            sent: 0,
            failed: 0,
            hopeless: false,
            bar,
            bytes: 0,
            delivered: 0,
            failures: Vec::new(),
            relaxed: 0,
            partitions: std::collections::BTreeMap::new(),
        }
    }

    /// Counts a record about to be sent, and returns its number, from 1.
    pub(super) fn sent(&mut self, value_bytes: usize) -> u64 {
        self.bytes += value_bytes as u64;
        self.bar.inc(1);
        self.sent += 1;
        self.sent
    }

    /// Counts the result of a record.
    pub(super) fn settled(&mut self, number: u64, result: Result<Delivery, ClientError>) {
        match result {
            Ok(delivery) => self.delivered(&delivery),
            Err(error) => self.failed(number, error),
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        self.delivered += 1;
        self.relaxed += u64::from(delivery.level == AckLevel::Relaxed);
        let (first, last) = self.partitions.entry(delivery.partition).or_insert((delivery.offset.0, delivery.offset.0));
        *first = delivery.offset.0.min(*first);
        *last = delivery.offset.0.max(*last);
    }

    /// Notes that a record will not be acknowledged.
    pub(super) fn failed(&mut self, number: u64, error: ClientError) {
        self.failed += 1;
        self.hopeless |= !concerns_one_record(&error);
        let goes_on = |last: &Failed| self.files.is_empty() && last.end == number && last.error.to_string() == error.to_string();
        if let Some(last) = self.failures.last_mut().filter(|last| goes_on(last)) {
            last.end += 1;
        } else if self.failures.len() < FAILURES_KEPT_MAX {
            self.failures.push(Failed { begin: number, end: number + 1, error });
        }
    }

    /// Whether something failed that the next record would meet as well.
    pub(super) fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// Prints the result.
    ///
    /// # Errors
    /// A record was not acknowledged.
    pub(super) fn finish(self, topic: &str, as_json: bool) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        let seconds = self.begun.elapsed().as_secs_f64();
        if as_json {
            print_json(&self.json(topic, seconds))?;
        } else if !self.quiet {
            print(self.summary(topic, seconds).as_bytes())?;
        }
        for failed in &self.failures {
            eprintln!("{}: {}", self.name(failed), failed.error);
        }
        match self.failures.into_iter().next() {
            None => Ok(()),
            Some(first) => Err(Failure::NotAcknowledged { records: self.failed, sent: self.sent, first: first.error }),
        }
    }

    fn summary(&self, topic: &str, seconds: f64) -> String {
        if self.delivered == 0 && self.failed > 0 {
            return format!("none of {} sent to {topic} was acknowledged, after {seconds:.2} s\n", counted(self.sent, "record"));
        }
        let level = if self.relaxed == 0 { "on stable storage" } else { "acknowledged, not yet on stable storage" };
        let records = match self.failed {
            0 => format!("{} ({})", counted(self.delivered, "record"), size_text(self.bytes)),
            failed => format!("{} of {} ({failed} failed)", self.delivered, counted(self.sent, "record")),
        };
        let partitions = counted(self.partitions.len() as u64, "partition");
        format!("{records} to {partitions} of {topic} in {seconds:.2} s, {level}\n")
    }

    fn json(&self, topic: &str, seconds: f64) -> Value {
        let partitions: Vec<_> = self
            .partitions
            .iter()
            .map(|(partition, (first, last))| json!({"partition": partition, "first_offset": first, "last_offset": last}))
            .collect();
        json!({
            "topic": topic,
            "records": self.delivered,
            "failed": self.failed,
            "value_bytes": self.bytes,
            "seconds": seconds,
            "level": if self.relaxed == 0 { "stable" } else { "relaxed" },
            "failures": self.failures.iter().map(|failed| self.failure_json(failed)).collect::<Vec<_>>(),
            "partitions": partitions,
        })
    }

    fn failure_json(&self, failed: &Failed) -> Value {
        let error = failed.error.to_string();
        match self.files.get(failed.index()) {
            Some(file) => json!({"file": file, "error": error}),
            None => json!({"first_line": failed.begin, "last_line": failed.end - 1, "error": error}),
        }
    }

    /// What failed: a file, a line, or lines.
    fn name(&self, failed: &Failed) -> String {
        match (self.files.get(failed.index()), failed.end - failed.begin) {
            (Some(file), _) => file.display().to_string(),
            (None, 1) => format!("line {}", failed.begin),
            (None, _) => format!("lines {} to {}", failed.begin, failed.end - 1),
        }
    }
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A file, or lines in a row with the same failure, by number: begin ≤ n < end.
struct Failed {
    begin: u64,
    end: u64,
    error: ClientError,
}

impl Failed {
    /// The place of the first one among the files.
    fn index(&self) -> usize {
        usize::try_from(self.begin - 1).unwrap_or(usize::MAX)
    }
}

/// Whether the next record may fare better: this one was refused for its own sake.
fn concerns_one_record(error: &ClientError) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Broker(ErrorCode::MessageTooLarge))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant that a test runs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_client::Offset;

    /// A report of records of 5 bytes, acknowledged by these levels, each in a partition and at an offset.
    fn report(delivered: &[(AckLevel, u32, u64)]) -> Report {
        let mut report = Report::start(true, &[]);
        for (level, partition, offset) in delivered {
            report.sent(5);
            let (level, partition, offset) = (*level, *partition, Offset(*offset));
            report.delivered(&Delivery { partition, offset, append_time: None, level, replicas_durable: 1 });
        }
        report
    }

    /// So many more were sent, and failed.
    fn with_failed(mut report: Report, failed: u64) -> Report {
        (0..failed).for_each(|_| _ = report.sent(5));
        report.failed = failed;
        report
    }

    #[test]
    fn a_summary_says_how_many_where_and_what_the_acknowledgement_promises() {
        let (stable, relaxed) = (AckLevel::Stable, AckLevel::Relaxed);
        let check = |report: Report, text: &str| assert_eq!(report.summary("t", 1.234), text);
        check(report(&[(stable, 0, 7)]), "1 record (5 B) to 1 partition of t in 1.23 s, on stable storage\n");
        let two = [(stable, 0, 7), (stable, 3, 1), (stable, 0, 8)];
        check(report(&two), "3 records (15 B) to 2 partitions of t in 1.23 s, on stable storage\n");
        let mixed = [(stable, 0, 7), (relaxed, 0, 8)];
        check(report(&mixed), "2 records (10 B) to 1 partition of t in 1.23 s, acknowledged, not yet on stable storage\n");
        check(with_failed(report(&two), 2), "3 of 5 records (2 failed) to 2 partitions of t in 1.23 s, on stable storage\n");
        check(with_failed(report(&[]), 1), "none of 1 record sent to t was acknowledged, after 1.23 s\n");
        check(report(&[]), "0 records (0 B) to 0 partitions of t in 1.23 s, on stable storage\n");
    }

    #[test]
    fn the_object_says_the_same_for_programs() {
        let (stable, relaxed) = (AckLevel::Stable, AckLevel::Relaxed);
        // Answers come in any order.
        let report = with_failed(report(&[(stable, 3, 9), (relaxed, 0, 4), (stable, 3, 7), (stable, 3, 8)]), 2);
        let expected = json!({
            "topic": "t",
            "records": 4,
            "failed": 2,
            "value_bytes": 30,
            "seconds": 0.5,
            "level": "relaxed",
            "failures": [],
            "partitions": [
                {"partition": 0, "first_offset": 4, "last_offset": 4},
                {"partition": 3, "first_offset": 7, "last_offset": 9},
            ],
        });
        assert_eq!(report.json("t", 0.5), expected);
    }

    #[test]
    fn templates_are_valid() {
        super::style("{spinner} {human_pos} records  {per_sec}  {elapsed}");
        super::style("{bar:40} {pos}/{len} files  {elapsed}");
    }
}
