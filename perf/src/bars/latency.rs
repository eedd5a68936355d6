//! Publish latency at a fifth and at four fifths of the load that saturates, against one raw durable write.

use std::time::Duration;

use super::pairs::{Spread, interleave, median};
use super::rig::Rig;
use super::under_load::{UnderLoad, publish_p99};
use super::{BarError, Judged, Limit};
use crate::latency::percentile_ms;
use crate::limits::disk::{self, Way};

/// Bytes of the raw write and of its file.
const WRITE_BYTES: usize = 16 << 10;
const FILE_BYTES: u64 = 256 << 20;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let load = UnderLoad::of_producers(rig, &broker)?;
    let found = interleave(
        rig.pairs,
        || {
            let low = publish_p99(&load.run(&load.at(0.2), "at 20 %", &mut || {})?)?;
            let high = publish_p99(&load.run(&load.at(0.8), "at 80 %", &mut || {})?)?;
            Ok((low, high))
        },
        || {
            // A second gives the thousands of writes that a p99 needs, however short the other side is.
            let row = disk::write(&rig.data_dir, FILE_BYTES, Way::Dsync, WRITE_BYTES, 1, rig.time.max(Duration::from_secs(1)))?;
            percentile_ms(&row.latency, 0.99)
                .ok_or_else(|| BarError::Unfit("fewer than 1000 raw writes: --seconds is too short".to_owned()))
        },
    )?;
    let low = found.spread(|(low, _)| *low, |raw| *raw);
    let rise: Vec<f64> = found.ours.iter().map(|(low, high)| high / low).collect();
    let low_ms = median(found.ours.iter().map(|(low, _)| *low));
    let high_ms = median(found.ours.iter().map(|(_, high)| *high));
    let raw_ms = median(found.theirs.iter().copied());
    let notes = load.notes();
    let judged = vec![
        load.doubt(Judged::ratio(
            "latency-low",
            "publish p99 at 20 % load, Poisson / raw durable 16 KiB write p99",
            Limit::AtMost(4.0),
            low,
            format!("{low_ms:.3} ms / {raw_ms:.3} ms; 100 % is {:.0} messages/s{notes}", load.saturated),
        )),
        load.doubt(Judged::ratio(
            "latency-high",
            "publish p99 at 80 % load / at 20 %",
            Limit::AtMost(4.0),
            Spread::of(&rise),
            format!("{high_ms:.3} ms / {low_ms:.3} ms{notes}"),
        )),
    ];
    broker.stop()?;
    Ok(judged)
}
