//! The state as entries of the log: written one by one, and read back.

use wire::PartitionKey;

use super::dead_letters::Origin;
use super::{GroupRetries, RetryEntry, RetryKey, RetryOutcome, RetryValue};
use crate::Now;

/// Entries of the log that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryRestoreError {
    /// A value is of another kind than its key, or none that is ever written.
    #[error("group state: the value of {0:?} breaks the rules")]
    Value(RetryKey),
    /// What belongs together is not all there.
    #[error("group state: the retries of partition {0} do not fit together")]
    Incomplete(PartitionKey),
}

impl GroupRetries {
    /// The present value of an entry; `None` when there is no such entry.
    pub fn value(&self, key: &RetryKey) -> Option<RetryValue> {
        match key {
            RetryKey::Policy(topic) => self.policies.own(topic.as_deref()).cloned().map(RetryValue::Policy),
            RetryKey::Partition(partition, part) => self.partitions.get(partition)?.value(*part),
        }
    }

    /// Every entry there is, for a snapshot: an entry that changes while it is written is appended again behind it.
    pub fn keys(&self) -> impl Iterator<Item = RetryKey> + '_ {
        let partitions = self.partitions.iter();
        let parts = partitions.flat_map(|(partition, retries)| retries.parts().map(|part| RetryKey::Partition(*partition, part)));
        self.policies.keys().chain(parts)
    }

    /// Applies an entry while the log is replayed; nothing else may be called before [`GroupRetries::restored`].
    ///
    /// # Errors
    /// The value is not one of this key.
    pub fn restore(&mut self, entry: RetryEntry) -> Result<(), RetryRestoreError> {
        let fits = match (&entry.key, entry.value) {
            (RetryKey::Policy(topic), None) => self.policies.restore(topic.as_deref(), None),
            (RetryKey::Policy(topic), Some(RetryValue::Policy(policy))) => self.policies.restore(topic.as_deref(), Some(policy)),
            (RetryKey::Policy(_), Some(_)) => false,
            (RetryKey::Partition(partition, part), value) => self.partitions.entry(*partition).or_default().restore(*part, value),
        };
        if fits { Ok(()) } else { Err(RetryRestoreError::Value(entry.key)) }
    }

    /// The whole log is replayed: what was under way is to be done again.
    ///
    /// # Errors
    /// The entries do not fit together.
    pub fn restored(&mut self, now: Now, out: &mut RetryOutcome) -> Result<(), RetryRestoreError> {
        self.partitions.retain(|_, retries| !retries.is_empty());
        let pause_ms_max = self.policies.pause_ms_max();
        for (partition, retries) in &mut self.partitions {
            if !retries.restored(Origin { group: &self.group, partition: *partition }, now, pause_ms_max, &mut out.actions) {
                return Err(RetryRestoreError::Incomplete(*partition));
            }
        }
        Ok(())
    }
}
