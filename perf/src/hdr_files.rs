//! Histograms as files that others' tools read: `.hlog` (HdrHistogram interval log, one line a second and tag) and `.hgrm`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

/// Nanoseconds of a histogram to milliseconds of a file.
const NS_PER_MS: f64 = 1e6;
/// Steps per halving of the distance to 100 %: what wrk2 and HdrHistogram's own tools use.
const HGRM_TICKS_PER_HALF: u32 = 5;

/// Writes an interval log: each line is one second of one tag.
#[derive(Debug)]
pub struct IntervalLog {
    out: BufWriter<File>,
}

impl IntervalLog {
    /// Creates the file with its header. `started` is the wall clock at which the run's time is 0.
    ///
    /// # Errors
    /// When the file cannot be created or written.
    pub fn create(path: &Path, started: SystemTime, about: &str) -> std::io::Result<IntervalLog> {
        let mut out = BufWriter::new(File::create(path)?);
        let mut serializer = V2DeflateSerializer::new();
        IntervalLogWriterBuilder::new()
            .add_comment(about)
            .with_start_time(started)
            .with_base_time(started)
            .with_max_value_divisor(NS_PER_MS)
            .begin_log_with(&mut out, &mut serializer)?;
        Ok(IntervalLog { out })
    }

    /// Appends one interval. A tag has no comma, space or line end: those are ours, so that a wrong one is a bug.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, tag: &str, start: Duration, length: Duration, latencies: &Histogram<u64>) -> std::io::Result<()> {
        let tag = Tag::new(tag).expect("tags are words");
        // The crate's writer borrows its output for its whole life: one is made per line, and its header lines are left out.
        let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
        IntervalLogWriterBuilder::new()
            .with_max_value_divisor(NS_PER_MS)
            .begin_log_with(&mut text, &mut serializer)?
            .write_histogram(latencies, start, length, Some(tag))
            .map_err(|error| std::io::Error::other(format!("an interval could not be encoded: {error:?}")))?;
        let line = text.split_inclusive(|&byte| byte == b'\n').rfind(|line| line.starts_with(b"Tag="));
        self.out.write_all(line.expect("the writer wrote the interval last"))
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Writes the percentile distribution in the layout of wrk2, in milliseconds.
///
/// # Errors
/// When the file cannot be written.
pub fn write_hgrm(path: &Path, latencies: &Histogram<u64>) -> std::io::Result<()> {
    std::fs::write(path, hgrm(latencies))
}

fn hgrm(latencies: &Histogram<u64>) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut total = 0;
    for value in latencies.iter_quantiles(HGRM_TICKS_PER_HALF) {
        total += value.count_since_last_iteration();
        let milliseconds = value.value_iterated_to() as f64 / NS_PER_MS;
        let quantile = value.quantile_iterated_to();
        let line = if quantile < 1.0 {
            writeln!(text, "{milliseconds:>12.3} {quantile:>14.12} {total:>10} {:>14.2}", 1.0 / (1.0 - quantile))
        } else {
            writeln!(text, "{milliseconds:>12.3} {quantile:>14.12} {total:>10} {:>14}", "inf")
        };
        line.expect("writing to a string does not fail");
    }
    let sub_buckets = 2048;
    let buckets = latencies.distinct_values() / (sub_buckets / 2) - 1;
    let (mean, deviation) = (latencies.mean() / NS_PER_MS, latencies.stdev() / NS_PER_MS);
    let max = latencies.max() as f64 / NS_PER_MS;
    let count = latencies.len();
    writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]").expect("writing to a string does not fail");
    writeln!(text, "#[Max     = {max:>12.3}, Total count    = {count:>12}]").expect("writing to a string does not fail");
    writeln!(text, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]").expect("writing to a string does not fail");
    text
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::latency;

    #[test]
    fn an_interval_log_reads_back_with_its_tags_and_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.hlog");
        let mut log = IntervalLog::create(&path, SystemTime::UNIX_EPOCH + Duration::from_secs(5), "a test").unwrap();
        let mut samples = latency::histogram();
        samples.record(2_000_000).unwrap();
        log.write("publish", Duration::from_secs(0), Duration::from_secs(1), &samples).unwrap();
        samples.record(8_000_000).unwrap();
        log.write("e2e", Duration::from_secs(1), Duration::from_secs(1), &samples).unwrap();
        log.finish().unwrap();

        let bytes = std::fs::read(&path).unwrap();
        assert!(
            String::from_utf8_lossy(&bytes).starts_with("#a test\n#[StartTime: 5.000"),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
        let mut read = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let compressed = interval.encoded_histogram().to_owned();
                read.push((interval.tag().unwrap().as_str().to_owned(), interval.start_timestamp(), interval.max(), compressed));
            }
        }
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].0.as_str(), read[0].1), ("publish", Duration::from_secs(0)));
        assert_eq!((read[1].0.as_str(), read[1].1), ("e2e", Duration::from_secs(1)));
        assert!((read[1].2 - 8.0).abs() < 0.01);
        // The encoded form is the one that HdrHistogram's tools expect: it starts with the V2 deflate cookie in base64.
        assert!(read[0].3.starts_with("HIST"));
    }

    #[test]
    fn the_percentile_file_ends_at_the_maximum_with_all_samples() {
        let mut samples = latency::histogram();
        for value in 1..=10_000_u64 {
            samples.record(value * 1_000).unwrap();
        }
        let text = hgrm(&samples);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        let last = lines.iter().rev().find(|line| !line.starts_with('#')).unwrap();
        let fields: Vec<&str> = last.split_whitespace().collect();
        assert_eq!((fields[2], fields[3]), ("10000", "inf"));
        assert!(text.contains("#[Max     ="));
        assert!(text.contains("Total count    =        10000]"));
    }
}
