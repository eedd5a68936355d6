//! Every bit of every format is under a checksum, and what belongs elsewhere does not pass.

use commit_log::format::block::{BlockHeader, BlockPlace};
use commit_log::format::checkpoint::Checkpoint;
use commit_log::format::file_header::FileHeader;
use commit_log::format::segment::{SegmentHeader, SegmentIndex, SegmentTrailer};
use commit_log::format::superblock::Superblock;
use commit_log::format::{BLOCK_BYTES, FormatError};
use wire::Offset;

use crate::samples;

fn decode_block(bytes: &[u8], place: BlockPlace) -> Result<Vec<u8>, FormatError> {
    let header = BlockHeader::decode(bytes, place)?;
    Ok(header.verify_body(bytes)?.to_vec())
}

fn decode_index(bytes: &[u8]) -> Result<SegmentIndex, FormatError> {
    let file_bytes = 409_600 + bytes.len() as u64;
    let trailer = SegmentTrailer::decode(bytes, samples::key(2), Offset(100), file_bytes)?;
    assert_eq!(trailer.index_bytes(file_bytes), bytes.len() as u64);
    SegmentIndex::decode(bytes, &trailer)
}

fn index_bytes() -> Vec<u8> {
    samples::index().encode(samples::key(2), 409_600, Offset(180))
}

/// Flips each bit in turn, and cuts the bytes at each length.
fn check(what: &str, mut bytes: Vec<u8>, decode: impl Fn(&[u8]) -> bool) {
    assert!(decode(&bytes), "{what}: whole");
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!decode(&bytes), "{what}: bit {bit} flipped");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in (0..bytes.len()).step_by(13) {
        assert!(!decode(&bytes[..length]), "{what}: cut to {length}");
    }
}

#[test]
fn a_flipped_bit_never_passes() {
    let disk = samples::disk();
    check("block", samples::block(), |bytes| decode_block(bytes, samples::place()).is_ok());
    check("file header", samples::file_header_bytes(), |bytes| FileHeader::decode(bytes, samples::STORAGE_ID, 7).is_ok());
    check("segment header", samples::segment_header_bytes(), |bytes| {
        SegmentHeader::decode(bytes, samples::key(2), Offset(100)).is_ok()
    });
    check("superblock", samples::superblock().encode(), |bytes| Superblock::decode(bytes).is_ok());
    let checkpoint = samples::checkpoint().encode(&disk);
    check("checkpoint", checkpoint, |bytes| Checkpoint::decode(bytes, samples::STORAGE_ID, 8, &disk).is_ok());
    let index = index_bytes();
    for bit in 0..index.len() * 8 {
        let mut bytes = index.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_index(&bytes).is_err(), "index: bit {bit}");
    }
}

#[test]
fn stale_and_misdirected_bytes_do_not_pass() {
    let (block, place) = (samples::block(), samples::place());
    let elsewhere = [
        BlockPlace { storage_id: place.storage_id + 1, ..place },
        BlockPlace { file_sequence: place.file_sequence + 1, ..place },
        BlockPlace { position: place.position + BLOCK_BYTES as u64, ..place },
    ];
    for place in elsewhere {
        let found = decode_block(&block, place);
        assert!(matches!(found, Err(FormatError::Foreign { .. })), "{place:?}: {found:?}");
    }
    let header = samples::file_header_bytes();
    assert!(matches!(FileHeader::decode(&header, samples::STORAGE_ID, 8), Err(FormatError::Foreign { .. })), "recycled file");
    assert!(matches!(FileHeader::decode(&header, 1, 7), Err(FormatError::Foreign { .. })), "another storage");
    let header = samples::segment_header_bytes();
    assert!(matches!(SegmentHeader::decode(&header, samples::key(3), Offset(100)), Err(FormatError::Foreign { .. })));
    assert!(matches!(SegmentHeader::decode(&header, samples::key(2), Offset(101)), Err(FormatError::Foreign { .. })));
    let index = index_bytes();
    let trailer = SegmentTrailer::decode(&index, samples::key(3), Offset(100), 1 << 20);
    assert!(matches!(trailer, Err(FormatError::Foreign { .. })), "{trailer:?}");
}

#[test]
fn formats_read_back_what_was_written() {
    let disk = samples::disk();
    let checkpoint = samples::checkpoint();
    assert_eq!(Checkpoint::decode(&checkpoint.encode(&disk), samples::STORAGE_ID, 8, &disk).unwrap(), checkpoint);
    assert_eq!(Superblock::decode(&samples::superblock().encode()).unwrap(), samples::superblock());
    assert_eq!(FileHeader::decode(&samples::file_header_bytes(), samples::STORAGE_ID, 7).unwrap(), samples::file_header());
    let header = SegmentHeader::decode(&samples::segment_header_bytes(), samples::key(2), Offset(100)).unwrap();
    assert_eq!(header, samples::segment_header());
    assert_eq!(decode_index(&index_bytes()).unwrap(), samples::index());
}

#[test]
fn a_data_directory_may_be_moved() {
    let bytes = samples::checkpoint().encode(&samples::disk());
    let moved = std::sync::Arc::from(std::path::Path::new("/moved"));
    let checkpoint = Checkpoint::decode(&bytes, samples::STORAGE_ID, 8, &moved).unwrap();
    assert_eq!(checkpoint.partitions[0].segments[0].disk, moved);
    assert_eq!(checkpoint.partitions[0].segments[1].disk.to_str(), Some("/other"));
}
