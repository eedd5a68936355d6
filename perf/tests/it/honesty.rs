//! Bar G: a server that stops must show in the figures, and a null sink must be faster than any broker.

use std::time::Duration;

use perf::latency::percentile_ms;
use perf::mock::{Behaviour, Mock};
use perf::trial::{Findings, Trial};
use perf::workload::{Rate, Workload};

fn run(behaviour: Behaviour, workload: &Workload) -> Findings {
    let mock = Mock::start(behaviour).unwrap();
    let trial = Trial {
        broker: mock.address(),
        prefix: "honesty",
        rate: workload.rate,
        verify: false,
        delete_topics: true,
        expect_disconnect: false,
        producers_from: 0,
    };
    trial.run(workload, &mut |_| {}).unwrap()
}

fn short(rate: Rate) -> Workload {
    Workload {
        rate,
        subscriptions_per_topic: 0,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(3),
        message_bytes: 100,
        ..Workload::default()
    }
}

#[test]
fn a_stall_of_a_third_of_the_run_shows_from_the_intended_time() {
    let stall = Some((Duration::from_millis(500), Duration::from_secs(1)));
    let found = run(Behaviour { stall, ..Behaviour::default() }, &short(Rate::PerSecond(2000.0)));
    // A third of the arrivals waits 0 to 1 s, evenly: p50 is small, p99 about 970 ms, p75 about a quarter of a second. A generator
    // that waits for replies would have sent one request in that second, and p99 would be small.
    let p99 = percentile_ms(&found.publish.intended, 0.99).unwrap();
    assert!((800.0..2500.0).contains(&p99), "p99 {p99} ms");
    let waited_long = found.publish.intended.len() - found.publish.intended.count_between(0, 100_000_000);
    assert!(waited_long as f64 >= 0.2 * found.publish.intended.len() as f64, "{waited_long} of {}", found.publish.intended.len());
    assert!((5900..=6100).contains(&found.publish.intended.len()), "every planned message counts");
    assert!(found.figures.slip < 0.01, "the generator itself went on during the stall");
}

#[test]
fn without_a_stall_nothing_waits_and_the_whole_plan_is_kept() {
    let found = run(Behaviour::default(), &short(Rate::PerSecond(2000.0)));
    assert_eq!(found.publish.intended.len(), 6000);
    assert!(found.figures.not_sustained.is_empty(), "{:?}", found.figures.not_sustained);
}

#[test]
fn a_closed_loop_against_a_null_sink_moves_much_more_than_a_plan_would() {
    let found = run(Behaviour::default(), &Workload { message_bytes: 1024, ..short(Rate::Saturate(20_000)) });
    // No broker of this machine's class takes this in an unoptimised build of the generator: the bound only shows that it runs freely.
    assert!(found.figures.acked_per_second > 20_000.0, "{:?}", found.figures);
    assert_eq!(found.figures.offered_per_second, None);
}
