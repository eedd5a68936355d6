//! The search for the highest rate that a broker sustains. Pure: it names rates and is told whether they were sustained.

/// A search by doubling, then by halving the interval.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The highest rate that was sustained.
    low: f64,
    /// The lowest rate that was not.
    high: Option<f64>,
    /// Where doubling starts.
    start: f64,
    /// The interval, as a share of its lower end, at which the search ends.
    tolerance: f64,
    /// Rates tried.
    tried: u32,
}

/// Trials after which a search ends whatever it found: noise must not make it endless.
const TRIALS_MAX: u32 = 24;
/// The lowest rate tried: a broker that does not sustain this is not there.
const RATE_MIN: f64 = 10.0;

impl Search {
    /// A search that starts at `start` messages per second and ends when it knows the rate within `tolerance`, a share.
    ///
    /// # Panics
    /// When either is not positive.
    pub fn new(start: f64, tolerance: f64) -> Search {
        assert!(start > 0.0, "a search starts at a positive rate");
        assert!(tolerance > 0.0, "a search ends at a positive tolerance");
        Search { low: 0.0, high: None, start, tolerance, tried: 0 }
    }

    /// The next rate to try; `None` when the search is over.
    pub fn next_rate(&self) -> Option<f64> {
        if self.tried >= TRIALS_MAX {
            return None;
        }
        match self.high {
            None if self.low == 0.0 => Some(self.start),
            None => Some(self.low * 2.0),
            Some(high) if self.low == 0.0 => (high / 2.0 >= RATE_MIN).then_some(high / 2.0),
            Some(high) if high - self.low > self.low * self.tolerance => Some(f64::midpoint(self.low, high)),
            Some(_) => None,
        }
    }

    /// The outcome of the rate that [`Search::next_rate`] named.
    pub fn tried(&mut self, rate: f64, sustained: bool) {
        self.tried += 1;
        if sustained {
            self.low = self.low.max(rate);
        } else {
            self.high = Some(self.high.map_or(rate, |high| high.min(rate)));
        }
    }

    /// The highest rate that was sustained; 0 when none was.
    pub fn highest(&self) -> f64 {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit: f64, start: f64) {
        let mut search = Search::new(start, 0.05);
        while let Some(rate) = search.next_rate() {
            search.tried(rate, rate <= limit);
        }
        let found = search.highest();
        assert!(found <= limit && found >= limit * 0.94, "limit {limit} from {start}: found {found}");
    }

    #[test]
    fn the_limit_is_found_from_below_and_from_above() {
        for limit in [100.0, 1234.0, 77_777.0, 2_000_000.0] {
            for start in [50.0, 10_000.0, 1_000_000.0] {
                check(limit, start);
            }
        }
    }

    #[test]
    fn a_broker_that_sustains_nothing_ends_the_search() {
        let mut search = Search::new(1000.0, 0.05);
        let mut trials = 0;
        while let Some(rate) = search.next_rate() {
            search.tried(rate, false);
            trials += 1;
        }
        assert_eq!(search.highest(), 0.0);
        assert!(trials < 10);
    }
}
