//! A request: which batches leave together.

use std::time::Instant;

use wire::PartitionKey;
use wire::limits::{BATCHES_PER_REQUEST_MAX, PARTITIONS_PER_REQUEST_MAX};

use super::{Batch, Identity, ProducerCore};
use crate::core::cluster_map::Target;
use crate::limits::BATCHES_PER_PARTITION_MAX;

/// A request to send: the driver turns it into a frame, and brings it back with the reply.
pub(crate) struct ProducePlan {
    pub(crate) target: Target,
    pub(crate) partitions: Vec<PartitionPlan>,
    /// Of the batches, before they are built an upper bound.
    bytes: usize,
    /// Of all partitions.
    batches: usize,
}

impl ProducePlan {
    /// Of no partition so far.
    pub(super) fn new(target: Target) -> Self {
        ProducePlan { target, partitions: Vec::new(), bytes: 0, batches: 0 }
    }

    pub(super) fn has_room_for(&self, part: &PartitionPlan, bytes_max: usize) -> bool {
        self.bytes + part.bytes() <= bytes_max
            && self.batches + part.batches.len() <= BATCHES_PER_REQUEST_MAX
            && self.partitions.len() < PARTITIONS_PER_REQUEST_MAX
    }

    pub(super) fn add(&mut self, part: PartitionPlan) {
        self.bytes += part.bytes();
        self.batches += part.batches.len();
        self.partitions.push(part);
    }
}

/// The part of a request for one partition: whole batches, oldest first, never none.
pub(crate) struct PartitionPlan {
    pub(crate) key: PartitionKey,
    pub(crate) batches: Vec<Batch>,
}

impl PartitionPlan {
    fn bytes(&self) -> usize {
        self.batches.iter().map(Batch::bytes).sum()
    }
}

impl ProducerCore {
    /// Batches of one partition for one request.
    pub(super) fn take_batches(&mut self, now: Instant, key: PartitionKey) -> Vec<Batch> {
        self.expire(now, key);
        let linger = self.options.linger;
        let bytes_max = self.options.request_bytes_max;
        if self.queue(key).waiting.is_empty() {
            let due = self.queue(key).open.as_ref().is_some_and(|open| open.due(linger) <= now);
            if due {
                self.close_open_batch(key);
            }
        }
        let is_idempotent = self.is_idempotent();
        let identity = self.identity;
        let mut is_used_up = false;
        let queue = self.queue(key);
        let mut batches: Vec<Batch> = Vec::new();
        let mut bytes = 0;
        while let Some(entry) = queue.waiting.first_entry() {
            let next = entry.get();
            let joins = batches.is_empty()
                || (!next.alone && bytes + next.bytes() <= bytes_max && batches.len() < BATCHES_PER_PARTITION_MAX);
            if !joins {
                break;
            }
            // The batches of one request are of one producer, or of none.
            let is_stamped = is_idempotent && !next.is_prebuilt;
            if batches.first().is_some_and(|first| first.stamp.is_some() != is_stamped) {
                break;
            }
            let stamp = match identity {
                _ if next.stamp.is_some() || !is_stamped => next.stamp,
                Identity::Known(identity) if queue.sequences.has_room() => {
                    let stamp = queue.sequences.stamp(next.number, next.records, identity);
                    is_used_up = stamp.is_none();
                    if is_used_up {
                        break;
                    }
                    stamp
                }
                _ => break,
            };
            bytes += next.bytes();
            let mut batch = entry.remove();
            batch.attempts += 1;
            batch.stamp = stamp;
            let alone = batch.alone;
            batches.push(batch);
            if alone {
                break;
            }
        }
        if is_used_up {
            self.identity = Identity::Unknown;
        }
        batches
    }
}
