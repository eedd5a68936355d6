use wire::SettleOutcome::{DeadLettered, Settled};
use wire::{ProducerEpoch, ProducerId, Sequence};

use super::*;

const PRODUCER: DeadLetterProducer =
    DeadLetterProducer { id: ProducerId(4), epoch: ProducerEpoch(0), partition: PartitionIndex(0) };

/// A record of key "a" has used up its attempts, and another waits behind it.
fn exhausted() -> World {
    let mut world = World::new();
    world.settle(&Part::default().failed("a", 1, 1).deferred("a", 2).commit(3).0);
    for (attempt, at_ms) in [(2, 100), (3, 300)] {
        world.now_ms = at_ms;
        world.take(attempt.into());
        let outcome = world.fail("a", 1, attempt);
        assert_eq!(outcome == DeadLettered, attempt == 3);
    }
    world
}

fn opened(world: &mut World) {
    world.out = RetryOutcome::default();
    let event = RetryEvent::LaneOpened {
        group: GroupId::from("billing"),
        origin: partition(0),
        topic: "orders.dlq.billing".to_owned(),
        producer: PRODUCER,
    };
    world.retries.dead_letter(&event, &mut world.out);
}

#[test]
fn a_record_whose_attempts_are_used_up_is_appended_once_and_its_key_goes_on() {
    let mut world = exhausted();
    assert!(matches!(&world.out.actions[..], [RetryAction::OpenLane { topic, .. }] if topic == "orders.dlq.billing"));
    opened(&mut world);
    let [RetryAction::AppendDeadLetter(letter)] = &world.out.actions[..] else { panic!("{:?}", world.out.actions) };
    assert_eq!((letter.sequence, letter.producer, letter.letter.offset), (Sequence::ZERO, PRODUCER, Offset(1)));
    assert_eq!((letter.letter.attempts, letter.letter.reason.as_str()), (3, "reason 1"));
    assert_eq!((letter.letter.first_failure.0, letter.letter.last_failure.0), (1_000_000, 1_000_300));
    assert_eq!(world.take(9), [(2, 1)], "the next of its key does not wait for the append");
    assert_eq!(world.fail("a", 1, 3), Settled);
    let event =
        RetryEvent::DeadLetterAppended { group: GroupId::from("billing"), origin: partition(0), producer: PRODUCER, number: 0 };
    let mut out = RetryOutcome::default();
    world.retries.dead_letter(&event, &mut out);
    world.retries.dead_letter(&event, &mut out);
    let counts = world.retries.counts();
    assert_eq!((counts.dead_lettered, counts.dead_letters_pending, counts.parked_records), (1, 0, 1));
}

#[test]
fn dead_letters_count_against_the_bound_until_they_are_durable() {
    let mut world = World::with_limits(RetryLimits { records_max: 2, ..RetryLimits::default() });
    let once = RetryPolicy { attempts_max: 1, ..policy() };
    world.retries.set_policy(None, Some(once), &mut RetryOutcome::default()).unwrap();
    let settled = world.settle(&Part::default().failed("a", 1, 1).failed("a", 2, 1).failed("a", 3, 1).commit(4).0);
    assert_eq!(settled.outcomes, [DeadLettered, DeadLettered, wire::SettleOutcome::Full]);
    assert_eq!(settled.commit, Some(Offset(3)));
    assert_eq!(settled.released, [b"a".to_vec()]);
}

#[test]
fn a_deleted_topic_leaves_nothing() {
    let mut world = exhausted();
    let keys: Vec<RetryKey> = world.retries.keys().filter(|key| matches!(key, RetryKey::Partition(..))).collect();
    assert!(keys.len() >= 3);
    let mut out = RetryOutcome::default();
    world.retries.forget(partition(0), &mut out);
    assert_eq!(out.entries.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>(), keys);
    assert!(out.entries.iter().all(|entry| entry.value.is_none()));
    assert_eq!(world.retries.describe(partition(0)), RetryDescription::default());
}
