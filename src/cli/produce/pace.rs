//! `--rate`: when the next record may leave.

use std::time::Duration;

use tokio::time::Instant;

/// How far the pace may lag behind and still catch up: timers wake late by a millisecond or two, and that is made good. What was
/// lost by waiting for input is not: the records after it come at the rate, not all at once.
const CATCH_UP_MAX: Duration = Duration::from_millis(20);

/// A steady pace.
pub(super) struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    /// `rate` records a second, above 0, the first one at once.
    pub(super) fn new(rate: f64, now: Instant) -> Self {
        // A rate so low that no interval expresses it: once a year is as good.
        let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX).min(Duration::from_secs(365 * 86_400));
        Self { interval, next: now }
    }

    /// When the record that is ready at `now` may leave.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let earliest = now.checked_sub(CATCH_UP_MAX).unwrap_or(now);
        let leaves = self.next.max(earliest);
        self.next = leaves + self.interval;
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_there_leave_at_the_rate() {
        let begin = Instant::now();
        let mut pace = Pace::new(100.0, begin);
        for index in 0..10 {
            assert_eq!(pace.next(begin), begin + Duration::from_millis(10) * index);
        }
    }

    #[test]
    fn a_pause_of_the_input_is_not_caught_up() {
        let begin = Instant::now();
        let mut pace = Pace::new(100.0, begin);
        pace.next(begin);
        let later = begin + Duration::from_secs(60);
        let left_at_once = (0..100).filter(|_| pace.next(later) <= later).count();
        assert_eq!(left_at_once, 3, "what 20 ms allow");
    }

    #[test]
    fn a_timer_that_woke_late_is_caught_up() {
        let begin = Instant::now();
        let mut pace = Pace::new(1000.0, begin);
        let mut now = begin;
        for _ in 0..1000 {
            now = now.max(pace.next(now)) + Duration::from_micros(900);
        }
        assert!(now - begin < Duration::from_millis(1001), "{:?}", now - begin);
    }

    #[test]
    fn every_rate_has_an_interval() {
        let begin = Instant::now();
        for rate in [f64::MIN_POSITIVE, 1e-300, 1e300, f64::MAX] {
            Pace::new(rate, begin).next(begin);
        }
    }
}
