//! Partitions that a member was given and does not read yet: where the group stands in each, and where to begin where it never stood.
//!
//! ```text
//!   given ─► to be asked for ──fetch offsets──► the group stands somewhere ────────────────► begun
//!                ▲   ▲    │                        └─ it never stood ──list offsets──► begun
//!                └───│────┘ not in the answer: there is more than fits one       │
//!                    └───────────────────────────────────────────────────────────┘ no answer: again after a pause
//! ```
//!
//! Invariants:
//! - What was given stays here until it is begun or taken away: no failure ends that.
//! - A partition is in at most one request at a time; an answer to what was asked before it was taken away is not used.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use wire::limits::PARTITIONS_PER_REQUEST_MAX;
use wire::{ErrorCode, FetchedOffset, ListOffsetsReply, Offset, OffsetAt, PartitionKey};

use super::backoff::Backoff;
use super::cluster_map::{ClusterMap, Target};
use crate::consumer::StartAt;
use crate::error::{ClientError, ErrorKind, Result};

/// The state of the partitions that are not read yet.
#[derive(Debug)]
pub(crate) struct Beginning {
    start: StartAt,
    backoff: Backoff,
    partitions: BTreeMap<PartitionKey, Waiting>,
    number_next: u64,
    metadata_wanted: bool,
}

#[derive(Debug)]
struct Waiting {
    topic: Arc<str>,
    /// Like no other: a partition that is given again is another one.
    number: u64,
    /// What the coordinator said, and where to begin has to be looked up.
    unplaced: Option<(FetchedOffset, OffsetAt)>,
    /// In a request.
    is_busy: bool,
    /// In a row.
    failures: u32,
    not_before: Option<Instant>,
}

/// A partition that can be read now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) fetched: FetchedOffset,
    pub(crate) start: Offset,
}

/// Partitions to ask the coordinator about.
#[derive(Debug)]
pub(crate) struct StandPlan {
    partitions: Vec<(PartitionKey, u64)>,
}

impl StandPlan {
    pub(crate) fn keys(&self) -> Vec<PartitionKey> {
        self.partitions.iter().map(|(key, _)| *key).collect()
    }
}

/// Offsets to ask a shard for.
#[derive(Debug)]
pub(crate) struct StartPlan {
    pub(crate) target: Target,
    pub(crate) partitions: Vec<StartPart>,
}

/// The part of it for one partition.
#[derive(Debug)]
pub(crate) struct StartPart {
    pub(crate) key: PartitionKey,
    number: u64,
    pub(crate) at: OffsetAt,
}

impl Beginning {
    /// `start` is where to begin in partitions in which the group never stood.
    pub(crate) fn new(start: StartAt, backoff: Backoff) -> Self {
        Self { start, backoff, partitions: BTreeMap::new(), number_next: 0, metadata_wanted: false }
    }

    /// A partition is to be read.
    pub(crate) fn given(&mut self, key: PartitionKey, topic: &Arc<str>) {
        let (topic, number) = (Arc::clone(topic), self.number_next);
        self.number_next += 1;
        let waiting = Waiting { topic, number, unplaced: None, is_busy: false, failures: 0, not_before: None };
        self.partitions.insert(key, waiting);
    }

    /// It is not to be read any more.
    pub(crate) fn taken(&mut self, key: PartitionKey) {
        self.partitions.remove(&key);
    }

    /// What to ask the coordinator now.
    pub(crate) fn next_stand(&mut self, now: Instant) -> Option<StandPlan> {
        let askable = self.partitions.iter_mut().filter(|(_, waiting)| waiting.unplaced.is_none() && waiting.is_askable(now));
        let mut partitions = Vec::new();
        for (key, waiting) in askable.take(PARTITIONS_PER_REQUEST_MAX) {
            waiting.is_busy = true;
            partitions.push((*key, waiting.number));
        }
        (!partitions.is_empty()).then_some(StandPlan { partitions })
    }

    /// The coordinator's answer. What it does not name is asked for again: at once when it names others, for it then had no room.
    pub(crate) fn stood(&mut self, now: Instant, plan: &StandPlan, answer: Vec<FetchedOffset>, random: u64) -> Vec<Begun> {
        let mut answer: BTreeMap<_, _> =
            answer.into_iter().map(|fetched| (PartitionKey::new(fetched.topic, fetched.partition), fetched)).collect();
        let is_any = plan.partitions.iter().any(|(key, _)| answer.contains_key(key));
        let mut begun = Vec::new();
        for (key, number) in &plan.partitions {
            let (start, backoff) = (self.start, self.backoff);
            let Some(waiting) = self.get(*key, *number) else { continue };
            let Some(fetched) = answer.remove(key) else {
                waiting.is_busy = false;
                if !is_any {
                    waiting.failed(now, backoff, random);
                }
                continue;
            };
            let committed = fetched.committed.as_ref().map(|committed| committed.offset);
            let place = match (committed, start) {
                (Some(offset), _) | (None, StartAt::Offset(offset)) => Ok(offset),
                (None, StartAt::Earliest) => Err(OffsetAt::Earliest),
                (None, StartAt::Latest) => Err(OffsetAt::Latest),
                (None, StartAt::Timestamp(timestamp)) => Err(OffsetAt::Timestamp(timestamp)),
            };
            match place {
                Ok(start) => {
                    self.partitions.remove(key);
                    begun.push(Begun { fetched, start });
                }
                Err(at) => {
                    waiting.succeeded();
                    waiting.unplaced = Some((fetched, at));
                }
            }
        }
        begun
    }

    /// The coordinator did not answer, or refused.
    pub(crate) fn stand_lost(&mut self, now: Instant, plan: &StandPlan, random: u64) {
        for (key, number) in &plan.partitions {
            self.part_failed(now, *key, *number, random);
        }
    }

    /// What to ask the leaders now. Where `map` names none it is asked for: it may be older than the partition.
    pub(crate) fn next_starts(&mut self, now: Instant, map: &ClusterMap, random: u64) -> Vec<StartPlan> {
        let mut plans: BTreeMap<Target, StartPlan> = BTreeMap::new();
        let mut full = Vec::new();
        for (key, waiting) in &mut self.partitions {
            let Some((_, at)) = waiting.unplaced.as_ref().filter(|_| waiting.is_askable(now)) else { continue };
            let Some(target) = map.leader(*key) else {
                waiting.failed(now, self.backoff, random);
                self.metadata_wanted = true;
                continue;
            };
            let plan = plans.entry(target).or_insert_with(|| StartPlan { target, partitions: Vec::new() });
            plan.partitions.push(StartPart { key: *key, number: waiting.number, at: *at });
            waiting.is_busy = true;
            if plan.partitions.len() == PARTITIONS_PER_REQUEST_MAX {
                full.extend(plans.remove(&target));
            }
        }
        full.into_iter().chain(plans.into_values()).collect()
    }

    /// A leader's answer, or why there is none. The errors are those that time alone does not cure: they are for the program.
    pub(crate) fn started(
        &mut self,
        now: Instant,
        plan: &StartPlan,
        answer: Result<ListOffsetsReply>,
        random: u64,
    ) -> (Vec<Begun>, Vec<ClientError>) {
        let (mut begun, mut errors) = (Vec::new(), Vec::new());
        for (index, part) in plan.partitions.iter().enumerate() {
            let Some(waiting) = self.get(part.key, part.number) else { continue };
            let place = format!("{}/{}", waiting.topic, part.key.partition.0);
            let error = match answer.as_ref().map(|reply| reply.partitions.get(index)) {
                Ok(Some(found)) if PartitionKey::new(found.topic, found.partition) == part.key => match found.error {
                    ErrorCode::None => {
                        let waiting = self.partitions.remove(&part.key).expect("it was just there");
                        let (fetched, _) = waiting.unplaced.expect("its place was asked for");
                        begun.push(Begun { fetched, start: found.offset });
                        continue;
                    }
                    code => ClientError::broker(code, "list offsets", place, None),
                },
                Ok(_) => ClientError::new(ErrorKind::Protocol, "list offsets", place, "the answer does not name the partition"),
                Err(error) => error.clone().at(place),
            };
            if !error.retryable() && waiting.failures == 0 {
                errors.push(error);
            }
            self.metadata_wanted = true;
            self.part_failed(now, part.key, part.number, random);
        }
        (begun, errors)
    }

    /// The topics to ask metadata for, if a leader was unknown or did not answer since the last call.
    pub(crate) fn take_metadata_wanted(&mut self) -> Option<Vec<String>> {
        if !std::mem::take(&mut self.metadata_wanted) {
            return None;
        }
        let unplaced = self.partitions.values().filter(|waiting| waiting.unplaced.is_some() && waiting.failures > 0);
        let topics: BTreeSet<&Arc<str>> = unplaced.map(|waiting| &waiting.topic).collect();
        Some(topics.into_iter().map(ToString::to_string).collect())
    }

    /// When there is something to ask though nothing happens.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let waits = self.partitions.values().filter(|waiting| !waiting.is_busy);
        waits.filter_map(|waiting| waiting.not_before).min()
    }

    fn get(&mut self, key: PartitionKey, number: u64) -> Option<&mut Waiting> {
        self.partitions.get_mut(&key).filter(|waiting| waiting.number == number)
    }

    fn part_failed(&mut self, now: Instant, key: PartitionKey, number: u64, random: u64) {
        let backoff = self.backoff;
        if let Some(waiting) = self.get(key, number) {
            waiting.failed(now, backoff, random);
        }
    }
}

impl Waiting {
    fn is_askable(&self, now: Instant) -> bool {
        !self.is_busy && self.not_before.is_none_or(|not_before| not_before <= now)
    }

    fn failed(&mut self, now: Instant, backoff: Backoff, random: u64) {
        self.is_busy = false;
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + backoff.delay(self.failures, random));
    }

    fn succeeded(&mut self) {
        self.is_busy = false;
        self.failures = 0;
        self.not_before = None;
    }
}
