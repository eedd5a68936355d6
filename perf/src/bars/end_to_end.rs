//! How long a message takes from the intended time to a group's hands, beside how long its producer waits.

use super::pairs::{Spread, median};
use super::rig::Rig;
use super::under_load::{UnderLoad, end_to_end_p99, publish_p99};
use super::{BarError, Judged, Limit};
use crate::workload::Workload;

/// Share of the rate that saturates at which latency is measured.
const LOAD: f64 = 0.5;

/// Both latencies come from the same run: a pair needs no other side.
pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let load = UnderLoad::of_groups(rig, &broker, Workload { groups: 1, ..Workload::default() })?;
    let mut found = Vec::new();
    for _ in 0..rig.pairs {
        let run = load.run(&load.at(LOAD), "at 50 %", &mut || {})?;
        found.push((end_to_end_p99(&run)?, publish_p99(&run)?));
    }
    let end_to_end_ms = median(found.iter().map(|(end_to_end, _)| *end_to_end));
    let publish_ms = median(found.iter().map(|(_, publish)| *publish));
    let ratios: Vec<f64> = found.iter().map(|(end_to_end, publish)| end_to_end / publish).collect();
    let detail = format!(
        "{end_to_end_ms:.3} ms / {publish_ms:.3} ms, one group of one member, {:.0} messages/s{}",
        load.saturated * LOAD,
        load.notes()
    );
    let judged = vec![
        load.doubt(Judged::exact(
            "end-to-end-ms",
            "end-to-end p99 at 50 % load with a consumer group, in milliseconds, the median of the runs",
            Limit::AtMost(50.0),
            end_to_end_ms,
            detail.clone(),
        )),
        load.doubt(Judged::ratio(
            "end-to-end",
            "end-to-end p99 at 50 % load with a consumer group / publish p99",
            Limit::AtMost(2.0),
            Spread::of(&ratios),
            detail,
        )),
    ];
    broker.stop()?;
    Ok(judged)
}
