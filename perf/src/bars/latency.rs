//! Publish latency at a fifth and at four fifths of the load that saturates, against one raw durable write.

use std::time::Duration;

use super::pairs::{interleave, median};
use super::rig::{MESSAGE_BYTES, Rig, WARMUP, rest, unique};
use super::{BarError, Judged, Limit};
use crate::broker_process::BrokerProcess;
use crate::latency::percentile_ms;
use crate::limits::disk::{self, Way};
use crate::plan::Arrival;
use crate::trial::{Findings, Trial};
use crate::workload::{Rate, Workload};

const PARTITIONS: u32 = 16;
/// Messages unanswered when the highest rate is looked for.
const UNANSWERED: u64 = 16_384;
/// Bytes of the raw write and of its file.
const WRITE_BYTES: usize = 16 << 10;
const FILE_BYTES: u64 = 256 << 20;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let saturated = trial(rig, &broker, Rate::Saturate(UNANSWERED))?.figures.acked_per_second;
    if saturated < 1000.0 {
        return Err(BarError::Unfit(format!("the broker saturates at {saturated:.0} messages/s: too few to measure a p99")));
    }
    let mut notes = Vec::new();
    let found = interleave(
        rig.pairs,
        || {
            let low = p99(&trial(rig, &broker, Rate::PerSecond(saturated * 0.2))?, "20 %", &mut notes)?;
            let high = p99(&trial(rig, &broker, Rate::PerSecond(saturated * 0.8))?, "80 %", &mut notes)?;
            Ok((low, high))
        },
        || {
            // A second gives the thousands of writes that a p99 needs, however short the other side is.
            let row = disk::write(&rig.data_dir, FILE_BYTES, Way::Dsync, WRITE_BYTES, 1, rig.time.max(Duration::from_secs(1)))?;
            percentile_ms(&row.latency, 0.99)
                .ok_or_else(|| BarError::Unfit("fewer than 1000 raw writes: --seconds is too short".to_owned()))
        },
    )?;
    broker.stop()?;
    let low = found.spread(|(low, _)| *low, |raw| *raw);
    let rise: Vec<f64> = found.ours.iter().map(|(low, high)| high / low).collect();
    let low_ms = median(found.ours.iter().map(|(low, _)| *low));
    let high_ms = median(found.ours.iter().map(|(_, high)| *high));
    let doubt = !notes.is_empty();
    let notes = if notes.is_empty() { String::new() } else { format!("; {}", notes.join("; ")) };
    Ok(vec![
        Judged::ratio(
            "latency-low",
            "publish p99 at 20 % load, Poisson / raw durable 16 KiB write p99",
            Limit::AtMost(4.0),
            low,
            format!("{low_ms:.3} ms / {:.3} ms; 100 % is {saturated:.0} messages/s{notes}", median(found.theirs.iter().copied())),
        )
        .doubted(doubt),
        Judged::ratio(
            "latency-high",
            "publish p99 at 80 % load / at 20 %",
            Limit::AtMost(4.0),
            super::pairs::Spread::of(&rise),
            format!("{high_ms:.3} ms / {low_ms:.3} ms{notes}"),
        )
        .doubted(doubt),
    ])
}

fn trial(rig: &Rig, broker: &BrokerProcess, rate: Rate) -> Result<Findings, BarError> {
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
    let prefix = unique("latency");
    let trial = Trial {
        broker: broker.address(),
        prefix: &prefix,
        rate,
        verify: false,
        delete_topics: true,
        expect_disconnect: false,
        producers_from: 0,
    };
    let found = trial.run(&workload, &mut |_| {})?;
    rest(broker)?;
    Ok(found)
}

fn p99(found: &Findings, load: &str, notes: &mut Vec<String>) -> Result<f64, BarError> {
    let reasons = found.figures.invalid.iter().chain(&found.figures.not_sustained);
    notes.extend(reasons.map(|reason| format!("at {load}: {reason}")));
    percentile_ms(&found.publish.intended, 0.99)
        .ok_or_else(|| BarError::Unfit(format!("fewer than 1000 messages at {load} load: --seconds is too short")))
}
