//! What a calibration tells the broker.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::IobenchError;
use super::measure::{DURABLE_BLOCK_BYTES, Pattern, Row, STREAM_READ_BYTES, STREAM_WRITE_BYTES};

/// Name of the profile in a data directory, where `serve` looks for it.
pub const PROFILE_FILE: &str = "io.toml";
/// Version of the profile's format.
const VERSION: u32 = 1;
/// A depth is deep enough when it reaches this share of the best rate: beyond, more depth only adds waiting.
const GOOD_SHARE: f64 = 0.93;
/// Bounds of the direct-write threshold: below, padding to 4 KiB costs; above, everything would be written twice.
const DIRECT_BYTES_MIN: u64 = 64 << 10;
const DIRECT_BYTES_MAX: u64 = 1 << 20;

/// A measured disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Format version.
    pub version: u32,
    /// What the broker takes from it.
    #[serde(rename = "use")]
    pub settings: Use,
    /// What was measured.
    pub measured: Vec<Row>,
}

/// Settings derived from the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Group commits in flight on a shard's write-ahead log.
    pub commit_groups_in_flight: u32,
    /// Bytes pending for one partition from which they go straight into its segment.
    pub direct_write_threshold_bytes: u64,
    /// Writes in flight into one segment.
    pub segment_write_depth: u32,
    /// Reads in flight for a consumer that catches up.
    pub read_depth: u32,
}

impl Profile {
    /// Derives the settings from measured rows.
    ///
    /// Depths: the smallest that reaches 93 % of the best rate. Threshold: the smallest size at which writing once and
    /// syncing the file is no slower than a durable write into the log plus the later second write.
    pub fn derive(measured: Vec<Row>) -> Self {
        let depth = |pattern, block_bytes| {
            let rows: Vec<&Row> =
                measured.iter().filter(|row| row.pattern == pattern && row.block_bytes == block_bytes).collect();
            let best = rows.iter().map(|row| row.bytes_per_second).fold(0.0, f64::max);
            let good = rows.iter().filter(|row| row.bytes_per_second >= GOOD_SHARE * best);
            good.map(|row| row.depth).min().unwrap_or(1)
        };
        let settings = Use {
            commit_groups_in_flight: depth(Pattern::DurableOverwrite, STREAM_WRITE_BYTES),
            direct_write_threshold_bytes: direct_threshold_bytes(&measured),
            segment_write_depth: depth(Pattern::PlainOverwrite, STREAM_WRITE_BYTES),
            read_depth: depth(Pattern::SequentialRead, STREAM_READ_BYTES),
        };
        Profile { version: VERSION, settings, measured }
    }

    /// Writes the profile as TOML, replacing an older one at once.
    ///
    /// # Errors
    ///
    /// When the file cannot be written or renamed.
    pub fn write(&self, path: &Path) -> Result<(), IobenchError> {
        let failed = |operation| move |source| IobenchError::File { operation, path: path.to_owned(), source };
        let text = toml::to_string_pretty(self).expect("a profile has only string keys and numbers");
        let temporary = path.with_extension("toml.new");
        std::fs::write(&temporary, text).map_err(failed("writing"))?;
        std::fs::rename(&temporary, path).map_err(failed("replacing"))
    }

    /// The measurements and the settings as a table for a person.
    pub fn table(&self) -> String {
        let mut text = String::from("pattern               block     depth      ops/s       MB/s    p50 us    p99 us\n");
        for row in &self.measured {
            let pattern = format!("{:?}", row.pattern);
            let (kib, depth) = (row.block_bytes >> 10, row.depth);
            let (operations, megabytes) = (row.operations_per_second, row.bytes_per_second / 1e6);
            writeln!(
                text,
                "{pattern:<20} {kib:>5} KiB {depth:>6} {operations:>12.0} {megabytes:>10.1} {:>9.0} {:>9.0}",
                row.p50_us, row.p99_us
            )
            .expect("writing to a String does not fail");
        }
        let Use { commit_groups_in_flight, direct_write_threshold_bytes, segment_write_depth, read_depth } = self.settings;
        text + &format!(
            "\ncommit_groups_in_flight = {commit_groups_in_flight}\ndirect_write_threshold_bytes = {direct_write_threshold_bytes}\n\
             segment_write_depth = {segment_write_depth}\nread_depth = {read_depth}\n"
        )
    }
}

fn direct_threshold_bytes(measured: &[Row]) -> u64 {
    let p50_us = |pattern, block_bytes| {
        let is_it = |row: &&Row| row.pattern == pattern && row.block_bytes == block_bytes && row.depth == 1;
        measured.iter().find(is_it).map(|row| row.p50_us)
    };
    let stream = measured.iter().filter(|row| row.pattern == Pattern::PlainOverwrite);
    let stream_bytes_per_us = stream.map(|row| row.bytes_per_second / 1e6).fold(f64::MIN_POSITIVE, f64::max);
    let pays = |block_bytes: &u32| {
        let logged = p50_us(Pattern::DurableOverwrite, *block_bytes);
        let direct = p50_us(Pattern::AllocatedThenSync, *block_bytes);
        let (Some(logged), Some(direct)) = (logged, direct) else { return false };
        direct <= logged + f64::from(*block_bytes) / stream_bytes_per_us
    };
    let smallest =
        DURABLE_BLOCK_BYTES.iter().find(|block_bytes| u64::from(**block_bytes) >= DIRECT_BYTES_MIN && pays(block_bytes));
    smallest.map_or(DIRECT_BYTES_MAX, |block_bytes| u64::from(*block_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pattern: Pattern, block_bytes: u32, depth: u32, megabytes_per_second: f64, p50_us: f64) -> Row {
        let bytes_per_second = megabytes_per_second * 1e6;
        let operations_per_second = bytes_per_second / f64::from(block_bytes);
        Row { pattern, block_bytes, depth, operations_per_second, bytes_per_second, p50_us, p99_us: p50_us }
    }

    #[test]
    fn the_smallest_depth_near_the_best_is_taken() {
        let rows = vec![
            row(Pattern::DurableOverwrite, 1 << 20, 1, 1500.0, 690.0),
            row(Pattern::DurableOverwrite, 1 << 20, 2, 1680.0, 1200.0),
            row(Pattern::DurableOverwrite, 1 << 20, 4, 1700.0, 2500.0),
        ];
        assert_eq!(Profile::derive(rows).settings.commit_groups_in_flight, 2);
    }

    #[test]
    fn the_threshold_is_where_one_write_and_a_sync_beat_two_writes() {
        let mut rows = vec![row(Pattern::PlainOverwrite, 1 << 20, 8, 2000.0, 4000.0)];
        // Logged: 190 us and 65 us for the second write at 2 GB/s. Direct: 300 us is too slow at 128 KiB ...
        rows.push(row(Pattern::DurableOverwrite, 128 << 10, 1, 680.0, 190.0));
        rows.push(row(Pattern::AllocatedThenSync, 128 << 10, 1, 430.0, 300.0));
        // ... and at 256 KiB 380 us beat 280 us + 131 us.
        rows.push(row(Pattern::DurableOverwrite, 256 << 10, 1, 930.0, 280.0));
        rows.push(row(Pattern::AllocatedThenSync, 256 << 10, 1, 690.0, 380.0));
        assert_eq!(Profile::derive(rows).settings.direct_write_threshold_bytes, 256 << 10);
    }

    #[test]
    fn a_disk_on_which_one_write_never_pays_gets_the_upper_bound() {
        assert_eq!(Profile::derive(Vec::new()).settings.direct_write_threshold_bytes, DIRECT_BYTES_MAX);
    }
}
