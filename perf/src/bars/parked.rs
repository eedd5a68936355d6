//! What one parked key costs the others: their end-to-end latency beside it, against the same without.
//!
//! On one side the first record of a key fails again and again as long as the load lasts, and all later ones of that key wait behind it.

use std::time::Duration;

use super::pairs::{interleave, median};
use super::rig::Rig;
use super::under_load::{UnderLoad, end_to_end_p99};
use super::{BarError, Judged, Limit};
use crate::driver::spread::Spread;
use crate::workload::{Failing, Retry, Workload};

/// Share of the rate that saturates at which latency is measured.
const LOAD: f64 = 0.5;
const KEYS: u32 = 1000;
const PARKED_KEY: u32 = 0;
/// More attempts than fit into any measurement.
const RETRY: Retry = Retry { attempts: wire::limits::RETRY_ATTEMPTS_MAX, backoff: Duration::from_millis(200) };

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let workload = Workload { groups: 1, spread: Spread::KeysRandom(KEYS), ..Workload::default() };
    let load = UnderLoad::of_groups(rig, &broker, workload)?;
    let found = interleave(
        rig.pairs,
        || {
            let workload = Workload { failing: Failing::Key(PARKED_KEY), retry: RETRY, ..load.at(LOAD) };
            let run = load.run(&workload, "with a parked key", &mut || {})?;
            if run.figures.failed_in_groups == 0 {
                return Err(BarError::Unfit("nothing failed: no key was parked".to_owned()));
            }
            end_to_end_p99(&run)
        },
        || end_to_end_p99(&load.run(&load.at(LOAD), "without", &mut || {})?),
    )?;
    let detail = format!(
        "{:.3} ms / {:.3} ms, one of {KEYS} keys parked, {:.0} messages/s{}",
        median(found.ours.iter().copied()),
        median(found.theirs.iter().copied()),
        load.saturated * LOAD,
        load.notes()
    );
    let judged = load.doubt(Judged::ratio(
        "parked",
        "end-to-end p99 of other keys at 50 % load while one key is parked / without",
        Limit::AtMost(1.1),
        found.spread(|with| *with, |without| *without),
        detail,
    ));
    broker.stop()?;
    Ok(vec![judged])
}
