//! Resident memory of partitions at rest.

use super::rig::{Rig, config, rest, unique};
use super::{BarError, Judged, Limit};
use crate::driver::session::Session;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let mut session = Session::connect(broker.address())?;
    // The first topic pays for what all share.
    session.create_topics(&unique("first"), 1, &config(1))?;
    rest(&broker)?;
    let before = broker.usage()?.resident_bytes;
    session.create_topics(&unique("idle"), rig.many_topics, &config(1000))?;
    rest(&broker)?;
    let after = broker.usage()?.resident_bytes;
    broker.stop()?;
    let partitions = u64::from(rig.many_topics) * 1000;
    let kib = after.saturating_sub(before) as f64 / 1024.0 / partitions as f64;
    let detail = format!("{:.1} MB, then {:.1} MB resident", before as f64 / 1e6, after as f64 / 1e6);
    let what = format!("KiB resident per idle partition, {partitions} of them");
    Ok(vec![Judged::exact("memory", what, Limit::AtMost(16.0), kib, detail)])
}
