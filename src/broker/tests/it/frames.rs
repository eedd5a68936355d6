//! Frames that are not frames: one clear error, then the connection ends, and nobody else notices.

use crate::support::{Raw, Site, batch, fetch_request, stop};
use std::{
    io::Write,
    net::{Shutdown, SocketAddr},
};
use wire::{
    Api, ErrorCode, HelloRequest, ListTopicsRequest, ProducePartition, ProduceRequest, TopicConfig, TopicId, encode_request,
    frame::FrameHeader,
    limits::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
};

fn header(header: FrameHeader) -> [u8; FRAME_HEADER_BYTES] {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    header.encode(&mut bytes);
    bytes
}

/// Whatever is sent, the answer is one error with this code and these words.
fn check(address: SocketAddr, hello: bool, bytes: &[u8], code: ErrorCode, id: u64, words: &str) {
    let mut client = if hello { Raw::connect(address) } else { Raw::silent(address) };
    client.stream.write_all(bytes).unwrap();
    let (correlation_id, refusal) = client.refusal();
    let message = refusal.message.unwrap();
    assert_eq!((refusal.error, correlation_id), (code, id), "{message}");
    assert!(message.contains(words), "{message:?} does not say {words:?}");
}

#[test]
fn a_bad_frame_is_told_apart_and_ends_its_connection_only() {
    let site = Site::new();
    let broker = site.start(1);
    let address = broker.addr();
    let mut bystander = Raw::connect(address);
    let topic = bystander.create("t", TopicConfig::default());

    let list = encode_request(9, &ListTopicsRequest { prefix: String::new(), after: None, limit: 0 }, 0).to_vec();
    let good = FrameHeader { total_length: 48, api: 7, api_version: 1, flags: 0, correlation_id: 9, body_length: 8 };
    let mut flipped = list.clone();
    flipped[17] ^= 4;
    let mut bad_body = header(FrameHeader { total_length: 64, body_length: 30, ..good }).to_vec();
    bad_body.extend_from_slice(&[0xff; 32]);
    let unknown = header(FrameHeader { api: 999, ..good }).into_iter().chain([0; 16]).collect::<Vec<u8>>();
    let newer = header(FrameHeader { api_version: 7, ..good }).into_iter().chain([0; 16]).collect::<Vec<u8>>();
    let reply = header(FrameHeader { flags: 1, ..good }).into_iter().chain([0; 16]).collect::<Vec<u8>>();

    check(address, false, b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", ErrorCode::CorruptFrame, 0, "magic");
    check(address, false, &[0; 4096], ErrorCode::CorruptFrame, 0, "magic");
    check(address, true, &[0xa5; 40], ErrorCode::CorruptFrame, 0, "magic");
    check(address, true, &flipped, ErrorCode::CorruptFrame, 0, "crc");
    check(address, false, &list, ErrorCode::InvalidRequest, 9, "Hello");
    check(address, true, &bad_body, ErrorCode::CorruptFrame, 9, "body");
    check(address, true, &unknown, ErrorCode::UnknownApi, 9, "999");
    check(address, true, &newer, ErrorCode::UnsupportedVersion, 9, "version 7");
    check(address, true, &reply, ErrorCode::CorruptFrame, 9, "flag");

    bystander.produce(topic, 0, batch(&["still here"]));
    stop(broker);
}

#[test]
fn what_hello_names_is_served_and_nothing_else() {
    let site = Site::new();
    let broker = site.start(1);
    let (_, hello) = Raw::connect_to_shard(broker.addr(), None);
    let named: Vec<u16> = hello.apis.iter().map(|range| range.api).collect();
    assert!(named.contains(&Api::Produce.code()) && named.len() <= Api::ALL.len(), "{named:?}");
    for api in Api::ALL.map(Api::code).into_iter().chain([0, 9, 999, u16::MAX]) {
        let mut client = Raw::connect(broker.addr());
        let empty = FrameHeader { total_length: 32, api, api_version: 1, flags: 0, correlation_id: 7, body_length: 0 };
        client.stream.write_all(&header(empty)).unwrap();
        let (_, refusal) = client.refusal();
        assert_eq!(refusal.error != ErrorCode::UnknownApi, named.contains(&api), "{api}: {:?}", refusal.message);
    }
    stop(broker);
}

#[test]
fn lengths_that_do_not_add_up_are_refused() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    let one = batch(&["v"]);
    for length in [0, 16, 1 << 20, u32::MAX] {
        let mut client = Raw::connect(broker.addr());
        let part = ProducePartition { topic, partition: wire::PartitionIndex(0), batch_lengths: vec![length] };
        client.send(&ProduceRequest { acks: wire::Acks::AllInSync, timeout_ms: 0, partitions: vec![part] }, &one);
        let (_, refusal) = client.refusal();
        assert!(refusal.message.unwrap().contains("batch"));
    }
    client.produce(topic, 0, one);
    stop(broker);
}

#[test]
fn a_frame_above_the_limit_is_refused_before_it_is_read() {
    let site = Site::new();
    let mut config = site.config(1);
    config.limits.frame_bytes_max = "32MiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    // More than the protocol allows is not even a frame; more than this broker allows is.
    for (length, id) in [(FRAME_BYTES_MAX + 16, 0), (33_u32 << 20, 5)] {
        let mut client = Raw::connect(broker.addr());
        let large = FrameHeader { total_length: 64, api: 10, api_version: 1, flags: 0, correlation_id: 5, body_length: 16 };
        let mut bytes = header(large);
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        let crc = wire::checksum::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        client.stream.write_all(&bytes).unwrap();
        // The client has begun to send what follows: the error must reach it nevertheless.
        client.stream.write_all(&vec![0; 4 << 20]).unwrap();
        let (correlation_id, refusal) = client.refusal();
        assert_eq!((refusal.error, correlation_id), (ErrorCode::FrameTooLarge, id), "{:?}", refusal.message);
    }
    Raw::connect(broker.addr()).create("t", TopicConfig::default());
    stop(broker);
}

#[test]
fn a_frame_that_ends_half_way_is_called_truncated() {
    let site = Site::new();
    let broker = site.start(1);
    let hello = HelloRequest { client_id: "test".to_owned(), versions: Api::ranges(), shard_wanted: None };
    let hello = encode_request(3, &hello, 0);
    let fetch = encode_request(4, &fetch_request(TopicId([1; 16]), 0, 0, 0, 0), 0);
    let large = encode_request(4, &fetch_request(TopicId([1; 16]), 0, 0, 0, 0), 1 << 20);
    // Within the header, within the body; a small frame and one that gets a buffer of its own; before and after Hello.
    let cases: [(bool, &[u8]); 5] =
        [(false, &hello[..10]), (false, &hello[..hello.len() - 1]), (true, &fetch[..31]), (true, &fetch[..40]), (true, &large)];
    for (greeted, bytes) in cases {
        let mut client = if greeted { Raw::connect(broker.addr()) } else { Raw::silent(broker.addr()) };
        client.stream.write_all(bytes).unwrap();
        client.stream.shutdown(Shutdown::Write).unwrap();
        let (_, refusal) = client.refusal();
        assert_eq!(refusal.error, ErrorCode::CorruptFrame);
        assert!(refusal.message.unwrap().contains("truncated"));
    }
    // A client that closes between two frames has done nothing wrong.
    let mut client = Raw::connect(broker.addr());
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.is_at_end());
    stop(broker);
}

#[test]
fn a_frame_may_arrive_byte_by_byte() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::silent(broker.addr());
    let hello = HelloRequest { client_id: "slow".to_owned(), versions: Api::ranges(), shard_wanted: Some(0) };
    let list = ListTopicsRequest { prefix: String::new(), after: None, limit: 0 };
    for frame in [encode_request(1, &hello, 0), encode_request(2, &list, 0)] {
        for byte in frame.iter() {
            client.stream.write_all(&[*byte]).unwrap();
        }
    }
    assert_eq!((client.receive().header.correlation_id, client.receive().header.correlation_id), (1, 2));
    stop(broker);
}
