//! The search for the highest rate, and the steps of the latency-load curve.

use serde_json::json;

use super::files::file_name;
use super::{RunError, Runner};
use crate::latency::{Percentiles, percentile_ms};
use crate::plot::{self, Line};
use crate::saturation::Search;
use crate::trial::Trial;
use crate::workload::Rate;

/// Where a search starts, in messages per second.
const SEARCH_START: f64 = 20_000.0;
/// How exactly a search finds the rate.
const SEARCH_TOLERANCE: f64 = 0.05;
/// The latency that a search keeps when the workload names none, in milliseconds.
const SEARCH_P99_MS_DEFAULT: f64 = 50.0;

impl Runner<'_> {
    /// Finds the highest rate that keeps the objective, then measures the steps of the curve.
    pub(super) fn search_and_curve(&mut self) -> Result<bool, RunError> {
        let limit_ms = self.workload.objective.publish_p99_ms.unwrap_or(SEARCH_P99_MS_DEFAULT);
        let highest = match self.workload.rate {
            Rate::PerSecond(rate) => rate,
            _ => self.search(limit_ms)?,
        };
        println!(
            "highest rate with publish p99 <= {limit_ms} ms and a flat backlog: {highest:.0} messages/s, {:.1} MB/s",
            highest * self.workload.message_bytes as f64 / 1e6
        );
        if highest == 0.0 {
            return Ok(false);
        }
        let mut curve = Vec::new();
        let mut valid = true;
        for percent in self.workload.curve_percent.clone() {
            println!("\nat {percent} %:");
            let (found, good) = self.one(Rate::PerSecond(highest * percent / 100.0), &format!("-{percent}"))?;
            // Not to keep up near the highest rate is a finding, an invalid run is none.
            valid &= if self.args.quick { good } else { found.figures.is_valid() };
            curve.push((percent, found.figures.acked_per_second, Percentiles::of(&found.publish.intended)));
        }
        if let Some(out) = self.args.out.as_ref().filter(|_| !curve.is_empty()) {
            let name = file_name(&self.workload.name);
            let line = |name: &str, value: fn(&Percentiles) -> Option<f64>| Line {
                name: name.to_owned(),
                points: curve.iter().filter_map(|(_, rate, stated)| Some((*rate, value(stated)?))).collect(),
            };
            let lines = [line("p50", |p| p.p50_ms), line("p99", |p| p.p99_ms), line("p99.9", |p| p.p999_ms)];
            let path = out.join(format!("{name}-load.svg"));
            plot::against_load(&path, &format!("{name}: publish latency against load"), &self.facts.summary(), &lines)?;
            let steps: Vec<_> = curve
                .iter()
                .map(|(percent, rate, stated)| json!({ "percent": percent, "ackedPerSecond": rate, "publish": stated }))
                .collect();
            let value =
                json!({ "highestPerSecond": highest, "publishP99LimitMs": limit_ms, "steps": steps, "machine": self.facts });
            let path = out.join(format!("{name}-curve.json"));
            std::fs::write(&path, format!("{value:#}\n"))
                .map_err(|source| RunError::Io { what: path.display().to_string(), source })?;
        }
        Ok(valid)
    }

    fn search(&mut self, limit_ms: f64) -> Result<f64, RunError> {
        let mut search = Search::new(SEARCH_START, SEARCH_TOLERANCE);
        while let Some(rate) = search.next_rate() {
            self.trials += 1;
            let prefix = format!("{}-{}", self.prefix, self.trials);
            let trial = Trial {
                broker: self.address,
                prefix: &prefix,
                rate: Rate::PerSecond(rate),
                verify: false,
                delete_topics: true,
                expect_disconnect: false,
                producers_from: 0,
            };
            let found = trial.run(&self.workload, &mut |_| {})?;
            let p99 = percentile_ms(&found.publish.intended, 0.99);
            let sustained =
                found.figures.is_valid() && found.figures.not_sustained.is_empty() && p99.is_some_and(|p99| p99 <= limit_ms);
            search.tried(rate, sustained);
            if !self.args.quiet {
                let reasons = [found.figures.invalid, found.figures.not_sustained].concat().join("; ");
                let p99 = p99.map_or("-".to_owned(), |p99| format!("{p99:.2}"));
                eprintln!("{rate:>10.0}/s: {} p99 {p99} ms {reasons}", if sustained { "sustained" } else { "too much" });
            }
        }
        Ok(search.highest())
    }
}
