//! The largest message goes through; one byte more is refused by name, and the connection goes on.

use wire::limits::{BATCH_BYTES_MAX, MESSAGE_BYTES_MAX_CEILING, MESSAGE_BYTES_MAX_DEFAULT};
use wire::{
    Acks, BatchBuilder, BuilderOptions, ErrorCode, ProducePartition, ProduceReply, ProduceRequest, TimestampMs, decode_body,
    encode_request,
};

use super::rig::{Rig, config, unique};
use super::{BarError, Judged, Limit};
use crate::driver::link::Link;
use crate::driver::session::{Session, Topic};

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let topics = Session::connect(broker.address())?.create_topics(&unique("large"), 1, &config(1))?;
    let (mut link, _) = Link::connect(broker.address(), "perf-large", Some(topics[0].shards[0]))?;
    let largest = MESSAGE_BYTES_MAX_DEFAULT as usize;
    let answers = [largest, largest + 1, 100]
        .map(|value_bytes| produce(&mut link, &topics[0], value_bytes).map(|code| (value_bytes, code)));
    let mut found = Vec::new();
    for answer in answers {
        found.push(answer?);
    }
    broker.stop()?;
    let wanted = [ErrorCode::None, ErrorCode::MessageTooLarge, ErrorCode::None];
    let right = found.iter().zip(wanted).filter(|((_, code), wanted)| code == wanted).count();
    let detail = found.iter().map(|(bytes, code)| format!("{bytes} bytes: {code}")).collect::<Vec<_>>().join("; ");
    let what = "right answers of 3: 10 MiB, one byte more, and 100 bytes after it on the same connection";
    Ok(vec![Judged::correct("large-message", what, Limit::AtLeast(3.0), right as f64, detail)])
}

fn produce(link: &mut Link, topic: &Topic, value_bytes: usize) -> Result<ErrorCode, BarError> {
    let mut builder = BatchBuilder::new(BuilderOptions {
        batch_bytes_max: BATCH_BYTES_MAX,
        message_bytes_max: MESSAGE_BYTES_MAX_CEILING,
        ..BuilderOptions::default()
    });
    let value = vec![0x5a; value_bytes];
    builder.push(TimestampMs(1), None, Some(&value), &[]).map_err(|error| BarError::Unfit(error.to_string()))?;
    let batch = builder.build();
    let partition = topic.partitions().next().expect("the topic has one");
    let request = ProduceRequest {
        acks: Acks::AllInSync,
        timeout_ms: 30_000,
        partitions: vec![ProducePartition {
            topic: topic.id,
            partition: partition.index,
            batch_lengths: vec![batch.len() as u32],
        }],
    };
    let correlation = link.correlation();
    link.call_raw(&encode_request(correlation, &request, batch.len()), &batch)?;
    let (header, frame) = link.wait_frame()?;
    let reply: ProduceReply =
        decode_body(&frame[header.body_range()]).map_err(|error| BarError::Unfit(format!("not a produce reply: {error}")))?;
    Ok(reply.partitions.first().map_or(ErrorCode::Internal, |partition| partition.error))
}
