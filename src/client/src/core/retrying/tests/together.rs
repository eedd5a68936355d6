//! Members and coordinator, under all that can go wrong between and in them.

use std::collections::BTreeMap;

use super::world::World;

/// Runs that `cargo test` makes; more with `CORELANE_SEEDS`.
const SEEDS_DEFAULT: u64 = 100;

/// What must have happened for the runs to say anything.
const EXPECTED: [&str; 19] = [
    "a commit is told",
    "a commit that is lost",
    "a commit without room",
    "a crash that loses state",
    "a dead letter appended",
    "a dead letter appended again",
    "a lane lost",
    "a poll that came late",
    "a settle that came late",
    "a settle without an answer",
    "begun where records are held beyond the commit",
    "dead-lettered",
    "deferred without room",
    "failed without room",
    "parked",
    "settled before",
    "settled by one that is no longer the owner",
    "skipped",
    "stopped",
];

/// Lost and late requests, lost answers, crashes of members and of the coordinator, partitions that move: every record is handled or given
/// up, none both, none twice a dead letter; of a key in order; no commit passes what nobody has.
#[test]
fn every_record_is_handled_in_the_order_of_its_key_or_given_up() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = number("CORELANE_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let first: u64 = number("CORELANE_FIRST_SEED").unwrap_or(0);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        let run = run.unwrap_or_else(|_| panic!("seed {seed}: CORELANE_FIRST_SEED={seed} CORELANE_SEEDS=1 runs it again"));
        run.into_iter().for_each(|(what, times)| *seen.entry(what).or_default() += times);
    }
    println!("{seen:#?}");
    if seeds >= SEEDS_DEFAULT {
        let missing: Vec<_> = EXPECTED.iter().filter(|what| !seen.contains_key(**what)).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}
