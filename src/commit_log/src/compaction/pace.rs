//! How fast compaction goes, and when it stops.

use std::time::Duration;

use crate::partition::Partition;
use crate::scrub;
use crate::shard::Shard;

/// The log is being closed or has failed, or the partition is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;

/// The rate of a pass.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    shard: &'a Shard,
    partition: &'a Partition,
    bytes_per_second: u64,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(shard: &'a Shard, partition: &'a Partition) -> Self {
        Self { shard, partition, bytes_per_second: shard.options.compaction_bytes_per_second }
    }

    /// After `bytes` were read or written: waits until there is time for more.
    pub(crate) async fn keep(&self, bytes: u64) -> Result<(), Stopped> {
        let pause = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_second);
        let goes_on = scrub::pause(self.shard, pause).await;
        let is_wanted = !self.shard.closing.get() && !self.partition.inner.borrow().deleted;
        if goes_on && is_wanted { Ok(()) } else { Err(Stopped) }
    }
}
