use proptest::prelude::*;
use rkyv::rancor::BoxedError;
use rkyv::util::AlignedVec;
use wire::{ProducerEpoch, ProducerId};

use super::*;

/// All entries, as a snapshot has them.
fn snapshot(retries: &GroupRetries) -> Vec<RetryEntry> {
    retries.keys().map(|key| RetryEntry { value: retries.value(&key), key }).collect()
}

fn restored(entries: &[RetryEntry], at: Now) -> Result<(GroupRetries, RetryOutcome), RetryRestoreError> {
    let mut retries = GroupRetries::new(GroupId::from("billing"), RetryLimits::default());
    entries.iter().try_for_each(|entry| retries.restore(entry.clone()))?;
    let mut out = RetryOutcome::default();
    retries.restored(at, &mut out)?;
    Ok((retries, out))
}

/// Each kind of entry.
fn samples() -> Vec<RetryEntry> {
    let time = TimestampMs(1_800_000_000_000);
    let of = |part, value| RetryEntry { key: RetryKey::Partition(partition(3), part), value: Some(value) };
    let producer = DeadLetterProducer { id: ProducerId(77), epoch: ProducerEpoch(2), partition: PartitionIndex(5) };
    let lane = LaneValue { topic: "orders.dlq.billing".to_owned(), base: 4, producer: Some(producer) };
    let letter = DeadLetterValue {
        offset: Offset(900),
        attempts: 5,
        first_failure: time,
        last_failure: TimestampMs(time.0 + 31_000),
        key: None,
        reason: "no such customer".to_owned(),
    };
    let parked = ParkedValue {
        key: Some(b"alice".to_vec()),
        head: Offset(1000),
        attempts: 2,
        first_failure: time,
        last_failure: TimestampMs(time.0 + 1000),
        due: Some(TimestampMs(time.0 + 3000)),
        reason: "timed out".to_owned(),
    };
    vec![
        RetryEntry { key: RetryKey::Policy(Some(TOPIC.to_owned())), value: Some(RetryValue::Policy(policy())) },
        of(RetryPart::Exhausted, RetryValue::Exhausted(ExhaustedValue { dead_lettered: 8, skipped: 1, lane: Some(lane) })),
        of(RetryPart::DeadLetter(7), RetryValue::DeadLetter(letter)),
        of(RetryPart::Parked(2), RetryValue::Parked(parked)),
        of(RetryPart::Queue(2, 0), RetryValue::Queue(vec![Offset(1001), Offset(1017)])),
        of(RetryPart::Settled(1), RetryValue::Settled([1, 0, 0, 0, 0, 0, 0, 1 << 63])),
    ]
}

fn bytes(entry: &RetryEntry) -> Vec<u8> {
    let key = rkyv::to_bytes::<BoxedError>(&entry.key).unwrap();
    let value = rkyv::to_bytes::<BoxedError>(entry.value.as_ref().unwrap()).unwrap();
    [key.as_slice(), value.as_slice()].concat()
}

#[test]
fn golden_the_archived_entries_are_what_they_always_were() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/retry_entries.v1");
    let found: String = samples().iter().map(|entry| hex(&bytes(entry)) + "\n").collect();
    if std::env::var_os("CORELANE_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_snapshot_restores_all_and_what_was_under_way_is_done_again() {
    let entries = samples();
    let (retries, out) = restored(&entries, now(0)).unwrap();
    assert_eq!(snapshot(&retries), entries);
    let [RetryAction::AppendDeadLetter(letter)] = &out.actions[..] else { panic!("{:?}", out.actions) };
    assert_eq!((letter.number, letter.sequence.0, letter.producer.id), (7, 3, ProducerId(77)));
    assert_eq!(retries.view(partition(3), Some(Offset(0))).held.len(), 5);
    assert_eq!(retries.policy(TOPIC), &policy());
}

#[test]
fn due_times_survive_a_restart_however_the_time_of_day_has_moved() {
    let entries = samples();
    let due = 1_800_000_003_000;
    let longest_ms = u64::from(RetryPolicy::default().backoff_max_ms.max(policy().backoff_max_ms));
    for (wall, wait_ms) in [(due - 500, 500), (due + 5, 0), (0, longest_ms)] {
        let (retries, _) = restored(&entries, Now { steady_ms: 10, wall: TimestampMs(wall) }).unwrap();
        assert_eq!(retries.partitions[&partition(3)].next_due_steady_ms(), Some(10 + wait_ms));
    }
}

#[test]
fn entries_that_do_not_fit_together_are_refused() {
    for missing in [1, 3] {
        let mut entries = samples();
        entries.remove(missing);
        assert_eq!(restored(&entries, now(0)).unwrap_err(), RetryRestoreError::Incomplete(partition(3)));
    }
    let mut entries = samples();
    entries[2].value = entries[1].value.clone();
    assert_eq!(restored(&entries, now(0)).unwrap_err(), RetryRestoreError::Value(entries[2].key.clone()));
    let mut entries = samples();
    entries[4].value = Some(RetryValue::Queue(vec![Offset(1017), Offset(1001)]));
    assert_eq!(restored(&entries, now(0)).unwrap_err(), RetryRestoreError::Value(entries[4].key.clone()));
    let mut entries = samples();
    let mut twice = entries[3].clone();
    twice.key = RetryKey::Partition(partition(3), RetryPart::Parked(9));
    entries.push(twice);
    assert_eq!(restored(&entries, now(0)).unwrap_err(), RetryRestoreError::Incomplete(partition(3)));
}

proptest! {
    /// Whatever the bytes, they are read as entries that are used, or refused.
    #[test]
    fn hostile_bytes_are_entries_or_errors(sample in 0..6_usize, at: prop::sample::Index, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let entry = &samples()[sample];
        let mut damaged = AlignedVec::<16>::new();
        damaged.extend_from_slice(&rkyv::to_bytes::<BoxedError>(entry.value.as_ref().unwrap()).unwrap());
        for (place, value) in flips {
            let place = place.index(damaged.len());
            damaged[place] = value;
        }
        damaged.resize(damaged.len() - at.index(2), 0);
        if let Ok(value) = rkyv::from_bytes::<RetryValue, BoxedError>(&damaged) {
            let mut entries = samples();
            entries[sample].value = Some(value);
            let _ = restored(&entries, now(0));
        }
    }
}
