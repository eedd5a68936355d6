//! The producer: records in, deliveries out.

mod driver;
mod outcome;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use wire::{Compression, TimestampMs};

use self::driver::Driver;
pub(crate) use self::outcome::BatchOutcome;
pub use self::outcome::DeliveryFuture;
use crate::client::{ClientShared, random};
use crate::clock::wall_ms;
use crate::core::cluster_map::TopicInfo;
use crate::core::producing::{ProducerCore, Reservation};
use crate::error::{ClientError, ErrorKind, Result};
use crate::limits::RECORD_OVERHEAD_BYTES;
use crate::options::ProducerOptions;
use crate::record::Record;

/// Sends records. Cloning is cheap; clones share batches and memory.
///
/// `send` returns as soon as the record is in a batch. What became of it is known by awaiting the [`DeliveryFuture`]; many can
/// be outstanding. When the last clone is dropped, what was not sent yet fails: call [`Producer::flush`] or
/// [`Producer::close`] first.
///
/// ```no_run
/// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
/// use corelane_client::{ProducerOptions, Record};
/// let producer = client.producer(ProducerOptions::default());
/// let delivery = producer.send(Record::to("orders").key("customer-7").value("12 apples")).await?;
/// let delivered = delivery.await?;
/// println!("stored at {}/{}", delivered.partition, delivered.offset.0);
/// producer.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer {
    handle: Arc<Handle>,
}

/// Stops the driver when the last clone goes.
struct Handle {
    shared: Arc<ProducerShared>,
    client: Arc<ClientShared>,
}

/// What the handles and the driver share.
struct ProducerShared {
    core: Mutex<ProducerCore>,
    /// Something new to send, or the end.
    wake: Notify,
    /// A batch got its outcome.
    progress: Notify,
    /// Bytes of `buffer_bytes_max` not in use.
    memory: Arc<Semaphore>,
    memory_bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing more is accepted.
    Closing,
}

/// Counters of a producer, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStats {
    /// Batches accepted and without a result.
    pub unfinished_batches: usize,
    /// Bytes of records accepted and without a result.
    pub buffered_bytes: usize,
}

impl Producer {
    pub(crate) fn start(client: Arc<ClientShared>, options: ProducerOptions) -> Self {
        let memory_bytes_max = options.buffer_bytes_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let shared = Arc::new(ProducerShared {
            core: Mutex::new(ProducerCore::new(options, client.backoff())),
            wake: Notify::new(),
            progress: Notify::new(),
            memory: Arc::new(Semaphore::new(memory_bytes_max)),
            memory_bytes_max,
            state: Mutex::new(State::Open),
        });
        tokio::spawn(Driver::new(Arc::clone(&shared), Arc::clone(&client)).run());
        Self { handle: Arc::new(Handle { shared, client }) }
    }

    /// Puts a record into its batch, waiting for memory when `buffer_bytes_max` is in use.
    ///
    /// # Errors
    /// The topic does not exist, the partition does not exist, the record is too large, the producer is closed. Failures of
    /// sending come from the future returned.
    pub async fn send(&self, record: Record<'_>) -> Result<DeliveryFuture> {
        let topic = self.handle.client.topic(record.topic).await.map_err(|error| error.during("produce"))?;
        let permit = self.reserve(record.content_bytes(), record.topic).await?;
        self.accept(&topic, &record, permit)
    }

    /// As [`Producer::send`], without waiting: the topic must be known from an earlier `send` or
    /// [`Client::topic`](crate::Client::topic), and there must be memory.
    ///
    /// # Errors
    /// As `send`, and [`ErrorKind::BufferFull`].
    pub fn try_send(&self, record: Record<'_>) -> Result<DeliveryFuture> {
        let map = self.handle.client.map();
        let unknown = || ClientError::new(ErrorKind::InvalidArgument, "produce", record.topic, "the topic is not known yet");
        let topic = map.topic(record.topic).ok_or_else(unknown)?;
        let bytes = self.cost_of(record.content_bytes(), record.topic)?;
        let permit = Arc::clone(&self.handle.shared.memory).try_acquire_many_owned(bytes).map_err(|error| match error {
            tokio::sync::TryAcquireError::Closed => ClientError::closed("produce"),
            tokio::sync::TryAcquireError::NoPermits => {
                let cause = format!("{} bytes are buffered", self.handle.shared.memory_bytes_max);
                ClientError::new(ErrorKind::BufferFull, "produce", record.topic, cause)
            }
        })?;
        self.accept(topic, &record, permit)
    }

    /// Sends a finished batch as it is, behind what was accepted for the partition before: the door for load generators and
    /// for copying topics. The bytes are not copied; they are written to the socket from where they are. The delivery names
    /// the offset of the first record.
    ///
    /// # Errors
    /// As `send`; and the bytes are not one whole batch of records.
    pub async fn send_batch(&self, topic: &str, partition: u32, batch: Bytes) -> Result<DeliveryFuture> {
        let info = self.handle.client.topic(topic).await.map_err(|error| error.during("produce"))?;
        let permit = self.reserve(batch.len(), topic).await?;
        let mut core = self.handle.shared.open_core()?;
        let (delivery, wake) = core.push_batch(Instant::now().into_std(), &info, partition, batch, Some(permit))?;
        drop(core);
        if wake {
            self.handle.shared.wake.notify_one();
        }
        Ok(delivery)
    }

    /// The compression this producer uses for a topic: what batches given to [`Producer::send_batch`] should have.
    ///
    /// # Errors
    /// The topic does not exist, or no broker answers.
    pub async fn compression(&self, topic: &str) -> Result<Compression> {
        let info = self.handle.client.topic(topic).await?;
        Ok(self.handle.shared.core().compression(&info))
    }

    /// Sends everything accepted so far without lingering, and returns when each has its result. Results, failures included,
    /// are in the delivery futures.
    ///
    /// # Errors
    /// The producer was closed meanwhile.
    pub async fn flush(&self) -> Result<()> {
        let shared = &self.handle.shared;
        let mark = shared.core().flush(Instant::now().into_std());
        shared.wake.notify_one();
        loop {
            let progress = shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if shared.core().flushed(mark) {
                return Ok(());
            }
            progress.await;
        }
    }

    /// Accepts nothing more, flushes, and stops.
    ///
    /// # Errors
    /// None today; a flush that cannot finish ends by the delivery timeout.
    pub async fn close(&self) -> Result<()> {
        *self.handle.shared.state() = State::Closing;
        self.handle.shared.memory.close();
        self.flush().await?;
        self.handle.shared.wake.notify_one();
        Ok(())
    }

    /// Counters as of now.
    pub fn stats(&self) -> ProducerStats {
        let shared = &self.handle.shared;
        ProducerStats {
            unfinished_batches: shared.core().unfinished_batches(),
            buffered_bytes: shared.memory_bytes_max - shared.memory.available_permits(),
        }
    }

    /// Waits for the memory of a record or batch.
    async fn reserve(&self, content_bytes: usize, topic: &str) -> Result<Reservation> {
        let bytes = self.cost_of(content_bytes, topic)?;
        let permit = Arc::clone(&self.handle.shared.memory).acquire_many_owned(bytes).await;
        permit.map_err(|_| ClientError::closed("produce"))
    }

    /// Memory taken by a record or batch of `content_bytes`.
    fn cost_of(&self, content_bytes: usize, topic: &str) -> Result<u32> {
        let bytes = content_bytes + RECORD_OVERHEAD_BYTES;
        let memory_bytes_max = self.handle.shared.memory_bytes_max;
        if bytes > memory_bytes_max {
            let cause = format!("{bytes} bytes never fit the producer's buffer of {memory_bytes_max}");
            return Err(ClientError::new(ErrorKind::TooLarge, "produce", topic, cause));
        }
        Ok(u32::try_from(bytes).expect("the buffer is limited to 32 bits"))
    }

    fn accept(&self, topic: &TopicInfo, record: &Record<'_>, permit: Reservation) -> Result<DeliveryFuture> {
        let timestamp = record.timestamp.unwrap_or_else(|| TimestampMs(wall_ms()));
        let now = Instant::now().into_std();
        let mut core = self.handle.shared.open_core()?;
        let partition = core.choose_partition(topic, record, random())?;
        let (delivery, wake) = core.push(now, topic, partition, record, timestamp, Some(permit))?;
        drop(core);
        if wake {
            self.handle.shared.wake.notify_one();
        }
        Ok(delivery)
    }
}

impl ProducerShared {
    fn core(&self) -> MutexGuard<'_, ProducerCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The core, if records are still accepted. Closing takes the core's lock after the state changed, so that nothing gets in
    /// behind the last flush.
    fn open_core(&self) -> Result<MutexGuard<'_, ProducerCore>> {
        let core = self.core();
        match *self.state() {
            State::Open => Ok(core),
            State::Closing => Err(ClientError::closed("produce")),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        *self.shared.state() = State::Closing;
        self.shared.core().fail_all(&ClientError::closed("produce"));
        self.shared.wake.notify_one();
    }
}
