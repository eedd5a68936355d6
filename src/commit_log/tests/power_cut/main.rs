//! Power cuts: a shard's log on the simulated machine loses power at random moments, again and again, and every start after one is judged by
//! an oracle that knows what was acknowledged.
//!
//! ```text
//!   seed ─► life: recover, check, work … crash ─► life: recover … crash ─► … ─► damage at rest? ─► life: recover, check, close ─► check
//!                     ▲                    │
//!                   oracle ◄── acknowledged, appended, truncated, deleted
//! ```
//!
//! `CORELANE_SEEDS` says how many seeds run (60), `CORELANE_FIRST_SEED` where they begin, `CORELANE_THREADS` how many at a time (one a core). A
//! failing seed prints how to repeat it, and the others go on.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod coverage;
mod damage;
mod life;
mod logs;
mod oracle;
mod plan;
mod work;
mod writers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use coverage::Coverage;

/// What an ordinary test run has time for.
const SEEDS_DEFAULT: u64 = 60;

/// Below this many seeds a fault may happen not to occur.
const SEEDS_FOR_COVERAGE: u64 = 200;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

/// Runs one seed; says how to repeat it when it fails.
fn run_seed(seed: u64, coverage: &mut Coverage) -> Option<u64> {
    let run = catch_unwind(AssertUnwindSafe(|| plan::run(seed, coverage)));
    if run.is_err() {
        eprintln!(
            "seed {seed} failed; repeat: CORELANE_FIRST_SEED={seed} CORELANE_SEEDS=1 cargo test -p commit_log --test power_cut"
        );
    }
    run.ok()
}

/// Runs seeds until `next` reaches `end`; returns what they came across, and which failed.
fn run_seeds(next: &AtomicU64, end: u64) -> (Coverage, Vec<u64>) {
    let mut coverage = Coverage::default();
    let mut failed = Vec::new();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return (coverage, failed);
        }
        let mut of_seed = Coverage::default();
        if run_seed(seed, &mut of_seed).is_none() {
            failed.push(seed);
        }
        coverage.add(&of_seed);
    }
}

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let first = number("CORELANE_FIRST_SEED", 1);
    let count = number("CORELANE_SEEDS", SEEDS_DEFAULT);
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = number("CORELANE_THREADS", cores);
    let next = AtomicU64::new(first);
    let mut coverage = Coverage::default();
    let mut failed = Vec::new();
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| run_seeds(&next, first + count))).collect();
        for thread in running {
            let (of_thread, failed_there) = thread.join().unwrap();
            coverage.add(&of_thread);
            failed.extend(failed_there);
        }
    });
    println!("{coverage:#?}");
    failed.sort_unstable();
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    if count >= SEEDS_FOR_COVERAGE {
        coverage.assert_complete();
    }
}

#[test]
fn one_seed_gives_one_run() {
    let first = number("CORELANE_FIRST_SEED", 1);
    for seed in first..first + 3 {
        let (one, other) = (run_seed(seed, &mut Coverage::default()), run_seed(seed, &mut Coverage::default()));
        assert!(one.is_some(), "seed {seed} failed");
        assert_eq!(one, other, "seed {seed} took two courses");
    }
}
