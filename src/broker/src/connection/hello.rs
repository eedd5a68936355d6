//! The first request of a connection, and the one form in which a connection is refused.

use super::{Connection, Incoming, Refused, dispatch::SERVED};
use crate::{admission::within, shard::Shard};
use shards::{
    clock::{self, Monotonic},
    net::Stream,
};
use std::time::Duration;
use wire::{
    AlignedVec, Api, ErrorCode, FrameHeader, HelloReply, HelloRequest, encode_frame,
    frame::FRAME_FLAG_REPLY,
    limits::{CLIENT_ID_BYTES_MAX, FRAME_HEADER_BYTES},
};

/// A Hello above this is not looked at before it is read: the connection stays on the shard that accepted it.
const PEEKED_BYTES_MAX: usize = 4096;
/// Half a Hello has arrived: look again after this.
const PEEK_AGAIN: Duration = Duration::from_millis(2);
/// Once it has begun, the rest is waited for so long: a Hello is one packet. One that is still not whole is read on the shard that accepted it,
/// where the end of the stream shows, which it does not behind bytes that were only looked at.
const PEEK_WITHIN: Duration = Duration::from_millis(100);

/// The name and version of this broker.
pub(crate) const SERVER: &str = concat!("corelane ", env!("CARGO_PKG_VERSION"));

/// Looks at the first frame without taking it from the socket, so that the connection can still go to the shard it names. `None` for
/// whatever is not a plain Hello in time: reading it will tell.
pub(super) async fn shard_wanted(stream: &Stream, mut deadline: Monotonic) -> Option<u16> {
    let mut bytes = [0; PEEKED_BYTES_MAX];
    let mut begun = false;
    loop {
        let left = deadline.since(clock::monotonic());
        if left.is_zero() {
            return None;
        }
        let seen = within(left, stream.peek(&mut bytes)).await?.ok()?;
        if seen == 0 {
            return None;
        }
        if seen >= FRAME_HEADER_BYTES {
            let header = FrameHeader::decode(&bytes[..seen]).ok()?;
            let total = header.total_length as usize;
            if header.api != Api::Hello.code() || total > PEEKED_BYTES_MAX {
                return None;
            }
            if seen >= total {
                return wire::decode_body::<HelloRequest>(&bytes[header.body_range()]).ok()?.shard_wanted;
            }
        }
        if !begun {
            begun = true;
            deadline = deadline.min(clock::monotonic() + PEEK_WITHIN);
        }
        clock::sleep(PEEK_AGAIN).await;
    }
}

/// Answers Hello.
pub(super) fn hello(shard: &Shard, connection: &Connection, incoming: Incoming) -> Result<(), Refused> {
    let request: HelloRequest = incoming.decode()?;
    if request.client_id.len() > CLIENT_ID_BYTES_MAX {
        let message = format!("a client id of {} bytes: {CLIENT_ID_BYTES_MAX} are allowed", request.client_id.len());
        return Err(Refused::new(ErrorCode::InvalidRequest, message));
    }
    connection.client_id.replace(request.client_id);
    let process = &shard.process;
    let reply = HelloReply {
        error: if shard.is_stopping() { ErrorCode::ShuttingDown } else { ErrorCode::None },
        message: None,
        broker_id: process.broker_id,
        cluster_id: process.cluster_id,
        shard_count: shard.count,
        shard: shard.id.0,
        apis: SERVED.map(Api::range).to_vec(),
        frame_bytes_max: u32::try_from(shard.config.limits.frame_bytes_max.0).unwrap_or(u32::MAX),
        server: SERVER.to_owned(),
    };
    incoming.into_reply_to().send(&reply);
    Ok(())
}

/// The one error of a connection that is refused: a reply to Hello, whatever was asked, since the question may not be readable.
pub(super) fn error_frame(correlation_id: u64, refused: &Refused) -> AlignedVec {
    let reply = HelloReply {
        error: refused.code,
        message: Some(refused.message.clone()),
        broker_id: 0,
        cluster_id: [0; 16],
        shard_count: 0,
        shard: 0,
        apis: Vec::new(),
        frame_bytes_max: 0,
        server: SERVER.to_owned(),
    };
    encode_frame(Api::Hello.code(), Api::Hello.versions().1, FRAME_FLAG_REPLY, correlation_id, &reply, 0)
}
