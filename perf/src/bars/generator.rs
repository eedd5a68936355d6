//! Bar G: whether the generator may be believed. A broker that stands still must show, and a sink must be much faster than a broker.

use std::time::Duration;

use super::pairs::interleave;
use super::rig::{Produced, Rig, WARMUP, unique};
use super::{BarError, Judged, Limit};
use crate::latency::percentile_ms;
use crate::mock::{Behaviour, Mock};
use crate::process::pin;
use crate::trial::Trial;
use crate::workload::{Rate, Workload};

const RATE: f64 = 5000.0;
const PARTITIONS: u32 = 16;

/// The broker is stopped for a tenth of the run. A tenth of the arrivals then waits 0 to 1 stop, evenly: the slowest hundredth of all
/// waits 0.9 of it or more.
pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let stop = if rig.time < Duration::from_secs(1) { Duration::from_millis(500) } else { Duration::from_secs(1) };
    let broker = rig.broker()?;
    let workload = Workload {
        partitions_per_topic: PARTITIONS,
        subscriptions_per_topic: 0,
        message_bytes: 100,
        rate: Rate::PerSecond(RATE),
        warmup: WARMUP,
        duration: stop * 10,
        ..Workload::default()
    };
    let prefix = unique("honesty");
    let trial = Trial {
        broker: broker.address(),
        prefix: &prefix,
        rate: workload.rate,
        verify: false,
        delete_topics: true,
        expect_disconnect: false,
        producers_from: 0,
    };
    let stopper = std::cell::RefCell::new(None);
    let found = trial.run_observed(&workload, &mut |_| {}, &mut || {
        stopper.replace(Some(broker.stop_for_a_while(WARMUP + stop * 3, stop)));
    })?;
    if let Some(stopper) = stopper.into_inner() {
        stopper.join().expect("the stopping thread only sends signals");
    }
    let p99_ms = percentile_ms(&found.publish.intended, 0.99).ok_or_else(|| BarError::Unfit("too few messages".to_owned()))?;
    let actual_ms = percentile_ms(&found.publish.actual, 0.99).unwrap_or_default();
    let wanted_ms = stop.as_secs_f64() * 900.0;
    let off = (p99_ms / wanted_ms - 1.0).abs();
    let detail = format!("p99 {p99_ms:.0} ms, wanted {wanted_ms:.0} ms (a tenth of the run of {:?} stood still)", stop * 10);
    let detail = format!("{detail}; from the sending it is {actual_ms:.0} ms");
    let stall =
        Judged::exact("generator-stall", "error of p99 while the broker is stopped (SIGSTOP)", Limit::AtMost(0.10), off, detail);

    // The sink stands where the broker stands: its threads inherit the CPU of the one that starts it.
    let server_cpu = rig.cpus.server_cpu;
    let started = std::thread::spawn(move || {
        pin(server_cpu)?;
        Mock::start(Behaviour::default())
    });
    let mock = started.join().expect("starting a sink does not panic");
    let mock = mock.map_err(|source| BarError::Io { what: "null sink".to_owned(), source })?;
    let own = |partition: &crate::driver::session::Partition, _: u16| partition.shard;
    let found = interleave(
        rig.pairs,
        || rig.blast_address(mock.address(), None, PARTITIONS, 0, own),
        || rig.blast(&broker, PARTITIONS, 0, own),
    )?;
    broker.stop()?;
    let best = |side: &[Produced]| side.iter().map(Produced::bytes_per_second).fold(0.0, f64::max);
    let (sink, peak) = (best(&found.ours), best(&found.theirs));
    let detail =
        format!("{:.2} GB/s / {:.2} GB/s, the best of {} each, 256 KiB batches", sink / 1e9, peak / 1e9, found.ours.len());
    Ok(vec![stall, Judged::exact("generator-sink", "null sink / this broker's peak", Limit::AtLeast(3.0), sink / peak, detail)])
}
