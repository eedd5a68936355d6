//! One block group: everything pending of the partitions with little, copied once into the buffer that is written and kept.

use std::ops::Range;
use std::rc::Rc;

use shards::buffer::{self, Shared};
use shards::disk::File;

use crate::commit::{GROUP_BYTES_TARGET, InFlight};
use crate::format::BLOCK_BYTES;
use crate::format::block::{BLOCK_HEADER_BYTES, finish_block};
use crate::format::record::{ENTRY_BYTES_MAX, Entry, Record, RecordWriter, record_bytes};
use crate::partition::{CachedBatch, Inner, Partition};
use crate::segment_fill::copy_batch;
use crate::shard::{PendingRecord, Shard};
use crate::wal::Placement;
use wire::Offset;

/// Structural records of one group: the others wait for the next one. Bounds the block when thousands of partitions are made at once.
const RECORDS_MAX: usize = 4096;

/// High-watermark hints in one trailer block.
const HINTS_MAX: usize = 1024;

/// A group ready to be written.
pub(crate) struct Group {
    pub(crate) file: Rc<File>,
    pub(crate) position: u64,
    pub(crate) buffer: Shared,
    pub(crate) in_flight: InFlight,
}

/// What goes into a group.
struct Plan {
    records: usize,
    direct_ends: usize,
    hints: Vec<Record<'static>>,
    /// Each partition with the number and bytes of the pending batches taken.
    parts: Vec<(Rc<Partition>, usize, u64)>,
    /// Partitions at the front of the queue that have nothing more for the next group.
    passed: usize,
    bytes: usize,
}

impl Plan {
    fn block_bytes(&self) -> usize {
        (BLOCK_HEADER_BYTES + self.bytes).next_multiple_of(BLOCK_BYTES)
    }
}

/// Builds the next group from structural records and from the partitions with little pending. What does not fit stays queued.
/// `None` when there is nothing to write, or no file to write it into.
pub(crate) fn take(shard: &Rc<Shard>) -> Option<Group> {
    skip_unready(shard);
    let trailer = is_trailer_time(shard);
    let target = GROUP_BYTES_TARGET.min(shard.options.wal_file_bytes as usize / 4);
    let room = shard.wal.borrow().room(shard.options.wal_files_max());
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mut taken = plan(shard, target.min(room.saturating_sub(BLOCK_HEADER_BYTES)), trailer);
    if !taken.parts.is_empty() && taken.block_bytes() > room {
        taken = plan(shard, 0, trailer);
    }
    if taken.parts.is_empty() && !shard.queue.borrow().ready.is_empty() {
        // Batches wait for a checkpoint.
        shard.background.notify_waiters();
    }
    if taken.bytes == 0 && !trailer {
        return None;
    }
    let length = taken.block_bytes();
    let placement = shard.wal.borrow_mut().place(length as u64);
    let Some(placement) = placement else {
        shard.counters.add(|stats| stats.wal_file_waits += 1);
        shard.background.notify_waiters();
        return None;
    };
    let passed = taken.passed;
    let group = build(shard, taken, placement, length, trailer);
    leave_ready(shard, passed);
    Some(group)
}

/// Partitions at the front whose pending batches are gone or go another way leave the queue.
fn skip_unready(shard: &Shard) {
    let passed = shard.queue.borrow().ready.iter().take_while(|partition| !is_ready(shard, &partition.inner.borrow())).count();
    leave_ready(shard, passed);
}

/// What a partition that leaves still has pending, a direct write takes or requeues.
fn leave_ready(shard: &Shard, count: usize) {
    for partition in shard.queue.borrow_mut().ready.drain(..count) {
        let mut inner = partition.inner.borrow_mut();
        inner.ready = false;
        inner.queued = !inner.pending.is_empty();
    }
}

fn is_ready(shard: &Shard, inner: &Inner) -> bool {
    let is_little = inner.pending_bytes < shard.options.direct_write_threshold_bytes;
    !inner.pending.is_empty() && (is_little || inner.behind) && inner.direct.in_flight() == 0
}

fn is_trailer_time(shard: &Shard) -> bool {
    let is_time = shard.is_quiet.get() || shard.closing.get();
    let queue = shard.queue.borrow();
    let quiet = queue.records.is_empty() && queue.ready.is_empty() && queue.much.is_empty();
    quiet && queue.in_flight.is_empty() && queue.direct_in_flight == 0 && shard.wal.borrow().trailer_due && is_time
}

/// Plans a group of about `target` bytes of batches; of none when that is 0.
fn plan(shard: &Shard, target: usize, trailer: bool) -> Plan {
    let queue = shard.queue.borrow();
    let records = queue.records.len().min(RECORDS_MAX);
    let mut bytes: usize = queue.records.iter().take(records).map(|pending| pending.record.encoded_bytes()).sum();
    let mut parts = Vec::new();
    let mut passed = 0;
    for partition in &queue.ready {
        if bytes >= target {
            break;
        }
        let inner = partition.inner.borrow();
        if !is_ready(shard, &inner) {
            passed += 1;
            continue;
        }
        let mut count = 0;
        let mut batch_bytes = 0;
        for batch in &inner.pending {
            let stored = record_bytes(batch.bytes.len());
            if bytes > 0 && bytes + stored > target {
                break;
            }
            bytes += stored;
            batch_bytes += batch.bytes.len() as u64;
            count += 1;
        }
        if count < inner.pending.len() {
            if count > 0 {
                parts.push((partition.clone(), count, batch_bytes));
            }
            break;
        }
        parts.push((partition.clone(), count, batch_bytes));
        passed += 1;
    }
    // Ends of direct writes need no block of their own before the shard is idle: they ride.
    let rides = bytes > 0 || trailer;
    let direct_ends = if rides { queue.direct_ends.len().min(RECORDS_MAX) } else { 0 };
    let hints = if trailer { hints(&queue.hints) } else { Vec::new() };
    bytes += (direct_ends + hints.len()) * ENTRY_BYTES_MAX;
    Plan { records, direct_ends, hints, parts, passed, bytes }
}

fn hints(partitions: &[Rc<Partition>]) -> Vec<Record<'static>> {
    let latest = partitions.iter().take(HINTS_MAX);
    latest
        .map(|partition| {
            let offset = partition.inner.borrow().marks.high_watermark;
            Record { key: partition.key, entry: Entry::HighWatermark(offset) }
        })
        .collect()
}

fn build(shard: &Shard, plan: Plan, placement: Placement, length: usize, trailer: bool) -> Group {
    let block_start = if placement.header.is_some() { BLOCK_BYTES } else { 0 };
    let mut buffer = buffer::allocate(block_start + length);
    if let Some(header) = &placement.header {
        header.encode(&mut buffer[..BLOCK_BYTES]);
    }
    let records_start = block_start + BLOCK_HEADER_BYTES;
    let mut writer = RecordWriter::new(&mut buffer[records_start..]);
    let waiters = write_records(shard, &plan, &mut writer);
    let ranges = write_batches(&plan, &mut writer);
    let (records_bytes, record_count) = (writer.bytes(), writer.count());
    let block = placement.chain.block_sequence;
    let crc = finish_block(&mut buffer[block_start..], records_bytes, record_count, placement.place, placement.chain);
    {
        let mut wal = shard.wal.borrow_mut();
        wal.chained(crc);
        wal.trailer_due &= !trailer;
    }
    let buffer = buffer.freeze();
    let parts = keep_batches(plan.parts, &ranges, &buffer, records_start, block);
    if !parts.is_empty() {
        let held = parts.iter().map(|(partition, end, _)| (partition.clone(), *end)).collect();
        shard.tail.hold(buffer.len() as u64, held);
    }
    let position = placement.place.position - block_start as u64;
    let batch_bytes = parts.iter().map(|(_, _, bytes)| bytes).sum();
    let in_flight = InFlight { number: 0, done: false, block, parts, batch_bytes, records: waiters, is_trailer: trailer };
    Group { file: placement.file, position, buffer, in_flight }
}

fn write_records(shard: &Shard, plan: &Plan, writer: &mut RecordWriter<'_>) -> Vec<shards::sync::OneshotSender<()>> {
    let mut queue = shard.queue.borrow_mut();
    let mut waiters = Vec::new();
    for PendingRecord { record, waiters: of_record } in queue.records.drain(..plan.records) {
        writer.push(&record);
        waiters.extend(of_record);
    }
    for record in queue.direct_ends.drain(..plan.direct_ends) {
        writer.push(&record);
    }
    for record in &plan.hints {
        writer.push(record);
    }
    for partition in queue.hints.drain(..plan.hints.len()) {
        partition.inner.borrow_mut().hint_due = false;
    }
    waiters
}

/// Copies the batches; returns where each stands among the records.
fn write_batches(plan: &Plan, writer: &mut RecordWriter<'_>) -> Vec<Range<usize>> {
    let mut ranges = Vec::with_capacity(plan.parts.iter().map(|(_, count, _)| count).sum());
    for (partition, count, _) in &plan.parts {
        let inner = partition.inner.borrow();
        for batch in inner.pending.iter().take(*count) {
            let copy = |target: &mut [u8]| copy_batch(target, Some(&batch.header), &batch.bytes);
            ranges.push(writer.push_batch(partition.key, batch.bytes.len(), copy));
        }
    }
    ranges
}

/// The batches taken now live in the written buffer.
fn keep_batches(
    parts: Vec<(Rc<Partition>, usize, u64)>,
    ranges: &[Range<usize>],
    buffer: &Shared,
    records_start: usize,
    block: u64,
) -> Vec<(Rc<Partition>, u64, u64)> {
    let mut ranges = ranges.iter();
    let mut kept = Vec::with_capacity(parts.len());
    for (partition, count, bytes) in parts {
        let mut inner = partition.inner.borrow_mut();
        let mut end = Offset(0);
        for _ in 0..count {
            let batch = inner.pending.pop_front().expect("counted in the plan");
            let range = ranges.next().expect("each batch was written");
            end = Offset(batch.last + 1);
            inner.cached.push_back(CachedBatch {
                base: batch.base,
                last: batch.last,
                max_timestamp_ms: batch.max_timestamp_ms,
                wal_block: block,
                bytes: buffer.slice(records_start + range.start..records_start + range.end),
            });
        }
        inner.pending_bytes -= bytes;
        inner.unflushed_bytes += bytes;
        drop(inner);
        kept.push((partition, end.0, bytes));
    }
    kept
}
