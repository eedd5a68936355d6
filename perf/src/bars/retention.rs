//! Publish latency while retention deletes, against the same without.
//!
//! Another topic is filled before each measurement. On one side it is told to keep nothing at the moment at which the load begins, so that segment after
//! segment goes beside it; on the other side it stays.

use wire::{Change, OffsetAt, TopicConfigChanges};

use super::pairs::{interleave, median};
use super::rig::{BATCH_BYTES, MESSAGE_BYTES, Rig, WARMUP, batch, config, rest, unique};
use super::{BarError, Judged, Limit};
use crate::broker_process::BrokerProcess;
use crate::driver::blast::{Blast, BlastOptions, Target};
use crate::driver::session::{Session, Topic};
use crate::latency::percentile_ms;
use crate::plan::Arrival;
use crate::trial::{Findings, Trial};
use crate::workload::{Rate, Workload};

const PARTITIONS: u32 = 16;
/// Messages unanswered when the highest rate is looked for.
const UNANSWERED: u64 = 16_384;
/// Share of that rate at which latency is measured.
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
    let saturated = trial(rig, &broker, Rate::Saturate(UNANSWERED), &mut || {})?.figures.acked_per_second;
    if saturated < 1000.0 {
        return Err(BarError::Unfit(format!("the broker saturates at {saturated:.0} messages/s: too few to measure a p99")));
    }
    let notes = std::cell::RefCell::new(Vec::new());
    let found = interleave(
        rig.pairs,
        || side(rig, &broker, saturated * LOAD, true, &notes),
        || side(rig, &broker, saturated * LOAD, false, &notes),
    )?;
    broker.stop()?;
    if found.ours.iter().any(|with| with.deleted == 0) {
        return Err(BarError::Unfit("nothing was deleted during a measurement".to_owned()));
    }
    let notes = notes.into_inner();
    let doubt = !notes.is_empty();
    let notes = if notes.is_empty() { String::new() } else { format!("; {}", notes.join("; ")) };
    let detail = format!(
        "{:.3} ms / {:.3} ms at {:.0} messages/s; {:.0} MB deleted beside each{notes}",
        median(found.ours.iter().map(|with| with.p99_ms)),
        median(found.theirs.iter().map(|without| without.p99_ms)),
        saturated * LOAD,
        median(found.ours.iter().map(|with| with.deleted as f64)) * MESSAGE_BYTES as f64 / 1e6,
    );
    let spread = found.spread(|with| with.p99_ms, |without| without.p99_ms);
    Ok(vec![
        Judged::ratio(
            "retention",
            "publish p99 at 50 % load with deletion running / without",
            Limit::AtMost(1.3),
            spread,
            detail,
        )
        .doubted(doubt),
    ])
}

fn side(
    rig: &Rig,
    broker: &BrokerProcess,
    rate: f64,
    deletes: bool,
    notes: &std::cell::RefCell<Vec<String>>,
) -> Result<Side, BarError> {
    let mut session = Session::connect(broker.address())?;
    let old = fill(rig, broker, &mut session)?;
    rest(broker)?;
    let before: u64 = session.offsets(&old, OffsetAt::Earliest)?.iter().map(|start| start.0).sum();
    let mut altered = Ok(());
    let found = trial(rig, broker, Rate::PerSecond(rate), &mut || {
        if deletes {
            let changes = TopicConfigChanges { retention_bytes: Change::Set(1), ..TopicConfigChanges::default() };
            altered = session.alter_topics(&old, &changes);
        }
    })?;
    altered?;
    let after: u64 = session.offsets(&old, OffsetAt::Earliest)?.iter().map(|start| start.0).sum();
    session.delete_topics(&old)?;
    rest(broker)?;
    let with = if deletes { "with deletion" } else { "without" };
    let reasons = found.figures.invalid.iter().chain(&found.figures.not_sustained);
    notes.borrow_mut().extend(reasons.map(|reason| format!("{with}: {reason}")));
    let p99_ms = percentile_ms(&found.publish.intended, 0.99)
        .ok_or_else(|| BarError::Unfit("fewer than 1000 messages: --seconds is too short".to_owned()))?;
    Ok(Side { p99_ms, deleted: after - before })
}

/// Makes a topic and fills it.
fn fill(rig: &Rig, broker: &BrokerProcess, session: &mut Session) -> Result<Vec<Topic>, BarError> {
    let config = wire::TopicConfig { segment_bytes: OLD_SEGMENT_BYTES, ..config(OLD_PARTITIONS) };
    let old = session.create_topics(&unique("old"), 1, &config)?;
    let targets: Vec<Target> =
        old.iter().flat_map(Topic::partitions).map(|partition| Target { partition, by_shard: partition.shard }).collect();
    let wanted = OLD_BYTES * u64::from(rig.many_topics);
    let mut filled = 0;
    while filled < wanted {
        let options = BlastOptions {
            broker: broker.address(),
            shard_count: session.hello().shard_count,
            targets: &targets,
            batch: batch(BATCH_BYTES),
            depth: 2,
            readers: 0,
            lag_bytes_max: 0,
        };
        let ends = session.offsets(&old, OffsetAt::Latest)?;
        let blasted = Blast::new(options, &ends)?.run(std::time::Duration::ZERO, WARMUP, &mut || {})?;
        if blasted.acked_bytes == 0 {
            return Err(BarError::Unfit("the topic to delete from could not be filled".to_owned()));
        }
        filled += blasted.acked_bytes;
    }
    Ok(old)
}

fn trial(rig: &Rig, broker: &BrokerProcess, rate: Rate, begin: &mut dyn FnMut()) -> Result<Findings, BarError> {
    let workload = Workload {
        partitions_per_topic: PARTITIONS,
        subscriptions_per_topic: 0,
        message_bytes: MESSAGE_BYTES,
        arrival: Arrival::Poisson,
        rate,
        warmup: WARMUP,
        duration: rig.time,
        ..Workload::default()
    };
    let prefix = unique("retention");
    let trial = Trial {
        broker: broker.address(),
        prefix: &prefix,
        rate,
        verify: false,
        delete_topics: true,
        expect_disconnect: false,
        producers_from: 0,
    };
    Ok(trial.run_observed(&workload, &mut |_| {}, begin)?)
}
