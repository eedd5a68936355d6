//! The bytes of version 1, pinned: `CORELANE_GOLDEN=write cargo test -p consumer_groups state` writes them anew. And bytes that are none.

use std::path::PathBuf;

use proptest::prelude::*;
use wire::{
    Assignor, CommittedOffset, LeaderEpoch, MemberEpoch, Offset, PartitionIndex, PartitionKey, ProducerEpoch, ProducerId,
    RetryPolicy, TimestampMs, TopicId,
};

use super::{
    GroupValue, HoldingValue, HoldingsValue, MemberValue, OffsetValue, PresenceValue, RetentionValue, StateError, StateKey,
    StatePart, StateRecord, StateValue, TargetValue, decode,
};
use crate::retry::{
    DeadLetterProducer, DeadLetterValue, ExhaustedValue, LaneValue, ParkedValue, RetryKey, RetryPart, RetryValue,
};

const TOPIC: TopicId = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

fn partition(number: u32) -> PartitionKey {
    PartitionKey::new(TOPIC, PartitionIndex(number))
}

/// Each kind of record, by the name of its golden file.
fn samples() -> Vec<(&'static str, StatePart, StateValue)> {
    let group = GroupValue {
        epoch: MemberEpoch(7),
        empty_since: Some(TimestampMs(1_764_000_000_000)),
        offsets_retention: RetentionValue::Ms(60_000),
    };
    let member = MemberValue {
        instance: Some("node-3".to_owned()),
        presence: PresenceValue::Away,
        joined: MemberEpoch(3),
        epoch: MemberEpoch(6),
        topics: vec!["bills".to_owned(), "orders".to_owned()],
        assignor: Some(Assignor::Range),
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 300_000,
        client_id: "worker".to_owned(),
        host: "10.0.0.7:41234".to_owned(),
        target: vec![TargetValue { topic: TOPIC, partitions: vec![PartitionIndex(0), PartitionIndex(2)] }],
        holdings: vec![HoldingsValue {
            topic: TOPIC,
            partitions: vec![
                HoldingValue { partition: PartitionIndex(0), granted: MemberEpoch(3), revoked: None },
                HoldingValue { partition: PartitionIndex(1), granted: MemberEpoch(4), revoked: Some(MemberEpoch(6)) },
            ],
        }],
    };
    let offset = OffsetValue {
        position: CommittedOffset {
            offset: Offset(0x0102_0304_0506),
            leader_epoch: Some(LeaderEpoch(9)),
            metadata: Some("checkpoint 17".to_owned()),
        },
        at: TimestampMs(1_764_000_000_123),
    };
    let failures = (TimestampMs(1_764_000_000_200), TimestampMs(1_764_000_000_300));
    let parked = ParkedValue {
        key: Some(b"customer-7".to_vec()),
        head: Offset(40),
        attempts: 2,
        first_failure: failures.0,
        last_failure: failures.1,
        due: Some(TimestampMs(1_764_000_001_300)),
        reason: "no stock".to_owned(),
    };
    let letter = DeadLetterValue {
        offset: Offset(39),
        attempts: 5,
        first_failure: failures.0,
        last_failure: failures.1,
        key: None,
        reason: "cannot be read".to_owned(),
    };
    let lane = LaneValue {
        topic: "orders.dlq.billing".to_owned(),
        base: 4,
        producer: Some(DeadLetterProducer { id: ProducerId(77), epoch: ProducerEpoch(1), partition: PartitionIndex(2) }),
    };
    let exhausted = ExhaustedValue { dead_lettered: 6, skipped: 1, lane: Some(lane) };
    let retry = |part, value| (StatePart::Retry(RetryKey::Partition(partition(3), part)), StateValue::Retry(value));
    let with_name = |name, (part, value)| (name, part, value);
    vec![
        ("group", StatePart::Group, StateValue::Group(group)),
        ("member", StatePart::Member("5f0c".to_owned()), StateValue::Member(member)),
        ("offset", StatePart::Offset(partition(3)), StateValue::Offset(offset)),
        (
            "policy",
            StatePart::Retry(RetryKey::Policy(Some("orders".to_owned()))),
            StateValue::Retry(RetryValue::Policy(RetryPolicy::default())),
        ),
        with_name("exhausted", retry(RetryPart::Exhausted, RetryValue::Exhausted(exhausted))),
        with_name("dead_letter", retry(RetryPart::DeadLetter(5), RetryValue::DeadLetter(letter))),
        with_name("parked", retry(RetryPart::Parked(2), RetryValue::Parked(parked))),
        with_name("queue", retry(RetryPart::Queue(2, 1), RetryValue::Queue(vec![Offset(41), Offset(44)]))),
        with_name("settled", retry(RetryPart::Settled(3), RetryValue::Settled([1, 2, 0, 0, 0, 0, 0, u64::MAX]))),
    ]
}

fn record(part: &StatePart, value: Option<&StateValue>) -> StateRecord {
    StateRecord::new(&StateKey { group: "billing".to_owned(), part: part.clone() }, value)
}

#[track_caller]
fn check_golden(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("CORELANE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == bytes, "{name}: the bytes of version 1 have changed");
}

#[test]
fn bytes_are_those_of_version_1_and_are_read_back() {
    for (name, part, value) in samples() {
        let record = record(&part, Some(&value));
        let stored = record.value.clone().unwrap();
        check_golden(&format!("{name}.key.v1"), &record.key);
        check_golden(&format!("{name}.value.v1"), &stored);
        let (key, read) = decode(&record.key, Some(&stored)).unwrap();
        assert_eq!((key.group.as_str(), key.part, read), ("billing", part, Some(value)), "{name}");
    }
}

#[test]
fn a_version_to_come_and_no_bytes_are_named_in_the_error() {
    let record = record(&StatePart::Group, None);
    let mut later = record.key.clone();
    later[0] = 2;
    assert_eq!(decode(&later, None), Err(StateError::Version { what: "key", found: 2 }));
    assert_eq!(decode(&[], None), Err(StateError::Empty { what: "key" }));
    assert_eq!(decode(&record.key, Some(&[])), Err(StateError::Empty { what: "value" }));
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(key in prop::collection::vec(any::<u8>(), 0..200), value in prop::collection::vec(any::<u8>(), 0..400)) {
        let with_version = |bytes: &[u8]| [&[1_u8][..], bytes].concat();
        let _ = decode(&key, Some(&value));
        let _ = decode(&with_version(&key), Some(&with_version(&value)));
    }

    #[test]
    fn a_damaged_record_is_a_record_or_an_error(
        which in 0..9_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (_, part, value) = samples().swap_remove(which);
        let record = record(&part, Some(&value));
        let (mut key, mut value) = (record.key, record.value.unwrap());
        for (place, bits) in damage {
            let length = key.len();
            match place.index(length + value.len()) {
                place if place < length => key[place] ^= bits,
                place => value[place - length] ^= bits,
            }
        }
        if let Some(cut) = cut {
            value.truncate(cut.index(value.len() + 1));
        }
        let _ = decode(&key, Some(&value));
    }
}
