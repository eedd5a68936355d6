//! Which patterns are measured, and one measurement.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::IobenchError;
use super::ring::{Operation, drive};
use super::scratch::Scratch;

/// An access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Durable writes (O_DSYNC) over written extents, one after the other: the write-ahead log.
    DurableOverwrite,
    /// Writes into allocated, unwritten extents, each with its own fdatasync: a direct write into a segment.
    AllocatedThenSync,
    /// Writes over written extents without a sync: what the drive takes at most.
    PlainOverwrite,
    /// Reads one after the other: a consumer that catches up.
    SequentialRead,
    /// Reads at random positions: many consumers.
    RandomRead,
    /// Writes at random positions without a sync.
    RandomWrite,
}

/// One measured row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The pattern.
    pub pattern: Pattern,
    /// Bytes of each operation.
    pub block_bytes: u32,
    /// Operations in flight.
    pub depth: u32,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Median time of an operation, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
}

/// Block sizes at which durable writes are compared, in bytes.
pub(super) const DURABLE_BLOCK_BYTES: [u32; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];
/// Depths tried for durable writes: more groups in flight than this only queue on one drive.
pub(super) const DURABLE_DEPTHS: [u32; 3] = [1, 2, 4];
/// Depths tried for streams of large operations.
pub(super) const STREAM_DEPTHS: [u32; 4] = [1, 2, 4, 8];
/// Size of a streaming write.
pub(super) const STREAM_WRITE_BYTES: u32 = 1 << 20;
/// Size of a streaming read.
pub(super) const STREAM_READ_BYTES: u32 = 128 << 10;

/// Every measurement of a calibration, in order.
pub(super) fn plan() -> Vec<(Pattern, u32, u32)> {
    let mut plan = Vec::new();
    for block_bytes in DURABLE_BLOCK_BYTES {
        plan.extend(DURABLE_DEPTHS.map(|depth| (Pattern::DurableOverwrite, block_bytes, depth)));
    }
    plan.extend(DURABLE_BLOCK_BYTES.map(|block_bytes| (Pattern::AllocatedThenSync, block_bytes, 1)));
    plan.extend(STREAM_DEPTHS.map(|depth| (Pattern::PlainOverwrite, STREAM_WRITE_BYTES, depth)));
    plan.extend(STREAM_DEPTHS.map(|depth| (Pattern::SequentialRead, STREAM_READ_BYTES, depth)));
    plan.push((Pattern::RandomRead, 4 << 10, 32));
    plan.push((Pattern::RandomWrite, 4 << 10, 32));
    plan
}

/// Measures one pattern for about `time`.
pub(super) fn measure(
    scratch: &Scratch,
    pattern: Pattern,
    block_bytes: u32,
    depth: u32,
    time: Duration,
) -> Result<Row, IobenchError> {
    let blocks = scratch.len_bytes() / u64::from(block_bytes);
    let (file, operation) = match pattern {
        Pattern::DurableOverwrite => (scratch.written(), Operation::WriteDurable),
        Pattern::AllocatedThenSync => (scratch.allocate_unwritten()?, Operation::WriteThenSync),
        Pattern::PlainOverwrite | Pattern::RandomWrite => (scratch.written(), Operation::Write),
        Pattern::SequentialRead | Pattern::RandomRead => (scratch.written(), Operation::Read),
    };
    let mut count = 0_u64;
    let next_position = || {
        let index = match pattern {
            // Unwritten extents are unwritten once.
            Pattern::AllocatedThenSync if count == blocks => return None,
            // A Weyl sequence with an odd step visits positions in a scattered order.
            Pattern::RandomRead | Pattern::RandomWrite => count.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks,
            _ => count % blocks,
        };
        count += 1;
        Some(index * u64::from(block_bytes))
    };
    let run = drive(file, operation, block_bytes, depth, time, next_position)?;
    assert!(!run.latencies.is_empty(), "at least one operation is begun before the time is looked at");
    Ok(row(pattern, block_bytes, depth, run.latencies, run.elapsed))
}

fn row(pattern: Pattern, block_bytes: u32, depth: u32, mut latencies: Vec<Duration>, elapsed: Duration) -> Row {
    latencies.sort_unstable();
    let at = |quantile: f64| latencies[((latencies.len() - 1) as f64 * quantile) as usize].as_secs_f64() * 1e6;
    let operations_per_second = latencies.len() as f64 / elapsed.as_secs_f64();
    Row {
        pattern,
        block_bytes,
        depth,
        operations_per_second,
        bytes_per_second: operations_per_second * f64::from(block_bytes),
        p50_us: at(0.5),
        p99_us: at(0.99),
    }
}
