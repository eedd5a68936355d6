//! How long to wait before the next attempt.

use std::time::Duration;

/// Exponential backoff with jitter: attempt n waits between half and all of `min(first * 2^n, max)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        let first = first.max(Duration::from_millis(1));
        Self { first, max: max.max(first) }
    }

    /// The wait after `failures` (from 1) failures in a row; `random` is any number, it spreads clients that failed together.
    pub(crate) fn delay(&self, failures: u32, random: u64) -> Duration {
        let exponent = failures.saturating_sub(1).min(20);
        let full = self.first.saturating_mul(1 << exponent).min(self.max);
        let half = full / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        half + Duration::from_nanos(random % spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
        for (failures, full_ms) in [(1, 100), (2, 200), (3, 400), (5, 1600), (6, 2000), (60, 2000)] {
            for random in [0, 1, 7_777_777, u64::MAX] {
                let delay = backoff.delay(failures, random);
                assert!(delay >= Duration::from_millis(full_ms / 2), "{failures}: {delay:?}");
                assert!(delay <= Duration::from_millis(full_ms), "{failures}: {delay:?}");
            }
        }
    }
}
