//! Members and coordinator, under all that can go wrong between and in them.

use super::world::World;

/// Runs that `cargo test` makes; more with `CORELANE_SEEDS`.
const SEEDS_DEFAULT: u64 = 60;

/// Lost and late requests, lost answers, crashes of members and of the coordinator, partitions that move: every record is handled or given
/// up, none both, none twice a dead letter; of a key in order; no commit passes what nobody has.
#[test]
fn every_record_is_handled_in_the_order_of_its_key_or_given_up() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = number("CORELANE_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let first: u64 = number("CORELANE_FIRST_SEED").unwrap_or(0);
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(run.is_ok(), "seed {seed}: CORELANE_FIRST_SEED={seed} CORELANE_SEEDS=1 runs it again");
    }
}
