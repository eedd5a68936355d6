//! From a checkpoint and the records after it to what each partition's segments must become. Pure: no file is touched here.
//!
//! ```text
//!   checkpoint ─► apply(record) … in the order of the log ─► scans(): which segments hold batches that bypassed the log
//!                                                            ─► scanned(tail) … ─► finish(): a plan for each partition
//!
//!   segments   │ S0 sealed      │ S1            │        │ S2 (noted) scanned  │
//!   log runs                        [=== covered ===|====)          [= covered =|======)
//!   plan                                            [ w ) → S1                  [  w   ) → S2
//! ```
//!
//! A *run* is a stretch of the log's batches of one partition without a cut between them: which batches survive is known from a few numbers
//! per partition, not per batch, so that a log of any size is folded in little memory. Segments win over runs: what already stands in
//! one is not written again. So a second replay, after a crash of the first, comes to the same log.
//!
//! A checkpoint's state of a partition may be *newer* than the first records replayed on it: it names the last block that it knows. Of records
//! up to there only batches count, and cuts for the batches before them: the state holds everything else.

mod partition;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use wire::batch::{BatchError, BatchHeader};
use wire::{Offset, PartitionKey};

pub use plan::{Copy, PartitionPlan, Plan, Target, Write, Written};

use crate::PartitionOptions;
use crate::format::record::{Entry, Record};
use crate::format::segment_scan::SegmentTail;
use crate::partition_state::PartitionState;
use partition::Replaying;

/// Where a record stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordAt {
    /// Number of its block.
    pub block: u64,
    /// Its number in the block.
    pub index: u32,
}

/// A segment that must be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentToScan {
    /// Its partition.
    pub key: PartitionKey,
    /// Where the file is.
    pub disk: Arc<Path>,
    /// Its name.
    pub base: Offset,
    /// Of its file: another one of this name does not count. 0: whichever is there.
    pub incarnation: u64,
    /// Where to begin.
    pub from_position: u64,
    /// The offset due there.
    pub expected: Offset,
    /// Batches that reach this do not count.
    pub bound: Offset,
    /// Below this everything was acknowledged.
    pub committed_position: u64,
}

/// The state machine.
#[derive(Debug)]
pub struct Replay {
    disk: Arc<Path>,
    boot: u64,
    partitions: BTreeMap<PartitionKey, Replaying>,
    deleted: BTreeSet<PartitionKey>,
    /// Those of them that may have been made again in a block that is lost.
    perhaps_made_again: BTreeSet<PartitionKey>,
}

impl Replay {
    /// On top of the partitions of a checkpoint. New segments stand on `disk`; new partitions bear `boot`.
    pub fn new(disk: Arc<Path>, boot: u64, partitions: Vec<PartitionState>) -> Self {
        let partitions = partitions.into_iter().map(|state| (state.key, Replaying::new(state))).collect();
        Self { disk, boot, partitions, deleted: BTreeSet::new(), perhaps_made_again: BTreeSet::new() }
    }

    /// The next record, in the order of the log.
    ///
    /// # Errors
    /// A batch whose header does not hold, although its block does: the program that wrote it was wrong.
    pub fn apply(&mut self, at: RecordAt, record: &Record<'_>) -> Result<(), BatchError> {
        let key = record.key;
        match record.entry {
            Entry::Created { options, start } => {
                let old = self.partitions.get(&key);
                // The record of its deletion is among the lost blocks.
                let is_new = old.is_some_and(|old| old.suspect && !old.is_known(at.block));
                if is_new {
                    let state = PartitionState::new(key, self.boot, options, start);
                    self.partitions.insert(key, Replaying::lossy(state));
                } else if old.is_none() {
                    let state = PartitionState::new(key, self.boot, options, start);
                    self.partitions.insert(key, Replaying::new(state));
                }
                return Ok(());
            }
            Entry::Deleted => {
                if let Some(known) = self.partitions.get_mut(&key).filter(|partition| partition.is_known(at.block)) {
                    // The state is that of another one made since under the same name.
                    known.cut_runs(Offset(0));
                    return Ok(());
                }
                self.partitions.remove(&key);
                self.perhaps_made_again.remove(&key);
                self.deleted.insert(key);
                return Ok(());
            }
            _ => {}
        }
        let disk = self.disk.clone();
        let Some(partition) = self.partition(key) else { return Ok(()) };
        match record.entry {
            Entry::Created { .. } | Entry::Deleted => unreachable!("handled above"),
            Entry::Truncate(to) if partition.is_known(at.block) => partition.cut_runs(to),
            entry if partition.is_known(at.block) && !matches!(entry, Entry::Batch(_)) => {}
            Entry::Batch(bytes) => partition.batch(at, &BatchHeader::decode(bytes)?),
            Entry::Truncate(to) => partition.truncate(to),
            Entry::EpochStart { epoch, start } => partition.epoch(epoch, start),
            Entry::LogStart(start) => partition.log_start(start),
            Entry::Options(options) => partition.state.options = options,
            Entry::HighWatermark(offset) => partition.high_watermark(offset),
            Entry::DirectStart(note) => partition.direct_start(note, &disk),
            Entry::DirectEnd(note) => partition.direct_end(note, &disk),
            Entry::Compacted(segment) => partition.compacted(segment, &disk),
            Entry::CleanEnd(end) => partition.clean_end(end),
        }
        Ok(())
    }

    /// The checkpoint is older than one that cannot be read: any partition may have been hit.
    pub fn distrust_all(&mut self) {
        for partition in self.partitions.values_mut() {
            partition.suspect = true;
        }
    }

    /// Acknowledged blocks are missing before the next record. What may have stood in them, and what is made of it:
    ///
    /// | lost record | what shows | verdict |
    /// |---|---|---|
    /// | batch, cut, epoch, log start, options, deletion | nothing for sure | every partition that exists here is suspect, to the end |
    /// | start of direct writes | nothing | the segment that takes them is scanned all the same |
    /// | creation | later records of an unknown partition | it is kept, lossy |
    /// | creation after a deletion | the same, or nothing | the same; the files of the deleted one stay |
    pub fn hole(&mut self) {
        // A partition of an earlier boot has moved to another directory, or was not opened since: no block of this log is about it.
        for partition in self.partitions.values_mut().filter(|partition| partition.state.boot == self.boot) {
            partition.hole();
        }
        self.perhaps_made_again.append(&mut self.deleted);
    }

    /// A partition that nobody created and nobody deleted was created in a block that is lost: what follows of it is kept.
    fn partition(&mut self, key: PartitionKey) -> Option<&mut Replaying> {
        if !self.partitions.contains_key(&key) {
            if self.deleted.contains(&key) {
                return None;
            }
            let state = PartitionState::new(key, self.boot, PartitionOptions::default(), Offset(0));
            self.partitions.insert(key, Replaying::lossy(state));
        }
        self.partitions.get_mut(&key)
    }

    /// The segments to scan before [`Replay::finish`].
    pub fn scans(&self) -> Vec<SegmentToScan> {
        self.partitions.values().flat_map(Replaying::scans).collect()
    }

    /// What a scan found; `None` when there is no such file, or its header is not this segment's.
    pub fn scanned(&mut self, key: PartitionKey, base: Offset, tail: Option<SegmentTail>) {
        let partition = self.partitions.get_mut(&key).expect("the scan was asked for");
        partition.scanned(base, tail);
    }

    /// What must be done.
    pub fn finish(self) -> Plan {
        let disk = self.disk;
        let deleted = self.deleted.iter().filter(|key| !self.partitions.contains_key(*key)).copied().collect();
        let partitions = self.partitions.into_iter().map(|(key, partition)| (key, partition.plan(&disk))).collect();
        Plan { partitions, deleted }
    }
}
