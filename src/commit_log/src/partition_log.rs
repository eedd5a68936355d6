//! One partition's log, as its owner sees it.

use std::rc::Rc;

use shards::buffer::Shared;
use shards::sync::oneshot;
use wire::batch::BatchHeader;
use wire::{LeaderEpoch, Offset, PartitionKey, TimestampMs};

use crate::append::{self, AppendError, Appended, Durable, Ticket};
use crate::compaction::{self, CompactError, Compacted, CompactionNeed, CompactionTerms};
use crate::epochs::EpochStart;
use crate::partition::Partition;
use crate::producers::Producers;
use crate::shard::Shard;
use crate::{LogFailed, PartitionOptions, ReadError, Retained, Retention, Watermarks, reader, remove, retention, truncate};

/// A handle on one partition's log. Cheap to clone; stays on its shard's thread.
#[derive(Debug, Clone)]
pub struct PartitionLog {
    pub(crate) shard: Rc<Shard>,
    pub(crate) partition: Rc<Partition>,
}

impl PartitionLog {
    /// The partition's name.
    pub fn key(&self) -> PartitionKey {
        self.partition.key
    }

    /// Orders a batch behind everything appended before: stamps offsets, `epoch` and, if given, the append time into its header. `bytes` is the
    /// whole batch as received, verified by the caller; its first 80 bytes are replaced by the stamped header when it is written.
    ///
    /// Returns at once. The batch is durable when [`Self::durable`] says so for the ticket, or when the commit callback reports an end above it.
    pub fn append(
        &self,
        header: BatchHeader,
        bytes: Shared,
        epoch: LeaderEpoch,
        append_time: Option<TimestampMs>,
    ) -> Result<Appended, AppendError> {
        self.append_all(&[(header, bytes)], epoch, append_time)
    }

    /// As [`Self::append`], for several batches back to back: all of them get their offsets, or none. The queue is looked at for their sum; more
    /// than it holds is let into an empty one. A crash may keep the first of them and not the rest: nothing is durable before all are.
    pub fn append_all(
        &self,
        batches: &[(BatchHeader, Shared)],
        epoch: LeaderEpoch,
        append_time: Option<TimestampMs>,
    ) -> Result<Appended, AppendError> {
        append::append_all(&self.shard, &self.partition, batches, epoch, append_time)
    }

    /// Resolves when everything up to `ticket` is on stable storage, or the shard has failed.
    pub async fn durable(&self, ticket: Ticket) -> Result<Durable, LogFailed> {
        let receiver = {
            let mut inner = self.partition.inner.borrow_mut();
            if inner.marks.durable_end >= ticket.end {
                return Ok(Durable { durable_end: inner.marks.durable_end });
            }
            self.shard.failure.check()?;
            let (sender, receiver) = oneshot();
            let place = inner.waiters.partition_point(|(end, _)| *end <= ticket.end.0);
            inner.waiters.insert(place, (ticket.end.0, sender));
            receiver
        };
        match receiver.await {
            Ok(()) => Ok(Durable { durable_end: self.watermarks().durable_end }),
            Err(_) => Err(self.shard.failure.get().unwrap_or_else(|| LogFailed { cause: "the partition was deleted".into() })),
        }
    }

    /// The partition's offsets now.
    pub fn watermarks(&self) -> Watermarks {
        self.partition.inner.borrow().marks
    }

    /// Moves the high watermark. It never goes back and never runs ahead of what [`Watermarks`] allows: both are asserted.
    pub fn set_high_watermark(&self, offset: Offset) {
        let mut inner = self.partition.inner.borrow_mut();
        assert!(offset >= inner.marks.high_watermark, "the high watermark does not go back");
        let durability = inner.options.durability;
        inner.marks.set(durability, |marks| marks.high_watermark = offset);
        if inner.deleted {
            return;
        }
        let announce = !std::mem::replace(&mut inner.hint_due, true);
        drop(inner);
        if announce {
            self.shard.queue.borrow_mut().hints.push(self.partition.clone());
        }
    }

    /// Stored batches from the one that holds `from`, in order, below offset `below` and up to about `bytes_max` (at least one batch if there is
    /// any). A batch may come as two slices, its header and the rest, when it was not written yet.
    pub async fn read(&self, from: Offset, bytes_max: usize, below: Offset) -> Result<Vec<Shared>, ReadError> {
        reader::read(&self.shard, &self.partition, from, bytes_max, below).await
    }

    /// As [`Self::read`], at once: `None` when the disk has to be asked.
    pub fn read_in_memory(&self, from: Offset, bytes_max: usize, below: Offset) -> Option<Result<Vec<Shared>, ReadError>> {
        reader::read_in_memory(&self.shard, &self.partition, from, bytes_max, below)
    }

    /// The first record at or after `timestamp`: its offset and timestamp. `None` when all are older.
    pub async fn offset_for_timestamp(&self, timestamp: TimestampMs) -> Result<Option<(Offset, TimestampMs)>, ReadError> {
        crate::time_lookup::offset_for_timestamp(&self.shard, &self.partition, timestamp).await
    }

    /// What there is to do for compaction.
    pub fn compaction_need(&self, terms: CompactionTerms) -> CompactionNeed {
        compaction::need(&self.partition.inner.borrow(), terms)
    }

    /// Runs one pass of compaction: of each key in the sealed segments only the newest record stays. It is for a background task, takes its time, and
    /// waits for a pass over another partition of the shard. Appends, reads and everything else go on.
    pub async fn compact(&self, terms: CompactionTerms) -> Result<Compacted, CompactError> {
        compaction::compact(&self.shard, &self.partition, terms).await
    }

    /// Cuts everything at and above `to`, which is at or above the high watermark of compacted segments, durably. Appends meanwhile are refused with [`AppendError::Truncating`].
    pub async fn truncate(&self, to: Offset) -> Result<(), LogFailed> {
        truncate::truncate(&self.shard, &self.partition, to).await
    }

    /// Moves the log start up to `to` (retention, delete records), durably; whole segments below it are removed in the background.
    pub async fn set_log_start(&self, to: Offset) -> Result<(), LogFailed> {
        remove::set_log_start(&self.shard, &self.partition, to).await
    }

    /// Closes what is open if it is due, and gives up the sealed segments that `retention` does not keep: the log start is durably behind them when
    /// this returns. `now_ms` is the time by the wall clock.
    pub async fn retain(&self, retention: Retention, now_ms: i64) -> Result<Retained, LogFailed> {
        retention::retain(&self.shard, &self.partition, retention, now_ms).await
    }

    /// Lets appends go on while the disk is full for other partitions, as long as half of [`crate::LogOptions::free_bytes_min`] is left. For
    /// the little that must be written so that space can be made.
    pub fn use_space_reserve(&self) {
        self.partition.uses_reserve.set(true);
    }

    /// Changes the partition's settings from now on.
    pub async fn alter(&self, options: PartitionOptions) -> Result<(), LogFailed> {
        self.shard.alter(&self.partition, options).await
    }

    /// The partition's settings.
    pub fn options(&self) -> PartitionOptions {
        self.partition.inner.borrow().options
    }

    /// Where each epoch of the kept log starts, oldest first.
    pub fn epochs(&self) -> Vec<EpochStart> {
        self.partition.inner.borrow().epochs.entries().to_vec()
    }

    /// The idempotent producers that are remembered.
    pub fn producers(&self) -> Producers {
        self.partition.inner.borrow().producers.clone()
    }

    /// Whether acknowledged data of this partition may have been lost, found by recovery.
    pub fn is_lossy(&self) -> bool {
        self.partition.inner.borrow().lossy
    }

    /// Sealed segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let inner = self.partition.inner.borrow();
        inner
            .sealed
            .iter()
            .map(|segment| SegmentInfo {
                base_offset: Offset(segment.key.base),
                end_offset: Offset(segment.end),
                bytes: segment.bytes,
                max_timestamp: TimestampMs(segment.max_timestamp_ms),
            })
            .collect()
    }

    /// Bytes of the partition: segments and what is not in one yet.
    pub fn size_bytes(&self) -> u64 {
        self.partition.inner.borrow().size_bytes()
    }
}

/// A sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its first offset.
    pub base_offset: Offset,
    /// The offset after its last.
    pub end_offset: Offset,
    /// Its bytes of batches.
    pub bytes: u64,
    /// Greatest timestamp in it.
    pub max_timestamp: TimestampMs,
}
