//! How long a failed record waits.

use wire::RetryPolicy;

/// The pause after `attempts` failures (from 1), in milliseconds: `first * factor^(attempts - 1)`, at most the policy's maximum, less a
/// random part of up to its jitter.
pub(super) fn delay_ms(policy: &RetryPolicy, attempts: u32, random: u64) -> u64 {
    let longest = u64::from(policy.backoff_max_ms);
    let mut pause = u64::from(policy.backoff_first_ms);
    for _ in 1..attempts {
        if pause >= longest {
            break;
        }
        pause = pause * u64::from(policy.backoff_factor_percent) / 100;
    }
    pause = pause.min(longest);
    let spread = pause * u64::from(policy.jitter_percent) / 100;
    pause - random % (spread + 1)
}

/// A number of its own for each of several records that fail in one event (the finalizer of SplitMix64).
pub(super) fn mixed(random: u64, salt: u64) -> u64 {
    let mut mixed = random.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::{delay_ms, mixed};
    use wire::RetryPolicy;

    #[test]
    fn a_pause_grows_to_the_longest_and_jitter_only_shortens_it() {
        let policy = RetryPolicy {
            backoff_first_ms: 100,
            backoff_factor_percent: 300,
            backoff_max_ms: 2000,
            jitter_percent: 20,
            ..RetryPolicy::default()
        };
        for (attempts, full_ms) in [(1, 100), (2, 300), (3, 900), (4, 2000), (1000, 2000)] {
            for random in [0, 1, 19, 7_777_777, u64::MAX] {
                let delay = delay_ms(&policy, attempts, random);
                assert!(delay <= full_ms, "{attempts}: {delay}");
                assert!(delay >= full_ms * 8 / 10, "{attempts}: {delay}");
            }
        }
    }

    #[test]
    fn none_and_longest_pauses_are_allowed() {
        let none = RetryPolicy { backoff_first_ms: 0, backoff_max_ms: 0, ..RetryPolicy::default() };
        assert_eq!(delay_ms(&none, 1000, u64::MAX), 0);
        let long = RetryPolicy { backoff_max_ms: u32::MAX, backoff_factor_percent: u32::MAX, jitter_percent: 0, ..none };
        let long = RetryPolicy { backoff_first_ms: u32::MAX - 1, ..long };
        assert_eq!(delay_ms(&long, 1000, u64::MAX), u64::from(u32::MAX));
    }

    #[test]
    fn records_that_fail_together_draw_apart() {
        assert_ne!(mixed(7, 1) % 1000, mixed(7, 2) % 1000);
    }
}
