//! How much there is of what: for metrics.

use wire::PartitionKey;

use super::GroupRetries;

/// The counts of one group, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Records parked and held back.
    pub parked_records: u64,
    /// Dead letters decided and not yet durable.
    pub dead_letters_pending: u64,
    /// Dead letters decided so far.
    pub dead_lettered: u64,
    /// Records skipped so far.
    pub skipped: u64,
    /// Partitions stopped.
    pub stopped_partitions: u64,
}

impl GroupRetries {
    /// Records parked and held back, of each partition that has any.
    pub(crate) fn parked_records(&self) -> impl Iterator<Item = (PartitionKey, u64)> + '_ {
        let counts = self.partitions.iter().map(|(partition, retries)| (*partition, retries.parked_records() as u64));
        counts.filter(|(_, records)| *records > 0)
    }

    /// The sum over all partitions.
    pub fn counts(&self) -> RetryCounts {
        let mut counts = RetryCounts::default();
        for retries in self.partitions.values() {
            counts.parked_records += retries.parked_records() as u64;
            counts.dead_letters_pending += retries.dead_letters_pending() as u64;
            counts.dead_lettered += retries.dead_lettered();
            counts.skipped += retries.skipped();
            counts.stopped_partitions += u64::from(retries.is_stopped());
        }
        counts
    }
}
