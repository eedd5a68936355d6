//! Frames out of a stream, in whatever pieces it arrives.

use proptest::prelude::*;
use wire::*;

use crate::samples::TOPIC;

fn request() -> DeleteTopicRequest {
    DeleteTopicRequest { name: "orders".to_owned() }
}

fn stream(frames: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    for correlation_id in 0..frames as u64 {
        let attachment = vec![correlation_id as u8; 16 * (correlation_id as usize % 4)];
        stream.extend_from_slice(&encode_request(correlation_id, &request(), attachment.len()));
        stream.extend_from_slice(&attachment);
    }
    stream
}

proptest! {
    #[test]
    fn frames_come_out_whole_and_in_order(frames in 1_usize..8, pieces in prop::collection::vec(1_usize..90, 1..200)) {
        let stream = stream(frames);
        let mut decoder = FrameDecoder::default();
        let (mut start, mut arrived, mut seen) = (0, 0, 0);
        let mut pieces = pieces.into_iter().cycle();
        while start < stream.len() {
            match decoder.step(&stream[start..arrived]).unwrap() {
                FrameStep::Complete { header } => {
                    prop_assert_eq!((header.correlation_id, header.api), (seen, Api::DeleteTopic.code()));
                    let frame = &stream[start..start + header.total_length as usize];
                    prop_assert_eq!(decode_body::<DeleteTopicRequest>(&frame[header.body_range()]).unwrap(), request());
                    prop_assert!(frame[header.attachment_range()].iter().all(|&byte| u64::from(byte) == seen));
                    prop_assert_eq!(header.attachment_bytes(), 16 * (seen as usize % 4));
                    start += frame.len();
                    seen += 1;
                }
                FrameStep::Header { missing_bytes } => {
                    prop_assert_eq!(missing_bytes, 32 - (arrived - start));
                    arrived = stream.len().min(arrived + pieces.next().unwrap());
                }
                FrameStep::Rest { header, missing_bytes } => {
                    prop_assert_eq!(missing_bytes, start + header.total_length as usize - arrived);
                    arrived = stream.len().min(arrived + pieces.next().unwrap());
                }
            }
        }
        prop_assert_eq!(seen, frames as u64);
        prop_assert_eq!(decoder.finish(&[]), Ok(()));
    }
}

#[test]
fn a_stream_that_ends_within_a_frame_says_how_much_is_missing() {
    let stream = stream(1);
    let mut decoder = FrameDecoder::default();
    for length in 1..stream.len() {
        decoder.step(&stream[..length]).unwrap();
        let needed_bytes = if length < 32 { 32 } else { stream.len() };
        assert_eq!(decoder.finish(&stream[..length]), Err(FrameError::Truncated { needed_bytes, found_bytes: length }));
    }
}

#[test]
fn every_change_of_every_header_byte_is_an_error() {
    let frame = stream(1);
    let mut damaged = frame.clone();
    for position in 0..32 {
        for flip in 1..=255 {
            damaged[position] = frame[position] ^ flip;
            let error = FrameHeader::decode(&damaged).expect_err("a damaged header");
            let expected = if position < 4 {
                matches!(error, FrameError::Magic { .. })
            } else {
                matches!(error, FrameError::HeaderCrc { .. })
            };
            assert!(expected, "byte {position} ^ {flip}: {error}");
            assert_eq!(error.code(), ErrorCode::CorruptFrame);
        }
        damaged[position] = frame[position];
    }
}

#[test]
fn a_header_with_a_right_checksum_and_a_wrong_number_names_the_field() {
    let check = |at: usize, bytes: &[u8]| {
        let mut frame = stream(1);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = checksum::crc32c(&frame[..28]);
        frame[28..32].copy_from_slice(&crc.to_le_bytes());
        FrameHeader::decode(&frame).expect_err("a wrong number")
    };
    assert!(matches!(check(4, &[0xff; 4]), FrameError::TooLarge { .. }));
    assert_eq!(check(4, &[0xff; 4]).code(), ErrorCode::FrameTooLarge);
    assert!(matches!(check(4, &[33, 0, 0, 0]), FrameError::Field { position: 4, .. }));
    assert!(matches!(check(4, &[32, 0, 0, 0]), FrameError::Field { position: 4, .. }));
    assert!(matches!(check(12, &[2]), FrameError::Field { position: 12, .. }));
    assert!(matches!(check(24, &[0xff; 4]), FrameError::Field { position: 24, .. }));
    // 2 MiB: too much for a request's body, allowed in a reply (whose total length would then have to fit).
    assert!(matches!(check(24, &[0, 0, 0x20, 0]), FrameError::Field { position: 24, .. }));
    assert!(matches!(check(12, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0]), FrameError::Field { position: 4, .. }));
}

#[test]
fn a_smaller_limit_of_the_reader_is_kept() {
    let stream = stream(1);
    let error = FrameDecoder::new(32).step(&stream).expect_err("too large");
    assert_eq!(error, FrameError::TooLarge { found_bytes: stream.len() as u32, limit_bytes: 32 });
}

#[test]
fn a_reply_answers_the_request_it_was_made_for() {
    let frame = encode_request(99, &request(), 0);
    let request = FrameHeader::decode(&frame).unwrap();
    let reply = encode_reply(&request, &DeleteTopicReply { error: ErrorCode::None, message: None }, 0);
    let header = FrameHeader::decode(&reply).unwrap();
    assert!(header.is_reply());
    assert_eq!((header.api, header.api_version, header.correlation_id), (request.api, request.api_version, 99));
}

#[test]
fn counts_of_a_request_are_limited() {
    let partition =
        FetchPartition { topic: TOPIC, partition: PartitionIndex(0), offset: Offset(0), max_bytes: 1, leader_epoch: None };
    let partitions = vec![partition; limits::PARTITIONS_PER_REQUEST_MAX + 1];
    let mut request = FetchRequest { max_wait_ms: 0, min_bytes: 0, max_bytes: 0, partitions };
    let error = request.check().expect_err("too many");
    assert_eq!(error.to_string(), "frame body: 4097 partitions in a request, 4096 are allowed");
    assert_eq!(decode_body::<FetchRequest>(&request.write_to(AlignedVec::new())), Err(error));
    request.partitions.pop();
    assert_eq!(request.check(), Ok(()));
    // And such a request is a legal frame.
    FrameHeader::decode(&encode_request(0, &request, 0)).unwrap();
}

#[test]
fn an_error_of_a_newer_version_is_read() {
    let mut body = DeleteTopicReply { error: ErrorCode::None, message: None }.write_to(AlignedVec::new());
    body[0..2].copy_from_slice(&4711_u16.to_le_bytes());
    assert_eq!(decode_body::<DeleteTopicReply>(&body).unwrap().error, ErrorCode::Unrecognised);
}

#[test]
fn versions_are_negotiated() {
    let range = |api: Api, version_min, version_max| ApiRange { api: api.code(), version_min, version_max };
    let theirs = [range(Api::Fetch, 1, 9), range(Api::Produce, 2, 3)];
    assert_eq!(ApiRange::common(Api::Fetch, &theirs), Some(1));
    assert_eq!(ApiRange::common(Api::Produce, &theirs), None);
    assert_eq!(ApiRange::common(Api::Hello, &theirs), None);
}
