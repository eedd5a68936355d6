//! A batch with some of its records taken out is the batch with the others.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use wire::batch::{EMPTY_BATCH_BYTES, empty_batch};
use wire::*;

type Row = (u64, i64, Option<Vec<u8>>, Option<Vec<u8>>, usize);

fn rows(view: &BatchView<'_>) -> Vec<Row> {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    view.records()
        .map(|record| (record.offset.0, record.timestamp_ms.0, owned(record.key), owned(record.value), record.headers.len()))
        .collect()
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)]
}

/// Timestamps far apart, as far as one batch can hold.
fn timestamp() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0_i64..1000, 1 => Just(i64::from(i32::MAX)), 1 => Just(i64::from(i32::MIN))]
}

fn stamped(mut bytes: AlignedVec, append_time: Option<TimestampMs>) -> AlignedVec {
    let mut header = BatchHeader::decode(&bytes).unwrap();
    header.stamp(Offset(100), LeaderEpoch(7), append_time);
    header.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
    bytes
}

proptest! {
    #[test]
    fn what_is_left_is_as_it_was(
        records in vec((timestamp(), option::of(vec(any::<u8>(), 0..20)), option::of(vec(Just(b'v'), 0..300)), 0_usize..3), 1..40),
        keep in vec(any::<bool>(), 40),
        again in vec(any::<bool>(), 40),
        compression in compression(),
        is_append_time in any::<bool>(),
    ) {
        let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
        builder.set_producer(ProducerId(5), ProducerEpoch(6), Sequence(7));
        builder.push(TimestampMs(0), None, Some(b"first"), &[]).unwrap();
        for (timestamp_ms, key, value, headers) in &records {
            let headers = vec![("name", Some(&b"value"[..])); *headers];
            builder.push(TimestampMs(*timestamp_ms), key.as_deref(), value.as_deref(), &headers).unwrap();
        }
        let mut bytes = stamped(builder.build(), is_append_time.then_some(TimestampMs(5000)));
        let before = BatchHeader::decode(&bytes).unwrap();
        // The second time of what the first time left.
        for keep in [keep, again] {
            let view = BatchView::new(&bytes).unwrap();
            let mut expected = rows(&view);
            let mut flags = keep.iter().cycle();
            let left = view.retain(|_| *flags.next().unwrap()).unwrap();
            let mut flags = keep.iter().cycle();
            expected.retain(|_| *flags.next().unwrap());
            let view = BatchView::new(&left).unwrap();
            let header = *view.header();
            if let Some(greatest) = expected.iter().map(|row| row.1).max() {
                prop_assert_eq!(header.max_timestamp_ms.0, greatest);
            }
            prop_assert_eq!(rows(&view), expected);
            prop_assert!(header.compression == before.compression || header.compression == Compression::None);
            let place = |header: &BatchHeader| {
                let producer = (header.producer_id, header.producer_epoch, header.base_sequence);
                (header.base_offset, header.last_offset_delta, header.leader_epoch, header.timestamp_kind, producer)
            };
            prop_assert_eq!(place(&header), place(&before));
            bytes = left;
        }
    }

    /// What a producer sends may be any archive that passes the check.
    #[test]
    fn damaged_batches_are_refused_before(flips in vec((any::<prop::sample::Index>(), 1_u8..), 1..4)) {
        let mut builder = BatchBuilder::new(BuilderOptions::default());
        for number in 0..5_u8 {
            builder.push(TimestampMs(number.into()), Some(&[number]), Some(b"value"), &[("name", None)]).unwrap();
        }
        let mut bytes = builder.build();
        let mut header = BatchHeader::decode(&bytes).unwrap();
        let range = header.payload_range();
        for (at, flip) in flips {
            bytes[range.start + at.index(range.len())] ^= flip;
        }
        header.payload_crc = wire::checksum::crc32c(&bytes[range]);
        header.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
        if let Ok(view) = BatchView::new(&bytes) {
            let left = view.retain(|record| record.offset.0 % 2 == 0).unwrap();
            let left = BatchView::new(&left).unwrap();
            let expected: Vec<Row> = rows(&view).into_iter().filter(|row| row.0 % 2 == 0).collect();
            prop_assert_eq!(rows(&left), expected);
        }
    }
}

#[test]
fn an_empty_batch_stands_for_its_offsets() {
    let bytes = empty_batch(Offset(40), Offset(99), LeaderEpoch(3));
    assert_eq!(bytes.len(), EMPTY_BATCH_BYTES);
    let view = BatchView::new(&bytes).unwrap();
    assert_eq!(view.records().len(), 0);
    let header = view.header();
    assert_eq!((header.base_offset, header.next_offset(), header.leader_epoch), (Offset(40), Offset(100), LeaderEpoch(3)));
    assert_eq!((header.producer_id, header.max_timestamp_ms), (ProducerId::NONE, TimestampMs(i64::MIN)));
    assert_eq!(rows(&BatchView::new(&view.retain(|_| true).unwrap()).unwrap()), []);
}
