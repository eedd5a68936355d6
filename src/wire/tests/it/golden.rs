//! Every byte of every version of every format, pinned in `tests/golden`. A change of these files is a new version of a format:
//! readers of old versions must keep reading the old files. `CORELANE_GOLDEN_WRITE=1` writes those that are missing.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

use wire::*;

use crate::samples::{self, TOPIC, config, for_each_body};

fn check_bytes(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.bin"));
    if std::env::var_os("CORELANE_GOLDEN_WRITE").is_some() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("golden file {name}: {error}"))
}

fn aligned(bytes: &[u8]) -> AlignedVec {
    let mut aligned = AlignedVec::new();
    aligned.extend_from_slice(bytes);
    aligned
}

#[track_caller]
fn check_body<T: Body + PartialEq + Debug>(name: &str, value: &T) {
    let written = encode_frame(0x0a0b, 1, 1, 0x1122_3344_5566_7788, value, 4096);
    let golden = check_bytes(name, &written);
    assert!(golden == written.as_slice(), "{name}: the bytes of version 1 have changed");
    // A reader of version 1, on the stored bytes alone.
    let golden = aligned(&golden);
    let header = FrameHeader::decode(&golden).unwrap();
    assert_eq!((header.api, header.api_version, header.correlation_id), (0x0a0b, 1, 0x1122_3344_5566_7788), "{name}");
    assert_eq!(header.attachment_bytes(), 4096, "{name}");
    assert_eq!(&decode_body::<T>(&golden[header.body_range()]).unwrap(), value, "{name}");
    access_body::<T>(&golden[header.body_range()]).unwrap();
}

#[test]
fn every_request_and_reply() {
    macro_rules! visit {
        ($name:literal, $value:expr) => {
            check_body($name, &$value);
        };
    }
    for_each_body!(visit);
}

#[test]
fn frame_header() {
    let header =
        FrameHeader { total_length: 160, api: 10, api_version: 1, flags: 1, correlation_id: 0x0102_0304, body_length: 33 };
    let mut bytes = [0; 32];
    header.encode(&mut bytes);
    let golden = check_bytes("frame_header", &bytes);
    assert_eq!(golden, bytes);
    assert_eq!(FrameHeader::decode(&golden), Ok(header));
    assert_eq!(header.body_range(), 32..65);
    assert_eq!(header.attachment_range(), 80..160);
}

#[test]
fn batch_of_records() {
    let written = samples::batch(Compression::None);
    let golden = check_bytes("batch_none", &written);
    assert!(golden == written.as_slice(), "the bytes of version 1 have changed");
    check_sample_batch(&golden, Compression::None);
}

/// The compressor's own version decides its bytes, so that only reading is pinned.
#[test]
fn compressed_batches_are_read() {
    for (name, compression) in [("batch_lz4", Compression::Lz4), ("batch_zstd", Compression::Zstd)] {
        let golden = check_bytes(name, &samples::batch(compression));
        check_sample_batch(&golden, compression);
    }
}

fn check_sample_batch(golden: &[u8], compression: Compression) {
    let golden = aligned(golden);
    let view = BatchView::new(&golden).unwrap();
    let header = view.header();
    assert_eq!((header.payload_kind, header.compression), (PayloadKind::Records, compression));
    assert_eq!((header.base_offset, header.leader_epoch), (Offset(0x0102_0304_0506), LeaderEpoch(0x2a)));
    assert_eq!(
        (header.producer_id, header.producer_epoch, header.base_sequence),
        (ProducerId(0x1122_3344_5566_7788), ProducerEpoch(5), Sequence(6))
    );
    assert_eq!(
        (header.first_timestamp_ms, header.max_timestamp_ms),
        (TimestampMs(1_764_000_000_000), TimestampMs(1_764_000_000_500))
    );
    let shown: Vec<String> = view
        .records()
        .map(|record| {
            let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let headers: Vec<_> = record.headers.iter().map(|header| (header.name, text(header.value))).collect();
            let value = text(record.value).map(|value| (value.len(), value.chars().take(5).collect::<String>()));
            format!("{} {} {:?} {value:?} {headers:?}", record.offset.0 & 0xff, record.timestamp_ms, text(record.key))
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#"6 1764000000000 Some("key") Some((5, "value")) []"#,
            r#"7 1763999999990 None Some((520, "compr")) [("trace", Some("7")), ("none", None)]"#,
            r#"8 1764000000500 Some("") None [("", Some(""))]"#,
            r#"9 1764000000001 None None []"#,
            r#"10 1764000000002 Some("123456789") Some((0, "")) [("a", Some("1")), ("a", Some("2"))]"#,
        ]
    );
}

/// What compaction leaves: of a batch with records, and for batches without.
#[test]
fn compacted_batches() {
    let batch = samples::batch(Compression::None);
    let written = BatchView::new(&batch).unwrap().retain(|record| record.offset.0 % 2 == 0).unwrap();
    let golden = aligned(&check_bytes("batch_retained", &written));
    assert!(golden.as_slice() == written.as_slice(), "the bytes of version 1 have changed");
    let view = BatchView::new(&golden).unwrap();
    let offsets: Vec<u64> = view.records().map(|record| record.offset.0 & 0xff).collect();
    assert_eq!((offsets, view.header().last_offset_delta), (vec![6, 8, 10], 4));
    let empty = batch::empty_batch(Offset(77), Offset(99), LeaderEpoch(3));
    let golden = aligned(&check_bytes("batch_empty", &empty));
    assert!(golden.as_slice() == empty.as_slice(), "the bytes of version 1 have changed");
    let view = BatchView::new(&golden).unwrap();
    assert_eq!((view.records().len(), view.header().next_offset()), (0, Offset(100)));
}

#[test]
fn padding_batch() {
    let mut bytes = vec![0xee; 112];
    batch::write_padding(&mut bytes, Offset(77), LeaderEpoch(3));
    let golden = check_bytes("batch_padding", &bytes);
    assert_eq!(golden, bytes);
    let header = verify_batch(&golden).unwrap();
    assert_eq!((header.payload_kind, header.record_count, header.base_offset), (PayloadKind::Padding, 0, Offset(77)));
    assert_eq!((header.next_offset(), header.total_length()), (Offset(77), 112));
}

#[test]
fn a_version_to_come_is_named_in_the_error() {
    let mut bytes = samples::batch(Compression::None);
    bytes[4] = 2;
    assert_eq!(BatchHeader::decode(&bytes), Err(BatchError::Version { found: 2 }));
}
