//! Every way in which a message can go wrong is counted as what it is.

use std::time::Duration;

use perf::driver::producer::Requests;
use perf::driver::spread::Spread;
use perf::mock::{Behaviour, Fault, Mock};
use perf::trial::{Findings, Trial, read_back};
use perf::verify::Counts;
use perf::workload::{BacklogWanted, Rate, Workload};

fn check(behaviour: Behaviour, workload: &Workload) -> (Findings, Mock) {
    let mock = Mock::start(Behaviour { keep: true, ..behaviour }).unwrap();
    let trial = Trial {
        broker: mock.address(),
        prefix: "verify",
        rate: workload.rate,
        verify: true,
        delete_topics: false,
        expect_disconnect: false,
        producers_from: 0,
    };
    let found = trial.run(workload, &mut |_| {}).unwrap();
    (found, mock)
}

/// One message per batch and partition, so that a fault hits one message.
fn one_by_one() -> Workload {
    Workload {
        partitions_per_topic: 2,
        rate: Rate::PerSecond(1000.0),
        message_bytes: 64,
        warmup: Duration::ZERO,
        duration: Duration::from_millis(300),
        requests: Requests { batch_bytes_max: 1, ..Requests::default() },
        ..Workload::default()
    }
}

fn counts_of(fault: Option<(u64, Fault)>) -> Counts {
    // A lost message is waited for until the settling ends; these runs are judged on what arrived.
    check(Behaviour { fault, ..Behaviour::default() }, &one_by_one()).0.figures.wrong.unwrap()
}

#[test]
fn nothing_is_wrong_with_a_good_server() {
    assert_eq!(counts_of(None), Counts::default());
}

#[test]
fn a_repeated_message_is_counted() {
    assert_eq!(counts_of(Some((20, Fault::Repeat))), Counts { duplicated: 1, ..Counts::default() });
}

#[test]
fn a_swapped_message_is_counted() {
    assert_eq!(counts_of(Some((20, Fault::Swap))), Counts { reordered: 1, ..Counts::default() });
}

#[test]
fn a_damaged_message_is_counted_and_is_lost_with_its_content() {
    assert_eq!(counts_of(Some((20, Fault::Damage))), Counts { damaged: 1, lost: 1, ..Counts::default() });
}

#[test]
fn a_lost_message_is_found_when_everything_is_read_back() {
    let (found, mock) = check(
        Behaviour { fault: Some((20, Fault::Lose)), ..Behaviour::default() },
        &Workload { subscriptions_per_topic: 0, ..one_by_one() },
    );
    let (counts, messages) = read_back(mock.address(), &found.topics, &found.acknowledged.unwrap()).unwrap();
    assert_eq!(counts, Counts { lost: 1, ..Counts::default() });
    assert_eq!(messages, 299);
}

#[test]
fn a_refused_batch_is_sent_again_in_order() {
    let (found, _mock) = check(Behaviour { overloaded_at: Some(30), ..Behaviour::default() }, &one_by_one());
    assert_eq!(found.figures.wrong, Some(Counts::default()));
    assert!(found.figures.retried >= 1);
    assert_eq!(found.figures.failed, 0);
}

#[test]
fn keys_many_producers_and_subscriptions_are_all_accounted_for() {
    let (found, _mock) = check(
        Behaviour::default(),
        &Workload {
            topics: 2,
            partitions_per_topic: 5,
            producers_per_topic: 3,
            subscriptions_per_topic: 2,
            consumers_per_subscription: 2,
            spread: Spread::KeysRandom(50),
            rate: Rate::PerSecond(3000.0),
            duration: Duration::from_millis(500),
            warmup: Duration::from_millis(100),
            ..Workload::default()
        },
    );
    assert_eq!(found.figures.wrong, Some(Counts::default()));
    assert_eq!(found.figures.unsettled, 0);
    assert_eq!(found.publish.intended.len(), 1500);
    assert_eq!(found.end_to_end.len(), 3000);
}

#[test]
fn a_backlog_is_built_and_drained_under_load() {
    let (found, _mock) = check(
        Behaviour::default(),
        &Workload {
            rate: Rate::PerSecond(4000.0),
            backlog: Some(BacklogWanted { bytes: 1024 * 1000, drain_ratio: 0.9 }),
            ..Workload { warmup: Duration::from_millis(100), ..Workload::default() }
        },
    );
    assert!(found.figures.drained_in_seconds.is_some());
    assert_eq!(found.figures.wrong, Some(Counts::default()));
}
