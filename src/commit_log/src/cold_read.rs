//! Reads from segments: index → one aligned direct read, checked once, shared by whoever wants the same range.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use shards::buffer::Shared;
use shards::executor;
use wire::Offset;
use wire::batch::{BatchHeader, HEADER_BYTES, PayloadKind, verify_payload};

use crate::file_cache::SegmentKey;
use crate::format::BLOCK_BYTES;
use crate::limits::COLD_READ_BYTES_MAX;
use crate::partition::{Inner, SealedSegment};
use crate::read_cache::{Window, WindowBatch, WindowEnd};
use crate::reader::{self, ReadError, push_joined};
use crate::segment_file::SegmentFile;
use crate::segment_index;
use crate::shard::Shard;

/// First read of a place: no more than this is read to serve a small fetch.
const READ_BYTES_MIN: usize = 128 << 10;

/// The segment that holds an offset, and how much of it is written.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) key: SegmentKey,
    pub(crate) disk: Arc<Path>,
    /// Nothing at or above this offset is read from it.
    pub(crate) end: u64,
    /// Nothing at or above this position is read from it.
    pub(crate) end_position: u64,
    /// Set while it is written: it holds the index of what was added last.
    pub(crate) active: Option<Rc<SegmentFile>>,
}

impl Place {
    /// A sealed segment, whole.
    pub(crate) fn sealed(segment: &SealedSegment) -> Self {
        let (key, disk) = (segment.key, segment.disk.clone());
        Self { key, disk, end: segment.end, end_position: segment.bytes, active: None }
    }

    /// What is written of the active segment.
    pub(crate) fn active(inner: &Inner) -> Option<Self> {
        let active = inner.active.as_ref()?;
        let file = active.file.clone();
        let (end, end_position) = (inner.flushed_end, active.flushed_position);
        Some(Self { key: file.key, disk: file.disk().clone(), end, end_position, active: Some(file) })
    }
}

/// The segment of an offset below the flushed end.
pub(crate) fn find(inner: &Inner, from: u64) -> Result<Place, ReadError> {
    assert!(from < inner.flushed_end, "what is not in memory is in a segment");
    if let Some(place) = Place::active(inner)
        && from >= place.key.base
    {
        return Ok(place);
    }
    let index = inner.sealed.partition_point(|segment| segment.end <= from);
    match inner.sealed.get(index) {
        Some(segment) if segment.key.base <= from => Ok(Place::sealed(segment)),
        after => {
            let active = inner.active.as_ref().map_or(inner.flushed_end, |active| active.file.key.base);
            let end = after.map_or(active, |segment| segment.key.base);
            assert!(!inner.lost.is_empty(), "only a loss leaves a hole between segments");
            Err(ReadError::Lost { offset: Offset(from), end: Offset(end) })
        }
    }
}

pub(crate) async fn read(
    shard: &Rc<Shard>,
    place: &Place,
    from: u64,
    bytes_max: usize,
    below: u64,
) -> Result<Vec<Shared>, ReadError> {
    let below = below.min(place.end);
    let window = match shard.reads.find(place.key, from) {
        Some(window) => {
            shard.counters.add(|stats| stats.cached_reads += 1);
            window
        }
        None => {
            let length = bytes_max.clamp(READ_BYTES_MIN, COLD_READ_BYTES_MAX);
            load(shard, place, from, length).await?
        }
    };
    let (found, batches) = collect(&window, from, bytes_max, below);
    if found.is_empty() {
        return match &window.end {
            WindowEnd::Corrupt(error) => Err(error.clone()),
            WindowEnd::Whole => Ok(found),
        };
    }
    shard.counters.add(|stats| stats.read_batches += batches);
    read_ahead(shard, place, &window, from);
    Ok(found)
}

/// A reader that has come to the second half of its window will want the next one.
fn read_ahead(shard: &Rc<Shard>, place: &Place, window: &Window, from: u64) {
    let next = window.next_offset();
    let far = from < window.first_offset() + (next - window.first_offset()) / 2;
    if !window.sequential || far || next >= place.end || matches!(window.end, WindowEnd::Corrupt(_)) {
        return;
    }
    if shard.reads.is_known(place.key, next) {
        return;
    }
    let (shard, place) = (shard.clone(), place.clone());
    executor::spawn_background(async move {
        // Its error comes again, to a reader, when somebody wants the range.
        if let Err(error) = load(&shard, &place, next, COLD_READ_BYTES_MAX).await {
            tracing::debug!(%error, "read-ahead failed");
        }
    })
    .detach();
}

/// Loads the window that starts with the batch that holds `from`. Readers that want the same one wait for the same read.
async fn load(shard: &Rc<Shard>, place: &Place, from: u64, length: usize) -> Result<Rc<Window>, ReadError> {
    loop {
        if let Some(window) = shard.reads.find(place.key, from) {
            return Ok(window);
        }
        let Some(loading) = shard.reads.begin(place.key, from) else {
            shard.reads.finished().await;
            continue;
        };
        let known = shard.reads.continues(place.key, from);
        let position = match known {
            Some(position) => position,
            None => segment_index::position_of(shard, place, from).await?,
        };
        let _permit = shard.reads.permits.acquire(1).await;
        let window = read_window(shard, place, position, from, length, known.is_some()).await?;
        let window = Rc::new(window);
        shard.reads.insert(place.key, window.clone());
        drop(loading);
        return Ok(window);
    }
}

/// Reads and checks batches from `position` (of a batch at or before `from`) until `length` bytes from the one that holds `from`.
async fn read_window(
    shard: &Rc<Shard>,
    place: &Place,
    mut position: u64,
    from: u64,
    length: usize,
    sequential: bool,
) -> Result<Window, ReadError> {
    let file = shard.files.get(place.key, &place.disk).await?;
    let mut wanted = length;
    loop {
        let start = position - position % BLOCK_BYTES as u64;
        let end = (position + wanted as u64).next_multiple_of(BLOCK_BYTES as u64).min(place.end_position);
        if start >= end {
            return Err(corrupt(shard, place, from, position, "the segment ends before this offset".into()));
        }
        let bytes = file.read_at(start, (end - start) as usize).await?;
        shard.counters.add(|stats| {
            stats.disk_reads += 1;
            stats.disk_read_bytes += bytes.len() as u64;
        });
        let parsed = parse(shard, place, &bytes, start, position, from);
        if let Some(batch) = parsed.batches.last() {
            let next_position = batch.position + batch.bytes.len() as u64;
            return Ok(Window { batches: parsed.batches, end: parsed.end, next_position, sequential });
        }
        if let WindowEnd::Corrupt(error) = parsed.end {
            return Err(error);
        }
        // Nothing but skipped batches, or a batch longer than the window: go on behind, with room for the whole batch.
        if parsed.next_position <= position && parsed.needed <= wanted {
            return Err(corrupt(shard, place, from, position, "the file ends before this offset".into()));
        }
        position = parsed.next_position;
        wanted = parsed.needed.max(length);
    }
}

struct Parsed {
    batches: Vec<WindowBatch>,
    end: WindowEnd,
    next_position: u64,
    /// Bytes from `next_position` that hold the next batch whole.
    needed: usize,
}

/// What a step of the walk found.
enum Step {
    /// A whole batch; kept if it holds data that is wanted.
    Batch { header: BatchHeader },
    /// The bytes end before the next batch does: so many are needed from here.
    Short { needed: usize },
    /// A later batch stands where this offset belongs.
    Missing { offset: u64, found: u64 },
    /// It does not hold, from this offset on.
    Damaged { offset: u64, reason: String },
}

/// Walks the batches of `bytes`, which stand at `start` in the file, from `position` on; keeps those that end above `from`.
///
/// Damage before the batch that is wanted is passed over, block by block: every flush starts on one. What is wanted is never passed over.
fn parse(shard: &Shard, place: &Place, bytes: &Shared, start: u64, mut position: u64, from: u64) -> Parsed {
    let mut batches: Vec<WindowBatch> = Vec::new();
    let mut next_offset = None;
    let mut damage: Option<ReadError> = None;
    loop {
        let at = ((position - start) as usize).min(bytes.len());
        let file_rest = place.end_position.saturating_sub(position);
        match step(&bytes[at..], file_rest, from, place.end, next_offset) {
            Step::Batch { header } => {
                let total = header.total_length();
                let last = header.last_offset().0;
                if is_wanted(&header, from, place.end) {
                    next_offset = Some(last + 1);
                    damage = None;
                    batches.push(WindowBatch { base: header.base_offset.0, last, position, bytes: bytes.slice(at..at + total) });
                }
                position += total as u64;
            }
            Step::Short { needed } => {
                let end = match damage {
                    Some(error) if batches.is_empty() => WindowEnd::Corrupt(error),
                    _ => WindowEnd::Whole,
                };
                return Parsed { batches, end, next_position: position, needed };
            }
            Step::Missing { offset, found } => {
                let reason = format!("offset {found} stands here");
                let error = damage.unwrap_or_else(|| corrupt(shard, place, offset, position, reason));
                return Parsed { batches, end: WindowEnd::Corrupt(error), next_position: position, needed: 0 };
            }
            Step::Damaged { offset, reason } => {
                let error = damage.take().unwrap_or_else(|| corrupt(shard, place, offset, position, reason));
                if !batches.is_empty() {
                    return Parsed { batches, end: WindowEnd::Corrupt(error), next_position: position, needed: 0 };
                }
                damage = Some(error);
                position = (position + 1).next_multiple_of(BLOCK_BYTES as u64);
            }
        }
    }
}

fn is_wanted(header: &BatchHeader, from: u64, end: u64) -> bool {
    header.payload_kind != PayloadKind::Padding && header.last_offset().0 >= from && header.base_offset.0 < end
}

/// Looks at the batch at the start of `rest`, of which the file has `file_rest` bytes.
fn step(rest: &[u8], file_rest: u64, from: u64, end: u64, next_offset: Option<u64>) -> Step {
    if rest.len() < HEADER_BYTES {
        return Step::Short { needed: HEADER_BYTES };
    }
    let header = match BatchHeader::decode(rest) {
        Ok(header) => header,
        Err(error) => return Step::Damaged { offset: next_offset.unwrap_or(from), reason: error.to_string() },
    };
    let total = header.total_length();
    let offset = header.base_offset.0.max(from);
    if total as u64 > file_rest {
        return Step::Damaged { offset, reason: "the segment ends within the batch".into() };
    }
    if total > rest.len() {
        return Step::Short { needed: total };
    }
    if is_wanted(&header, from, end) {
        if let Err(error) = verify_payload(&header, &rest[..total]) {
            return Step::Damaged { offset, reason: error.to_string() };
        }
        // The first one holds the offset that was asked for, and each follows the one before.
        let base = header.base_offset.0;
        let holds = next_offset.map_or(base <= from, |expected| expected == base);
        if !holds {
            return Step::Missing { offset: next_offset.unwrap_or(from), found: base };
        }
    }
    Step::Batch { header }
}

fn corrupt(shard: &Shard, place: &Place, offset: u64, position: u64, reason: String) -> ReadError {
    // The space of a segment that retention or a cut took is given back under whoever still reads it: no damage, and the reader looks again.
    let is_current = shard.partitions.borrow().get(&place.key.partition).is_some_and(|owner| reader::is_current(owner, place));
    if is_current {
        shard.counters.add(|stats| stats.corrupt_batches += 1);
        tracing::error!(segment = ?place.key, offset, position, reason, "a stored batch is damaged");
    }
    ReadError::Corrupt { offset: Offset(offset), segment: Offset(place.key.base), position, reason }
}

fn collect(window: &Window, from: u64, bytes_max: usize, below: u64) -> (Vec<Shared>, u64) {
    let mut found = Vec::new();
    let mut taken = 0;
    let mut batches = 0;
    let first = window.batches.partition_point(|batch| batch.last < from);
    for batch in &window.batches[first..] {
        if batch.base >= below || (taken > 0 && taken + batch.bytes.len() > bytes_max) {
            break;
        }
        taken += batch.bytes.len();
        batches += 1;
        push_joined(&mut found, batch.bytes.clone());
    }
    (found, batches)
}
