//! One run of a workload: topics made, load applied, books closed, messages judged.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use wire::{Durability, Offset, OffsetAt, TopicConfig};

use crate::driver::DriverError;
use crate::driver::consumer::{Consumer, Inbox, Subscription};
use crate::driver::drain;
use crate::driver::engine::{self, Backlog, Load, Outcome, Schedule, Second};
use crate::driver::link::Link;
use crate::driver::producer::{Books, Pace, ProduceCounts, Producer};
use crate::driver::session::{Session, Topic};
use crate::driver::template::{Shape, Templates};
use crate::groups::{Book, Groups, Wanted};
use crate::latency::Latencies;
use crate::plan::Plan;
use crate::verify::{Counts, Messages};
use crate::workload::{Rate, Workload};

/// How long to wait for late answers and messages after the load.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// The plan may slip by this share before a run says nothing.
const SLIP_MAX: f64 = 0.01;
/// A generator that is busy for more than this share of the time limits what it measures.
const BUSY_MAX: f64 = 0.95;
/// A run whose broker answers fewer messages than this share of those offered did not sustain the rate.
const ACHIEVED_SHARE_MIN: f64 = 0.99;
/// A backlog is flat when it grows by less than this share of the load.
const BACKLOG_GROWTH_MAX: f64 = 0.01;

/// How a trial is made besides its workload.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// The broker.
    pub broker: SocketAddr,
    /// Prefix of the topics' names: unique among all runs against this broker.
    pub prefix: &'a str,
    /// Messages per second of all producers, or the closed loop.
    pub rate: Rate,
    /// Whether every message is checked. Costs the generator about as much again.
    pub verify: bool,
    /// Whether topics go when it is over.
    pub delete_topics: bool,
    /// A broken connection is an outcome.
    pub expect_disconnect: bool,
    /// Added to the producers' numbers, so that runs on the same topics are told apart.
    pub producers_from: u32,
}

/// What a trial found.
#[derive(Debug)]
pub struct Findings {
    /// Figures.
    pub figures: Figures,
    /// Publish latencies.
    pub publish: Latencies,
    /// End-to-end latencies.
    pub end_to_end: Histogram<u64>,
    /// Wall clock at the start.
    pub started: std::time::SystemTime,
    /// What was acknowledged, when the trial verified.
    pub acknowledged: Option<Messages>,
    /// Messages acknowledged over the whole run.
    pub acked_total: u64,
    /// Bytes of batches acknowledged over the whole run.
    pub acked_bytes_total: u64,
    /// Its topics.
    pub topics: Vec<Topic>,
    /// Why the connection broke, when that was expected.
    pub disconnected: Option<String>,
}

/// Figures of a trial.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Measured time in seconds.
    pub seconds: f64,
    /// Messages per second that the plan wanted; `None` in a closed loop.
    pub offered_per_second: Option<f64>,
    /// Messages per second handed over.
    pub sent_per_second: f64,
    /// Messages per second acknowledged.
    pub acked_per_second: f64,
    /// Messages per second consumed, all subscriptions and groups together.
    pub consumed_per_second: f64,
    /// Megabytes (10^6) of message values per second acknowledged.
    pub acked_mb_per_second: f64,
    /// Mean number of messages per request over the whole run.
    pub messages_per_request: f64,
    /// Messages refused for good, over the whole run.
    pub failed: u64,
    /// Batches sent again after a refusal that allowed it.
    pub retried: u64,
    /// Fetches refused for a reason that passes.
    pub fetches_refused: u64,
    /// The last refusal.
    pub last_refusal: Option<String>,
    /// Deliveries that members of groups failed, over the whole run.
    pub failed_in_groups: u64,
    /// Different messages in dead-letter topics.
    pub dead_letters: u64,
    /// Messages queued or in flight when the measured time began and ended.
    pub unanswered: (u64, u64),
    /// Messages acknowledged and not consumed when it began and ended.
    pub backlog: (u64, u64),
    /// Messages neither acknowledged nor consumed when waiting ended.
    pub unsettled: u64,
    /// Seconds in which a backlog was drained.
    pub drained_in_seconds: Option<f64>,
    /// Share of the measured time in which the generator had something to do.
    pub generator_busy: f64,
    /// CPU time of the thread of all group members, as a share of the measured time.
    pub members_busy: f64,
    /// Share of the plan that was not handed over in time.
    pub slip: f64,
    /// What went wrong with messages; `None` when the trial did not verify.
    pub wrong: Option<Counts>,
    /// Why the run says nothing about the broker, when it does not.
    pub invalid: Vec<String>,
    /// Why the broker did not sustain the rate, when it did not.
    pub not_sustained: Vec<String>,
}

impl Figures {
    /// Whether the figures may be used: the generator kept up, and every message was right.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty() && self.wrong.is_none_or(|counts| counts.is_clean())
    }
}

impl Findings {
    /// Whether messages were acknowledged, and each one arrived once, whole and in order, at whatever pace.
    pub fn is_complete(&self) -> bool {
        let right = self.figures.wrong.is_none_or(|counts| counts.is_clean());
        right && self.acked_total > 0 && self.figures.failed == 0 && self.figures.unsettled == 0
    }
}

impl Trial<'_> {
    /// Runs it; calls `observe` once a second.
    ///
    /// # Errors
    /// When the broker cannot be used.
    pub fn run(&self, workload: &Workload, observe: &mut dyn FnMut(&Second)) -> Result<Findings, DriverError> {
        self.run_observed(workload, observe, &mut || {})
    }

    /// As [`Trial::run`]; calls `begin` when topics and connections are there, right before the load.
    ///
    /// # Errors
    /// When the broker cannot be used.
    pub fn run_observed(
        &self,
        workload: &Workload,
        observe: &mut dyn FnMut(&Second),
        begin: &mut dyn FnMut(),
    ) -> Result<Findings, DriverError> {
        let mut session = Session::connect(self.broker)?;
        let config = TopicConfig {
            partitions: workload.partitions_per_topic,
            replication_factor: 1,
            retention_bytes: workload.retention_bytes,
            durability: if workload.relaxed { Durability::Relaxed } else { Durability::Stable },
            message_bytes_max: wire::limits::MESSAGE_BYTES_MAX_DEFAULT.max(workload.message_bytes as u32 + 1024),
            ..TopicConfig::default()
        };
        let topics = session.create_topics(self.prefix, workload.topics, &config)?;
        let load = self.load(workload, &topics, session.hello().shard_count, None)?;
        begin();
        let outcome = engine::run(load, self.schedule(workload), observe)?;
        let findings = self.judge(workload, outcome, topics);
        if self.delete_topics && findings.disconnected.is_none() {
            session.delete_topics(&findings.topics)?;
        }
        Ok(findings)
    }

    fn schedule(&self, workload: &Workload) -> Schedule {
        Schedule {
            warmup: workload.warmup,
            measure: workload.duration,
            settle_max: SETTLE_MAX,
            backlog: workload.backlog.map(|wanted| Backlog {
                messages: wanted.bytes / workload.message_bytes as u64,
                drain_ratio: wanted.drain_ratio,
            }),
            expect_disconnect: self.expect_disconnect,
        }
    }

    fn load(
        &self,
        workload: &Workload,
        topics: &[Topic],
        shard_count: u16,
        starts: Option<&[Offset]>,
    ) -> Result<Load, DriverError> {
        let mut links = Vec::new();
        let mut connect = |client: String| -> Result<Vec<usize>, DriverError> {
            (0..shard_count)
                .map(|shard| {
                    links.push(Link::connect(self.broker, &client, Some(shard))?.0);
                    Ok(links.len() - 1)
                })
                .collect()
        };
        let producer_count = workload.producers();
        let mut producers = Vec::new();
        let mut consumers = Vec::new();
        let mut subscriptions = Vec::new();
        for topic in topics {
            for _ in 0..workload.producers_per_topic {
                let number = self.producers_from + producers.len() as u32;
                let ports = connect(format!("perf-producer-{number}"))?;
                let pace = match self.rate {
                    Rate::PerSecond(rate) => {
                        let own = rate / f64::from(producer_count);
                        // Producers are spread over one gap, so that a uniform plan of many is uniform as a whole.
                        let first_ns = producers.len() as f64 * 1e9 / rate;
                        Pace::Open(Plan::new(workload.arrival, own, first_ns, u64::from(number)))
                    }
                    Rate::Saturate(unanswered_max) => Pace::Closed { unanswered_max },
                    Rate::Search => return Err(DriverError::Workload("a search runs trials with a rate each".to_owned())),
                };
                let partitions = topic.partitions().collect();
                producers.push(Producer::new(number, pace, workload.spread, partitions, ports, |partition| {
                    usize::from(partition.shard)
                }));
            }
            for _ in 0..workload.subscriptions_per_topic {
                let subscription = subscriptions.len();
                subscriptions.push(Subscription::new(self.verify));
                for consumer in 0..workload.consumers_per_subscription {
                    let ports = connect(format!("perf-consumer-{subscription}-{consumer}"))?;
                    let mine = topic
                        .partitions()
                        .filter(|partition| partition.index.0 % workload.consumers_per_subscription == consumer)
                        .map(|partition| {
                            let start = starts.map_or(Offset::ZERO, |starts| starts[partition.number as usize]);
                            (partition, start)
                        })
                        .collect();
                    consumers.push(Consumer::new(subscription, mine, |partition| ports[usize::from(partition.shard)]));
                }
            }
        }
        let shape = Shape { message_bytes: workload.message_bytes, keyed: workload.spread.keyed(), body: workload.body.clone() };
        let mut templates = Templates::new(shape);
        templates.prepare(workload.requests.batch_bytes_max);
        let books = Books {
            templates,
            requests: workload.requests,
            counts: ProduceCounts::default(),
            acknowledged: self.verify.then(Messages::default),
            latencies: Latencies::default(),
            measured: 0..0,
            last_refusal: None,
        };
        let wanted = Wanted {
            broker: self.broker,
            prefix: self.prefix,
            groups: workload.groups,
            members: workload.members_per_group,
            failing: workload.failing,
            retry: workload.retry,
            verify: self.verify,
            delete: self.delete_topics,
        };
        let groups = if workload.groups > 0 { Some(Groups::join(&wanted, topics)?) } else { None };
        let copies = u64::from(workload.subscriptions_per_topic + workload.groups);
        Ok(Load { links, producers, consumers, groups, books, inbox: Inbox::new(subscriptions), copies })
    }

    fn judge(&self, workload: &Workload, outcome: Outcome, topics: Vec<Topic>) -> Findings {
        let seconds = outcome.measured.as_secs_f64().max(1e-9);
        let per_second = |count: u64| count as f64 / seconds;
        let open = matches!(self.rate, Rate::PerSecond(_));
        let slip = if open { 1.0 - outcome.sent.min(outcome.offered) as f64 / outcome.offered.max(1) as f64 } else { 0.0 };
        let mut invalid = Vec::new();
        if open {
            invalid.extend(invalid_by_generator(&outcome, slip));
        }
        let mut not_sustained = Vec::new();
        if open && workload.backlog.is_none() {
            not_sustained.extend(not_sustained_by_broker(&outcome));
        }
        if outcome.totals.failed > 0 && outcome.disconnected.is_none() {
            not_sustained.push(format!("{} messages were refused", outcome.totals.failed));
        }
        if outcome.unsettled > 0 && outcome.disconnected.is_none() {
            not_sustained
                .push(format!("{} messages were unanswered or not delivered {SETTLE_MAX:?} after the load", outcome.unsettled));
        }
        let wrong = outcome.books.acknowledged.as_ref().filter(|_| outcome.disconnected.is_none()).map(|acknowledged| {
            let mut counts = Counts::default();
            for (index, subscription) in outcome.inbox.subscriptions.iter().enumerate() {
                let Some(delivered) = &subscription.delivered else { continue };
                let topic = &topics[index / workload.subscriptions_per_topic as usize];
                let range = topic.partitions_start..topic.partitions_start + topic.shards.len() as u32;
                counts.add(delivered.judge(acknowledged, range));
            }
            outcome.groups.iter().for_each(|group| counts.add(group.judge(acknowledged)));
            counts
        });
        let figures =
            Figures {
                seconds,
                offered_per_second: open.then(|| per_second(outcome.offered)),
                sent_per_second: per_second(outcome.sent),
                acked_per_second: per_second(outcome.acked),
                consumed_per_second: per_second(outcome.consumed),
                acked_mb_per_second: per_second(outcome.acked) * workload.message_bytes as f64 / 1e6,
                messages_per_request: outcome.totals.acked as f64 / outcome.totals.requests.max(1) as f64,
                failed: outcome.totals.failed,
                retried: outcome.totals.retried,
                fetches_refused: outcome.fetches_refused,
                last_refusal: outcome.books.last_refusal.as_ref().map(|(code, message)| {
                    format!("{code}{}", message.as_ref().map(|text| format!(": {text}")).unwrap_or_default())
                }),
                failed_in_groups: outcome.groups.iter().map(|group| group.failed).sum(),
                dead_letters: outcome.groups.iter().map(Book::dead).sum(),
                unanswered: (outcome.unanswered.start, outcome.unanswered.end),
                backlog: (outcome.backlog.start, outcome.backlog.end),
                unsettled: outcome.unsettled,
                drained_in_seconds: outcome.drained_in.map(|time| time.as_secs_f64()),
                generator_busy: outcome.busy,
                members_busy: outcome.members_busy,
                slip,
                wrong,
                invalid,
                not_sustained,
            };
        Findings {
            figures,
            publish: outcome.publish,
            end_to_end: outcome.end_to_end,
            started: outcome.started,
            acknowledged: outcome.books.acknowledged,
            acked_total: outcome.totals.acked,
            acked_bytes_total: outcome.totals.acked_bytes,
            topics,
            disconnected: outcome.disconnected,
        }
    }
}

fn invalid_by_generator(outcome: &Outcome, slip: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    if slip > SLIP_MAX {
        reasons.push(format!("the generator sent {:.1} % less than planned", slip * 100.0));
    }
    // Both threads are on one CPU.
    let busy = outcome.busy + outcome.members_busy;
    if busy > BUSY_MAX {
        reasons.push(format!("the generator was busy {:.0} % of the time: it may be the limit, not the broker", busy * 100.0));
    }
    reasons.extend(outcome.publish.lateness());
    reasons
}

fn not_sustained_by_broker(outcome: &Outcome) -> Vec<String> {
    let mut reasons = Vec::new();
    let offered = outcome.offered as f64;
    if (outcome.acked as f64) < offered * ACHIEVED_SHARE_MIN {
        reasons.push(format!(
            "{:.1} % of the offered load was acknowledged in time",
            outcome.acked as f64 * 100.0 / offered.max(1.0)
        ));
    }
    for (what, range) in [("unanswered", &outcome.unanswered), ("backlog", &outcome.backlog)] {
        let growth = range.end.saturating_sub(range.start) as f64;
        if growth > offered * BACKLOG_GROWTH_MAX {
            reasons.push(format!("{what} grew from {} to {}", range.start, range.end));
        }
    }
    reasons
}

/// Reads everything in topics, from the start to the end, and judges it against what was acknowledged.
///
/// # Errors
/// When the broker cannot be used.
pub fn read_back(broker: SocketAddr, topics: &[Topic], acknowledged: &Messages) -> Result<(Counts, u64), DriverError> {
    let mut session = Session::connect(broker)?;
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    // Asked again: a restart may have given partitions to other shards.
    let topics = session.topics(&names)?;
    let starts = session.offsets(&topics, OffsetAt::Earliest)?;
    let ends = session.offsets(&topics, OffsetAt::Latest)?;
    let wanted: u64 = starts.iter().zip(&ends).map(|(start, end)| end.since(*start)).sum();
    let shard_count = session.hello().shard_count;
    let mut links: Vec<Link> = Vec::new();
    for shard in 0..shard_count {
        links.push(Link::connect(broker, "perf-read-back", Some(shard))?.0);
    }
    let partitions: Vec<_> =
        topics.iter().flat_map(Topic::partitions).map(|partition| (partition, starts[partition.number as usize])).collect();
    let consumer = Consumer::new(0, partitions, |partition| usize::from(partition.shard));
    let mut inbox = Inbox::new(vec![Subscription::new(true)]);
    drain::drain(links, consumer, &mut inbox, wanted, SETTLE_MAX)?;
    let subscription = inbox.subscriptions.pop().expect("one was put in");
    let delivered = subscription.delivered.expect("it was made with a verifier");
    Ok((delivered.judge(acknowledged, 0..u32::MAX), subscription.messages))
}
