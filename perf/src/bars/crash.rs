//! kill -9 under load: what is kept, and how soon it is served again.

use std::time::{Duration, Instant};

use super::rig::{MESSAGE_BYTES, Rig, all_serve};
use super::{BarError, Judged, Limit};
use crate::broker_process::BrokerProcess;
use crate::driver::session::Topic;
use crate::driver::spread::Spread;
use crate::trial::{Findings, Trial, read_back};
use crate::verify::{Counts, Messages};
use crate::workload::{Rate, Workload};

/// A round's load before the kill: the time varies, so that the kill falls at different moments of the log's life.
pub(super) const LOAD_MS: [u64; 5] = [700, 1100, 1900, 900, 1500];
const RATE: f64 = 20_000.0;

/// Rounds of load, kill, restart; at the end everything acknowledged in any round is read back.
pub(crate) fn measure_rounds(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let mut broker = rig.broker()?;
    let mut kept: Vec<(Vec<Topic>, Messages)> = Vec::new();
    let mut slowest = Duration::ZERO;
    for round in 0..rig.rounds {
        let workload = Workload {
            partitions_per_topic: 16,
            producers_per_topic: 2,
            spread: Spread::KeysRandom(1000),
            ..killed_workload(RATE)
        };
        let load = Duration::from_millis(LOAD_MS[round as usize % LOAD_MS.len()]);
        let found = load_until_killed(&broker, &workload, &format!("crash-{round}"), load)?;
        let started = Instant::now();
        broker.restart()?;
        slowest = slowest.max(started.elapsed());
        kept.push((found.topics, found.acknowledged.unwrap_or_default()));
    }
    let mut counts = Counts::default();
    let (mut acknowledged_count, mut messages) = (0, 0);
    for (topics, acknowledged) in &kept {
        let (found, read) = read_back(broker.address(), topics, acknowledged)?;
        counts.add(found);
        acknowledged_count += acknowledged.count();
        messages += read;
    }
    broker.stop()?;
    let wrong = counts.lost + counts.duplicated + counts.reordered + counts.damaged;
    let detail = format!(
        "{counts}; {} rounds, {acknowledged_count} acknowledged, {messages} read back; slowest restart {:.2} s",
        rig.rounds,
        slowest.as_secs_f64()
    );
    if acknowledged_count == 0 {
        return Err(BarError::Unfit("nothing was acknowledged before the kills".to_owned()));
    }
    Ok(vec![Judged::correct(
        "crash",
        "messages lost, duplicated or wrong after kill -9",
        Limit::AtMost(0.0),
        wrong as f64,
        detail,
    )])
}

/// One kill with many partitions under load.
pub(crate) fn measure_restart(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let mut broker = rig.broker()?;
    let workload = Workload {
        topics: rig.many_topics,
        partitions_per_topic: 1000,
        producers_per_topic: 1,
        spread: Spread::RoundRobin,
        ..killed_workload(RATE)
    };
    let load = rig.time.max(Duration::from_secs(2));
    let found = load_until_killed(&broker, &workload, "restart", load)?;
    let started = Instant::now();
    let answers = broker.restart()?;
    all_serve(&broker, &found.topics)?;
    let ready = started.elapsed();
    let acknowledged = found.acknowledged.unwrap_or_default();
    let (counts, messages) = read_back(broker.address(), &found.topics, &acknowledged)?;
    broker.stop()?;
    let partitions = workload.partitions();
    let detail = format!(
        "first answer after {:.2} s; {} acknowledged, {messages} read back: {counts}",
        answers.as_secs_f64(),
        acknowledged.count()
    );
    let wrong = counts.lost + counts.duplicated + counts.reordered + counts.damaged;
    Ok(vec![
        Judged::exact(
            "restart",
            format!("seconds from a start after kill -9 until {partitions} partitions answer"),
            Limit::AtMost(5.0),
            ready.as_secs_f64(),
            detail,
        ),
        Judged::correct(
            "restart-kept",
            "messages lost, duplicated or wrong after it",
            Limit::AtMost(0.0),
            wrong as f64,
            counts.to_string(),
        ),
    ])
}

fn killed_workload(rate: f64) -> Workload {
    Workload {
        subscriptions_per_topic: 0,
        message_bytes: MESSAGE_BYTES,
        rate: Rate::PerSecond(rate),
        warmup: Duration::ZERO,
        // Longer than any load before a kill: the kill ends it.
        duration: Duration::from_secs(120),
        ..Workload::default()
    }
}

fn load_until_killed(broker: &BrokerProcess, workload: &Workload, prefix: &str, load: Duration) -> Result<Findings, BarError> {
    let trial = Trial {
        broker: broker.address(),
        prefix,
        rate: workload.rate,
        verify: true,
        delete_topics: false,
        expect_disconnect: true,
        producers_from: 0,
    };
    // Seconds begin when the load does, after the topics are made: the kill is counted from there.
    let killer = std::cell::RefCell::new(None);
    let found = trial.run_observed(workload, &mut |_| {}, &mut || {
        killer.replace(Some(broker.kill_later(load)));
    })?;
    if let Some(killer) = killer.into_inner() {
        killer.join().expect("the killing thread only sends a signal");
    }
    if found.disconnected.is_none() {
        return Err(BarError::Unfit("the load ended before the broker was killed".to_owned()));
    }
    Ok(found)
}
