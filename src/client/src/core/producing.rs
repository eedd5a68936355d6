//! The producer's decisions: which partition, which batch, when to send it, what its reply means.
//!
//! ```text
//!  push ─► open batch ─(full, due, flush)─► waiting ─► request ─► reply ─┬─► outcome
//!          one a partition                  oldest first   ▲             │
//!                                                          └── backoff ◄─┘ retryable
//! ```
//!
//! Invariants:
//! - Batches of a partition leave in the order in which they were begun; one that comes back takes its old place.
//! - A partition has at most `partition_requests_in_flight_max` requests unanswered, and one while it has failures.
//! - Every batch gets exactly one outcome.
//! - A batch of an idempotent producer has one sequence from its first request on, unless a broker has said for sure that it is not stored.

mod accumulate;
mod batch;
mod plan;
mod reply;
mod sequences;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{ErrorCode, InitProducerRequest, PartitionKey, ProducerIdentity, TopicId};

use self::accumulate::{OpenBatch, Sticky};
pub(crate) use self::batch::{Batch, Reservation};
pub(crate) use self::plan::{PartitionPlan, ProducePlan};
use self::sequences::Sequences;
use super::backoff::Backoff;
use super::cluster_map::{ClusterMap, Target};
use crate::error::{ClientError, ErrorKind, Result};
use crate::limits::{PRODUCES_PER_SHARD_MAX, UNKNOWN_PARTITION_ANSWERS_MAX};
use crate::options::ProducerOptions;

/// The state of a producer.
pub(crate) struct ProducerCore {
    options: ProducerOptions,
    backoff: Backoff,
    queues: HashMap<PartitionKey, Queue>,
    /// Partitions to look at in the next round of requests, each at most once.
    runnable: VecDeque<PartitionKey>,
    /// Partitions that wait for their shard: for a connection, or for room among its requests.
    parked: BTreeMap<Target, VecDeque<PartitionKey>>,
    /// When to look at a partition again: linger over, backoff over, delivery too late.
    timers: BinaryHeap<Reverse<(Instant, PartitionKey)>>,
    requests_in_flight: HashMap<Target, usize>,
    sticky: HashMap<TopicId, Sticky>,
    /// Numbers of batches without an outcome.
    unfinished: BTreeSet<u64>,
    batch_next: u64,
    /// A leader was unknown or wrong.
    metadata_wanted: bool,
    identity: Identity,
    /// Partitions with something to send that wait for it.
    unidentified: VecDeque<PartitionKey>,
    /// Why nothing can be sent any more.
    fatal: Option<ClientError>,
}

/// Who the producer is to the brokers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    Unknown,
    Asked,
    Known(ProducerIdentity),
}

/// What waits for one partition.
struct Queue {
    /// Topic and partition, for messages.
    place: Arc<str>,
    topic: Arc<str>,
    open: Option<OpenBatch>,
    /// Closed batches by their number, so that one that comes back takes its old place.
    waiting: BTreeMap<u64, Batch>,
    sequences: Sequences,
    /// What was acknowledged last may be lost.
    is_relaxed: bool,
    requests_in_flight: usize,
    /// In a row; any success ends the row.
    failures: u32,
    /// Those of them, the last ones in a row, that say that there is no such partition.
    unknown_answers: u32,
    /// Why `failures` is not 0.
    last_error: Option<ClientError>,
    not_before: Option<Instant>,
    /// Among `runnable`, `parked` or `unidentified`.
    queued: bool,
}

/// What the driver should do now.
#[derive(Default)]
pub(crate) struct ProduceActions {
    pub(crate) requests: Vec<ProducePlan>,
    /// Shards with something to send and no connection.
    pub(crate) connect: Vec<Target>,
    /// Who the producer is must be asked for.
    pub(crate) identify: Option<InitProducerRequest>,
}

impl ProducerCore {
    pub(crate) fn new(options: ProducerOptions, backoff: Backoff) -> Self {
        Self {
            options,
            backoff,
            queues: HashMap::new(),
            runnable: VecDeque::new(),
            parked: BTreeMap::new(),
            timers: BinaryHeap::new(),
            requests_in_flight: HashMap::new(),
            sticky: HashMap::new(),
            unfinished: BTreeSet::new(),
            batch_next: 0,
            metadata_wanted: false,
            identity: Identity::Unknown,
            unidentified: VecDeque::new(),
            fatal: None,
        }
    }

    pub(crate) fn options(&self) -> &ProducerOptions {
        &self.options
    }

    /// The requests that can leave now. `connected` says whether a shard's connection is open.
    pub(crate) fn next_actions(
        &mut self,
        now: Instant,
        map: &ClusterMap,
        connected: impl Fn(Target) -> bool,
        random: u64,
    ) -> ProduceActions {
        self.run_timers(now);
        let mut building: BTreeMap<Target, ProducePlan> = BTreeMap::new();
        let mut actions = ProduceActions::default();
        let request_bytes_max = self.options.request_bytes_max;
        while let Some(key) = self.runnable.pop_front() {
            self.queue(key).queued = false;
            if !self.sendable(now, key) {
                continue;
            }
            if self.needs_stamp(key) && !self.can_stamp(key) {
                continue;
            }
            let Some(target) = map.leader(key) else {
                self.leader_unknown(now, key, random);
                continue;
            };
            let in_flight = self.requests_in_flight.get(&target).copied().unwrap_or(0);
            let room = in_flight < self.options.connection_requests_in_flight_max.clamp(1, PRODUCES_PER_SHARD_MAX);
            if !connected(target) || (!room && !building.contains_key(&target)) {
                self.queue(key).queued = true;
                self.parked.entry(target).or_default().push_back(key);
                continue;
            }
            let batches = self.take_batches(now, key);
            if batches.is_empty() {
                // All was too late; or the epochs of the identity are used up, and the partition waits for another.
                self.make_runnable(now, key);
                continue;
            }
            let part = PartitionPlan { key, batches };
            if building.get(&target).is_some_and(|plan| !plan.has_room_for(&part, request_bytes_max)) {
                actions.requests.extend(building.remove(&target));
            }
            let plan = building.entry(target).or_insert_with(|| {
                *self.requests_in_flight.entry(target).or_default() += 1;
                ProducePlan::new(target)
            });
            plan.add(part);
            self.queue(key).requests_in_flight += 1;
            self.make_runnable(now, key);
        }
        if !self.unidentified.is_empty() && self.identity == Identity::Unknown {
            self.identity = Identity::Asked;
            actions.identify = Some(InitProducerRequest { name: self.options.name.clone(), current: None });
        }
        actions.requests.extend(building.into_values());
        actions.connect.extend(self.parked.keys().copied().filter(|target| !connected(*target)));
        actions
    }

    /// Brokers know the producer by this identity, or why by none.
    pub(crate) fn identified(&mut self, now: Instant, result: Result<ProducerIdentity>, random: u64) {
        let error = match result {
            Ok(identity) => {
                self.identity = Identity::Known(identity);
                self.runnable.append(&mut self.unidentified);
                return;
            }
            Err(error) => error,
        };
        self.identity = Identity::Unknown;
        if !error.retryable() {
            self.fail_for_good(&error);
            return;
        }
        for key in std::mem::take(&mut self.unidentified) {
            let queue = self.queue(key);
            queue.queued = false;
            let error = error.clone().at(&queue.place);
            self.partition_failed(now, key, &error, random);
        }
    }

    /// A connection to `target` is open: what waited for it goes on.
    pub(crate) fn connection_opened(&mut self, target: Target) {
        self.unpark(target);
    }

    /// No connection to `target` could be opened: what waited for it tries again later, elsewhere if metadata says so.
    pub(crate) fn connection_failed(&mut self, now: Instant, target: Target, error: &ClientError, random: u64) {
        self.metadata_wanted = true;
        for key in self.parked.remove(&target).unwrap_or_default() {
            let queue = self.queue(key);
            queue.queued = false;
            let error = error.clone().during("produce").at(&queue.place);
            self.partition_failed(now, key, &error, random);
        }
    }

    /// When [`ProducerCore::next_actions`] has something to do even if nothing happens.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((when, _))| *when)
    }

    /// The topics to ask metadata for, if a leader was unknown or wrong since the last call.
    pub(crate) fn take_metadata_wanted(&mut self) -> Option<Vec<String>> {
        if !std::mem::take(&mut self.metadata_wanted) {
            return None;
        }
        let topics: BTreeSet<&Arc<str>> =
            self.queues.values().filter(|queue| queue.failures > 0).map(|queue| &queue.topic).collect();
        Some(topics.into_iter().map(ToString::to_string).collect())
    }

    /// Closes every open batch and returns the mark for [`ProducerCore::flushed`].
    pub(crate) fn flush(&mut self, now: Instant) -> u64 {
        let keys: BTreeSet<PartitionKey> =
            self.queues.iter().filter(|(_, queue)| queue.open.is_some()).map(|(key, _)| *key).collect();
        for key in keys {
            self.close_open_batch(key);
            self.make_runnable(now, key);
        }
        self.batch_next
    }

    /// Whether everything accepted before the flush that gave `mark` has its outcome.
    pub(crate) fn flushed(&self, mark: u64) -> bool {
        self.unfinished.first().is_none_or(|oldest| *oldest >= mark)
    }

    /// Batches accepted and without an outcome.
    pub(crate) fn unfinished_batches(&self) -> usize {
        self.unfinished.len()
    }

    /// Gives every batch that is not in a request this outcome; nothing is left to send.
    pub(crate) fn fail_all(&mut self, error: &ClientError) {
        let keys: Vec<PartitionKey> = self.queues.keys().copied().collect();
        for key in keys {
            self.close_open_batch(key);
            while let Some((_, batch)) = self.queue(key).waiting.pop_first() {
                self.finish(key, batch, Err(error.clone()));
            }
            self.queue(key).queued = false;
        }
        self.runnable.clear();
        self.unidentified.clear();
        self.parked.clear();
        self.timers.clear();
    }

    /// Nothing can be sent any more.
    fn fail_for_good(&mut self, error: &ClientError) {
        self.fatal.get_or_insert_with(|| error.clone());
        self.fail_all(error);
    }

    fn is_idempotent(&self) -> bool {
        self.options.idempotent && self.options.retries
    }

    /// Whether the next batch to leave has no sequence and gets one.
    fn needs_stamp(&self, key: PartitionKey) -> bool {
        let next = self.queues[&key].waiting.first_key_value();
        self.is_idempotent() && next.is_none_or(|(_, batch)| batch.stamp.is_none() && !batch.is_prebuilt)
    }

    /// Whether the identity for that is there; if not, the partition waits for it.
    fn can_stamp(&mut self, key: PartitionKey) -> bool {
        if self.queues[&key].sequences.needs_epoch() && self.options.name.is_some() {
            let queue = &self.queues[&key];
            let why = "a record could not be delivered, and may be stored yet: the next instance of the name fences it";
            let cause = queue.last_error.as_ref().map_or_else(|| why.to_owned(), |error| format!("{why} ({})", error.cause()));
            let error = ClientError::new(ErrorKind::Closed, "produce", &*queue.place, cause);
            self.fail_for_good(&error);
            return false;
        }
        if !matches!(self.identity, Identity::Known(_)) {
            let delivery_timeout = self.options.delivery_timeout;
            let queue = self.queue(key);
            queue.queued = true;
            let open = queue.open.as_ref().map(|open| open.due(delivery_timeout));
            let deadline = queue.waiting.first_key_value().map(|(_, batch)| batch.deadline).or(open);
            self.timers.extend(deadline.map(|deadline| Reverse((deadline, key))));
            self.unidentified.push_back(key);
            return false;
        }
        true
    }

    fn queue(&mut self, key: PartitionKey) -> &mut Queue {
        self.queues.get_mut(&key).expect("a partition named by the core has its queue")
    }

    /// Whether a request for the partition may leave now.
    fn sendable(&self, now: Instant, key: PartitionKey) -> bool {
        let queue = &self.queues[&key];
        let limit = if queue.failures > 0 { 1 } else { self.options.partition_requests_in_flight_max.max(1) };
        let has_sequence = !self.needs_stamp(key) || queue.sequences.has_room();
        let open_due = queue.open.as_ref().is_some_and(|open| open.due(self.options.linger) <= now);
        queue.requests_in_flight < limit
            && has_sequence
            && queue.not_before.is_none_or(|not_before| not_before <= now)
            && (!queue.waiting.is_empty() || open_due)
    }

    /// Puts the partition among the runnable ones if it can send; otherwise sets the timer at which it can. Whether it is new there.
    fn make_runnable(&mut self, now: Instant, key: PartitionKey) -> bool {
        if self.queues[&key].queued {
            return false;
        }
        if self.sendable(now, key) {
            self.queue(key).queued = true;
            self.runnable.push_back(key);
            return true;
        }
        false
    }

    fn run_timers(&mut self, now: Instant) {
        while self.timers.peek().is_some_and(|Reverse((when, _))| *when <= now) {
            let Reverse((_, key)) = self.timers.pop().expect("it was just looked at");
            self.expire(now, key);
            self.make_runnable(now, key);
        }
    }

    fn unpark(&mut self, target: Target) {
        self.runnable.extend(self.parked.remove(&target).unwrap_or_default());
    }

    /// Ends batches that are too late.
    fn expire(&mut self, now: Instant, key: PartitionKey) {
        let delivery_timeout = self.options.delivery_timeout;
        if self.queue(key).open.as_ref().is_some_and(|open| open.due(delivery_timeout) <= now) {
            self.close_open_batch(key);
        }
        let queue = self.queue(key);
        let place = Arc::clone(&queue.place);
        let last_error = queue.last_error.clone().map(|error| error.after_retries(queue.failures));
        while let Some(entry) = self.queue(key).waiting.first_entry() {
            if entry.get().deadline > now {
                break;
            }
            let batch = entry.remove();
            let error = last_error.clone().unwrap_or_else(|| {
                ClientError::new(ErrorKind::TimedOut, "produce", &*place, "not delivered within the delivery timeout")
            });
            self.finish(key, batch, Err(error));
        }
    }

    fn leader_unknown(&mut self, now: Instant, key: PartitionKey, random: u64) {
        self.metadata_wanted = true;
        let queue = self.queue(key);
        let place = Arc::clone(&queue.place);
        let code = ErrorCode::UnknownTopicOrPartition;
        let error = ClientError::broker(code, "produce", &*place, Some("metadata names no leader for it"));
        self.partition_failed(now, key, &error, random);
    }

    /// Notes a failure that concerns the partition as a whole, and when to try again; gives up what must be given up.
    fn partition_failed(&mut self, now: Instant, key: PartitionKey, error: &ClientError, random: u64) {
        let backoff = self.backoff;
        let retries = self.options.retries;
        let queue = self.queue(key);
        queue.failures = queue.failures.saturating_add(1);
        let is_unknown = error.code() == Some(ErrorCode::UnknownTopicOrPartition);
        queue.unknown_answers = if is_unknown { queue.unknown_answers.saturating_add(1) } else { 0 };
        queue.last_error = Some(error.clone());
        self.expire(now, key);
        let queue = self.queue(key);
        let gone = queue.unknown_answers >= UNKNOWN_PARTITION_ANSWERS_MAX;
        if gone || !retries {
            self.close_open_batch(key);
            let failures = self.queue(key).failures;
            while let Some((_, batch)) = self.queue(key).waiting.pop_first() {
                self.finish(key, batch, Err(error.clone().after_retries(failures)));
            }
            return;
        }
        let again = now + backoff.delay(queue.failures, random);
        queue.not_before = Some(again);
        let first_deadline = queue.waiting.first_key_value().map(|(_, batch)| batch.deadline);
        self.timers.push(Reverse((again, key)));
        if let Some(deadline) = first_deadline {
            self.timers.push(Reverse((deadline.max(now + Duration::from_millis(1)), key)));
        }
    }

    fn finish(&mut self, key: PartitionKey, batch: Batch, result: Result<crate::Delivery>) {
        if batch.stamp.is_some() {
            let sequences = &mut self.queue(key).sequences;
            match result {
                Ok(_) => sequences.stored(batch.number),
                Err(_) => sequences.failed(batch.number),
            }
        }
        let known = self.unfinished.remove(&batch.number);
        assert!(known, "a batch has one outcome");
        batch.outcome.set(result);
    }
}
