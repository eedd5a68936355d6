//! Whether the wall clock is believed: a jump far ahead would make everything too old at once, and what is deleted does not come back with the clock.

use shards::clock::Monotonic;
use std::time::Duration;

/// The wall clock may run ahead of the monotonic one by this between two looks: leap seconds and corrections of a clock that is a little late.
const JUMP_MAX: Duration = Duration::from_secs(3600);

/// After a larger jump nothing goes by age for so long: time to notice the clock and to correct it. A clock that still says the same then is believed.
pub(crate) const HOLD: Duration = Duration::from_secs(3600);

/// What was seen of the clocks since the start. The first look believes: a broker that starts knows no other time.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    last: Option<(i64, Monotonic)>,
    /// The jump that is held against the clock: until when, and by how much it went ahead.
    held: Option<(Monotonic, i64)>,
}

impl Trust {
    /// Looks at both clocks. False while a jump ahead is not believed.
    pub(crate) fn look(&mut self, wall_ms: i64, monotonic: Monotonic) -> bool {
        let jump_max_ms = i64::try_from(JUMP_MAX.as_millis()).unwrap_or(i64::MAX);
        let ahead_ms = self.last.map_or(0, |(last_wall_ms, last)| {
            let passed_ms = i64::try_from(monotonic.since(last).as_millis()).unwrap_or(i64::MAX);
            wall_ms.saturating_sub(last_wall_ms).saturating_sub(passed_ms)
        });
        self.last = Some((wall_ms, monotonic));
        if ahead_ms > jump_max_ms {
            tracing::warn!("the clock has jumped {} s ahead: nothing is deleted by age for {HOLD:?}", ahead_ms / 1000);
            self.held = Some((monotonic + HOLD, ahead_ms));
        } else if self.held.is_some_and(|(_, jump_ms)| ahead_ms <= jump_max_ms - jump_ms) {
            tracing::info!("the clock has gone back: things are deleted by age again");
            self.held = None;
        }
        if self.held.is_some_and(|(until, _)| monotonic >= until) {
            self.held = None;
        }
        self.held.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn looks(steps: &[(i64, i64, bool)]) {
        let mut trust = Trust::default();
        for (wall_ms, monotonic_ms, believed) in steps {
            let monotonic = Monotonic(monotonic_ms.unsigned_abs() * 1_000_000);
            assert_eq!(trust.look(*wall_ms, monotonic), *believed, "at {wall_ms} of {steps:?}");
        }
    }

    #[test]
    fn clocks_that_go_together_are_believed() {
        looks(&[(1000, 0, true), (1000 + 50 * HOUR_MS, 50 * HOUR_MS, true), (1000 + 51 * HOUR_MS, 50 * HOUR_MS, true)]);
    }

    #[test]
    fn a_jump_ahead_is_believed_after_a_while() {
        let far = 1000 * HOUR_MS;
        looks(&[(0, 0, true), (far, 1, false), (far + HOUR_MS / 2, HOUR_MS / 2, false), (far + HOUR_MS + 2, HOUR_MS + 2, true)]);
    }

    #[test]
    fn a_jump_ahead_that_is_taken_back_is_forgotten() {
        looks(&[(0, 0, true), (1000 * HOUR_MS, 1, false), (2, 2, true), (3, 3, true)]);
    }

    #[test]
    fn a_clock_that_goes_back_is_believed() {
        looks(&[(1000 * HOUR_MS, 0, true), (5, 1, true)]);
    }
}
