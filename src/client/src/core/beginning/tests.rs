//! Given partitions under all that can go wrong, and the cases that did.

use std::time::Duration;

use wire::{CommittedOffset, ListOffsetsPartitionReply, TimestampMs};

use super::*;
use crate::core::random::Random;
use crate::core::samples::{BACKOFF_MAX, Clock, FIRST, SECOND, TOPIC, backoff, key, map};

const GROUP_AT: u64 = 100;
const EARLIEST: u64 = 7;

fn fetched(key: PartitionKey, committed: Option<u64>) -> FetchedOffset {
    let committed = committed.map(|offset| CommittedOffset { offset: Offset(offset), leader_epoch: None, metadata: None });
    let (topic, partition) = (key.topic, key.partition);
    FetchedOffset { topic, partition, committed, parked: Vec::new(), held: Vec::new(), stopped: false }
}

fn found(plan: &StartPlan, error: ErrorCode) -> ListOffsetsReply {
    let parts = plan.partitions.iter().map(|part| ListOffsetsPartitionReply {
        topic: part.key.topic,
        partition: part.key.partition,
        error,
        offset: Offset(EARLIEST + u64::from(part.key.partition.0)),
        timestamp_ms: TimestampMs(-1),
    });
    ListOffsetsReply { partitions: parts.collect() }
}

fn begun(all: &[Begun]) -> Vec<(u32, u64)> {
    all.iter().map(|begun| (begun.fetched.partition.0, begun.start.0)).collect()
}

fn given(count: u32) -> Beginning {
    let mut beginning = Beginning::new(StartAt::Earliest, backoff());
    (0..count).for_each(|partition| beginning.given(key(partition), &TOPIC.into()));
    beginning
}

#[test]
fn a_partition_that_is_newer_than_the_metadata_is_begun_when_that_is_read_again() {
    let mut clock = Clock::new();
    let mut beginning = given(2);
    let plan = beginning.next_stand(clock.0).unwrap();
    assert_eq!(beginning.stood(clock.0, &plan, vec![fetched(key(0), None), fetched(key(1), None)], 0), []);
    // The map knows one partition only.
    let starts = beginning.next_starts(clock.0, &map(&[FIRST]), 0);
    assert_eq!(starts[0].partitions.len(), 1);
    let (first, errors) = beginning.started(clock.0, &starts[0], Ok(found(&starts[0], ErrorCode::None)), 0);
    assert_eq!((begun(&first), errors.len()), (vec![(0, 7)], 0));
    assert_eq!(beginning.take_metadata_wanted(), Some(vec![TOPIC.to_owned()]));
    assert!(beginning.next_starts(clock.0, &map(&[FIRST, SECOND]), 0).is_empty(), "it waits");
    clock.advance(BACKOFF_MAX);
    let starts = beginning.next_starts(clock.0, &map(&[FIRST, SECOND]), 0);
    let (second, _) = beginning.started(clock.0, &starts[0], Ok(found(&starts[0], ErrorCode::None)), 0);
    assert_eq!((starts[0].target, begun(&second)), (SECOND, vec![(1, 8)]));
    assert_eq!(beginning.next_timer(), None);
}

#[test]
fn what_did_not_fit_an_answer_is_asked_for_at_once() {
    let clock = Clock::new();
    let mut beginning = given(3);
    let plan = beginning.next_stand(clock.0).unwrap();
    assert!(beginning.next_stand(clock.0).is_none(), "each is in one request at a time");
    assert_eq!(begun(&beginning.stood(clock.0, &plan, vec![fetched(key(0), Some(5))], 0)), [(0, 5)]);
    let plan = beginning.next_stand(clock.0).unwrap();
    assert_eq!(plan.keys(), [key(1), key(2)]);
    // One that names none of them is not asked again at once: nothing says that it would be better.
    assert_eq!(beginning.stood(clock.0, &plan, Vec::new(), 0), []);
    assert!(beginning.next_stand(clock.0).is_none());
    assert!(beginning.next_timer().is_some());
}

#[test]
fn an_answer_that_time_does_not_cure_is_told_once_and_asked_for_again() {
    let mut clock = Clock::new();
    let mut beginning = given(1);
    let plan = beginning.next_stand(clock.0).unwrap();
    beginning.stood(clock.0, &plan, vec![fetched(key(0), None)], 0);
    for told in [1, 0, 0] {
        let starts = beginning.next_starts(clock.0, &map(&[FIRST]), 0);
        let (begun, errors) = beginning.started(clock.0, &starts[0], Ok(ListOffsetsReply { partitions: Vec::new() }), 0);
        assert_eq!((begun.len(), errors.len()), (0, told));
        clock.advance(BACKOFF_MAX);
    }
    let starts = beginning.next_starts(clock.0, &map(&[FIRST]), 0);
    let (all, _) = beginning.started(clock.0, &starts[0], Ok(found(&starts[0], ErrorCode::None)), 0);
    assert_eq!(begun(&all), [(0, 7)]);
}

#[test]
fn a_request_names_no_more_partitions_than_the_wire_allows() {
    let clock = Clock::new();
    let count = PARTITIONS_PER_REQUEST_MAX + 10;
    let mut beginning = given(u32::try_from(count).unwrap());
    let map = map(&vec![FIRST; count]);
    let plans = [beginning.next_stand(clock.0).unwrap(), beginning.next_stand(clock.0).unwrap()];
    assert_eq!(plans.each_ref().map(|plan| plan.partitions.len()), [PARTITIONS_PER_REQUEST_MAX, 10]);
    for plan in plans {
        beginning.stood(clock.0, &plan, plan.keys().into_iter().map(|key| fetched(key, None)).collect(), 0);
    }
    let starts = beginning.next_starts(clock.0, &map, 0);
    assert_eq!(starts.iter().map(|plan| plan.partitions.len()).collect::<Vec<_>>(), [PARTITIONS_PER_REQUEST_MAX, 10]);
}

/// Answers that are short, lost, wrong or late, metadata that is old, partitions that come and go: what is held in the end was begun, once
/// since it was given, and where it should be.
#[test]
fn every_partition_that_stays_is_begun_once_where_the_group_stands() {
    const PARTITIONS: u32 = 6;
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut clock = Clock::new();
        let mut beginning = given(0);
        // Whether it is held, and has been begun since it was given.
        let mut held: BTreeMap<u32, bool> = BTreeMap::new();
        let (mut stands, mut starts): (Vec<StandPlan>, Vec<StartPlan>) = (Vec::new(), Vec::new());
        let stood_at = |partition: u32| partition.is_multiple_of(2).then_some(GROUP_AT + u64::from(partition));
        let note = |held: &mut BTreeMap<u32, bool>, all: &[Begun]| {
            for (partition, start) in begun(all) {
                assert_eq!(start, stood_at(partition).unwrap_or(EARLIEST + u64::from(partition)), "seed {seed}");
                let is_begun = held.get_mut(&partition).unwrap_or_else(|| panic!("seed {seed}: {partition} is not held"));
                assert!(!std::mem::replace(is_begun, true), "seed {seed}: {partition} is begun twice");
            }
        };
        for step in 0..600 {
            let is_healed = step >= 400;
            clock.advance(Duration::from_millis(random.below(200) as u64));
            let known = if is_healed { PARTITIONS as usize } else { random.below(PARTITIONS as usize + 1) };
            let partition = random.below(PARTITIONS as usize) as u32;
            match random.below(6) {
                0 if !is_healed => {
                    if held.remove(&partition).is_some() {
                        beginning.taken(key(partition));
                    } else {
                        held.insert(partition, false);
                        beginning.given(key(partition), &TOPIC.into());
                    }
                }
                1 => stands.extend(beginning.next_stand(clock.0)),
                2 => starts.extend(beginning.next_starts(clock.0, &map(&vec![FIRST; known]), random.next())),
                3 | 4 => {
                    let Some(plan) = random.take(&mut stands) else { continue };
                    if random.percent(20) && !is_healed {
                        beginning.stand_lost(clock.0, &plan, random.next());
                        continue;
                    }
                    let room = if is_healed { 1 + random.below(6) } else { random.below(6) };
                    let named = plan.keys().into_iter().take(room).map(|key| fetched(key, stood_at(key.partition.0)));
                    let all = beginning.stood(clock.0, &plan, named.collect(), random.next());
                    note(&mut held, &all);
                }
                _ => {
                    let Some(plan) = random.take(&mut starts) else { continue };
                    let answer = match random.below(if is_healed { 1 } else { 4 }) {
                        0 => Ok(found(&plan, ErrorCode::None)),
                        1 => Ok(found(&plan, ErrorCode::NotLeader)),
                        2 => Ok(ListOffsetsReply { partitions: Vec::new() }),
                        _ => Err(ClientError::new(ErrorKind::Disconnected, "list offsets", "", "gone")),
                    };
                    let (all, _) = beginning.started(clock.0, &plan, answer, random.next());
                    note(&mut held, &all);
                }
            }
        }
        assert!(held.values().all(|is_begun| *is_begun), "seed {seed}: {held:?}, {beginning:?}");
    }
}
