//! How fast the bytes of a connection have moved lately, in one direction.

use shards::clock::Monotonic;
use std::{cell::Cell, time::Duration};

/// What moved is counted in periods of this length.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// Bytes of the present period and of the one before it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    began: Cell<Option<Monotonic>>,
    now_bytes: Cell<usize>,
    before_bytes: Cell<usize>,
}

impl Pace {
    /// So many bytes have moved.
    pub(crate) fn moved(&self, bytes: usize, now: Monotonic) {
        self.turn(now);
        self.now_bytes.set(self.now_bytes.get().saturating_add(bytes));
    }

    /// The bytes of a second: of the present period or of the one before it, whichever had more, so that a period which has just begun is not
    /// taken for a stop. A stop shows as 0 after two periods.
    pub(crate) fn bytes_per_second(&self, now: Monotonic) -> usize {
        self.turn(now);
        self.now_bytes.get().max(self.before_bytes.get())
    }

    /// Begins a period when the present one is over.
    fn turn(&self, now: Monotonic) {
        let passed = self.began.get().map(|began| now.since(began));
        if passed.is_some_and(|passed| passed < PERIOD) {
            return;
        }
        let follows = passed.is_some_and(|passed| passed < 2 * PERIOD);
        self.before_bytes.set(if follows { self.now_bytes.get() } else { 0 });
        self.now_bytes.set(0);
        self.began.set(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_two_periods() {
        let at = |ms: u64| Monotonic(7_000_000_000 + ms * 1_000_000);
        let pace = Pace::default();
        assert_eq!(pace.bytes_per_second(at(0)), 0);
        pace.moved(100, at(0));
        pace.moved(50, at(999));
        assert_eq!(pace.bytes_per_second(at(999)), 150);
        pace.moved(10, at(1000));
        assert_eq!(pace.bytes_per_second(at(1900)), 150, "the period has just begun");
        assert_eq!(pace.bytes_per_second(at(2100)), 10);
        assert_eq!(pace.bytes_per_second(at(4200)), 0, "nothing moved for two periods");
    }
}
