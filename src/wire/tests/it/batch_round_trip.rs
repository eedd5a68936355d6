//! What is pushed is read back, whatever it is.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use wire::*;

type OwnedHeader = (String, Option<Vec<u8>>);

#[derive(Clone, Debug, PartialEq)]
struct OwnedRecord {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

fn records() -> impl Strategy<Value = Vec<OwnedRecord>> {
    let blob = || option::of(prop_oneof![vec(any::<u8>(), 0..40), vec(Just(b'z'), 0..3000)]);
    let headers = vec((".{0,8}", option::of(vec(any::<u8>(), 0..9))), 0..4);
    let record = (0_i64..1_000_000, blob(), blob(), headers).prop_map(|(timestamp_ms, key, value, headers)| OwnedRecord {
        timestamp_ms,
        key,
        value,
        headers,
    });
    vec(record, 1..30)
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)]
}

fn push(builder: &mut BatchBuilder, record: &OwnedRecord) -> Result<(), PushError> {
    let headers: Vec<(&str, Option<&[u8]>)> =
        record.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    builder.push(TimestampMs(record.timestamp_ms), record.key.as_deref(), record.value.as_deref(), &headers)
}

fn read(records: wire::batch::Records<'_>) -> Vec<OwnedRecord> {
    records
        .map(|record| OwnedRecord {
            timestamp_ms: record.timestamp_ms.0,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec))).collect(),
        })
        .collect()
}

proptest! {
    #[test]
    fn pushed_is_read(records in records(), compression in compression()) {
        let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
        for record in &records {
            push(&mut builder, record).unwrap();
        }
        let estimate = builder.len_bytes();
        let bytes = builder.build();
        prop_assert!(builder.is_empty());
        prop_assert!(bytes.len() <= estimate, "{} built, {estimate} estimated", bytes.len());
        let header = verify_batch(&bytes).unwrap();
        header.check_produced().unwrap();
        prop_assert_eq!(header.total_length(), bytes.len());
        prop_assert!(header.compression == compression || header.compression == Compression::None);
        let view = BatchView::new(&bytes).unwrap();
        prop_assert_eq!(read(view.records()), records.clone());

        // Behind something else in a shared frame.
        let mut frame = AlignedVec::new();
        frame.resize(48, 0xff);
        frame.extend_from_slice(&bytes);
        frame.extend_from_slice(&[0xff; 16]);
        let shared = SharedBatch::new(&Arc::new(frame), 48).unwrap();
        prop_assert_eq!(shared.header(), &header);
        prop_assert_eq!(read(shared.records()), records);
    }

    #[test]
    fn stamping_moves_offsets_and_keeps_the_payload(records in records(), base in 0..limits::OFFSET_MAX, epoch: u32, append in option::of(0_i64..1 << 42)) {
        let mut builder = BatchBuilder::new(BuilderOptions::default());
        for record in &records {
            push(&mut builder, record).unwrap();
        }
        let mut bytes = builder.build();
        let before = bytes.clone();
        let mut header = BatchHeader::decode(&bytes).unwrap();
        header.stamp(Offset(base), LeaderEpoch(epoch), append.map(TimestampMs));
        header.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
        prop_assert_eq!(&bytes[80..], &before[80..]);
        let view = BatchView::new(&bytes).unwrap();
        prop_assert_eq!(view.header(), &header);
        for (index, (read, pushed)) in view.records().zip(&records).enumerate() {
            prop_assert_eq!(read.offset, Offset(base + index as u64));
            prop_assert_eq!(read.timestamp_ms.0, append.unwrap_or(pushed.timestamp_ms));
        }
        prop_assert_eq!(header.next_offset(), Offset(base + records.len() as u64));
    }
}

#[test]
fn a_full_batch_says_so_and_a_first_record_always_fits() {
    let options = BuilderOptions { batch_bytes_max: 1024, message_bytes_max: 4096, ..BuilderOptions::default() };
    let mut builder = BatchBuilder::new(options);
    builder.push(TimestampMs(0), None, Some(&[1; 4000]), &[]).unwrap();
    assert_eq!(builder.push(TimestampMs(0), None, Some(&[]), &[]), Err(PushError::Full));
    assert_eq!(builder.record_count(), 1);
    builder.build();
    let mut pushed = 0;
    while builder.push(TimestampMs(0), None, Some(&[1; 100]), &[]).is_ok() {
        pushed += 1;
    }
    assert_eq!(pushed, 6);
    assert!(builder.build().len() <= 1024);
    let too_large = PushError::TooLarge { message_bytes: 4097, message_bytes_max: 4096 };
    assert_eq!(builder.push(TimestampMs(0), Some(&[0; 97]), Some(&[1; 4000]), &[]), Err(too_large));
    let headers = vec![("name", None); limits::HEADERS_PER_RECORD_MAX + 1];
    assert_eq!(builder.push(TimestampMs(0), None, None, &headers), Err(PushError::TooManyHeaders { headers: 257 }));
    let name = "x".repeat(limits::HEADER_NAME_BYTES_MAX + 1);
    assert_eq!(
        builder.push(TimestampMs(0), None, None, &[(&name, None)]),
        Err(PushError::HeaderNameTooLong { name_bytes: 1025 })
    );
    assert!(builder.is_empty());
}

#[test]
fn timestamps_more_than_32_bits_apart_go_into_another_batch() {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    builder.push(TimestampMs(0), None, None, &[]).unwrap();
    builder.push(TimestampMs(i64::from(i32::MAX)), None, None, &[]).unwrap();
    assert_eq!(builder.push(TimestampMs(i64::from(i32::MAX) + 1), None, None, &[]), Err(PushError::Full));
    assert_eq!(builder.push(TimestampMs(i64::MIN), None, None, &[]), Err(PushError::Full));
    let bytes = builder.build();
    assert_eq!(BatchView::new(&bytes).unwrap().records().last().unwrap().timestamp_ms, TimestampMs(i64::from(i32::MAX)));
}

#[test]
fn the_largest_message_with_all_its_headers_makes_a_legal_batch() {
    let options = BuilderOptions { message_bytes_max: limits::MESSAGE_BYTES_MAX_CEILING, ..BuilderOptions::default() };
    let mut builder = BatchBuilder::new(options);
    let headers = vec![("h", Some(&b"v"[..])); limits::HEADERS_PER_RECORD_MAX];
    let value = vec![7; limits::MESSAGE_BYTES_MAX_CEILING as usize - 2 * headers.len()];
    builder.push(TimestampMs(0), None, Some(&value), &headers).unwrap();
    let bytes = builder.build();
    assert!(bytes.len() <= limits::BATCH_BYTES_MAX as usize);
    let view = BatchView::new(&bytes).unwrap();
    assert_eq!(view.records().next().unwrap().value, Some(&value[..]));
}

#[test]
fn the_last_header_of_a_name_wins() {
    let bytes = crate::samples::batch(Compression::None);
    let view = BatchView::new(&bytes).unwrap();
    let record = view.records().last().unwrap();
    assert_eq!(record.headers.last("a").unwrap().value, Some(&b"2"[..]));
    assert_eq!(record.headers.last("b"), None);
    assert_eq!(record.key_as::<&str>(), Ok(Some("123456789")));
    assert_eq!(record.value_as::<String>(), Ok(Some(String::new())));
}
