//! Latencies: three histograms per operation, and the rule which percentiles may be stated.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Smallest latency told apart, in nanoseconds.
const LATENCY_NS_MIN: u64 = 1_000;
/// Largest latency, in nanoseconds; longer ones count as this. An hour: beyond it a run has other worries.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of a histogram's values.
const DIGITS: u8 = 3;
/// The generator's own lateness may be this share of the latency at the 99th percentile.
const DELAY_SHARE_MAX: f64 = 0.10;
/// A percentile with fewer samples beyond it than this is chance, and is not stated.
pub const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// An empty histogram of latencies in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, DIGITS).expect("the bounds are constants that fit")
}

/// The three histograms of one operation.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// From the time the plan wanted the message sent to its end. The headline.
    pub intended: Histogram<u64>,
    /// From the time the generator handed the message over to its end. Hides what the generator waited.
    pub actual: Histogram<u64>,
    /// From the time the plan wanted the message sent to its handing over: the generator's own lateness.
    pub delay: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { intended: histogram(), actual: histogram(), delay: histogram() }
    }
}

impl Latencies {
    /// Records one operation by its three times, in nanoseconds on one clock.
    pub fn record(&mut self, intended_ns: u64, sent_ns: u64, done_ns: u64) {
        self.intended.saturating_record(done_ns.saturating_sub(intended_ns));
        self.actual.saturating_record(done_ns.saturating_sub(sent_ns));
        self.delay.saturating_record(sent_ns.saturating_sub(intended_ns));
    }

    /// Why they say nothing about a broker, when the generator's own lateness is too large a part of them.
    pub fn lateness(&self) -> Option<String> {
        let (delay, latency) = (percentile_ms(&self.delay, 0.99)?, percentile_ms(&self.intended, 0.99)?);
        let late = delay > latency * DELAY_SHARE_MAX;
        late.then(|| format!("the generator was late: p99 delay {delay:.3} ms is above a tenth of p99 latency {latency:.3} ms"))
    }

    /// Adds what `other` holds.
    pub fn add(&mut self, other: &Latencies) {
        for (mine, theirs) in
            [(&mut self.intended, &other.intended), (&mut self.actual, &other.actual), (&mut self.delay, &other.delay)]
        {
            mine.add(theirs).expect("all latency histograms have the same bounds");
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.intended.reset();
        self.actual.reset();
        self.delay.reset();
    }
}

/// The stated percentiles of a histogram, in milliseconds. `None` where too few samples lie beyond one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 75th percentile.
    pub p75_ms: Option<f64>,
    /// 90th percentile.
    pub p90_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// 99.99th percentile.
    pub p9999_ms: Option<f64>,
    /// Largest.
    pub max_ms: f64,
}

impl Percentiles {
    /// The percentiles of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Percentiles {
        Percentiles {
            count: histogram.len(),
            mean_ms: histogram.mean() / 1e6,
            p50_ms: percentile_ms(histogram, 0.5),
            p75_ms: percentile_ms(histogram, 0.75),
            p90_ms: percentile_ms(histogram, 0.9),
            p95_ms: percentile_ms(histogram, 0.95),
            p99_ms: percentile_ms(histogram, 0.99),
            p999_ms: percentile_ms(histogram, 0.999),
            p9999_ms: percentile_ms(histogram, 0.9999),
            max_ms: if histogram.is_empty() { 0.0 } else { histogram.max() as f64 / 1e6 },
        }
    }

    /// One line: `p50 0.31 p90 0.44 p99 1.20 p99.9 - p99.99 - max 3.10 ms (n 12000)`.
    pub fn line(&self) -> String {
        let stated = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        format!(
            "p50 {} p90 {} p99 {} p99.9 {} p99.99 {} max {:.2} ms (n {})",
            stated(self.p50_ms),
            stated(self.p90_ms),
            stated(self.p99_ms),
            stated(self.p999_ms),
            stated(self.p9999_ms),
            self.max_ms,
            self.count
        )
    }
}

/// The value in milliseconds at `quantile` of a histogram in nanoseconds, if at least ten samples lie beyond it.
pub fn percentile_ms(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    // The small addition keeps 1000 * (1 - 0.99), which is a little below 10 in floating point, a ten.
    let beyond = histogram.len() as f64 * (1.0 - quantile) + 1e-6;
    (beyond >= SAMPLES_BEYOND_MIN).then(|| histogram.value_at_quantile(quantile) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_percentile_is_stated_with_fewer_than_ten_samples_beyond_it() {
        let mut samples = histogram();
        for sample in 1..=999 {
            samples.record(sample * 10_000).unwrap();
        }
        assert_eq!(percentile_ms(&samples, 0.99), None);
        samples.record(10_000_000).unwrap();
        assert!(percentile_ms(&samples, 0.99).is_some());
        assert_eq!(percentile_ms(&samples, 0.999), None);
        let stated = Percentiles::of(&samples);
        assert_eq!(stated.count, 1000);
        assert!((stated.p50_ms.unwrap() - 5.0).abs() < 0.02);
        assert_eq!(stated.p9999_ms, None);
        assert!(stated.line().contains("p99.9 - "));
    }

    #[test]
    fn nothing_is_stated_of_an_empty_histogram() {
        let stated = Percentiles::of(&histogram());
        assert_eq!((stated.count, stated.p50_ms, stated.max_ms), (0, None, 0.0));
    }

    #[test]
    fn lateness_of_more_than_a_tenth_is_told() {
        let check = |delay_ns: u64, is_late: bool| {
            let mut latencies = Latencies::default();
            (0..1000).for_each(|_| latencies.record(0, delay_ns, 10_000_000));
            assert_eq!(latencies.lateness().is_some(), is_late, "{delay_ns}");
        };
        check(900_000, false);
        check(1_100_000, true);
        assert_eq!(Latencies::default().lateness(), None);
    }

    #[test]
    fn the_three_times_are_kept_apart() {
        let mut latencies = Latencies::default();
        latencies.record(1_000_000, 3_000_000, 8_000_000);
        let close = |histogram: &Histogram<u64>, wanted: f64| (histogram.max() as f64 / wanted - 1.0).abs() < 0.01;
        assert!(close(&latencies.intended, 7e6));
        assert!(close(&latencies.actual, 5e6));
        assert!(close(&latencies.delay, 2e6));
        let mut sum = Latencies::default();
        sum.add(&latencies);
        sum.add(&latencies);
        assert_eq!(sum.intended.len(), 2);
    }
}
