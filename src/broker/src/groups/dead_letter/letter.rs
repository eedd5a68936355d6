//! What a dead letter looks like: the record as it was, with the story of its failures in headers.
//!
//! Whatever the record's size, there is a dead letter of it: what does not fit beside the story is left out, and a header says so.

use consumer_groups::retry::DeadLetter;
use shards::buffer::Shared;
use wire::{
    BatchView, RecordView, TimestampMs,
    batch::{BatchBuilder, BuilderOptions},
    dead_letter as headers,
    limits::{
        BATCH_BYTES_MAX, FAILURE_REASON_BYTES_MAX, GROUP_ID_BYTES_MAX, HEADERS_PER_RECORD_MAX, MESSAGE_BYTES_MAX_CEILING,
        PARKING_KEY_BYTES_MAX, TOPIC_NAME_BYTES_MAX,
    },
};

/// Room for the names of the added headers and for the numbers in them.
const ADDED_BYTES_MAX: usize = 1024;

const _: () = {
    let texts = TOPIC_NAME_BYTES_MAX + GROUP_ID_BYTES_MAX + FAILURE_REASON_BYTES_MAX + 2 * PARKING_KEY_BYTES_MAX;
    assert!(texts + ADDED_BYTES_MAX <= MESSAGE_BYTES_MAX_CEILING as usize);
};

/// A header to add.
type Header<'a> = (&'a str, Option<&'a [u8]>);

/// What a dead letter has of its record.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// The key once more, as a header: shorter than nothing else, it goes first.
    key_header: bool,
    headers: bool,
    value: bool,
    /// Otherwise the one by which the record was parked.
    key: bool,
}

/// In this order it is tried how much of a record fits.
const TRIES: [Parts; 5] = [
    Parts { key_header: true, headers: true, value: true, key: true },
    Parts { key_header: false, headers: true, value: true, key: true },
    Parts { key_header: false, headers: false, value: true, key: true },
    Parts { key_header: false, headers: true, value: false, key: true },
    Parts { key_header: true, headers: false, value: false, key: false },
];

/// The batch of the dead letter. `topic` is the name of the record's topic, `batch` what holds the record; without it only its story is left.
pub(super) fn build(letter: &DeadLetter, topic: &str, batch: Option<&Shared>, now: TimestampMs) -> Shared {
    let view = batch.and_then(|batch| BatchView::new(batch).ok());
    let offset = letter.letter.offset;
    let record = view.as_ref().and_then(|view| view.records().find(|record| record.offset == offset));
    let numbers = [
        (headers::HEADER_PARTITION, letter.origin.partition.0.to_string()),
        (headers::HEADER_OFFSET, offset.0.to_string()),
        (headers::HEADER_ATTEMPTS, letter.letter.attempts.to_string()),
        (headers::HEADER_FIRST_FAILURE, letter.letter.first_failure.0.to_string()),
        (headers::HEADER_LAST_FAILURE, letter.letter.last_failure.0.to_string()),
    ];
    let reason = letter.letter.reason.as_bytes();
    let mut story: Vec<Header<'_>> = vec![
        (headers::HEADER_TOPIC, Some(topic.as_bytes())),
        (headers::HEADER_GROUP, Some(letter.group.as_str().as_bytes())),
        // What was read back from a disk may be longer than what is taken from a client.
        (headers::HEADER_REASON, Some(&reason[..reason.len().min(FAILURE_REASON_BYTES_MAX)])),
    ];
    story.extend(numbers.iter().map(|(name, text)| (*name, Some(text.as_bytes()))));
    let timestamp = record.as_ref().map(|record| record.timestamp_ms.0.to_string());
    match &timestamp {
        Some(timestamp) => story.push((headers::HEADER_TIMESTAMP, Some(timestamp.as_bytes()))),
        None => story.push((headers::HEADER_RECORD_GONE, Some(b"true"))),
    }
    let mut builder = BatchBuilder::new(BuilderOptions {
        batch_bytes_max: BATCH_BYTES_MAX,
        message_bytes_max: MESSAGE_BYTES_MAX_CEILING,
        ..BuilderOptions::default()
    });
    builder.set_producer(letter.producer.id, letter.producer.epoch, letter.sequence);
    let fits = TRIES.iter().any(|parts| push(&mut builder, now, letter, record.as_ref(), &story, *parts));
    assert!(fits, "the story of a failure and a parking key have limits far below that of a message");
    Shared::copy_from_slice(&builder.build())
}

/// Puts those parts into the batch, if they fit.
fn push(
    builder: &mut BatchBuilder,
    now: TimestampMs,
    letter: &DeadLetter,
    record: Option<&RecordView<'_>>,
    story: &[Header<'_>],
    parts: Parts,
) -> bool {
    let parked = letter.letter.key.as_deref().map(|key| &key[..key.len().min(PARKING_KEY_BYTES_MAX)]);
    let whole = record.map_or(parked, |record| record.key);
    let key = if parts.key { whole } else { parked };
    let own: Vec<Header<'_>> =
        record.into_iter().flat_map(|record| record.headers.iter()).map(|own| (own.name, own.value)).collect();
    // One for the key, and one that says what is left out. Of as many headers as there may be, the first ones stay.
    let room = HEADERS_PER_RECORD_MAX - story.len() - 2;
    let kept = if parts.headers { own.len().min(room) } else { 0 };
    let value = record.and_then(|record| record.value);
    let left_out = [("key", key != whole), ("value", value.is_some() && !parts.value), ("headers", kept < own.len())];
    let left_out: Vec<&str> = left_out.into_iter().filter(|(_, is_out)| *is_out).map(|(name, _)| name).collect();
    let left_out = left_out.join(",");
    let key_header = key.filter(|_| parts.key_header).map(|key| (headers::HEADER_KEY, Some(key)));
    let left_out_header = (!left_out.is_empty()).then_some((headers::HEADER_LEFT_OUT, Some(left_out.as_bytes())));
    let all: Vec<Header<'_>> = own[..kept].iter().chain(story).copied().chain(key_header).chain(left_out_header).collect();
    builder.push(now, key, value.filter(|_| parts.value), &all).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer_groups::{GroupId, retry::DeadLetterProducer, retry::DeadLetterValue};
    use wire::{Offset, PartitionIndex, PartitionKey, ProducerEpoch, ProducerId, Sequence, TopicId};

    const CEILING: usize = MESSAGE_BYTES_MAX_CEILING as usize;

    fn letter() -> DeadLetter {
        let producer = DeadLetterProducer { id: ProducerId(4), epoch: ProducerEpoch(0), partition: PartitionIndex(0) };
        let at = TimestampMs(1);
        let key = Some(b"parked as".to_vec());
        let reason = "r".repeat(FAILURE_REASON_BYTES_MAX);
        DeadLetter {
            group: GroupId::from("g".repeat(GROUP_ID_BYTES_MAX).as_str()),
            origin: PartitionKey::new(TopicId([1; 16]), PartitionIndex(u32::MAX)),
            topic: "dead".to_owned(),
            producer,
            sequence: Sequence::ZERO,
            number: 0,
            letter: DeadLetterValue { offset: Offset(0), attempts: u32::MAX, first_failure: at, last_failure: at, key, reason },
        }
    }

    /// What the dead letter of a record has: its key, its value, how many of its own headers, and what it says is left out.
    fn check(key: Option<&[u8]>, value: Option<&[u8]>, own: &[Header<'_>]) -> (usize, Option<usize>, usize, String) {
        let options = BuilderOptions {
            batch_bytes_max: BATCH_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX_CEILING,
            ..BuilderOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        builder.push(TimestampMs(7), key, value, own).unwrap();
        let batch = Shared::copy_from_slice(&builder.build());
        let bytes = build(&letter(), &"t".repeat(TOPIC_NAME_BYTES_MAX), Some(&batch), TimestampMs(8));
        let view = BatchView::new(&bytes).unwrap();
        let record = view.records().next().unwrap();
        let text = |name| record.headers.last(name).and_then(|header| header.value).map(<[u8]>::to_vec);
        assert_eq!(text(headers::HEADER_ATTEMPTS), Some(u32::MAX.to_string().into_bytes()), "the story is whole");
        assert_eq!(text(headers::HEADER_RECORD_GONE), None);
        let kept = record.headers.iter().filter(|header| !header.name.starts_with("corelane.")).count();
        let left_out = String::from_utf8(text(headers::HEADER_LEFT_OUT).unwrap_or_default()).unwrap();
        (record.key.map_or(0, <[u8]>::len), record.value.map(<[u8]>::len), kept, left_out)
    }

    #[test]
    fn a_record_of_any_size_becomes_a_dead_letter_that_says_what_it_lacks() {
        let large = vec![7; CEILING];
        let own = [("trace", Some(&b"1"[..]))];
        let none = String::new;
        assert_eq!(check(Some(b"key"), Some(b"value"), &own), (3, Some(5), 1, none()));
        // Twice the key does not fit, and once does.
        assert_eq!(check(Some(&large[..CEILING / 2]), Some(b"value"), &own), (CEILING / 2, Some(5), 1, none()));
        let whole_value = Some(&large[..CEILING - 10]);
        assert_eq!(check(Some(b"key"), whole_value, &[]), (3, None, 0, "value".to_owned()));
        assert_eq!(check(None, Some(&large), &[]), (0, None, 0, "value".to_owned()));
        assert_eq!(check(Some(&large), None, &[]), (9, None, 0, "key".to_owned()));
        assert_eq!(check(Some(&large[..CEILING - 100]), Some(b"value"), &own), (9, None, 0, "key,value,headers".to_owned()));
        let large_header = [("trace", Some(&large[..CEILING - 100]))];
        assert_eq!(check(Some(b"key"), Some(b"value"), &large_header), (3, Some(5), 0, "headers".to_owned()));
    }

    #[test]
    fn a_record_with_all_the_headers_there_may_be_keeps_its_first_ones() {
        let own = vec![("n", None); HEADERS_PER_RECORD_MAX];
        let (_, value, kept, left_out) = check(Some(b"key"), Some(b"value"), &own);
        assert_eq!((value, left_out.as_str()), (Some(5), "headers"));
        assert!(kept > HEADERS_PER_RECORD_MAX - 16, "{kept}");
    }

    #[test]
    fn of_a_record_that_is_gone_its_story_is_left() {
        let bytes = build(&letter(), "orders", None, TimestampMs(8));
        let view = BatchView::new(&bytes).unwrap();
        let record = view.records().next().unwrap();
        assert_eq!((record.key, record.value), (Some(&b"parked as"[..]), None));
        assert_eq!(record.headers.last(headers::HEADER_RECORD_GONE).and_then(|header| header.value), Some(&b"true"[..]));
        assert!(record.headers.last(headers::HEADER_LEFT_OUT).is_none());
    }
}
