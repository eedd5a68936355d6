//! Producers at a share of the rate that saturates: the load whose latency is measured.

use std::cell::RefCell;

use super::rig::{MESSAGE_BYTES, Rig, WARMUP, rest, unique};
use super::{BarError, Judged};
use crate::broker_process::BrokerProcess;
use crate::latency::percentile_ms;
use crate::plan::Arrival;
use crate::trial::{Findings, Trial};
use crate::workload::{Rate, Workload};

const PARTITIONS: u32 = 16;
/// Messages unanswered when the highest rate is looked for.
const UNANSWERED: u64 = 16_384;
/// A broker that saturates below this has too few messages in a measurement for a p99.
const SATURATED_MIN: f64 = 1000.0;

/// A load, and the rate that saturates the broker with it.
pub(crate) struct UnderLoad<'a> {
    broker: &'a BrokerProcess,
    workload: Workload,
    pub(crate) saturated: f64,
    /// What makes a run doubtful.
    notes: RefCell<Vec<String>>,
}

impl<'a> UnderLoad<'a> {
    /// Finds the rate that saturates producers alone.
    pub(crate) fn of_producers(rig: &Rig, broker: &'a BrokerProcess) -> Result<UnderLoad<'a>, BarError> {
        UnderLoad::of(rig, broker, Workload::default())
    }

    /// Finds the rate at which groups no longer keep up with producers, or producers saturate: whichever comes first.
    pub(crate) fn of_groups(rig: &Rig, broker: &'a BrokerProcess, workload: Workload) -> Result<UnderLoad<'a>, BarError> {
        assert!(workload.groups > 0, "the workload has groups");
        UnderLoad::of(rig, broker, workload)
    }

    fn of(rig: &Rig, broker: &'a BrokerProcess, workload: Workload) -> Result<UnderLoad<'a>, BarError> {
        let workload = Workload {
            partitions_per_topic: PARTITIONS,
            subscriptions_per_topic: 0,
            message_bytes: MESSAGE_BYTES,
            arrival: Arrival::Poisson,
            rate: Rate::Saturate(UNANSWERED),
            warmup: WARMUP,
            duration: rig.time,
            ..workload
        };
        let mut load = UnderLoad { broker, workload, saturated: 0.0, notes: RefCell::default() };
        let figures = load.trial(&load.workload, &mut || {})?.figures;
        load.saturated = figures.acked_per_second;
        if load.workload.groups > 0 {
            load.saturated = load.saturated.min(figures.consumed_per_second / f64::from(load.workload.groups));
        }
        if load.saturated < SATURATED_MIN {
            let rate = load.saturated;
            return Err(BarError::Unfit(format!("the broker saturates at {rate:.0} messages/s: too few to measure a p99")));
        }
        Ok(load)
    }

    /// The load at a share of the rate that saturates.
    pub(crate) fn at(&self, share: f64) -> Workload {
        Workload { rate: Rate::PerSecond(self.saturated * share), ..self.workload.clone() }
    }

    /// Measures; `begin` is called when the load begins. What makes the run doubtful is noted under `name`.
    pub(crate) fn run(&self, workload: &Workload, name: &str, begin: &mut dyn FnMut()) -> Result<Findings, BarError> {
        let found = self.trial(workload, begin)?;
        let wrong = found.figures.wrong.filter(|counts| !counts.is_clean()).map(|counts| counts.to_string());
        let reasons = found.figures.invalid.iter().chain(&found.figures.not_sustained).chain(&wrong);
        self.notes.borrow_mut().extend(reasons.map(|reason| format!("{name}: {reason}")));
        Ok(found)
    }

    fn trial(&self, workload: &Workload, begin: &mut dyn FnMut()) -> Result<Findings, BarError> {
        let prefix = unique("load");
        let trial = Trial {
            broker: self.broker.address(),
            prefix: &prefix,
            rate: workload.rate,
            // What a group receives has a latency only when it is looked into.
            verify: workload.groups > 0,
            delete_topics: true,
            expect_disconnect: false,
            producers_from: 0,
        };
        let found = trial.run_observed(workload, &mut |_| {}, begin)?;
        rest(self.broker)?;
        Ok(found)
    }

    /// The notes, to stand at the end of a figure's detail.
    pub(crate) fn notes(&self) -> String {
        self.notes.borrow().iter().map(|note| format!("; {note}")).collect()
    }

    /// The figure, not passed when a run behind it was doubtful.
    pub(crate) fn doubt(&self, figure: Judged) -> Judged {
        figure.doubted(!self.notes.borrow().is_empty())
    }
}

/// The publish p99 of a run, in milliseconds.
pub(crate) fn publish_p99(found: &Findings) -> Result<f64, BarError> {
    p99(percentile_ms(&found.publish.intended, 0.99))
}

/// The end-to-end p99 of a run, in milliseconds.
pub(crate) fn end_to_end_p99(found: &Findings) -> Result<f64, BarError> {
    p99(percentile_ms(&found.end_to_end, 0.99))
}

fn p99(found: Option<f64>) -> Result<f64, BarError> {
    found.ok_or_else(|| BarError::Unfit("fewer than 1000 messages: --seconds is too short".to_owned()))
}
