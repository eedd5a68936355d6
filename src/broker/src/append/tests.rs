use super::*;
use wire::{
    BuilderOptions, Compression, ProducerId, Sequence,
    batch::{BatchBuilder, HEADER_BYTES},
};

const ANY: Allowed = Allowed { message_bytes_max: u32::MAX, keys_only: false };

/// A batch of records with these keys, and values of so many bytes.
fn batch(keys: &[Option<&[u8]>], value_bytes: usize, compression: Compression) -> Shared {
    let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
    for key in keys {
        builder.push(TimestampMs(1), *key, Some(&vec![b'v'; value_bytes]), &[("name", Some(b"value"))]).unwrap();
    }
    Shared::copy_from_slice(&builder.build())
}

/// The batch with its header changed, and sound again.
fn with_header(batch: &Shared, change: impl FnOnce(&mut BatchHeader)) -> Shared {
    let mut header = BatchHeader::decode(batch).unwrap();
    change(&mut header);
    let mut bytes = batch.to_vec();
    header.encode(bytes.first_chunk_mut::<HEADER_BYTES>().unwrap());
    Shared::copy_from_slice(&bytes)
}

fn refusal(batch: &Shared, allowed: Allowed) -> (ErrorCode, String) {
    check_batch(batch, allowed).unwrap_err()
}

#[test]
fn damage_is_told_from_a_batch_that_was_never_good() {
    let good = batch(&[None, None], 100, Compression::None);
    assert_eq!(check_batch(&good, ANY).unwrap().record_count, 2);
    for (position, code) in [(0, ErrorCode::InvalidBatch), (16, ErrorCode::CorruptBatch), (HEADER_BYTES, ErrorCode::CorruptBatch)]
    {
        let mut damaged = good.to_vec();
        damaged[position] ^= 1;
        assert_eq!(refusal(&Shared::copy_from_slice(&damaged), ANY).0, code, "byte {position}");
    }
    let (code, message) = refusal(&good.slice(..HEADER_BYTES - 16), ANY);
    assert_eq!((code, message.contains("truncated")), (ErrorCode::InvalidBatch, true), "{message}");
    let two = [&good[..], &good[..]].concat();
    let (code, message) = refusal(&Shared::copy_from_slice(&two), ANY);
    let words = format!("the batch says {} bytes, the request {}", good.len(), two.len());
    assert_eq!((code, message), (ErrorCode::InvalidBatch, words));
    let gap = with_header(&good, |header| header.last_offset_delta = 7);
    assert_eq!(refusal(&gap, ANY).0, ErrorCode::InvalidBatch);
}

#[test]
fn a_message_may_be_as_large_as_the_topic_allows_and_no_larger() {
    // Key, value, and the name and value of its header.
    let message_bytes = 3 + 1_000 + 4 + 5;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let sent = batch(&[Some(b"key"), Some(b"key"), Some(b"key")], 1_000, compression);
        let allowed = |message_bytes_max| Allowed { message_bytes_max, keys_only: false };
        assert!(check_batch(&sent, allowed(message_bytes)).is_ok(), "{compression:?}: the batch may be larger than a message");
        let (code, message) = refusal(&sent, allowed(message_bytes - 1));
        assert_eq!(code, ErrorCode::MessageTooLarge);
        assert!(message.contains("1012 bytes") && message.contains("1011"), "{message}");
    }
}

#[test]
fn a_compacted_topic_takes_records_with_keys_only() {
    let keys_only = Allowed { keys_only: true, ..ANY };
    assert!(check_batch(&batch(&[Some(b"a"), Some(b"")], 10, Compression::None), keys_only).is_ok());
    let keyless = batch(&[Some(b"a"), None], 10, Compression::None);
    assert!(check_batch(&keyless, ANY).is_ok());
    let (code, message) = refusal(&keyless, keys_only);
    assert_eq!((code, message.contains("record 1")), (ErrorCode::InvalidBatch, true), "{message}");
    let foreign = with_header(&batch(&[Some(b"a")], 10, Compression::None), |header| header.payload_kind = PayloadKind::KafkaV2);
    assert_eq!(refusal(&foreign, keys_only).0, ErrorCode::InvalidBatch);
}

#[test]
fn each_error_of_a_producer_has_its_code() {
    let producer_id = ProducerId(7);
    let errors = [
        (ProducerError::OutOfOrder { producer_id, found: Sequence(3), expected: Sequence(2) }, ErrorCode::OutOfOrderSequence),
        (ProducerError::Fenced { producer_id, found: ProducerEpoch(0), current: ProducerEpoch(1) }, ErrorCode::ProducerFenced),
        (ProducerError::Unknown { producer_id, epoch: ProducerEpoch(0), found: Sequence(3) }, ErrorCode::UnknownProducer),
        (ProducerError::PartlyStored { producer_id }, ErrorCode::InvalidRequest),
        (ProducerError::Mixed, ErrorCode::InvalidRequest),
    ];
    for (error, code) in errors {
        assert_eq!(producer_code(&error), code, "{error}");
    }
}
