//! Moves the surviving batches of the log into segments, with bounded memory and many files at a time.

use std::collections::BTreeMap;
use std::path::Path;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::buffer::{self, Shared};
use shards::clock;
use shards::disk::{DiskError, File, OpenOptions};
use wire::batch::{BatchHeader, HEADER_BYTES, write_padding};
use wire::{LeaderEpoch, Offset, PartitionKey};

use super::RecoverError;
use crate::directory::segment_path;
use crate::format::BLOCK_BYTES;
use crate::format::record::{Entry, Records};
use crate::format::segment::SegmentHeader;
use crate::partition_state::PartitionState;
use crate::replay::{PartitionPlan, Plan, RecordAt, Target, Written};
use crate::segment_files;
use crate::segment_fill::padded_bytes;

/// Batches held in memory until they are written. Recovery runs before anything else of the shard takes memory; with 10,000 partitions it makes
/// some ten KiB a write.
const BUFFERED_BYTES_MAX: usize = 128 << 20;

/// A partition with this much is written at once: full speed, little memory.
const WRITE_BYTES: usize = 1 << 20;

/// Partitions written at the same time: making a file waits for the file system's journal, not for the disk.
const WRITES_AT_ONCE: usize = 64;

/// Batches of one partition that wait to be written.
#[derive(Debug, Default)]
struct Buffered {
    bytes: Vec<u8>,
    first: Option<Offset>,
    end: Offset,
    epoch: LeaderEpoch,
    max_timestamp_ms: i64,
    /// Where they go; `None`: behind what was written before.
    target: Option<Target>,
}

/// The partition's segment that takes the next batches.
#[derive(Debug, Default)]
struct Progress {
    buffered: Buffered,
    /// The write and the end of the batch taken last.
    last: Option<(usize, Offset)>,
    written: Vec<Written>,
}

pub(super) struct Writer {
    storage_id: u64,
    incarnation: u64,
    plan: Plan,
    progress: BTreeMap<PartitionKey, Progress>,
    buffered_bytes: usize,
    /// Batches written.
    pub(super) batches: u64,
}

impl Writer {
    pub(super) fn new(storage_id: u64, incarnation: u64, plan: Plan) -> Self {
        Self { storage_id, incarnation, plan, progress: BTreeMap::new(), buffered_bytes: 0, batches: 0 }
    }

    /// Takes the records of the next block.
    pub(super) async fn block(&mut self, block: u64, records: &Shared, path: &Path) -> Result<(), RecoverError> {
        for (index, record) in Records::new(records).enumerate() {
            let record = record.map_err(|error| RecoverError::format(path, error))?;
            let Entry::Batch(bytes) = record.entry else { continue };
            let header = BatchHeader::decode(bytes).map_err(|error| RecoverError::batch(path, error))?;
            self.batch(RecordAt { block, index: index as u32 }, record.key, &header, bytes).await?;
        }
        if self.buffered_bytes > BUFFERED_BYTES_MAX {
            self.write_largest(BUFFERED_BYTES_MAX / 2).await?;
        }
        Ok(())
    }

    async fn batch(&mut self, at: RecordAt, key: PartitionKey, header: &BatchHeader, bytes: &[u8]) -> Result<(), RecoverError> {
        let Some(plan) = self.plan.partitions.get(&key) else { return Ok(()) };
        let Some(write) = plan.takes(at, header.base_offset, header.next_offset()) else { return Ok(()) };
        let before = self.progress.get(&key).and_then(|progress| progress.last);
        let target = plan.target(write, header.base_offset, before);
        if target.is_some() && self.progress.get(&key).is_some_and(|progress| progress.buffered.first.is_some()) {
            // What is buffered goes elsewhere than this batch.
            self.write_some(vec![key]).await?;
        }
        let progress = self.progress.entry(key).or_default();
        progress.last = Some((write, header.next_offset()));
        if target.is_some() {
            progress.buffered.target = target;
        }
        progress.buffered.push(header, bytes);
        self.batches += 1;
        self.buffered_bytes += bytes.len();
        if progress.buffered.bytes.len() >= WRITE_BYTES {
            self.write_some(vec![key]).await?;
        }
        Ok(())
    }

    /// Writes the partitions with the most buffered until at most `left` bytes remain.
    async fn write_largest(&mut self, left: usize) -> Result<(), RecoverError> {
        let mut sizes: Vec<(usize, PartitionKey)> = self
            .progress
            .iter()
            .map(|(key, progress)| (progress.buffered.bytes.len(), *key))
            .filter(|(size, _)| *size > 0)
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut remaining = self.buffered_bytes;
        let mut keys = Vec::new();
        for (size, key) in sizes {
            if remaining <= left {
                break;
            }
            remaining -= size;
            keys.push(key);
        }
        self.write_some(keys).await
    }

    async fn write_some(&mut self, keys: Vec<PartitionKey>) -> Result<(), RecoverError> {
        let mut jobs = Vec::with_capacity(keys.len());
        for key in keys {
            let progress = self.progress.get_mut(&key).expect("something is buffered");
            let buffered = std::mem::take(&mut progress.buffered);
            self.buffered_bytes -= buffered.bytes.len();
            let plan = &self.plan.partitions[&key];
            let place = place(plan, &progress.written, &buffered);
            let header = SegmentHeader {
                partition: key,
                base_offset: place.base,
                storage_id: self.storage_id,
                incarnation: self.incarnation,
            };
            jobs.push(write(header, plan, place, buffered));
        }
        let mut done = stream::iter(jobs).buffer_unordered(WRITES_AT_ONCE);
        let mut results = Vec::new();
        while let Some((key, written)) = done.try_next().await? {
            results.push((key, written));
        }
        drop(done);
        for (key, written) in results {
            let progress = self.progress.get_mut(&key).expect("it was written from here");
            match progress.written.last_mut() {
                Some(last) if last.base == written.base => {
                    last.end = written.end;
                    last.end_position = written.end_position;
                    last.max_timestamp_ms = last.max_timestamp_ms.max(written.max_timestamp_ms);
                }
                _ => progress.written.push(written),
            }
        }
        Ok(())
    }

    /// Writes what is left, and cuts files to what they hold. Not synced.
    pub(super) async fn finish(mut self) -> Result<Finished, RecoverError> {
        self.write_largest(0).await?;
        let now_ms = clock::wall_ms();
        let mut states = Vec::with_capacity(self.plan.partitions.len());
        let mut suspects = Vec::new();
        let mut cuts = Vec::new();
        for (key, plan) in self.plan.partitions {
            let written = self.progress.remove(&key).unwrap_or_default().written;
            let (touched, suspect, was_lossy) = (plan.touched, plan.suspect, plan.was_lossy);
            let state = plan.complete(&written, now_ms);
            let open = state.segments.last().filter(|last| !last.sealed && written.iter().all(|done| done.base != last.base));
            if touched && let Some(last) = open {
                cuts.push((segment_path(&last.disk, key, last.base.0, last.generation), last.end_position));
            }
            if suspect || (state.lossy && !was_lossy) || !state.lost.is_empty() {
                suspects.push(key);
            }
            states.push(state);
        }
        // Bytes behind the end are of writes that were not acknowledged: a later append must not make them look like its own.
        let cut_all = cuts.into_iter().map(|(path, end)| async move { cut(&path, end).await });
        stream::iter(cut_all).buffer_unordered(WRITES_AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(Finished { states, suspects, deleted: self.plan.deleted, batches: self.batches })
    }
}

/// What the writer leaves.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) states: Vec<PartitionState>,
    /// Partitions that may have lost something.
    pub(super) suspects: Vec<PartitionKey>,
    pub(super) deleted: Vec<PartitionKey>,
    pub(super) batches: u64,
}

impl Buffered {
    fn push(&mut self, header: &BatchHeader, bytes: &[u8]) {
        if self.first.is_none() {
            self.first = Some(header.base_offset);
            self.max_timestamp_ms = i64::MIN;
        }
        self.bytes.extend_from_slice(bytes);
        self.end = header.next_offset();
        self.epoch = header.leader_epoch;
        self.max_timestamp_ms = self.max_timestamp_ms.max(header.max_timestamp_ms.0);
    }
}

/// Where a write goes.
#[derive(Debug, Clone, Copy)]
struct Place {
    base: Offset,
    position: u64,
    kind: PlaceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    /// The file is made.
    New,
    /// The file is as the crash left it: what stands behind the position is cut first.
    Found,
    /// This recovery wrote there before.
    Ours,
}

fn place(plan: &PartitionPlan, written: &[Written], buffered: &Buffered) -> Place {
    let first = buffered.first.expect("something is buffered");
    let begin = Place { base: first, position: BLOCK_BYTES as u64, kind: PlaceKind::New };
    let at = match buffered.target {
        Some(Target::New(_)) => begin,
        Some(Target::Append { base, position }) => Place { base, position, kind: PlaceKind::Found },
        Some(Target::Continue) => unreachable!("a batch that continues has no target"),
        None => match written.last() {
            Some(last) => Place { base: last.base, position: last.end_position, kind: PlaceKind::Ours },
            None => begin,
        },
    };
    let full = at.position + padded_bytes(buffered.bytes.len()) as u64 > plan.state.options.segment_bytes;
    // An empty segment takes whatever comes first.
    if full && at.position > BLOCK_BYTES as u64 { begin } else { at }
}

async fn write(
    header: SegmentHeader,
    plan: &PartitionPlan,
    place: Place,
    buffered: Buffered,
) -> Result<(PartitionKey, Written), DiskError> {
    let key = header.partition;
    let on_disk = plan.state.segments.iter().find(|segment| segment.base == place.base);
    let disk = on_disk.map_or(&plan.disk, |segment| &segment.disk);
    let path = segment_path(disk, key, place.base.0, 0);
    let is_new = place.kind == PlaceKind::New;
    let header_bytes = if is_new { BLOCK_BYTES } else { 0 };
    let length = buffered.bytes.len();
    let padded = padded_bytes(length);
    let mut buffer = buffer::allocate(header_bytes + padded);
    if is_new {
        header.encode(&mut buffer[..BLOCK_BYTES]);
    }
    buffer[header_bytes..header_bytes + length].copy_from_slice(&buffered.bytes);
    if length < padded {
        assert!(padded - length >= HEADER_BYTES, "padding has room for its header");
        write_padding(&mut buffer[header_bytes + length..header_bytes + padded], buffered.end, buffered.epoch);
    }
    let file = if is_new { segment_files::create(&path).await? } else { File::open(&path, OpenOptions::writing()).await? };
    if place.kind == PlaceKind::Found && file.len()? > place.position {
        file.truncate(place.position).await?;
    }
    file.write_at(place.position - header_bytes as u64, buffer.freeze()).await?;
    file.close().await?;
    let end_position = place.position + padded as u64;
    Ok((key, Written { base: place.base, end: buffered.end, end_position, max_timestamp_ms: buffered.max_timestamp_ms }))
}

async fn cut(path: &Path, end: u64) -> Result<(), DiskError> {
    let file = match File::open(path, OpenOptions::writing()).await {
        // That a segment has no file is found when the log is opened.
        Err(error) if error.is_not_found() => return Ok(()),
        other => other?,
    };
    if file.len()? > end {
        file.truncate(end).await?;
    }
    file.close().await
}
