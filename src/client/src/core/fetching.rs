//! The consumer's decisions: what to fetch from whom, and what an answer means for positions.
//!
//! ```text
//!  assign, seek ─► unresolved ─(list offsets)─► at offset ─(fetch)─► buffered ─► next_batch
//!                                                  ▲          │
//!                                                  └──────────┘ long poll: one request a shard, all its partitions
//! ```
//!
//! Invariants:
//! - A partition is in at most one request at a time.
//! - An answer to a question asked before a seek, pause or unassign is not used: each of these begins a new generation.
//! - Batches of a partition are handed out in order, without gaps of its log.

mod assigned;
mod reply;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use wire::limits::PARTITIONS_PER_REQUEST_MAX;
use wire::{BatchHeader, LeaderEpoch, Offset, OffsetAt, PartitionKey};

use self::assigned::{Assigned, Position};
use super::backoff::Backoff;
use super::cluster_map::{ClusterMap, Target};
use crate::consumer::StartAt;
use crate::error::ClientError;
use crate::limits::FETCHES_PER_SHARD_MAX;
use crate::options::ConsumerOptions;
use crate::transport::Frame;

/// The state of a consumer.
pub(crate) struct ConsumerCore {
    options: ConsumerOptions,
    backoff: Backoff,
    partitions: BTreeMap<PartitionKey, Assigned>,
    /// Fetched and not yet taken, oldest first.
    buffered: VecDeque<Fetched>,
    buffered_bytes: usize,
    requests_in_flight: HashMap<Target, usize>,
    generation_next: u64,
    /// Where the next round begins among the partitions, so that none is always last in an answer with a byte limit.
    rotation: usize,
    metadata_wanted: bool,
}

/// What `next_batch` finds.
pub(crate) enum Fetched {
    Batch(RawBatch),
    Error(PartitionKey, ClientError),
}

/// A batch within its frame. Its header was checked, its payload was not.
pub(crate) struct RawBatch {
    pub(crate) key: PartitionKey,
    pub(crate) topic: Arc<str>,
    pub(crate) header: BatchHeader,
    pub(crate) frame: Frame,
    /// Where it begins in the frame.
    pub(crate) begin: usize,
    /// Records below are not of interest.
    pub(crate) from: Offset,
    pub(crate) high_watermark: Offset,
}

/// A fetch to send.
pub(crate) struct FetchPlan {
    pub(crate) target: Target,
    pub(crate) partitions: Vec<FetchPart>,
}

/// The part of a fetch for one partition.
pub(crate) struct FetchPart {
    pub(crate) key: PartitionKey,
    generation: u64,
    pub(crate) offset: Offset,
    pub(crate) leader_epoch: Option<LeaderEpoch>,
}

/// Offsets to ask for.
pub(crate) struct LookupPlan {
    pub(crate) target: Target,
    pub(crate) partitions: Vec<LookupPart>,
}

/// The part of a lookup for one partition.
pub(crate) struct LookupPart {
    pub(crate) key: PartitionKey,
    generation: u64,
    pub(crate) at: OffsetAt,
}

/// What the driver should do now.
#[derive(Default)]
pub(crate) struct FetchActions {
    pub(crate) fetches: Vec<FetchPlan>,
    pub(crate) lookups: Vec<LookupPlan>,
    /// Shards with something to ask and no connection.
    pub(crate) connect: BTreeSet<Target>,
}

impl ConsumerCore {
    pub(crate) fn new(options: ConsumerOptions, backoff: Backoff) -> Self {
        Self {
            options,
            backoff,
            partitions: BTreeMap::new(),
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            requests_in_flight: HashMap::new(),
            generation_next: 0,
            rotation: 0,
            metadata_wanted: false,
        }
    }

    pub(crate) fn options(&self) -> &ConsumerOptions {
        &self.options
    }

    /// Begins to consume a partition, or moves where it is consumed.
    pub(crate) fn assign(&mut self, key: PartitionKey, topic: &Arc<str>, start: StartAt) {
        self.unassign(key);
        let generation = self.next_generation();
        self.partitions.insert(key, Assigned::new(Arc::clone(topic), generation, start));
    }

    pub(crate) fn unassign(&mut self, key: PartitionKey) {
        self.partitions.remove(&key);
        self.drop_buffered(key);
    }

    /// Moves an assigned partition; it goes on after a failure that had stopped it. False if it is not assigned.
    pub(crate) fn seek(&mut self, key: PartitionKey, start: StartAt) -> bool {
        let generation = self.next_generation();
        let Some(assigned) = self.partitions.get_mut(&key) else { return false };
        assigned.restart(generation, Position::from(start));
        self.drop_buffered(key);
        true
    }

    /// Stops fetching a partition; what was fetched and not taken is fetched again after `resume`, so that it does not occupy
    /// the buffer meanwhile. False if it is not assigned.
    pub(crate) fn pause(&mut self, key: PartitionKey) -> bool {
        let generation = self.next_generation();
        let Some(assigned) = self.partitions.get_mut(&key) else { return false };
        if !assigned.paused {
            assigned.paused = true;
            assigned.rewind(generation);
            self.drop_buffered(key);
        }
        true
    }

    pub(crate) fn resume(&mut self, key: PartitionKey) -> bool {
        let Some(assigned) = self.partitions.get_mut(&key) else { return false };
        assigned.paused = false;
        true
    }

    /// Hands out and fetches no more of a partition, or goes on. Unlike [`ConsumerCore::pause`] it keeps what was fetched.
    pub(crate) fn hold(&mut self, key: PartitionKey, is_held: bool) {
        if let Some(assigned) = self.partitions.get_mut(&key) {
            assigned.is_held = is_held;
        }
    }

    /// The assigned partition of that name.
    pub(crate) fn key(&self, topic: &str, partition: u32) -> Option<PartitionKey> {
        let mut keys = self.partitions.iter();
        keys.find(|(key, assigned)| key.partition.0 == partition && &*assigned.topic == topic).map(|(key, _)| *key)
    }

    /// The offset of the next record to hand out, once it is known.
    pub(crate) fn position(&self, key: PartitionKey) -> Option<Offset> {
        self.partitions.get(&key)?.next_to_hand_out()
    }

    /// The end of what can be read, as of the last answer.
    pub(crate) fn high_watermark(&self, key: PartitionKey) -> Option<Offset> {
        self.partitions.get(&key)?.high_watermark
    }

    /// Assigned partitions with their topics.
    pub(crate) fn assignment(&self) -> Vec<(Arc<str>, u32)> {
        self.partitions.iter().map(|(key, assigned)| (Arc::clone(&assigned.topic), key.partition.0)).collect()
    }

    /// Takes the oldest thing fetched.
    pub(crate) fn pop(&mut self) -> Option<Fetched> {
        let place = self.buffered.iter().position(|fetched| self.is_free(fetched))?;
        let fetched = self.buffered.remove(place)?;
        if let Fetched::Batch(batch) = &fetched {
            self.buffered_bytes -= batch.header.total_length();
            let assigned = self.partitions.get_mut(&batch.key).expect("unassigning drops what is buffered");
            assigned.batch_handed_out(batch.header.next_offset());
        }
        Some(fetched)
    }

    /// Stops a partition at `position`, after something only the caller can decide about. `seek` lets it go on.
    pub(crate) fn halt(&mut self, key: PartitionKey, position: Offset) {
        let generation = self.next_generation();
        if let Some(assigned) = self.partitions.get_mut(&key) {
            assigned.restart(generation, Position::At(position));
            assigned.halted = true;
        }
        self.drop_buffered(key);
    }

    /// The requests that can leave now. `connected` says whether a shard's connection is open.
    pub(crate) fn next_actions(
        &mut self,
        now: Instant,
        map: &ClusterMap,
        connected: impl Fn(Target) -> bool,
        random: u64,
    ) -> FetchActions {
        let mut actions = FetchActions::default();
        let mut fetches: BTreeMap<Target, FetchPlan> = BTreeMap::new();
        let mut lookups: BTreeMap<Target, LookupPlan> = BTreeMap::new();
        let room = self.buffered_bytes < self.options.prefetch_bytes_max;
        let keys: Vec<PartitionKey> = self.partitions.keys().copied().collect();
        let first = if keys.is_empty() { 0 } else { self.rotation % keys.len() };
        for key in keys[first..].iter().chain(&keys[..first]).copied() {
            let assigned = self.assigned(key);
            if !assigned.askable(now) || (assigned.resolved() && !room) {
                continue;
            }
            let Some(leader) = map.partition(key).copied().filter(|_| map.leader(key).is_some()) else {
                self.leader_unknown(now, key, random);
                continue;
            };
            let target = leader.leader;
            if !connected(target) {
                actions.connect.insert(target);
                continue;
            }
            let begun = fetches.contains_key(&target) || lookups.contains_key(&target);
            let full = |named: Option<usize>| named.is_some_and(|named| named >= PARTITIONS_PER_REQUEST_MAX);
            if full(fetches.get(&target).map(|plan| plan.partitions.len()))
                || full(lookups.get(&target).map(|plan| plan.partitions.len()))
            {
                // The next round, which has another request, begins elsewhere.
                continue;
            }
            if !begun && self.requests_in_flight.get(&target).copied().unwrap_or(0) >= FETCHES_PER_SHARD_MAX {
                continue;
            }
            let assigned = self.assigned(key);
            assigned.busy = true;
            let generation = assigned.generation;
            match assigned.position {
                Position::At(offset) => {
                    let plan = fetches.entry(target).or_insert_with(|| FetchPlan { target, partitions: Vec::new() });
                    let leader_epoch = Some(leader.leader_epoch);
                    plan.partitions.push(FetchPart { key, generation, offset, leader_epoch });
                }
                Position::Unresolved(at) => {
                    let plan = lookups.entry(target).or_insert_with(|| LookupPlan { target, partitions: Vec::new() });
                    plan.partitions.push(LookupPart { key, generation, at });
                }
            }
        }
        for target in fetches.keys().chain(lookups.keys()) {
            *self.requests_in_flight.entry(*target).or_default() += 1;
        }
        if !fetches.is_empty() {
            self.rotation = self.rotation.wrapping_add(1);
        }
        actions.fetches.extend(fetches.into_values());
        actions.lookups.extend(lookups.into_values());
        actions
    }

    /// When [`ConsumerCore::next_actions`] has something to do even if nothing happens.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<Instant> {
        let waits = self.partitions.values().filter(|assigned| assigned.askable_later(now));
        waits.filter_map(|assigned| assigned.not_before).min()
    }

    /// The topics to ask metadata for, if a leader was unknown or wrong since the last call.
    pub(crate) fn take_metadata_wanted(&mut self) -> Option<Vec<String>> {
        if !std::mem::take(&mut self.metadata_wanted) {
            return None;
        }
        let topics: BTreeSet<&Arc<str>> =
            self.partitions.values().filter(|assigned| assigned.failures > 0).map(|assigned| &assigned.topic).collect();
        Some(topics.into_iter().map(ToString::to_string).collect())
    }

    /// Whether [`ConsumerCore::pop`] has something to give.
    pub(crate) fn can_pop(&self) -> bool {
        self.buffered.iter().any(|fetched| self.is_free(fetched))
    }

    fn is_free(&self, fetched: &Fetched) -> bool {
        match fetched {
            Fetched::Batch(batch) => !self.partitions.get(&batch.key).is_some_and(|assigned| assigned.is_held),
            Fetched::Error(..) => true,
        }
    }

    fn assigned(&mut self, key: PartitionKey) -> &mut Assigned {
        self.partitions.get_mut(&key).expect("the partition was just looked up")
    }

    fn next_generation(&mut self) -> u64 {
        self.generation_next += 1;
        self.generation_next
    }

    fn drop_buffered(&mut self, key: PartitionKey) {
        let buffered_bytes = &mut self.buffered_bytes;
        self.buffered.retain(|fetched| match fetched {
            Fetched::Batch(batch) if batch.key == key => {
                *buffered_bytes -= batch.header.total_length();
                false
            }
            Fetched::Error(failed, _) => *failed != key,
            Fetched::Batch(_) => true,
        });
        if let Some(assigned) = self.partitions.get_mut(&key) {
            assigned.buffer_dropped();
        }
    }
}
