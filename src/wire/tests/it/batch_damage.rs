//! Every kind of damage has its own error, which names the place.

use wire::checksum::crc32c;
use wire::*;

use crate::samples;

/// Gives damaged headers their checksum, so that the check behind it is reached.
pub(crate) fn with_header_crc(mut bytes: AlignedVec) -> AlignedVec {
    bytes[28..32].fill(0);
    let crc = crc32c(&bytes[..80]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn every_change_of_every_header_byte_is_an_error() {
    let bytes = samples::batch(Compression::None);
    let mut damaged = bytes.clone();
    for position in 0..80 {
        for flip in 1..=255 {
            damaged[position] = bytes[position] ^ flip;
            let error = BatchHeader::decode(&damaged).expect_err("a damaged header");
            let expected = match position {
                0..4 => matches!(error, BatchError::Magic { .. }),
                4..6 => matches!(error, BatchError::Version { .. }),
                _ => matches!(error, BatchError::HeaderCrc { .. }),
            };
            assert!(expected, "byte {position} ^ {flip}: {error}");
        }
        damaged[position] = bytes[position];
    }
    assert!(BatchHeader::decode(&damaged).is_ok());
}

#[test]
fn every_flipped_bit_behind_the_header_is_an_error() {
    let bytes = samples::batch(Compression::None);
    let header = BatchHeader::decode(&bytes).unwrap();
    assert!(header.payload_range().end < bytes.len(), "the sample has zeros at its end");
    let mut damaged = bytes.clone();
    for position in 80..bytes.len() {
        for bit in 0..8 {
            damaged[position] ^= 1 << bit;
            let error = verify_batch(&damaged).expect_err("damage");
            if position < header.payload_range().end {
                assert!(matches!(error, BatchError::PayloadCrc { .. }), "byte {position}: {error}");
            } else {
                assert_eq!(error, BatchError::PaddingNotZero { position, found: 1 << bit });
            }
            damaged[position] ^= 1 << bit;
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = samples::batch(Compression::None);
    for length in 0..bytes.len() {
        let needed_bytes = if length < 80 { 80 } else { bytes.len() };
        assert_eq!(verify_batch(&bytes[..length]), Err(BatchError::Truncated { needed_bytes, found_bytes: length }));
    }
}

#[test]
fn a_header_with_a_right_checksum_and_a_wrong_number_names_the_field() {
    let cases: [(usize, &[u8], usize, &str); 21] = [
        (6, &[4], 6, "payload kind"),
        (7, &[0x20], 7, "attributes"),
        (7, &[0x80], 7, "attributes"),
        (7, &[3], 7, "compression"),
        (8, &[0xff; 4], 8, "total length"),
        (8, &[0; 4], 8, "total length"),
        (8, &[80, 0, 0, 0], 8, "total length"),
        (12, &[0xff; 4], 12, "payload length"),
        (12, &[0; 4], 8, "total length"),
        (16, &[0xff; 8], 16, "base offset"),
        (36, &[0xff; 4], 36, "record count"),
        (36, &[6, 0, 0, 0], 40, "last offset delta"),
        (40, &[0xff; 4], 40, "last offset delta"),
        (40, &[3, 0, 0, 0], 40, "last offset delta"),
        (46, &[1], 46, "reserved"),
        (46, &[0, 1], 46, "reserved"),
        (56, &[0; 8], 56, "max timestamp"),
        (76, &[0xff; 4], 76, "uncompressed length"),
        (76, &[0; 4], 76, "uncompressed length"),
        (6, &[3], 36, "record count"),
        (6, &[1, 1], 7, "compression"),
    ];
    for (at, bytes, position, name) in cases {
        let mut damaged = samples::batch(Compression::None);
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        match BatchHeader::decode(&with_header_crc(damaged)) {
            Err(BatchError::Field { position: found, field, .. }) => assert_eq!((found, field), (position, name)),
            other => panic!("byte {at} = {bytes:x?}: {other:?}"),
        }
    }
}

#[test]
fn a_produced_batch_is_fresh() {
    let bytes = samples::batch(Compression::None);
    let header = BatchHeader::decode(&bytes).unwrap();
    assert_eq!(header.check_produced(), Ok(()));
    let gaps = BatchHeader { last_offset_delta: 9, ..header };
    assert!(matches!(gaps.check_produced(), Err(BatchError::Field { position: 40, .. })));
    let empty = BatchHeader { record_count: 0, ..header };
    assert!(matches!(empty.check_produced(), Err(BatchError::Field { position: 36, .. })));
    let control = BatchHeader { payload_kind: PayloadKind::Control, ..header };
    assert_eq!(control.check_produced(), Err(BatchError::Kind { found: PayloadKind::Control }));
}

#[test]
fn counts_and_offsets_must_match_the_payload() {
    let mut bytes = samples::batch(Compression::None);
    bytes[36] = 4;
    let bytes = with_header_crc(bytes);
    assert_eq!(BatchView::new(&bytes).err(), Some(BatchError::RecordCount { stated: 4, found: 5 }));

    // The records are the last 5 * 32 bytes before the 8-byte root; the offset delta stands at byte 4 of each.
    let mut bytes = samples::batch(Compression::None);
    let header = BatchHeader::decode(&bytes).unwrap();
    let third = header.payload_range().end - 8 - 3 * 32;
    bytes[third + 4] = 1;
    let payload_crc = crc32c(&bytes[header.payload_range()]);
    BatchHeader { payload_crc, ..header }.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
    assert_eq!(BatchView::new(&bytes).err(), Some(BatchError::OffsetDelta { index: 2, found: 1, least: 2, most: 4 }));

    let mut bytes = samples::batch(Compression::None);
    bytes[third + 4] = 3;
    let payload_crc = crc32c(&bytes[header.payload_range()]);
    BatchHeader { payload_crc, last_offset_delta: 100, ..header }.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
    assert!(matches!(BatchView::new(&bytes).err(), Some(BatchError::OffsetDelta { index: 3, found: 3, least: 4, .. })));
}

#[test]
fn gaps_between_offsets_are_read() {
    let mut bytes = samples::batch(Compression::None);
    let header = BatchHeader::decode(&bytes).unwrap();
    let last = header.payload_range().end - 8 - 32;
    bytes[last + 4] = 200;
    let payload_crc = crc32c(&bytes[header.payload_range()]);
    let header = BatchHeader { payload_crc, last_offset_delta: 300, ..header };
    header.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
    let view = BatchView::new(&bytes).unwrap();
    let offsets: Vec<u64> = view.records().map(|record| record.offset.since(header.base_offset)).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 200]);
    assert_eq!(header.next_offset().since(header.base_offset), 301);
}

#[test]
fn a_misaligned_batch_and_a_batch_without_records_are_refused() {
    let bytes = samples::batch(Compression::None);
    let mut shifted = AlignedVec::new();
    shifted.push(0);
    shifted.extend_from_slice(&bytes);
    assert_eq!(BatchView::new(&shifted[1..]).err(), Some(BatchError::Misaligned));
    // The broker's check needs no alignment.
    assert!(verify_batch(&shifted[1..]).is_ok());

    let mut padding = AlignedVec::new();
    padding.resize(96, 0);
    batch::write_padding(&mut padding, Offset(0), LeaderEpoch(0));
    assert_eq!(BatchView::new(&padding).err(), Some(BatchError::Kind { found: PayloadKind::Padding }));
}

#[test]
fn a_compressed_payload_that_gives_another_length_is_refused() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let bytes = samples::batch(compression);
        let header = BatchHeader::decode(&bytes).unwrap();
        for length in
            [0, header.uncompressed_length_bytes - 1, header.uncompressed_length_bytes + 1, limits::BATCH_UNCOMPRESSED_BYTES_MAX]
        {
            let mut damaged = bytes.clone();
            BatchHeader { uncompressed_length_bytes: length, ..header }.encode(damaged.as_mut_slice().first_chunk_mut().unwrap());
            let error = BatchView::new(&damaged).err().expect("another length");
            assert!(matches!(error, BatchError::Decompress(_)), "{compression} {length}: {error}");
        }
    }
}
