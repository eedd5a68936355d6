use wire::SettleOutcome::{Full, Parked, Settled, Skipped, Stopped};
use wire::limits::SETTLE_WINDOW_OFFSETS;
use wire::{Exhausted, RetryPolicy, TimestampMs};

use super::*;

#[test]
fn a_failed_record_parks_its_key_and_others_flow() {
    let mut world = World::new();
    let settled = world.settle(&Part::default().failed("a", 1, 1).deferred("a", 4).deferred("a", 6).commit(7).0);
    assert_eq!(settled.outcomes, [Parked { due_ms: TimestampMs(1_000_100), attempts: 1 }]);
    assert_eq!((settled.released, settled.full_from, settled.commit), (vec![], None, Some(Offset(7))));
    let view = world.retries.view(partition(0), world.committed);
    assert_eq!(view.parked, [(b"a".to_vec(), Offset(1))]);
    assert_eq!(view.held, []);
    assert_eq!(world.take(1), []);
    world.now_ms = 100;
    assert_eq!(world.take(2), [(1, 2)]);
    assert_eq!(world.take(3), [], "it is given to one at a time, and those behind it wait");
}

#[test]
fn when_the_head_is_done_the_next_is_due_at_once_and_the_last_one_releases_the_key() {
    let mut world = World::new();
    world.settle(&Part::default().failed("a", 1, 1).deferred("a", 4).commit(5).0);
    world.now_ms = 100;
    assert_eq!(world.take(1), [(1, 2)]);
    let settled = world.settle(&Part::default().done("a", 1).0);
    assert_eq!(settled.released, Vec::<Vec<u8>>::new());
    assert_eq!(world.take(2), [(4, 1)]);
    let settled = world.settle(&Part::default().done("a", 4).0);
    assert_eq!(settled.released, [b"a".to_vec()]);
    assert!(!world.retries.has_parked(partition(0)));
    assert_eq!(world.retries.partitions().count(), 0, "nothing is kept of a partition where all is well");
}

#[test]
fn what_is_said_twice_counts_once() {
    let mut world = World::new();
    let part = Part::default().failed("a", 1, 1).deferred("a", 2).commit(3).0;
    let first = world.settle(&part);
    world.now_ms = 50;
    assert_eq!(world.settle(&part), first);
    assert_eq!(world.out.entries, []);
    world.now_ms = 100;
    world.take(1);
    let again = Part::default().failed("a", 1, 2).0;
    let second = world.settle(&again);
    assert_eq!(second.outcomes, [Parked { due_ms: TimestampMs(1_000_300), attempts: 2 }]);
    assert_eq!(world.settle(&again), second);
    world.now_ms = 300;
    world.take(2);
    let done = Part::default().done("a", 1).0;
    world.settle(&done);
    assert_eq!(world.settle(&done).released, Vec::<Vec<u8>>::new());
    world.take(3);
    let last = Part::default().done("a", 2).0;
    assert_eq!(world.settle(&last).released, [b"a".to_vec()]);
    assert_eq!(world.settle(&last).released, [b"a".to_vec()]);
    assert_eq!(world.settle(&part).outcomes, [Settled]);
}

#[test]
fn a_record_without_a_key_parks_alone() {
    let mut world = World::new();
    world.settle(&Part::default().failed("", 1, 1).failed("", 2, 1).commit(3).0);
    world.now_ms = 100;
    assert_eq!(world.take(1), [(1, 2), (2, 2)]);
    world.settle(&Part::default().done("", 2).0);
    assert_eq!(world.retries.describe(partition(0)).parked_records, 1);
}

#[test]
fn a_record_held_back_of_a_key_that_was_released_meanwhile_is_due_at_once() {
    let mut world = World::new();
    assert_eq!(world.settle(&Part::default().deferred("a", 1).0).released, Vec::<Vec<u8>>::new());
    assert_eq!(world.take(1), [(1, 1)]);
}

#[test]
fn skip_goes_on_with_the_key_and_stop_with_nothing() {
    for (exhausted, outcome) in [(Exhausted::Skip, Skipped), (Exhausted::Stop, Stopped)] {
        let mut world = World::new();
        let policy = RetryPolicy { attempts_max: 2, exhausted, ..policy() };
        world.retries.set_policy(Some(TOPIC), Some(policy), &mut RetryOutcome::default()).unwrap();
        world.settle(&Part::default().failed("a", 1, 1).failed("b", 2, 1).deferred("a", 3).commit(4).0);
        world.now_ms = 100;
        assert_eq!(world.take(1), [(1, 2), (2, 2)]);
        assert_eq!(world.fail("a", 1, 2), outcome);
        assert_eq!(world.fail("a", 1, 2), if outcome == Skipped { Settled } else { Stopped });
        let description = world.retries.describe(partition(0));
        let is_stopped = outcome == Stopped;
        assert_eq!(description.skipped, u64::from(!is_stopped));
        assert_eq!(description.stopped, is_stopped.then(|| (Offset(1), "reason 1".to_owned())));
        assert_eq!(world.take(2), if is_stopped { vec![] } else { vec![(3, 1)] });
    }
}

#[test]
fn a_stopped_partition_goes_on_with_the_record_that_stopped_it() {
    let mut world = World::new();
    let stop = RetryPolicy { attempts_max: 1, exhausted: Exhausted::Stop, ..policy() };
    world.retries.set_policy(None, Some(stop), &mut RetryOutcome::default()).unwrap();
    world.settle(&Part::default().failed("a", 1, 1).failed("b", 2, 1).commit(3).0);
    assert!(world.retries.view(partition(0), None).stopped);
    let skip = RetryPolicy { attempts_max: 2, exhausted: Exhausted::Skip, ..policy() };
    world.retries.set_policy(None, Some(skip), &mut RetryOutcome::default()).unwrap();
    let mut out = RetryOutcome::default();
    assert!(world.retries.resume(partition(0), now(9), &mut out));
    assert!(!world.retries.resume(partition(0), now(9), &mut out));
    world.now_ms = 10;
    assert_eq!(world.take(1), [(1, 1), (2, 1)]);
    assert!(matches!(world.fail("a", 1, 1), Parked { attempts: 1, .. }));
}

#[test]
fn a_commit_ends_where_there_is_no_room_and_goes_on_when_there_is() {
    let mut world = World::with_limits(RetryLimits { records_max: 3, ..RetryLimits::default() });
    let part = Part::default().failed("a", 1, 1).deferred("a", 2).deferred("a", 3).deferred("a", 5).failed("b", 7, 1).commit(9).0;
    let settled = world.settle(&part);
    assert!(matches!(settled.outcomes[..], [Parked { .. }, Full]));
    assert_eq!((settled.full_from, settled.commit), (Some(Offset(5)), Some(Offset(5))));
    let settled = world.settle(&Part::default().deferred("a", 5).failed("b", 7, 1).done("a", 1).commit(9).0);
    assert_eq!((settled.full_from, settled.commit), (None, Some(Offset(7))), "what is done makes room first");
    assert_eq!(settled.outcomes, [Full]);
}

#[test]
fn a_deferred_record_never_gets_before_a_failed_one_that_finds_no_room() {
    let mut world = World::with_limits(RetryLimits { records_max: 1, ..RetryLimits::default() });
    world.settle(&Part::default().failed("x", 0, 1).0);
    let settled = world.settle(&Part::default().failed("a", 1, 1).deferred("a", 2).done("x", 0).deferred("a", 3).commit(4).0);
    assert!(matches!(settled.outcomes[..], [Parked { .. }]));
    assert_eq!(settled.commit, Some(Offset(2)));
    let settled = world.settle(&Part::default().failed("b", 5, 1).deferred("b", 6).commit(7).0);
    assert_eq!((settled.outcomes, settled.full_from), (vec![Full], Some(Offset(6))));
}

#[test]
fn keys_are_bounded_by_their_bytes_too() {
    let room_for_two = 2 * (limits::PARKED_KEY_BYTES + 1);
    let mut world = World::with_limits(RetryLimits { bytes_max: room_for_two, ..RetryLimits::default() });
    let settled = world.settle(&Part::default().failed("a", 1, 1).failed("b", 2, 1).failed("c", 3, 1).deferred("a", 4).0);
    assert!(matches!(settled.outcomes[..], [Parked { .. }, Parked { .. }, Full]));
    assert_eq!(settled.full_from, Some(Offset(4)));
    assert_eq!(world.settle(&Part::default().deferred("a", 4).0).full_from, None);
}

#[test]
fn beyond_the_window_nothing_is_parked() {
    let mut world = World::new();
    let end = SETTLE_WINDOW_OFFSETS;
    let settled = world.settle(&Part::default().failed("a", end - 1, 1).failed("b", end, 1).0);
    assert!(matches!(settled.outcomes[..], [Parked { .. }, Full]));
    let settled = world.settle(&Part::default().failed("b", end, 1).commit(1).0);
    assert!(matches!(settled.outcomes[..], [Parked { .. }]));
}

#[test]
fn without_a_position_nothing_is_parked() {
    let mut world = World::new();
    let context = SettleContext { partition: partition(0), topic: TOPIC, committed: None, now: now(0), random: 0 };
    let part = Part::default().failed("a", 1, 1);
    assert_eq!(world.retries.settle(context, &part.0, &mut world.out), Err(NoPositionError));
    assert_eq!(world.retries.partitions().count(), 0);
    assert!(world.retries.settle(context, &part.commit(1).0, &mut world.out).is_ok());
}

#[test]
fn what_retries_settle_beyond_the_commit_is_not_delivered_to_the_next_owner() {
    let mut world = World::new();
    world.settle(&Part::default().failed("a", 5, 1).deferred("a", 9).failed("b", 600, 1).0);
    assert_eq!(world.held(), [5, 9, 600]);
    world.now_ms = 100;
    world.take(1);
    world.settle(&Part::default().done("a", 5).done("b", 600).0);
    world.take(2);
    world.settle(&Part::default().done("a", 9).0);
    assert_eq!(world.held(), [5, 9, 600]);
    assert_eq!(world.fail("a", 5, 1), Settled, "it was handled, whoever says what of it later");
    world.settle(&Part::default().commit(9).0);
    assert_eq!(world.held(), [9, 600]);
    world.retries.committed(partition(0), Offset(1024), &mut RetryOutcome::default());
    assert_eq!(world.retries.partitions().count(), 0);
}

#[test]
fn an_earlier_record_goes_first() {
    let mut world = World::new();
    world.settle(&Part::default().failed("a", 5, 1).deferred("a", 9).0);
    assert!(matches!(world.fail("a", 3, 1), Parked { attempts: 1, .. }));
    assert_eq!(world.retries.view(partition(0), None).parked, [(b"a".to_vec(), Offset(3))]);
    world.now_ms = 100;
    for (poll, expected) in [(1, (3, 2)), (2, (5, 1)), (3, (9, 1))] {
        assert_eq!(world.take(poll), [expected]);
        world.settle(&Part::default().done("a", expected.0).0);
    }
}

#[test]
fn what_is_moved_by_hand_begins_anew() {
    let mut world = World::new();
    world.settle(&Part::default().failed("a", 5, 1).deferred("a", 9).failed("b", 6, 1).0);
    world.settle(&Part::default().done("b", 6).0);
    assert!(world.retries.has_parked(partition(0)));
    world.retries.clear(partition(0), &mut RetryOutcome::default());
    assert!(!world.retries.has_parked(partition(0)));
    assert!(world.held().is_empty());
    assert!(matches!(world.fail("b", 6, 1), Parked { attempts: 1, .. }));
}
