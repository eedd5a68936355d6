//! The consumer: partitions in, batches out.

mod batch;
mod driver;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::{Offset, PartitionKey, TimestampMs};

pub use self::batch::FetchedBatch;
use self::driver::Driver;
pub use self::stream::BatchStream;
use crate::arrived::Arrived;
use crate::client::ClientShared;
use crate::core::cluster_map::TopicInfo;
use crate::core::fetching::{ConsumerCore, Fetched};
use crate::error::{ClientError, ErrorKind, Result};
use crate::options::ConsumerOptions;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record kept.
    Earliest,
    /// Behind the last record there is when the broker is asked.
    Latest,
    /// At this offset, or the next record after it.
    Offset(Offset),
    /// At the first record with this timestamp or a later one; at the end if there is none.
    Timestamp(TimestampMs),
}

/// Reads assigned partitions, ahead of the caller by up to `prefetch_bytes_max`.
///
/// Dropping it stops fetching.
///
/// ```no_run
/// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
/// use corelane_client::{ConsumerOptions, StartAt};
/// let consumer = client.consumer(ConsumerOptions::default());
/// consumer.assign_all("orders", StartAt::Earliest).await?;
/// loop {
///     let batch = consumer.next_batch().await?;
///     for record in batch.records() {
///         println!("{}/{}: {:?}", batch.partition(), record.offset.0, record.value);
///     }
/// }
/// # }
/// ```
pub struct Consumer {
    shared: Arc<ConsumerShared>,
    client: Arc<ClientShared>,
    driver: AbortHandle,
}

struct ConsumerShared {
    core: Mutex<ConsumerCore>,
    /// Something to do for the driver: an assignment, room in the buffer.
    wake: Notify,
    /// Something to take for the caller.
    arrived: Arrived,
}

impl ConsumerShared {
    fn core(&self) -> MutexGuard<'_, ConsumerCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Consumer {
    pub(crate) fn start(client: Arc<ClientShared>, options: ConsumerOptions) -> Self {
        let core = Mutex::new(ConsumerCore::new(options, client.backoff()));
        let shared = Arc::new(ConsumerShared { core, wake: Notify::new(), arrived: Arrived::default() });
        let driver = tokio::spawn(Driver::new(Arc::clone(&shared), Arc::clone(&client)).run()).abort_handle();
        Self { shared, client, driver }
    }

    /// Begins to read these partitions of a topic at `start`, instead of where they were read before.
    ///
    /// # Errors
    /// The topic or one of the partitions does not exist; no broker answers.
    pub async fn assign(&self, topic: &str, partitions: impl IntoIterator<Item = u32>, start: StartAt) -> Result<()> {
        let info = self.client.topic(topic).await.map_err(|error| error.during("assign"))?;
        let keys: Vec<PartitionKey> =
            partitions.into_iter().map(|partition| existing(&info, partition)).collect::<Result<_>>()?;
        let mut core = self.shared.core();
        keys.into_iter().for_each(|key| core.assign(key, &info.name, start));
        drop(core);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// [`Consumer::assign`] for all partitions the topic has now.
    ///
    /// # Errors
    /// The topic does not exist; no broker answers.
    pub async fn assign_all(&self, topic: &str, start: StartAt) -> Result<()> {
        let info = self.client.topic(topic).await.map_err(|error| error.during("assign"))?;
        self.assign(topic, 0..info.partition_count(), start).await
    }

    /// [`Consumer::assign`] for a partition that is known to exist.
    pub(crate) fn assign_key(&self, key: PartitionKey, topic: &Arc<str>, start: StartAt) {
        self.shared.core().assign(key, topic, start);
        self.shared.wake.notify_one();
    }

    /// [`Consumer::unassign`] for one partition.
    pub(crate) fn unassign_key(&self, key: PartitionKey) {
        self.shared.core().unassign(key);
    }

    /// [`Consumer::position`] for one partition.
    pub(crate) fn position_of(&self, key: PartitionKey) -> Option<Offset> {
        self.shared.core().position(key)
    }

    /// Fetches no more of a partition, or goes on; what was fetched stays.
    pub(crate) fn hold(&self, key: PartitionKey, is_held: bool) {
        self.shared.core().hold(key, is_held);
        self.shared.wake.notify_one();
    }

    /// Stops reading these partitions; what was fetched of them and not taken is dropped.
    pub fn unassign(&self, topic: &str, partitions: impl IntoIterator<Item = u32>) {
        let mut core = self.shared.core();
        for partition in partitions {
            if let Some(key) = core.key(topic, partition) {
                core.unassign(key);
            }
        }
    }

    /// What is assigned: topic and partition.
    pub fn assignment(&self) -> Vec<(Arc<str>, u32)> {
        self.shared.core().assignment()
    }

    /// Goes on elsewhere in an assigned partition; also after an error that stopped it.
    ///
    /// # Errors
    /// The partition is not assigned.
    pub fn seek(&self, topic: &str, partition: u32, start: StartAt) -> Result<()> {
        self.change(topic, partition, "seek", |core, key| core.seek(key, start))
    }

    /// Stops reading an assigned partition until [`Consumer::resume`]; its position stays.
    ///
    /// # Errors
    /// The partition is not assigned.
    pub fn pause(&self, topic: &str, partition: u32) -> Result<()> {
        self.change(topic, partition, "pause", ConsumerCore::pause)
    }

    /// Reads a paused partition again.
    ///
    /// # Errors
    /// The partition is not assigned.
    pub fn resume(&self, topic: &str, partition: u32) -> Result<()> {
        self.change(topic, partition, "resume", ConsumerCore::resume)
    }

    /// The offset after the last record handed out, or of the start; `None` while the start is not yet known to the client, and
    /// for what is not assigned.
    pub fn position(&self, topic: &str, partition: u32) -> Option<Offset> {
        let map = self.client.map();
        self.shared.core().position(map.topic(topic)?.key(partition))
    }

    /// The end of what can be read, as of the last answer about the partition.
    pub fn high_watermark(&self, topic: &str, partition: u32) -> Option<Offset> {
        let map = self.client.map();
        self.shared.core().high_watermark(map.topic(topic)?.key(partition))
    }

    /// The next batch, of whichever partition; waits until there is one. Cancelling the wait loses nothing.
    ///
    /// Failures that a retry can help are retried behind the scenes, for as long as it takes.
    ///
    /// # Errors
    /// A partition cannot go on by itself: its position is out of range, its data is damaged, its topic is gone. The error
    /// names it; it stays stopped until [`Consumer::seek`], the others go on with the next call.
    pub async fn next_batch(&self) -> Result<FetchedBatch> {
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(batch) = self.try_next_batch()? {
                return Ok(batch);
            }
            arrived.await;
        }
    }

    /// The batches, one after the other, as a stream for `StreamExt`.
    ///
    /// ```no_run
    /// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
    /// # let consumer = client.consumer(corelane_client::ConsumerOptions::default());
    /// use futures_util::TryStreamExt;
    /// let mut batches = consumer.batches();
    /// while let Some(batch) = batches.try_next().await? {
    ///     println!("{} records of partition {}", batch.records().count(), batch.partition());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn batches(&self) -> BatchStream<'_> {
        BatchStream::new(self)
    }

    /// [`Consumer::next_batch`], for at most `wait`; `None` when nothing came.
    ///
    /// # Errors
    /// As `next_batch`.
    pub async fn poll(&self, wait: Duration) -> Result<Option<FetchedBatch>> {
        if let Some(batch) = self.try_next_batch()? {
            return Ok(Some(batch));
        }
        match tokio::time::timeout(wait, self.next_batch()).await {
            Ok(batch) => batch.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The next batch if one has been fetched.
    ///
    /// # Errors
    /// As `next_batch`.
    pub fn try_next_batch(&self) -> Result<Option<FetchedBatch>> {
        let fetched = {
            let mut core = self.shared.core();
            let fetched = core.pop();
            if core.can_pop() {
                // Another caller may wait for what is left.
                self.shared.arrived.notify();
            }
            fetched
        };
        let raw = match fetched {
            None => return Ok(None),
            Some(Fetched::Error(_, error)) => return Err(error),
            Some(Fetched::Batch(raw)) => raw,
        };
        self.shared.wake.notify_one();
        let (key, from) = (raw.key, raw.from);
        FetchedBatch::check(raw).map(Some).inspect_err(|_| self.shared.core().halt(key, from))
    }

    fn change(
        &self,
        topic: &str,
        partition: u32,
        operation: &'static str,
        change: impl FnOnce(&mut ConsumerCore, PartitionKey) -> bool,
    ) -> Result<()> {
        let map = self.client.map();
        let changed = map.topic(topic).is_some_and(|info| change(&mut self.shared.core(), info.key(partition)));
        if !changed {
            let place = format!("{topic}/{partition}");
            return Err(ClientError::new(ErrorKind::InvalidArgument, operation, place, "the partition is not assigned"));
        }
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn existing(topic: &TopicInfo, partition: u32) -> Result<PartitionKey> {
    if partition >= topic.partition_count() {
        return Err(ClientError::no_such_partition("assign", topic, partition));
    }
    Ok(topic.key(partition))
}
