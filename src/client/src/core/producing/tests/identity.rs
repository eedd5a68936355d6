//! Who the producer is to the brokers, and the sequences by which they know a batch that is sent again.

use super::*;

#[test]
fn what_is_sent_again_has_the_sequences_that_it_had() {
    let mut bench = Bench::new(&[FIRST, FIRST], ProducerOptions::default());
    for partition in [0, 0, 1] {
        drop(bench.send(partition, "x"));
    }
    let mut plan = bench.one();
    assert_eq!(stamps(&mut plan), [(0, 0), (0, 0)], "a row for each partition");
    let built = plan.partitions[0].batches[0].build();
    drop(bench.send(0, "y"));
    bench.disconnect(plan);
    bench.clock.advance(BACKOFF_MAX);
    let mut again = bench.one();
    assert_eq!(values(&mut again), [vec!["x", "x"], vec!["x"]]);
    assert_eq!(stamps(&mut again), [(0, 0), (0, 0)]);
    assert_eq!(again.partitions[0].batches[0].build(), built, "the same bytes");
    bench.answer(again, ErrorCode::None);
    let mut next = bench.one();
    assert_eq!((values(&mut next), stamps(&mut next)), (vec![vec!["y".to_owned()]], vec![(0, 2)]));
}

#[test]
fn no_more_batches_are_under_way_than_brokers_recognise() {
    let options = ProducerOptions { batch_bytes: 1, partition_requests_in_flight_max: 64, ..ProducerOptions::default() };
    let mut bench = Bench::new(&[FIRST], options);
    (0..12).for_each(|_| drop(bench.send(0, "x")));
    let plan = bench.one();
    assert_eq!(plan.partitions[0].batches.len(), 5);
    bench.answer(plan, ErrorCode::None);
    assert_eq!(stamps(&mut bench.one()), [(0, 5), (0, 6), (0, 7), (0, 8), (0, 9)]);
}

#[test]
fn the_identity_is_asked_for_at_the_first_send_and_again_when_that_failed() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions { name: Some("a".to_owned()), ..ProducerOptions::default() });
    bench.core.identity = Identity::Unknown;
    assert!(bench.actions().identify.is_none(), "nobody has sent anything");
    let delivery = bench.send(0, "x");
    let actions = bench.actions();
    assert_eq!((actions.requests.len(), actions.identify.unwrap().name.as_deref()), (0, Some("a")));
    assert!(bench.actions().identify.is_none(), "once");
    let lost = ClientError::new(ErrorKind::Disconnected, "identify producer", "", "gone");
    bench.core.identified(bench.clock.0, Err(lost), 0);
    assert!(bench.actions().identify.is_none(), "it waits");
    bench.clock.advance(BACKOFF_MAX);
    assert!(bench.actions().identify.is_some());
    bench.core.identified(bench.clock.0, Ok(IDENTITY), 0);
    assert_eq!(stamps(&mut bench.one()), [(0, 0)]);
    assert!(delivery.try_get().is_none());

    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    bench.core.identity = Identity::Unknown;
    let delivery = bench.send(0, "x");
    assert!(bench.actions().identify.is_some());
    let refused = ClientError::broker(ErrorCode::TooManyProducers, "identify producer", "", None);
    bench.core.identified(bench.clock.0, Err(refused), 0);
    assert_eq!(delivery.try_get().unwrap().unwrap_err().code(), Some(ErrorCode::TooManyProducers));
    let topic = topic(&bench.map);
    let refused = bench.core.push(bench.clock.0, &topic, 0, &Record::to(TOPIC).value("y"), TimestampMs(1), None);
    assert!(refused.is_err(), "nothing more is accepted");
}

#[test]
fn an_identity_that_never_comes_does_not_outlast_the_delivery_timeout() {
    let delivery_timeout = Duration::from_secs(3);
    let mut bench = Bench::new(&[FIRST], ProducerOptions { delivery_timeout, ..ProducerOptions::default() });
    bench.core.identity = Identity::Unknown;
    let delivery = bench.send(0, "x");
    assert!(bench.actions().identify.is_some());
    bench.clock.0 = bench.core.next_timer().unwrap();
    assert!(bench.leaving().is_empty());
    assert_eq!(delivery.try_get().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_batch_refused_behind_another_one_follows_it() {
    let options = ProducerOptions { partition_requests_in_flight_max: 3, ..ProducerOptions::default() };
    let mut bench = Bench::new(&[FIRST], options);
    let deliveries = ["a", "b"].map(|value| bench.send(0, value));
    let first = bench.one();
    let later = bench.send(0, "c");
    let second = bench.one();
    bench.answer(second, ErrorCode::OutOfOrderSequence);
    bench.clock.advance(BACKOFF_MAX);
    assert!(bench.leaving().is_empty(), "the one before it has no answer");
    bench.answer(first, ErrorCode::Overloaded);
    bench.clock.advance(BACKOFF_MAX);
    let mut again = bench.one();
    assert_eq!(stamps(&mut again), [(0, 0), (0, 2)]);
    bench.answer(again, ErrorCode::None);
    assert!(deliveries.into_iter().chain([later]).all(|delivery| delivery.try_get().unwrap().is_ok()));
}

#[test]
fn behind_a_failed_batch_what_is_surely_not_stored_is_sent_under_the_next_epoch() {
    let options = ProducerOptions { partition_requests_in_flight_max: 3, ..ProducerOptions::default() };
    let mut bench = Bench::new(&[FIRST], options);
    let (mut deliveries, mut plans) = (Vec::new(), Vec::new());
    for value in ["a", "b", "c"] {
        deliveries.push(bench.send(0, value));
        plans.push(bench.one());
    }
    let [first, second, third] = <[_; 3]>::try_from(plans).ok().unwrap();
    bench.answer(first, ErrorCode::MessageTooLarge);
    bench.answer(second, ErrorCode::OutOfOrderSequence);
    assert!(bench.leaving().is_empty(), "the third has no answer");
    // Its request may be on its way yet: sent under another number, it could be stored twice.
    bench.disconnect(third);
    bench.clock.advance(BACKOFF_MAX);
    let mut again = bench.one();
    assert_eq!((values(&mut again), stamps(&mut again)), (vec![vec!["b".to_owned()]], vec![(1, 0)]));
    bench.answer(again, ErrorCode::None);
    let outcomes: Vec<bool> = deliveries.iter().map(|delivery| delivery.try_get().unwrap().is_ok()).collect();
    assert_eq!(outcomes, [false, true, false]);
    drop(bench.send(0, "d"));
    assert_eq!(stamps(&mut bench.one()), [(1, 1)]);
}

#[test]
fn a_batch_that_was_stored_although_its_delivery_failed_leaves_no_gap() {
    let delivery_timeout = Duration::from_secs(3);
    let mut bench = Bench::new(&[FIRST], ProducerOptions { delivery_timeout, ..ProducerOptions::default() });
    let late = bench.send(0, "a");
    let plan = bench.one();
    bench.clock.advance(delivery_timeout - Duration::from_millis(1));
    let delivery = bench.send(0, "b");
    bench.disconnect(plan);
    bench.clock.advance(BACKOFF_MAX);
    // The first is too late by now. Nothing is under way, so that the second begins an epoch, which fences a late copy of the first.
    assert_eq!(stamps(&mut bench.one()), [(1, 0)]);
    assert!(late.try_get().unwrap().is_err());
    assert!(delivery.try_get().is_none());
}

#[test]
fn a_gap_in_what_was_acknowledged_is_told() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    drop(bench.send(0, "a"));
    let plan = bench.one();
    bench.answer(plan, ErrorCode::None);
    let delivery = bench.send(0, "b");
    let plan = bench.one();
    bench.answer(plan, ErrorCode::OutOfOrderSequence);
    assert_eq!(delivery.try_get().unwrap().unwrap_err().code(), Some(ErrorCode::OutOfOrderSequence));
    drop(bench.send(0, "c"));
    bench.clock.advance(BACKOFF_MAX);
    assert_eq!(stamps(&mut bench.one()), [(1, 0)], "what comes after it goes on");
}

#[test]
fn a_producer_that_was_forgotten_goes_on_and_one_that_is_fenced_does_not() {
    let mut bench = Bench::new(&[FIRST], ProducerOptions::default());
    drop(bench.send(0, "a"));
    let plan = bench.one();
    bench.answer(plan, ErrorCode::None);
    let delivery = bench.send(0, "b");
    let plan = bench.one();
    bench.answer(plan, ErrorCode::UnknownProducer);
    bench.clock.advance(BACKOFF_MAX);
    let mut again = bench.one();
    assert_eq!((values(&mut again), stamps(&mut again)), (vec![vec!["b".to_owned()]], vec![(1, 0)]));
    bench.disconnect(again);
    bench.clock.advance(BACKOFF_MAX);
    let plan = bench.one();
    bench.answer(plan, ErrorCode::UnknownProducer);
    assert_eq!(delivery.try_get().unwrap().unwrap_err().code(), Some(ErrorCode::UnknownProducer), "it may be stored");

    let delivery = bench.send(0, "c");
    bench.clock.advance(BACKOFF_MAX);
    let waiting = bench.one();
    let behind = bench.send(0, "d");
    bench.answer(waiting, ErrorCode::ProducerFenced);
    for delivery in [delivery, behind] {
        assert_eq!(delivery.try_get().unwrap().unwrap_err().code(), Some(ErrorCode::ProducerFenced));
    }
    assert_eq!(bench.core.unfinished_batches(), 0);
}

#[test]
fn a_named_producer_ends_with_a_record_that_may_be_stored() {
    let options = ProducerOptions {
        name: Some("payments".to_owned()),
        delivery_timeout: Duration::from_secs(3),
        ..ProducerOptions::default()
    };
    let mut bench = Bench::new(&[FIRST], options);
    drop(bench.send(0, "a"));
    let plan = bench.one();
    bench.clock.advance(Duration::from_secs(3));
    bench.disconnect(plan);
    let next = bench.send(0, "b");
    bench.clock.advance(BACKOFF_MAX);
    assert!(bench.leaving().is_empty());
    assert_eq!(next.try_get().unwrap().unwrap_err().kind(), ErrorKind::Closed);
}
