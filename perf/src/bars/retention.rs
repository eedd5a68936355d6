//! Publish latency while retention deletes, against the same without.
//!
//! Another topic is filled before each measurement. On one side it is told to keep nothing at the moment at which the load begins, so that segment after
//! segment goes beside it; on the other side it stays.

use wire::{Change, OffsetAt, TopicConfig, TopicConfigChanges};

use super::fill::filled_topic;
use super::pairs::{interleave, median};
use super::rig::{MESSAGE_BYTES, Rig, config, rest};
use super::under_load::{UnderLoad, publish_p99};
use super::{BarError, Judged, Limit};
use crate::broker_process::BrokerProcess;
use crate::driver::session::Session;

/// Share of the rate that saturates at which latency is measured.
const LOAD: f64 = 0.5;
/// Partitions of the topic that is deleted from, and its bytes for each of [`Rig::many_topics`].
const OLD_PARTITIONS: u32 = 2;
const OLD_BYTES: u64 = 256 << 20;
/// Small segments: many go.
const OLD_SEGMENT_BYTES: u64 = wire::limits::SEGMENT_BYTES_MIN;

/// One side of a pair.
struct Side {
    p99_ms: f64,
    /// Records that were deleted beside it.
    deleted: u64,
}

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let load = UnderLoad::of_producers(rig, &broker)?;
    let found = interleave(rig.pairs, || side(rig, &broker, &load, true), || side(rig, &broker, &load, false))?;
    if found.ours.iter().any(|with| with.deleted == 0) {
        return Err(BarError::Unfit("nothing was deleted during a measurement".to_owned()));
    }
    let detail = format!(
        "{:.3} ms / {:.3} ms at {:.0} messages/s; {:.0} MB deleted beside each{}",
        median(found.ours.iter().map(|with| with.p99_ms)),
        median(found.theirs.iter().map(|without| without.p99_ms)),
        load.saturated * LOAD,
        median(found.ours.iter().map(|with| with.deleted as f64)) * MESSAGE_BYTES as f64 / 1e6,
        load.notes()
    );
    let judged = load.doubt(Judged::ratio(
        "retention",
        "publish p99 at 50 % load with deletion running / without",
        Limit::AtMost(1.3),
        found.spread(|with| with.p99_ms, |without| without.p99_ms),
        detail,
    ));
    broker.stop()?;
    Ok(vec![judged])
}

fn side(rig: &Rig, broker: &BrokerProcess, load: &UnderLoad<'_>, deletes: bool) -> Result<Side, BarError> {
    let mut session = Session::connect(broker.address())?;
    let config = TopicConfig { segment_bytes: OLD_SEGMENT_BYTES, ..config(OLD_PARTITIONS) };
    let old = filled_topic(broker, &mut session, &config, OLD_BYTES * u64::from(rig.many_topics))?;
    rest(broker)?;
    let before: u64 = session.offsets(&old, OffsetAt::Earliest)?.iter().map(|start| start.0).sum();
    let mut altered = Ok(());
    let found = load.run(&load.at(LOAD), if deletes { "with deletion" } else { "without" }, &mut || {
        if deletes {
            let changes = TopicConfigChanges { retention_bytes: Change::Set(1), ..TopicConfigChanges::default() };
            altered = session.alter_topics(&old, &changes);
        }
    })?;
    altered?;
    let after: u64 = session.offsets(&old, OffsetAt::Earliest)?.iter().map(|start| start.0).sum();
    session.delete_topics(&old)?;
    rest(broker)?;
    Ok(Side { p99_ms: publish_p99(&found)?, deleted: after - before })
}
