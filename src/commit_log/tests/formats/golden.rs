//! The bytes of version 1, pinned: a change of one of these files is a change of format.
//!
//! `CORELANE_GOLDEN=write cargo test -p commit_log --test formats golden` writes them anew.

use std::path::PathBuf;

use wire::Offset;

use crate::samples;

fn check(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("CORELANE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    let differs = golden.iter().zip(bytes).position(|(golden, now)| golden != now);
    assert_eq!(differs, None, "{name}: first byte that differs");
    assert_eq!(golden.len(), bytes.len(), "{name}: length");
}

#[test]
fn bytes_are_those_of_version_1() {
    check("block.v1", &samples::block());
    check("file_header.v1", &samples::file_header_bytes());
    check("segment_header.v1", &samples::segment_header_bytes());
    check("segment_index.v1", &samples::index().encode(samples::key(2), 409_600, Offset(180)));
    check("checkpoint.v1", &samples::checkpoint().encode(&samples::disk()));
    check("superblock.v1", &samples::superblock().encode());
}
