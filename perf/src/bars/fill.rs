//! A log that is there before a measurement begins.

use std::time::Duration;

use wire::{Offset, OffsetAt, TopicConfig};

use super::BarError;
use super::rig::{BATCH_BYTES, MESSAGE_BYTES, WARMUP, batch, unique};
use crate::broker_process::BrokerProcess;
use crate::driver::blast::{Blast, BlastOptions, Target};
use crate::driver::session::{Session, Topic};

/// Makes a topic and fills it with at least `bytes`.
pub(crate) fn filled_topic(
    broker: &BrokerProcess,
    session: &mut Session,
    config: &TopicConfig,
    bytes: u64,
) -> Result<Vec<Topic>, BarError> {
    let topics = session.create_topics(&unique("filled"), 1, config)?;
    let targets: Vec<Target> =
        topics.iter().flat_map(Topic::partitions).map(|partition| Target { partition, by_shard: partition.shard }).collect();
    let mut ends = session.offsets(&topics, OffsetAt::Latest)?;
    while record_bytes(&ends) < bytes {
        let options = BlastOptions {
            broker: broker.address(),
            shard_count: session.hello().shard_count,
            targets: &targets,
            batch: batch(BATCH_BYTES),
            depth: 2,
            readers: 0,
            lag_bytes_max: 0,
        };
        let blasted = Blast::new(options, &ends)?.run(Duration::ZERO, WARMUP, &mut || {})?;
        let before = record_bytes(&ends);
        // On a slow machine all answers may come after the time of the blast.
        ends = session.offsets(&topics, OffsetAt::Latest)?;
        if record_bytes(&ends) == before {
            let why = blasted.last_refusal.map_or("no batch was acknowledged".to_owned(), |code| code.to_string());
            return Err(BarError::Unfit(format!("a topic could not be filled: {why}")));
        }
    }
    Ok(topics)
}

fn record_bytes(ends: &[Offset]) -> u64 {
    ends.iter().map(|end| end.0 * MESSAGE_BYTES as u64).sum()
}
