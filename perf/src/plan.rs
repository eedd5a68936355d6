//! When each message should be sent: an open-loop arrival plan, fixed before the broker answers anything.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// One message every 1/rate seconds.
    #[default]
    Uniform,
    /// Independent arrivals: exponential gaps with a mean of 1/rate seconds. Bursts as many independent users make them.
    Poisson,
}

/// The arrival times of one producer, in nanoseconds since the run's start, ever growing.
///
/// The plan does not know whether messages were sent: that is what makes the load open loop.
#[derive(Debug)]
pub struct Plan {
    arrival: Arrival,
    gap_ns: f64,
    /// The last time from which evenly spaced arrivals are counted, and how many there were since: a sum of gaps would drift.
    base_ns: f64,
    count: u64,
    next_ns: f64,
    random: SmallRng,
}

impl Plan {
    /// A plan of `rate` messages per second whose first message is due at `first_ns` at the earliest.
    ///
    /// # Panics
    /// When the rate is not a positive number.
    pub fn new(arrival: Arrival, rate: f64, first_ns: f64, seed: u64) -> Plan {
        let mut plan = Plan {
            arrival,
            gap_ns: gap_ns(rate),
            base_ns: first_ns,
            count: 0,
            next_ns: first_ns,
            random: SmallRng::seed_from_u64(seed),
        };
        if arrival == Arrival::Poisson {
            plan.advance();
        }
        plan
    }

    /// When the next message is due.
    pub fn due_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Takes the next message from the plan; returns when it is due.
    pub fn take(&mut self) -> u64 {
        let due_ns = self.next_ns as u64;
        self.advance();
        due_ns
    }

    /// Goes on from `now_ns` at another rate; what was due before and not taken stays due.
    pub fn set_rate(&mut self, rate: f64, now_ns: u64) {
        self.gap_ns = gap_ns(rate);
        (self.base_ns, self.count) = (self.next_ns.min(now_ns as f64), 0);
        if self.next_ns > now_ns as f64 {
            self.next_ns = self.base_ns;
            self.advance();
        }
    }

    fn advance(&mut self) {
        self.count += 1;
        self.next_ns = match self.arrival {
            Arrival::Uniform => self.base_ns + self.count as f64 * self.gap_ns,
            // 1 - u lies in (0, 1], so that the logarithm is finite.
            Arrival::Poisson => self.next_ns - (1.0 - self.random.random::<f64>()).ln() * self.gap_ns,
        };
    }
}

fn gap_ns(rate: f64) -> f64 {
    assert!(rate.is_finite() && rate > 0.0, "a rate is a positive number, not {rate}");
    1e9 / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_arrivals_are_evenly_spaced_and_do_not_drift() {
        let mut plan = Plan::new(Arrival::Uniform, 3.0, 0.0, 1);
        let times: Vec<u64> = (0..3_000_000).map(|_| plan.take()).collect();
        assert_eq!(times[..4], [0, 333_333_333, 666_666_666, 1_000_000_000]);
        let last = *times.last().unwrap();
        assert!(last.abs_diff(999_999_666_666_666) < 1_000, "drifted to {last}");
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let mut plan = Plan::new(Arrival::Poisson, 1000.0, 0.0, 7);
        let mut before = 0;
        let gaps: Vec<f64> = (0..200_000)
            .map(|_| {
                let due = plan.take();
                let gap = due - before;
                before = due;
                gap as f64
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "mean {mean}");
        assert!((deviation / mean - 1.0).abs() < 0.02, "deviation {deviation}");
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let times = |seed| {
            let mut plan = Plan::new(Arrival::Poisson, 10.0, 0.0, seed);
            (0..50).map(|_| plan.take()).collect::<Vec<_>>()
        };
        assert_eq!(times(3), times(3));
        assert_ne!(times(3), times(4));
    }

    #[test]
    fn a_new_rate_holds_from_now_on() {
        let mut plan = Plan::new(Arrival::Uniform, 1.0, 0.0, 1);
        plan.take();
        plan.set_rate(1000.0, 500_000_000);
        assert_eq!(plan.take(), 501_000_000);
        assert_eq!(plan.take(), 502_000_000);
    }
}
