//! Raw writes by io_uring: block size, depth, and the way they become durable.

use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use io_uring::{IoUring, opcode, squeue};
use serde_json::{Value, json};

use super::memory::AlignedBuffer;
use super::ring_file::{Extents, RingFile};
use super::{LimitError, io};
use crate::latency::{self, Percentiles};

/// How a write becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// O_DSYNC overwrite of written extents: what a write-ahead log does.
    Dsync,
    /// O_DSYNC into allocated, unwritten extents: what a log does that only allocates.
    DsyncFallocated,
    /// Plain writes into allocated extents with one fdatasync for so many bytes: what a segment does.
    Fdatasync(u64),
    /// Plain writes, never synced: the drive's own rate.
    Plain,
}

impl Way {
    /// Its name in tables and results.
    pub fn name(self) -> String {
        match self {
            Way::Dsync => "O_DSYNC overwrite".to_owned(),
            Way::DsyncFallocated => "O_DSYNC fallocated".to_owned(),
            Way::Fdatasync(bytes) => format!("fdatasync per {} MiB", bytes >> 20),
            Way::Plain => "plain".to_owned(),
        }
    }
}

/// A measured combination.
#[derive(Debug)]
pub struct Row {
    /// The way.
    pub way: Way,
    /// Bytes of one write.
    pub block_bytes: usize,
    /// Writes in flight.
    pub depth: usize,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Latency of a write; of its durability where the way makes each durable.
    pub latency: Histogram<u64>,
}

impl Row {
    /// One line.
    pub fn text(&self) -> String {
        format!(
            "{:<22} {:>5} KiB depth {:>2}: {:>7.3} GB/s {:>8.0}/s {}",
            self.way.name(),
            self.block_bytes >> 10,
            self.depth,
            self.bytes_per_second / 1e9,
            self.bytes_per_second / self.block_bytes as f64,
            Percentiles::of(&self.latency).line()
        )
    }

    /// The same for a program.
    pub fn json(&self) -> Value {
        json!({
            "way": self.way.name(),
            "blockBytes": self.block_bytes,
            "depth": self.depth,
            "bytesPerSecond": self.bytes_per_second,
            "latency": Percentiles::of(&self.latency),
        })
    }
}

/// Measures the table.
///
/// # Errors
/// When the disk refuses.
pub fn measure(folder: &Path, file_bytes: u64, time: Duration, quick: bool) -> Result<Vec<Row>, LimitError> {
    let blocks: &[usize] = if quick { &[16 << 10, 1 << 20] } else { &[4 << 10, 16 << 10, 128 << 10, 256 << 10, 1 << 20] };
    let depths: &[usize] = if quick { &[1, 4] } else { &[1, 2, 4, 8] };
    let mut rows = Vec::new();
    for way in [Way::Dsync, Way::DsyncFallocated, Way::Fdatasync(4 << 20), Way::Plain] {
        for &block_bytes in blocks {
            for &depth in depths {
                // Small blocks in the slow ways are shown at depth 1 only: more depth changes what the drive does, not the point.
                if block_bytes < 128 << 10 && depth > 1 && way != Way::Dsync {
                    continue;
                }
                rows.push(write(folder, file_bytes, way, block_bytes, depth, time)?);
            }
        }
    }
    Ok(rows)
}

/// Measures one combination on a fresh file; a write wraps around at the file's end only where that keeps the way what it says.
///
/// # Errors
/// When the disk refuses.
pub fn write(
    folder: &Path,
    file_bytes: u64,
    way: Way,
    block_bytes: usize,
    depth: usize,
    time: Duration,
) -> Result<Row, LimitError> {
    let (extents, dsync) = match way {
        Way::Dsync => (Extents::Written, true),
        Way::DsyncFallocated => (Extents::Fallocated, true),
        Way::Fdatasync(_) => (Extents::Fallocated, false),
        Way::Plain => (Extents::Written, false),
    };
    let file = RingFile::create(folder, file_bytes, extents, dsync)?;
    let blocks: Vec<AlignedBuffer> = (0..depth).map(|_| AlignedBuffer::random(block_bytes)).collect();
    let mut ring = IoUring::new((depth as u32 + 1).next_power_of_two()).map_err(io("make an io_uring"))?;
    let sync_bytes = if let Way::Fdatasync(bytes) = way { Some(bytes) } else { None };
    let wraps = extents == Extents::Written;
    let mut run = Writes { begun: vec![Instant::now(); depth], free: (0..depth).collect(), next: 0, unsynced: 0, done: 0 };
    let mut latency = latency::histogram();
    let started = Instant::now();
    let operation = format!("write {block_bytes} bytes, {}", way.name());
    loop {
        while started.elapsed() < time && sync_bytes.is_none_or(|bytes| run.unsynced < bytes) {
            let Some(slot) = run.free.pop() else { break };
            if run.next + block_bytes as u64 > file.bytes() {
                if !wraps {
                    run.free.push(slot);
                    break;
                }
                run.next = 0;
            }
            let entry = opcode::Write::new(file.fd(), blocks[slot].pointer(), block_bytes as u32).offset(run.next).build();
            push(&mut ring, &entry.user_data(slot as u64));
            run.begun[slot] = Instant::now();
            run.next += block_bytes as u64;
            run.unsynced += block_bytes as u64;
        }
        if run.free.len() == depth {
            if sync_bytes.is_none() || run.unsynced == 0 {
                break;
            }
            let entry = opcode::Fsync::new(file.fd()).flags(io_uring::types::FsyncFlags::DATASYNC).build();
            push(&mut ring, &entry.user_data(SYNC));
            wait(&mut ring)?;
            let result = ring.completion().next().expect("the sync is all that was in flight").result();
            check(result, 0, &operation)?;
            run.unsynced = 0;
            continue;
        }
        wait(&mut ring)?;
        let completed: Vec<(usize, i32)> = ring.completion().map(|entry| (entry.user_data() as usize, entry.result())).collect();
        for (slot, result) in completed {
            run.free.push(slot);
            if let Err(error) = check(result, block_bytes, &operation) {
                finish(&mut ring, depth - run.free.len())?;
                return Err(error);
            }
            latency.saturating_record(run.begun[slot].elapsed().as_nanos() as u64);
            run.done += block_bytes as u64;
        }
    }
    let bytes_per_second = run.done as f64 / started.elapsed().as_secs_f64();
    Ok(Row { way, block_bytes, depth, bytes_per_second, latency })
}

/// Completion of the fdatasync.
const SYNC: u64 = u64::MAX;

struct Writes {
    begun: Vec<Instant>,
    free: Vec<usize>,
    next: u64,
    unsynced: u64,
    done: u64,
}

pub(super) fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: buffers and file outlive every operation, because those who push return only when none is in flight.
    unsafe { ring.submission().push(entry) }.expect("the ring has room for every slot and a sync");
}

pub(super) fn wait(ring: &mut IoUring) -> Result<(), LimitError> {
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("waiting for operations in flight failed, their buffers cannot be freed: {error}"),
        }
    }
}

/// Waits for operations whose outcome no longer matters, so that their buffers may go.
fn finish(ring: &mut IoUring, mut in_flight: usize) -> Result<(), LimitError> {
    while in_flight > 0 {
        wait(ring)?;
        in_flight -= ring.completion().count();
    }
    Ok(())
}

pub(super) fn check(result: i32, wanted: usize, operation: &str) -> Result<(), LimitError> {
    match usize::try_from(result) {
        Ok(done) if done == wanted => Ok(()),
        Ok(done) => Err(LimitError::Short { operation: operation.to_owned(), done, wanted }),
        Err(_) => Err(io(operation)(std::io::Error::from_raw_os_error(-result))),
    }
}
