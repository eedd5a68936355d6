//! The result of a run as JSON: every field of the OpenMessaging Benchmark's `TestResult` under its name, and what it lacks.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::driver::engine::Second;
use crate::latency::{Latencies, Percentiles, percentile_ms};
use crate::machine::{CpuShares, Facts};
use crate::process::Usage;
use crate::trial::Findings;
use crate::workload::Workload;

/// Quantiles that `TestResult` names, with their names.
const QUANTILES: [(&str, f64); 7] =
    [("50", 0.5), ("75", 0.75), ("95", 0.95), ("99", 0.99), ("999", 0.999), ("9999", 0.9999), ("99999", 0.99999)];

/// Series of `TestResult`: one entry a second of the measured time.
#[derive(Debug, Default)]
pub struct Series {
    rows: BTreeMap<String, Vec<Value>>,
}

impl Series {
    /// Adds a second.
    pub fn add(&mut self, second: &Second) {
        let seconds = second.length.as_secs_f64().max(1e-9);
        let per_second = |count: u64| json!(count as f64 / seconds);
        self.push("publishRate", per_second(second.counts.acked));
        self.push("publishErrorRate", per_second(second.counts.failed));
        self.push("consumeRate", per_second(second.consumed));
        self.push("backlog", json!(second.backlog));
        self.push_histogram("publishLatency", &second.publish.intended, 1e6);
        self.push_histogram("publishDelayLatency", &second.publish.delay, 1e3);
        self.push_histogram("endToEndLatency", &second.end_to_end, 1e6);
    }

    fn push_histogram(&mut self, name: &str, histogram: &Histogram<u64>, unit_ns: f64) {
        for (suffix, value) in fields(histogram, unit_ns) {
            self.push(&format!("{name}{suffix}"), value);
        }
    }

    fn push(&mut self, name: &str, value: Value) {
        self.rows.entry(name.to_owned()).or_default().push(value);
    }
}

/// `Avg`, `50pct` … `Max` of a histogram in a unit. A quantile with too few samples beyond it is null.
fn fields(histogram: &Histogram<u64>, unit_ns: f64) -> Vec<(String, Value)> {
    let mut fields = vec![("Avg".to_owned(), json!(histogram.mean() / unit_ns))];
    for (name, quantile) in QUANTILES {
        let value = percentile_ms(histogram, quantile).map(|value| value * 1e6 / unit_ns);
        fields.push((format!("{name}pct"), json!(value)));
    }
    let max = if histogram.is_empty() { 0 } else { histogram.max() };
    fields.push(("Max".to_owned(), json!(max as f64 / unit_ns)));
    fields
}

/// The distribution as `TestResult` has it: percentile to value, as far as enough samples lie beyond.
fn distribution(histogram: &Histogram<u64>, unit_ns: f64) -> Value {
    let mut map = Map::new();
    for value in histogram.iter_quantiles(5) {
        let quantile = value.quantile_iterated_to();
        if quantile < 1.0 && percentile_ms(histogram, quantile).is_none() {
            break;
        }
        map.insert(format!("{}", quantile * 100.0), json!(value.value_iterated_to() as f64 / unit_ns));
    }
    Value::Object(map)
}

/// What a broker cost over a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    /// CPU time of the broker in seconds, warm-up and end included.
    pub cpu_seconds: f64,
    /// CPU time per MiB of acknowledged message values, in milliseconds.
    pub cpu_ms_per_mib: f64,
    /// Bytes the broker caused to be written.
    pub written_bytes: u64,
    /// The same for each byte of acknowledged message values.
    pub written_per_payload: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
}

impl Cost {
    /// What `usage` means for so many acknowledged bytes.
    pub fn of(usage: &Usage, payload_bytes: u64) -> Cost {
        let mib = payload_bytes as f64 / (1 << 20) as f64;
        Cost {
            cpu_seconds: usage.cpu.as_secs_f64(),
            cpu_ms_per_mib: usage.cpu.as_secs_f64() * 1e3 / mib.max(1e-9),
            written_bytes: usage.written_bytes,
            written_per_payload: usage.written_bytes as f64 / (payload_bytes as f64).max(1.0),
            resident_bytes: usage.resident_bytes,
        }
    }
}

/// Everything a run's file says.
#[derive(Debug)]
pub struct Report<'a> {
    /// The load.
    pub workload: &'a Workload,
    /// Broker and version, or what stood in its place.
    pub driver: String,
    /// The trial.
    pub findings: &'a Findings,
    /// Its seconds.
    pub series: &'a Series,
    /// The machine.
    pub facts: &'a Facts,
    /// What the broker cost, when it was ours to look at.
    pub cost: Option<Cost>,
    /// How busy the machine was.
    pub cpu: CpuShares,
    /// Objectives that were missed.
    pub missed: &'a [String],
}

impl Report<'_> {
    /// The JSON.
    pub fn json(&self) -> Value {
        let workload = self.workload;
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| map.insert(name.to_owned(), value);
        put("workload", json!(workload.name));
        put("driver", json!(self.driver));
        put("messageSize", json!(workload.message_bytes));
        put("topics", json!(workload.topics));
        put("partitions", json!(workload.partitions_per_topic));
        put("producersPerTopic", json!(workload.producers_per_topic));
        put("consumersPerTopic", json!(workload.consumers_per_subscription * workload.subscriptions_per_topic));
        put("groups", json!(workload.groups));
        put("membersPerGroup", json!(workload.members_per_group));
        for (name, row) in &self.series.rows {
            put(name, json!(row));
        }
        let Latencies { intended, actual, delay } = &self.findings.publish;
        let end_to_end = &self.findings.end_to_end;
        for (name, histogram, unit_ns) in
            [("PublishLatency", intended, 1e6), ("PublishDelayLatency", delay, 1e3), ("EndToEndLatency", end_to_end, 1e6)]
        {
            for (suffix, value) in fields(histogram, unit_ns) {
                put(&format!("aggregated{name}{suffix}"), value);
            }
            put(&format!("aggregated{name}Quantiles"), distribution(histogram, unit_ns));
        }
        // From here on what TestResult does not have.
        put("publishFromIntendedTime", json!(Percentiles::of(intended)));
        put("publishFromActualTime", json!(Percentiles::of(actual)));
        put("publishDelay", json!(Percentiles::of(delay)));
        put("endToEndFromIntendedTime", json!(Percentiles::of(end_to_end)));
        put("figures", json!(self.findings.figures));
        put("valid", json!(self.findings.figures.is_valid()));
        put("objective", json!(workload.objective));
        put("missedObjectives", json!(self.missed));
        put("arrival", json!(workload.arrival));
        put("spread", json!(workload.spread));
        put("durability", json!(if workload.relaxed { "relaxed" } else { "stable" }));
        put("cost", json!(self.cost));
        put("cpu", json!(self.cpu));
        put("machine", json!(self.facts));
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::histogram;

    /// The fields of `TestResult.java`.
    #[test]
    fn series_have_the_names_of_the_benchmark() {
        let mut series = Series::default();
        series.push_histogram("publishLatency", &histogram(), 1e6);
        let names: Vec<&str> = series.rows.keys().map(String::as_str).collect();
        for wanted in
            ["publishLatencyAvg", "publishLatency50pct", "publishLatency9999pct", "publishLatency99999pct", "publishLatencyMax"]
        {
            assert!(names.contains(&wanted), "{wanted} is not in {names:?}");
        }
    }

    #[test]
    fn a_distribution_ends_where_samples_become_few() {
        let mut samples = histogram();
        (1..=1000_u64).for_each(|value| samples.record(value * 1_000_000).unwrap());
        let Value::Object(map) = distribution(&samples, 1e6) else { panic!("an object") };
        assert!(map.keys().all(|key| key.parse::<f64>().unwrap() <= 99.01), "{map:?}");
        assert!(map.len() > 10);
    }
}
