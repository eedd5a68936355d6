//! How often a size or a time fell between fixed bounds: a few additions for each observation.

use std::cell::Cell;

/// Bounds of a histogram. One count more: what is above the last.
pub const HISTOGRAM_BOUNDS: usize = 14;

/// Each twice the one before, from one block to the largest group.
const BYTES: [u64; HISTOGRAM_BOUNDS] = {
    let mut bounds = [crate::format::BLOCK_BYTES as u64; HISTOGRAM_BOUNDS];
    let mut index = 1;
    while index < HISTOGRAM_BOUNDS {
        bounds[index] = bounds[index - 1] * 2;
        index += 1;
    }
    bounds
};

const _: () = assert!(BYTES[HISTOGRAM_BOUNDS - 1] == crate::limits::WAL_BLOCK_BYTES_MAX);

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;

/// From a write that a device's cache takes to one that hangs.
const NANOSECONDS: [u64; HISTOGRAM_BOUNDS] = [
    50 * US,
    100 * US,
    200 * US,
    500 * US,
    MS,
    2 * MS,
    5 * MS,
    10 * MS,
    20 * MS,
    50 * MS,
    100 * MS,
    200 * MS,
    500 * MS,
    1_000 * MS,
];

/// The counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramCounts {
    /// Upper bounds, rising; a value equal to a bound is below it.
    pub bounds: &'static [u64; HISTOGRAM_BOUNDS],
    /// Observations up to each bound and above the one before.
    pub counts: [u64; HISTOGRAM_BOUNDS],
    /// Observations above the last bound.
    pub above: u64,
    /// Sum of all observed values.
    pub sum: u64,
}

/// Counts in the making. One shard, one thread.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Cell<HistogramCounts>,
}

impl Histogram {
    pub(crate) fn bytes() -> Self {
        Self { counts: Cell::new(HistogramCounts::none(&BYTES)) }
    }

    pub(crate) fn nanoseconds() -> Self {
        Self { counts: Cell::new(HistogramCounts::none(&NANOSECONDS)) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let mut counts = self.counts.get();
        match counts.counts.get_mut(counts.bounds.partition_point(|bound| *bound < value)) {
            Some(count) => *count += 1,
            None => counts.above += 1,
        }
        counts.sum += value;
        self.counts.set(counts);
    }

    pub(crate) fn get(&self) -> HistogramCounts {
        self.counts.get()
    }
}

impl HistogramCounts {
    fn none(bounds: &'static [u64; HISTOGRAM_BOUNDS]) -> Self {
        Self { bounds, counts: [0; HISTOGRAM_BOUNDS], above: 0, sum: 0 }
    }

    /// Observations in all.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_up_to_its_bound_and_once() {
        let histogram = Histogram::bytes();
        for value in [0, 4096, 4097, 8192, 32 << 20, (32 << 20) + 1, 1 << 40] {
            histogram.observe(value);
        }
        let counts = histogram.get();
        assert_eq!((counts.counts[0], counts.counts[1], counts.counts[HISTOGRAM_BOUNDS - 1], counts.above), (2, 2, 1, 2));
        assert_eq!((counts.total(), counts.sum), (7, 4096 + 4097 + 8192 + 2 * (32 << 20) + 1 + (1 << 40)));
        assert!(NANOSECONDS.is_sorted());
    }
}
