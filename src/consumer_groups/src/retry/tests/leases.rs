use super::*;

/// Two records are due at 100.
fn two_due() -> World {
    let mut world = World::new();
    world.settle(&Part::default().failed("a", 1, 1).failed("b", 2, 1).commit(3).0);
    world
}

#[test]
fn a_lost_answer_is_given_again_and_a_late_poll_gets_none() {
    let mut world = two_due();
    world.now_ms = 100;
    assert_eq!(world.take(5), [(1, 2), (2, 2)]);
    world.settle(&Part::default().done("a", 1).0);
    assert_eq!(world.take(5), [(2, 2)], "what was settled meanwhile is not given again");
    assert_eq!(world.take(4), []);
    assert_eq!(world.take(6), []);
}

#[test]
fn who_waits_is_answered_when_something_is_due_or_in_the_end() {
    let mut world = two_due();
    let poll = world.poll("m", 1, 150);
    let mut out = RetryOutcome::default();
    world.retries.poll(now(0), poll, |_, _| true, &mut out);
    assert_eq!((out.answers.len(), world.retries.next_wake_steady_ms()), (0, Some(100)));
    world.retries.answer_polls(now(99), |_, _| true, &mut out);
    assert_eq!(out.answers, []);
    world.retries.answer_polls(now(100), |_, _| true, &mut out);
    assert_eq!(given(&out.answers[0].records), [(1, 2), (2, 2)]);
    assert_eq!(world.retries.next_wake_steady_ms(), None);

    let poll = world.poll("m", 2, 150);
    world.retries.poll(now(100), poll, |_, _| true, &mut out);
    assert_eq!(world.retries.next_wake_steady_ms(), Some(150));
    world.retries.answer_polls(now(150), |_, _| true, &mut out);
    assert_eq!(out.answers[1], RetryAnswer { request: 2, records: Vec::new() });
}

#[test]
fn a_later_poll_ends_the_wait_of_the_one_before() {
    let mut world = two_due();
    let mut out = RetryOutcome::default();
    for number in [1, 2] {
        let poll = world.poll("m", number, 1000);
        world.retries.poll(now(0), poll, |_, _| true, &mut out);
    }
    assert_eq!(out.answers, [RetryAnswer { request: 1, records: Vec::new() }]);
}

#[test]
fn only_the_owner_is_given_a_record_and_the_next_owner_after_it() {
    let mut world = two_due();
    world.now_ms = 100;
    let mut out = RetryOutcome::default();
    let poll = world.poll("other", 1, 0);
    world.retries.poll(now(100), poll, |_, _| false, &mut out);
    assert_eq!(out.answers[0].records, []);
    assert_eq!(world.take(1), [(1, 2), (2, 2)]);
    world.retries.release_partition(partition(0));
    let poll = world.poll("other", 2, 0);
    world.retries.poll(now(100), poll, |_, _| true, &mut out);
    assert_eq!(given(&out.answers[1].records), [(1, 2), (2, 2)], "attempts outlive their consumer");
}

#[test]
fn a_member_that_is_gone_gives_back_what_it_holds() {
    let mut world = two_due();
    world.now_ms = 100;
    world.take(1);
    let mut out = RetryOutcome::default();
    let poll = world.poll("m", 2, 1000);
    world.retries.poll(now(100), poll, |_, _| true, &mut out);
    world.retries.release_member(&member("other"), &mut out);
    assert_eq!(out.answers, []);
    world.retries.release_member(&member("m"), &mut out);
    assert_eq!(out.answers, [RetryAnswer { request: 2, records: Vec::new() }]);
    assert_eq!(world.take(1), [(1, 2), (2, 2)], "nothing is known of it any more, not its numbers either");
}

#[test]
fn no_partition_waits_behind_one_with_many() {
    let mut world = World::new();
    for number in 0..2 {
        let mut part = Part::default();
        part.0.partition = partition(number).partition;
        let part = (0..30).fold(part, |part, offset| part.failed("", offset, 1)).commit(30);
        let context = SettleContext { partition: partition(number), topic: TOPIC, committed: None, now: now(0), random: 0 };
        world.retries.settle(context, &part.0, &mut world.out).unwrap();
    }
    let mut out = RetryOutcome::default();
    let poll = world.poll("m", 1, 0);
    world.retries.poll(now(100), poll, |_, _| true, &mut out);
    let records = &out.answers[0].records;
    assert_eq!(records.len(), 10);
    assert_eq!(records.iter().filter(|record| record.partition == partition(1).partition).count(), 5);
}
