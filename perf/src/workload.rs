//! What load to make: the common form of a scenario file, an OpenMessaging Benchmark workload, and the command line.

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::driver::producer::Requests;
use crate::driver::spread::Spread;
use crate::driver::template::Body;
use crate::message::HEAD_BYTES;
use crate::plan::Arrival;

/// Messages per second of all producers together, or as many as go.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    /// By plan.
    PerSecond(f64),
    /// A closed loop with this many messages unanswered per producer: finds the rate, says nothing about latency.
    Saturate(u64),
    /// Search for the highest rate that keeps the objectives.
    Search,
}

/// Members of all groups together: each has connections of its own, and all share one thread.
pub const MEMBERS_MAX: u32 = 4096;

/// A load.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Name of the run.
    pub name: String,
    /// Topics.
    pub topics: u32,
    /// Partitions of each topic.
    pub partitions_per_topic: u32,
    /// Producers of each topic.
    pub producers_per_topic: u32,
    /// Subscriptions of each topic: each receives every message.
    pub subscriptions_per_topic: u32,
    /// Consumers that share the partitions of a subscription.
    pub consumers_per_subscription: u32,
    /// Consumer groups, each of which reads all topics, besides the subscriptions.
    pub groups: u32,
    /// Members that share the partitions of a group.
    pub members_per_group: u32,
    /// Which records members of groups fail.
    pub failing: Failing,
    /// What a group does with a record that fails.
    pub retry: Retry,
    /// Length of a message's value.
    pub message_bytes: usize,
    /// What fills messages.
    pub body: Body,
    /// Where messages go.
    pub spread: Spread,
    /// How many.
    pub rate: Rate,
    /// How they are spaced.
    pub arrival: Arrival,
    /// Load that does not count.
    pub warmup: Duration,
    /// Load that counts.
    pub duration: Duration,
    /// How requests are made.
    pub requests: Requests,
    /// Whether topics may lose their last moments: acknowledged in memory.
    pub relaxed: bool,
    /// What each partition keeps, so that its oldest segments go under load; `None`: everything.
    pub retention_bytes: Option<u64>,
    /// Build a backlog, then drain it under load.
    pub backlog: Option<BacklogWanted>,
    /// What must hold.
    pub objective: Objective,
    /// Shares of the highest rate, in percent, at which latency is measured one after the other.
    pub curve_percent: Vec<f64>,
    /// Kill and restart the broker while under load; needs a broker of our own.
    pub kill_after: Option<Duration>,
}

/// Which records members of groups fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failing {
    /// None.
    #[default]
    Nothing,
    /// This share, 0 to 1: half of them at the first attempt only, the others always.
    Share(f64),
    /// Those of this key, until the load ends. Their latencies do not count.
    Key(u32),
}

/// What a group does with a record that fails.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Retry {
    /// Deliveries before it goes to the dead-letter topic.
    pub attempts: u32,
    /// Pause before each further one.
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 3, backoff: Duration::from_millis(100) }
    }
}

/// A backlog to build and drain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BacklogWanted {
    /// Bytes of messages, of each subscription.
    pub bytes: u64,
    /// Share of it that must be drained, 0 to 1.
    pub drain_ratio: f64,
}

/// What a run must keep; a missed objective makes the command fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Objective {
    /// 99th percentile of publish latency from the intended time, in milliseconds.
    pub publish_p99_ms: Option<f64>,
    /// 99th percentile of end-to-end latency from the intended time, in milliseconds.
    pub end_to_end_p99_ms: Option<f64>,
    /// Time from a kill to the broker's answer, in seconds.
    pub restart_s: Option<f64>,
}

/// A workload that cannot be run.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not say what a workload needs.
    #[error("{path}: {reason}")]
    Parse {
        /// The file.
        path: String,
        /// What is wrong, with the place.
        reason: String,
    },
    /// A value cannot be.
    #[error("{field} is {found}: {rule}")]
    Value {
        /// Which.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        rule: String,
    },
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            name: "run".to_owned(),
            topics: 1,
            partitions_per_topic: 16,
            producers_per_topic: 1,
            subscriptions_per_topic: 1,
            consumers_per_subscription: 1,
            groups: 0,
            members_per_group: 1,
            failing: Failing::Nothing,
            retry: Retry::default(),
            message_bytes: 1024,
            body: Body::Random(1.0),
            spread: Spread::RoundRobin,
            rate: Rate::PerSecond(10_000.0),
            arrival: Arrival::Uniform,
            warmup: Duration::from_secs(2),
            duration: Duration::from_secs(10),
            requests: Requests::default(),
            relaxed: false,
            retention_bytes: None,
            backlog: None,
            objective: Objective::default(),
            curve_percent: Vec::new(),
            kill_after: None,
        }
    }
}

impl Workload {
    /// Checks what no single field can say.
    ///
    /// # Errors
    /// The first value that cannot be.
    pub fn check(&self) -> Result<(), WorkloadError> {
        at_least("topics", u64::from(self.topics), 1)?;
        at_least("partitions per topic", u64::from(self.partitions_per_topic), 1)?;
        at_least("producers per topic", u64::from(self.producers_per_topic), 1)?;
        at_least("message bytes", self.message_bytes as u64, HEAD_BYTES as u64)?;
        at_most("partitions per topic", u64::from(self.partitions_per_topic), u64::from(wire::limits::PARTITIONS_PER_TOPIC_MAX))?;
        at_most("message bytes", self.message_bytes as u64, u64::from(wire::limits::MESSAGE_BYTES_MAX_CEILING))?;
        at_most("batch bytes", self.requests.batch_bytes_max as u64, u64::from(wire::limits::BATCH_BYTES_MAX))?;
        at_most("request bytes", self.requests.request_bytes_max as u64, u64::from(wire::limits::ATTACHMENT_BYTES_MAX) / 2)?;
        at_least("requests in flight", self.requests.in_flight_max as u64, 1)?;
        if self.subscriptions_per_topic > 0 {
            at_least("consumers per subscription", u64::from(self.consumers_per_subscription), 1)?;
        }
        if self.groups > 0 {
            at_least("members per group", u64::from(self.members_per_group), 1)?;
            let members = u64::from(self.groups) * u64::from(self.members_per_group);
            at_most("members of all groups", members, u64::from(MEMBERS_MAX))?;
            at_least("attempts", u64::from(self.retry.attempts), 1)?;
            at_most("attempts", u64::from(self.retry.attempts), u64::from(wire::limits::RETRY_ATTEMPTS_MAX))?;
            at_most("backoff ms", self.retry.backoff.as_millis() as u64, u64::from(wire::limits::RETRY_BACKOFF_MS_MAX))?;
            if self.kill_after.is_some() {
                return Err(value("groups", self.groups, "none where the broker is killed"));
            }
        }
        match self.rate {
            Rate::PerSecond(rate) if !(rate.is_finite() && rate > 0.0) => {
                return Err(value("rate", rate, "a positive number of messages per second"));
            }
            Rate::Saturate(0) => return Err(value("messages unanswered", 0, "at least 1")),
            _ => {}
        }
        match self.spread {
            Spread::KeysRandom(0) | Spread::KeysRoundRobin(0) | Spread::KeysZipf { keys: 0, .. } => {
                return Err(value("keys", 0, "at least 1"));
            }
            Spread::Zipf(exponent) | Spread::KeysZipf { exponent, .. } if !(exponent.is_finite() && exponent >= 0.0) => {
                return Err(value("zipf exponent", exponent, "a number from 0 on"));
            }
            _ => {}
        }
        match self.failing {
            Failing::Nothing => {}
            _ if self.groups == 0 => return Err(value("groups", 0, "at least 1 where records are to fail")),
            // Without keys nothing is parked behind a record that failed, and nothing comes in order.
            _ if !self.spread.keyed() => return Err(value("keys", 0, "at least 1 where records are to fail")),
            Failing::Share(share) if !(0.0..=1.0).contains(&share) => return Err(value("fail share", share, "0 to 1")),
            Failing::Share(_) | Failing::Key(_) => {}
        }
        if let Some(percent) = self.curve_percent.iter().find(|percent| !(1.0..=100.0).contains(*percent)) {
            return Err(value("curve step", percent, "1 to 100 percent"));
        }
        if let Some(backlog) = self.backlog {
            if !(0.0..=1.0).contains(&backlog.drain_ratio) {
                return Err(value("drain ratio", backlog.drain_ratio, "0 to 1"));
            }
            if self.subscriptions_per_topic == 0 || self.groups > 0 {
                return Err(value(
                    "subscriptions per topic",
                    self.subscriptions_per_topic,
                    "at least 1, and no group, to drain a backlog",
                ));
            }
            if self.retention_bytes.is_some() {
                return Err(value("backlog bytes", backlog.bytes, "none where retention would take it"));
            }
        }
        Ok(())
    }

    /// A small version of the same shape, without objectives: it shows that everything goes through.
    pub fn quick(self) -> Workload {
        const PER_SECOND: f64 = 2_000.0;
        const KEYS: u32 = 100;
        const BACKLOG_BYTES: u64 = 1 << 20;
        let killed = self.kill_after.is_some();
        let duration = self.duration.min(Duration::from_millis(500));
        Workload {
            topics: self.topics.min(2),
            partitions_per_topic: self.partitions_per_topic.min(20),
            producers_per_topic: self.producers_per_topic.min(4),
            consumers_per_subscription: self.consumers_per_subscription.min(4),
            groups: self.groups.min(10),
            members_per_group: self.members_per_group.min(4),
            spread: match self.spread {
                Spread::KeysRoundRobin(keys) => Spread::KeysRoundRobin(keys.min(KEYS)),
                Spread::KeysRandom(keys) => Spread::KeysRandom(keys.min(KEYS)),
                Spread::KeysZipf { keys, exponent } => Spread::KeysZipf { keys: keys.min(KEYS), exponent },
                Spread::RoundRobin | Spread::Zipf(_) => self.spread,
            },
            rate: match self.rate {
                Rate::PerSecond(rate) => Rate::PerSecond(rate.min(PER_SECOND)),
                Rate::Saturate(unanswered) => Rate::Saturate(unanswered.min(100)),
                Rate::Search => Rate::PerSecond(PER_SECOND),
            },
            warmup: self.warmup.min(Duration::from_millis(200)),
            // A kill ends the load: until then it must last.
            duration: if killed { self.duration } else { duration },
            backlog: self.backlog.map(|wanted| BacklogWanted { bytes: wanted.bytes.min(BACKLOG_BYTES), ..wanted }),
            objective: Objective::default(),
            kill_after: self.kill_after.map(|after| after.min(Duration::from_millis(500))),
            ..self
        }
    }

    /// Partitions of all topics.
    pub fn partitions(&self) -> u32 {
        self.topics * self.partitions_per_topic
    }

    /// Producers of all topics.
    pub fn producers(&self) -> u32 {
        self.topics * self.producers_per_topic
    }
}

fn value(field: &'static str, found: impl std::fmt::Display, rule: impl Into<String>) -> WorkloadError {
    WorkloadError::Value { field, found: found.to_string(), rule: rule.into() }
}

fn at_least(field: &'static str, found: u64, least: u64) -> Result<(), WorkloadError> {
    if found < least { Err(value(field, found, format!("at least {least}"))) } else { Ok(()) }
}

fn at_most(field: &'static str, found: u64, most: u64) -> Result<(), WorkloadError> {
    if found > most { Err(value(field, found, format!("at most {most}"))) } else { Ok(()) }
}
