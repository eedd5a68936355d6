//! A peer that answers the greeting with anything but a greeting.

use corelane_client::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wire::limits::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES};
use wire::{AlignedVec, FrameHeader, HelloReply, ListTopicsReply};

use crate::run;

/// What `Client::connect` says when its first request is answered by `answer`, after which the connection closes.
async fn connect_to(answer: impl FnOnce(&FrameHeader) -> Vec<u8>) -> ClientError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ClientOptions::new([listener.local_addr().unwrap().to_string()]);
    let peer = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; FRAME_HEADER_BYTES];
        stream.read_exact(&mut head).await.unwrap();
        let header = FrameHeader::decode(&head).unwrap();
        let mut body = vec![0; header.total_length as usize - FRAME_HEADER_BYTES];
        stream.read_exact(&mut body).await.unwrap();
        // The client may close before it has read everything.
        let _ = stream.write_all(&answer(&header)).await;
        let _ = stream.shutdown().await;
        // Reading to the end keeps the close from becoming a reset that overtakes the answer.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let (result, ()) = tokio::join!(Client::connect(options), peer);
    result.err().unwrap()
}

fn greeting(request: &FrameHeader) -> AlignedVec {
    let reply = HelloReply {
        error: ErrorCode::None,
        message: None,
        broker_id: 1,
        cluster_id: [7; 16],
        shard_count: 1,
        shard: 0,
        apis: wire::Api::ranges(),
        frame_bytes_max: FRAME_BYTES_MAX,
        server: "hostile".to_owned(),
    };
    wire::encode_reply(request, &reply, 0)
}

/// A good greeting with its header changed.
fn greeting_but(request: &FrameHeader, change: impl FnOnce(&mut FrameHeader)) -> Vec<u8> {
    let mut bytes = greeting(request);
    let mut header = FrameHeader::decode(bytes[..FRAME_HEADER_BYTES].try_into().unwrap()).unwrap();
    change(&mut header);
    header.encode(bytes.first_chunk_mut().unwrap());
    bytes.to_vec()
}

#[test]
fn every_bad_answer_is_an_error_that_says_what_was_wrong() {
    type Answer = fn(&FrameHeader) -> Vec<u8>;
    let cases: [(&str, Answer, ErrorKind, &str); 9] = [
        ("nothing", |_| Vec::new(), ErrorKind::Disconnected, "the broker closed the connection"),
        ("another protocol", |_| b"HTTP/1.1 400 Bad Request\r\n\r\n0000000".to_vec(), ErrorKind::Protocol, "magic"),
        ("garbage", |_| vec![0xa5; 4096], ErrorKind::Protocol, "magic"),
        ("half a header", |header| greeting(header)[..16].to_vec(), ErrorKind::Disconnected, "closed the connection"),
        ("half a body", |header| greeting(header)[..48].to_vec(), ErrorKind::Disconnected, "closed the connection"),
        (
            "a body that is none",
            |header| {
                let mut bytes = greeting(header).to_vec();
                bytes[FRAME_HEADER_BYTES..].fill(0xff);
                bytes
            },
            ErrorKind::Protocol,
            "",
        ),
        (
            "an oversized frame",
            |header| {
                // The encoder refuses to make one.
                let mut bytes = greeting(header).to_vec();
                bytes[4..8].copy_from_slice(&(FRAME_BYTES_MAX + 16).to_le_bytes());
                let crc = wire::checksum::crc32c(&bytes[..28]);
                bytes[28..32].copy_from_slice(&crc.to_le_bytes());
                bytes
            },
            ErrorKind::Protocol,
            "are allowed",
        ),
        (
            "an answer to something else",
            |header| greeting_but(header, |header| header.correlation_id += 1),
            ErrorKind::Protocol,
            "which nothing waits for",
        ),
        (
            "another api",
            |header| {
                let request = FrameHeader { api: wire::Api::ListTopics.code(), ..*header };
                let reply = ListTopicsReply { error: ErrorCode::None, topics: Vec::new(), more: false };
                wire::encode_reply(&request, &reply, 0).to_vec()
            },
            ErrorKind::Protocol,
            "asked for",
        ),
    ];
    for (what, answer, kind, cause) in cases {
        run(async {
            let error = connect_to(answer).await;
            assert_eq!(error.kind(), kind, "{what}: {error}");
            assert!(error.cause().contains(cause), "{what}: {error}");
            assert!(error.place().starts_with("127.0.0.1:"), "{what}: {error}");
            assert_eq!(error.operation(), "connect", "{what}");
        });
    }
}
