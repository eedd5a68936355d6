//! Bytes made to deceive: every decoder gives a value or a typed error, and what it gives can be read to the last byte. The crcs
//! are made right, so that the checks behind them are what is tested. `PROPTEST_CASES` makes it a fuzz run.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::*;

use crate::batch_damage::with_header_crc;
use crate::samples::{self, TOPIC, config, for_each_body};

/// Writes over some bytes of a valid input: near enough to valid to get far.
#[derive(Clone, Debug)]
struct Damage(Vec<(prop::sample::Index, u8)>);

fn damage() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1), Just(0x7f), Just(0x80)];
    vec((any::<prop::sample::Index>(), byte), 1..12).prop_map(Damage)
}

impl Damage {
    fn apply(&self, bytes: &mut [u8]) {
        for (index, byte) in &self.0 {
            bytes[index.index(bytes.len())] = *byte;
        }
    }
}

fn aligned(bytes: &[u8]) -> AlignedVec {
    let mut aligned = AlignedVec::new();
    aligned.extend_from_slice(bytes);
    aligned
}

/// Touches every byte that a view lends.
fn sum_of_all(view: &BatchView<'_>) -> u64 {
    let sum = |bytes: Option<&[u8]>| bytes.unwrap_or_default().iter().map(|&byte| u64::from(byte)).sum::<u64>();
    view.records()
        .map(|record| {
            let headers: u64 = record.headers.iter().map(|header| sum(header.value) + sum(Some(header.name.as_bytes()))).sum();
            sum(record.key) + sum(record.value) + headers + record.offset.0 + record.timestamp_ms.0 as u64 % 2
        })
        .fold(0, u64::wrapping_add)
}

/// A batch of the given payload whose header says what is needed to get it read.
fn batch_around(payload: &[u8], compression: Compression, record_count: u32, uncompressed: u32) -> AlignedVec {
    let sample = BatchHeader::decode(&samples::batch(Compression::None)).unwrap();
    let mut bytes = AlignedVec::new();
    bytes.resize(80, 0);
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let header = BatchHeader {
        compression,
        total_length_bytes: bytes.len() as u32,
        payload_length_bytes: payload.len() as u32,
        payload_crc: checksum::crc32c(payload),
        record_count,
        last_offset_delta: 1000,
        uncompressed_length_bytes: uncompressed,
        ..sample
    };
    header.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
    bytes
}

fn read_batch(bytes: &[u8]) {
    if let Ok(view) = BatchView::new(bytes) {
        std::hint::black_box(sum_of_all(&view));
    }
}

proptest! {
    #[test]
    fn batch_header_from_any_bytes(mut bytes in vec(any::<u8>(), 0..200), magic: bool) {
        if magic && bytes.len() >= 80 {
            bytes[..6].copy_from_slice(b"CLB1\x01\0");
            bytes = with_header_crc(aligned(&bytes)).to_vec();
        }
        if let Ok(header) = BatchHeader::decode(&bytes) {
            prop_assert!(header.total_length_bytes <= limits::BATCH_BYTES_MAX);
            prop_assert!(header.payload_range().end <= header.total_length());
        }
        let _ = verify_batch(&bytes);
        read_batch(&aligned(&bytes));
    }

    #[test]
    fn batch_with_a_damaged_header(damage in damage()) {
        let mut bytes = samples::batch(Compression::None);
        damage.apply(&mut bytes[6..80]);
        read_batch(&with_header_crc(bytes));
    }

    #[test]
    fn batch_with_a_damaged_archive(damage in damage(), record_count in prop_oneof![Just(5_u32), 0..9_u32]) {
        let sample = samples::batch(Compression::None);
        let range = BatchHeader::decode(&sample).unwrap().payload_range();
        let mut payload = sample[range].to_vec();
        // Most of the payload is blobs, where damage is legal: aim at the records and the root.
        let tail = payload.len() - 5 * 32 - 8;
        damage.apply(&mut payload[tail..]);
        read_batch(&batch_around(&payload, Compression::None, record_count, payload.len() as u32));
        damage.apply(&mut payload);
        read_batch(&batch_around(&payload, Compression::None, record_count, payload.len() as u32));
    }

    #[test]
    fn batch_with_any_archive(payload in vec(any::<u8>(), 0..300), record_count in 0..5_u32) {
        read_batch(&batch_around(&payload, Compression::None, record_count, payload.len() as u32));
    }

    #[test]
    fn batch_with_a_damaged_stream(damage in damage(), zstd: bool, uncompressed in prop_oneof![Just(None), (0..100_000_u32).prop_map(Some)]) {
        let sample = samples::batch(if zstd { Compression::Zstd } else { Compression::Lz4 });
        let header = BatchHeader::decode(&sample).unwrap();
        let mut payload = sample[header.payload_range()].to_vec();
        damage.apply(&mut payload);
        read_batch(&batch_around(&payload, header.compression, 5, uncompressed.unwrap_or(header.uncompressed_length_bytes)));
    }

    #[test]
    fn batch_with_any_stream(payload in vec(any::<u8>(), 0..300), zstd: bool, uncompressed in 0..100_000_u32) {
        let compression = if zstd { Compression::Zstd } else { Compression::Lz4 };
        read_batch(&batch_around(&payload, compression, 1, uncompressed));
    }

    #[test]
    fn frame_header_from_any_bytes(mut bytes in vec(any::<u8>(), 0..64), magic: bool) {
        if magic && bytes.len() >= 32 {
            bytes[..4].copy_from_slice(b"CLF1");
            let crc = checksum::crc32c(&bytes[..28]);
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(header) = FrameHeader::decode(&bytes) {
            prop_assert!(header.total_length <= limits::FRAME_BYTES_MAX);
            prop_assert!(header.body_range().end <= header.attachment_range().start);
            prop_assert!(header.attachment_range().start <= header.attachment_range().end);
        }
        let _ = FrameDecoder::default().step(&bytes);
    }

    #[test]
    fn every_body_damaged(damage in damage()) {
        macro_rules! visit {
            ($name:literal, $value:expr) => {
                let mut bytes = $value.write_to(AlignedVec::new());
                damage.apply(&mut bytes);
                check_body_like(&$value, &bytes);
            };
        }
        for_each_body!(visit);
    }

    #[test]
    fn every_body_from_any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        macro_rules! visit {
            ($name:literal, $value:expr) => {
                check_body_like(&$value, &bytes);
            };
        }
        for_each_body!(visit);
    }

    #[test]
    fn the_sums_of_lengths_are_checked_without_overflow(lengths in vec(any::<u32>(), 0..20), attached: usize) {
        let batch_lengths = lengths.clone();
        let partition = ProducePartition { topic: TOPIC, partition: PartitionIndex(0), batch_lengths };
        let request = ProduceRequest { acks: Acks::AllInSync, timeout_ms: 0, partitions: vec![partition] };
        let legal = lengths.iter().all(|length| length % 16 == 0 && *length >= 80);
        let sum: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        prop_assert_eq!(request.check(attached).is_ok(), legal && sum == attached as u64);
        prop_assert_eq!(request.check(sum as usize).is_ok(), legal);
    }
}

/// Decodes `bytes` as another value of the type of `like`; one that is accepted can be written and read again.
fn check_body_like<T: Body + PartialEq + std::fmt::Debug>(_like: &T, bytes: &[u8]) {
    let decoded = T::decode(bytes);
    let accessed = T::access(&aligned(bytes)).is_ok();
    assert_eq!(decoded.is_ok(), accessed);
    if let Ok(value) = decoded {
        assert_eq!(T::decode(&value.write_to(AlignedVec::new())).unwrap(), value);
    }
}
