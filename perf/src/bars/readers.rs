//! Ten consumers at the tail against one raw source to ten sockets.

use super::pairs::{interleave, median};
use super::rig::{Produced, Rig};
use super::{BarError, Judged, Limit};
use crate::limits::fan_out;

const READERS: usize = 10;
const PARTITIONS: u32 = 16;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let found = interleave(
        rig.pairs,
        || rig.blast(&broker, PARTITIONS, READERS, |partition, _| partition.shard),
        || Ok(fan_out::run(rig.time, READERS, rig.cpus)?),
    )?;
    broker.stop()?;
    let read = |ours: &Produced| ours.blasted.read_bytes as f64 / ours.blasted.elapsed.as_secs_f64();
    let spread = found.spread(read, |theirs| theirs.gigabytes_per_second() * 1e9);
    let detail = format!(
        "{:.2} GB/s (beside {:.2} GB/s of durable produce on the same core) / {:.2} GB/s; client {:.0} % busy",
        median(found.ours.iter().map(read)) / 1e9,
        median(found.ours.iter().map(Produced::bytes_per_second)) / 1e9,
        median(found.theirs.iter().map(fan_out_rate)),
        median(found.ours.iter().map(|ours| ours.blasted.client_busy)) * 100.0
    );
    Ok(vec![Judged::ratio("readers", "ten tailing consumers / raw source to ten sockets", Limit::AtLeast(0.70), spread, detail)])
}

fn fan_out_rate(found: &crate::limits::receive::Received) -> f64 {
    found.gigabytes_per_second()
}
