//! What a shard keeps in memory for one partition.
//!
//! ```text
//!   log_start                flushed_end          durable_end      grouped_end        appended_end
//!      │   segments              │    in memory and   │   being written │   pending        │
//!      │◄───────────────────────►│◄── in the WAL ────►│◄───────────────►│◄────────────────►│
//!                      │◄──────────── cached ──────────────────────────►│
//!                 cached_start (the tail cache: what is below flushed_end may go at any time)
//! ```
//!
//! A partition at rest is this struct and nothing else: no file handle, no task, no buffer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use shards::buffer::Shared;
use shards::clock;
use shards::sync::OneshotSender;
use wire::batch::HEADER_BYTES;
use wire::{Offset, PartitionKey};

use crate::direct::DirectWrites;
use crate::epochs::Epochs;
use crate::file_cache::SegmentKey;
use crate::partition_state::{OffsetRange, PartitionState, SegmentState};
use crate::producers::Producers;
use crate::segment_file::SegmentFile;
use crate::segments::Placed;
use crate::shard::Shard;
use crate::{PartitionOptions, Watermarks};

/// One partition of this shard.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) key: PartitionKey,
    pub(crate) inner: RefCell<Inner>,
    /// Held by whoever moves batches into segments, takes the state for a checkpoint, truncates, or removes files: one at a time, or the direct
    /// writes together.
    pub(crate) segments_locked: Cell<bool>,
    /// How many wait for that: no direct write begins before them.
    pub(crate) segments_wanted: Cell<u32>,
    /// In the shard's list of those with segments below their log start.
    pub(crate) trimming: Cell<bool>,
    /// Files of such segments are being removed.
    pub(crate) removing: Cell<bool>,
    /// A pass of compaction makes files in its folder.
    pub(crate) compacting: Cell<bool>,
    /// Its appends are accepted below the lower mark of free space.
    pub(crate) uses_reserve: Cell<bool>,
}

// Ten thousand partitions at rest cost a few MiB, and none of it is on the heap but what their segments and epochs need.
const _: () = assert!(size_of::<Partition>() <= 640, "a partition at rest stays small");

impl Partition {
    pub(crate) fn new(key: PartitionKey, inner: Inner) -> Rc<Self> {
        Rc::new(Self {
            key,
            inner: RefCell::new(inner),
            segments_locked: Cell::new(false),
            segments_wanted: Cell::new(0),
            trimming: Cell::new(false),
            removing: Cell::new(false),
            compacting: Cell::new(false),
            uses_reserve: Cell::new(false),
        })
    }
}

/// A batch with an offset that no group has taken yet.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    pub(crate) base: u64,
    pub(crate) last: u64,
    pub(crate) max_timestamp_ms: i64,
    pub(crate) header: [u8; HEADER_BYTES],
    /// The whole batch as it came; its first 80 bytes are replaced by `header`.
    pub(crate) bytes: Shared,
}

/// A batch in a written buffer.
#[derive(Debug)]
pub(crate) struct CachedBatch {
    pub(crate) base: u64,
    pub(crate) last: u64,
    pub(crate) max_timestamp_ms: i64,
    /// The block that holds it in the write-ahead log; `u64::MAX` when it went straight into its segment.
    pub(crate) wal_block: u64,
    pub(crate) bytes: Shared,
}

impl PendingBatch {
    pub(crate) fn placed(&self) -> Placed {
        Placed { base: self.base, last: self.last, max_timestamp_ms: self.max_timestamp_ms, stride: self.bytes.len() as u64 }
    }
}

impl CachedBatch {
    pub(crate) fn placed(&self) -> Placed {
        Placed { base: self.base, last: self.last, max_timestamp_ms: self.max_timestamp_ms, stride: self.bytes.len() as u64 }
    }
}

/// A segment that takes no more appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealedSegment {
    pub(crate) key: SegmentKey,
    /// The data directory that holds it: another one than the shard's if the partition has moved.
    pub(crate) disk: Arc<Path>,
    /// First offset that does not belong to it. The file may hold more (a cut): nothing past this is read.
    pub(crate) end: u64,
    /// Position after its batches.
    pub(crate) bytes: u64,
    pub(crate) max_timestamp_ms: i64,
    /// When it was closed: all of it had been appended by then.
    pub(crate) sealed_ms: i64,
    /// See [`SegmentState::tombstones_since_ms`].
    pub(crate) tombstones_since_ms: Option<i64>,
    /// See [`ActiveSegment::known_by`].
    pub(crate) known_by: u64,
    /// See [`SegmentFile::incarnation`]; 0 also for what compaction made.
    pub(crate) incarnation: u64,
}

impl SealedSegment {
    pub(crate) fn path(&self) -> PathBuf {
        self.key.path(&self.disk)
    }

    fn state(&self) -> SegmentState {
        SegmentState {
            disk: self.disk.clone(),
            base: Offset(self.key.base),
            end: Offset(self.end),
            end_position: self.bytes,
            max_timestamp_ms: self.max_timestamp_ms,
            aged_from_ms: self.sealed_ms,
            sealed: true,
            generation: self.key.generation,
            tombstones_since_ms: self.tombstones_since_ms,
        }
    }
}

/// The segment that takes the next flush.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) file: Rc<SegmentFile>,
    /// First offset that no reservation has taken.
    pub(crate) reserved_end: u64,
    /// Everything below stands in the file: no write is under way before it.
    pub(crate) flushed_position: u64,
    pub(crate) max_timestamp_ms: i64,
    /// A direct-start note for it stands in the log since the last checkpoint.
    pub(crate) noted: bool,
    /// The first checkpoint that is sure to know what went straight into the file; 0 when nothing did. Until it is written only a scan of the file
    /// tells recovery of those batches' producers.
    pub(crate) known_by: u64,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: PartitionOptions,
    pub(crate) marks: Watermarks,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
    pub(crate) pending: VecDeque<PendingBatch>,
    pub(crate) pending_bytes: u64,
    pub(crate) cached: VecDeque<CachedBatch>,
    /// Everything below stands in segments (not necessarily synced).
    pub(crate) flushed_end: u64,
    pub(crate) unflushed_bytes: u64,
    pub(crate) sealed: Vec<SealedSegment>,
    pub(crate) active: Option<ActiveSegment>,
    /// When the first batch that is in no sealed segment was appended, or later. Says nothing while there is none.
    pub(crate) open_since_ms: i64,
    /// The log start on stable storage: segments below it may go.
    pub(crate) durable_log_start: u64,
    /// The commit loop knows of its pending batches: it stands in one of the queues, or its direct write requeues it.
    pub(crate) queued: bool,
    /// In the queue of those with little pending.
    pub(crate) ready: bool,
    /// In the queue of those with much pending.
    pub(crate) much: bool,
    /// No direct write can begin soon, so that even much goes in groups: too much that is not in segments would go along, or somebody else has
    /// the segments.
    pub(crate) behind: bool,
    /// In the queue of those to be flushed first.
    pub(crate) flush_wanted: bool,
    pub(crate) direct: DirectWrites,
    pub(crate) truncating: bool,
    pub(crate) deleted: bool,
    /// Acknowledged data of this partition may have been lost.
    pub(crate) lossy: bool,
    /// Ranges of acknowledged offsets that are gone, ascending.
    pub(crate) lost: Vec<OffsetRange>,
    /// In the shard's list of partitions that have closed a segment.
    pub(crate) rolled: bool,
    /// See [`PartitionState::clean_end`].
    pub(crate) clean_end: Offset,
    /// End of the last segment that compaction made: below it only it knows where a batch ends.
    pub(crate) compacted_end: Offset,
    /// In the shard's list of partitions whose high watermark moved since the last hint.
    pub(crate) hint_due: bool,
    /// Who waits for the durable end to reach an offset, lowest first.
    pub(crate) waiters: VecDeque<(u64, OneshotSender<()>)>,
}

impl Inner {
    /// As recovery found it.
    pub(crate) fn recovered(shard: &Shard, state: &PartitionState) -> Self {
        let end = state.end();
        let start = state.log_start.min(end);
        // The note of an epoch may be durable where the batches before it are not: an epoch does not start behind the end.
        let mut epochs = state.epochs.clone();
        epochs.truncate(Offset(end.0 + 1));
        let compacted = state.segments.iter().rfind(|segment| segment.generation > 0);
        let mut inner = Self {
            options: state.options,
            marks: Watermarks::recovered(start, state.high_watermark.max(start).min(end), end),
            epochs,
            producers: state.producers.clone(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            cached: VecDeque::new(),
            flushed_end: end.0,
            unflushed_bytes: 0,
            sealed: Vec::with_capacity(state.segments.len()),
            active: None,
            open_since_ms: 0,
            durable_log_start: start.0,
            queued: false,
            ready: false,
            much: false,
            behind: false,
            flush_wanted: false,
            direct: DirectWrites::default(),
            truncating: false,
            deleted: false,
            lossy: state.lossy,
            lost: state.lost.clone(),
            rolled: false,
            clean_end: state.clean_end.min(end),
            compacted_end: compacted.map_or(Offset(0), |segment| segment.end),
            hint_due: false,
            waiters: VecDeque::new(),
        };
        for segment in &state.segments {
            let key = SegmentKey { partition: state.key, base: segment.base.0, generation: segment.generation };
            // Appends go on in a segment only without a hole and on the shard's own disk, the one that its checkpoints sync.
            if !segment.sealed && segment.end == end && segment.disk == shard.disk {
                let file = SegmentFile::existing(shard.disk.clone(), key, shard.storage_id, segment.end_position, end.0);
                inner.open_since_ms = segment.aged_from_ms;
                inner.active = Some(ActiveSegment {
                    file: Rc::new(file),
                    reserved_end: end.0,
                    flushed_position: segment.end_position,
                    max_timestamp_ms: segment.max_timestamp_ms,
                    noted: false,
                    known_by: 0,
                });
                continue;
            }
            inner.sealed.push(SealedSegment {
                key,
                disk: segment.disk.clone(),
                end: segment.end.0,
                bytes: segment.end_position,
                max_timestamp_ms: segment.max_timestamp_ms,
                sealed_ms: if segment.sealed { segment.aged_from_ms } else { clock::wall_ms() },
                tombstones_since_ms: segment.tombstones_since_ms,
                known_by: 0,
                incarnation: 0,
            });
        }
        inner
    }

    /// For a checkpoint: what stands in segments.
    pub(crate) fn state(&self, key: PartitionKey, shard: &Shard) -> PartitionState {
        let mut state = PartitionState::new(key, shard.options.boot, self.options, self.marks.log_start);
        state.as_of_block = shard.wal.borrow().next_block() - 1;
        state.high_watermark = self.marks.high_watermark;
        state.epochs = self.epochs.clone();
        state.producers_as_of_block = state.as_of_block;
        if !self.producers.is_empty() {
            // Without what is not durable: a crash may take that.
            state.producers = self.producers.below(self.marks.durable_end);
            state.producers_as_of_block = shard.wal.borrow().durable_block;
        }
        state.lossy = self.lossy;
        state.lost = self.lost.clone();
        state.clean_end = self.clean_end;
        state.segments.extend(self.sealed.iter().map(SealedSegment::state));
        if let Some(active) = &self.active
            && self.flushed_end > active.file.key.base
        {
            state.segments.push(SegmentState {
                disk: active.file.disk().clone(),
                base: Offset(active.file.key.base),
                end: Offset(self.flushed_end),
                end_position: active.flushed_position,
                max_timestamp_ms: active.max_timestamp_ms,
                aged_from_ms: self.open_since_ms,
                sealed: false,
                generation: 0,
                tombstones_since_ms: None,
            });
        }
        state
    }

    /// Whether there are batches that no sealed segment holds.
    pub(crate) fn is_open(&self) -> bool {
        self.active.is_some() || self.flushed_end < self.marks.appended_end.0
    }

    /// Bytes of the partition: segments and what is not in one yet.
    pub(crate) fn size_bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|segment| segment.bytes).sum();
        sealed + self.active.as_ref().map_or(0, |active| active.file.position()) + self.unflushed_bytes + self.pending_bytes
    }

    /// End of what stands in written buffers or segments: the base of the first pending batch.
    pub(crate) fn grouped_end(&self) -> u64 {
        self.pending.front().map_or(self.marks.appended_end.0, |batch| batch.base)
    }

    /// The first cached batch that is not in a segment.
    pub(crate) fn first_unflushed(&self) -> usize {
        self.cached.partition_point(|batch| batch.last < self.flushed_end)
    }

    /// The first cached batch that no write into a segment has taken.
    pub(crate) fn first_unreserved(&self) -> usize {
        let reserved_end = self.active.as_ref().map_or(0, |active| active.reserved_end).max(self.flushed_end);
        self.cached.partition_point(|batch| batch.last < reserved_end)
    }

    /// The oldest write-ahead block that a restart needs for this partition.
    pub(crate) fn oldest_block(&self) -> Option<u64> {
        self.cached.iter().skip(self.first_unflushed()).map(|batch| batch.wal_block).find(|block| *block != u64::MAX)
    }

    /// Moves the durable end and answers who waits for it. An end below the present one changes nothing.
    pub(crate) fn durable_up_to(&mut self, end: u64) -> bool {
        if end <= self.marks.durable_end.0 {
            return false;
        }
        let durability = self.options.durability;
        self.marks.set(durability, |marks| {
            marks.written_end = marks.written_end.max(Offset(end));
            marks.durable_end = Offset(end);
        });
        while self.waiters.front().is_some_and(|(wanted, _)| *wanted <= end) {
            if let Some((_, waiter)) = self.waiters.pop_front() {
                // A waiter that went away needs no answer.
                let _ = waiter.send(());
            }
        }
        true
    }

    /// Everything below `end` stands in segments.
    pub(crate) fn flushed_up_to(&mut self, end: u64) {
        if end <= self.flushed_end {
            return;
        }
        assert!(end <= self.grouped_end(), "flushed what no group has taken");
        let first = self.first_unflushed();
        let mut bytes = 0;
        for batch in self.cached.iter().skip(first).take_while(|batch| batch.last < end) {
            bytes += batch.bytes.len() as u64;
        }
        assert!(self.unflushed_bytes >= bytes, "flushed more than was unflushed");
        self.unflushed_bytes -= bytes;
        self.flushed_end = end;
    }

    /// Gives back the memory of an emptied queue, so that a partition at rest stays small.
    pub(crate) fn shrink(&mut self) {
        const KEPT: usize = 8;
        if self.cached.is_empty() && self.cached.capacity() > KEPT {
            self.cached = VecDeque::new();
        }
        if self.pending.is_empty() && self.pending.capacity() > KEPT {
            self.pending = VecDeque::new();
        }
        if self.waiters.is_empty() && self.waiters.capacity() > KEPT {
            self.waiters = VecDeque::new();
        }
    }
}
