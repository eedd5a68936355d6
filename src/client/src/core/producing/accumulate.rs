//! Records into batches.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::{BatchBuilder, BatchHeader, BuilderOptions, Compression, PartitionKey, PushError, TimestampMs, partition_for_key};

use super::batch::{Batch, Payload, Reservation};
use super::sequences::Sequences;
use super::{ProducerCore, Queue};
use crate::core::cluster_map::TopicInfo;
use crate::error::{ClientError, ErrorKind, Result};
use crate::producer::{BatchOutcome, DeliveryFuture};
use crate::record::Record;

/// The batch of a partition that still takes records.
pub(super) struct OpenBatch {
    number: u64,
    builder: Box<BatchBuilder>,
    records: u32,
    outcome: Arc<BatchOutcome>,
    begun: Instant,
    reservation: Option<Reservation>,
}

impl OpenBatch {
    /// When it leaves although it is not full.
    pub(super) fn due(&self, linger: Duration) -> Instant {
        self.begun + linger
    }
}

/// The partition that records without a key go to, until it got a batch's worth of them.
pub(super) struct Sticky {
    partition: u32,
    bytes: usize,
}

impl ProducerCore {
    /// The partition of a record. Without a key, partitions take turns, a batch's worth of bytes each: records that come one by
    /// one still share batches.
    pub(crate) fn choose_partition(&mut self, topic: &TopicInfo, record: &Record<'_>, random: u64) -> Result<u32> {
        let count = topic.partition_count();
        if let Some(partition) = record.partition {
            if partition >= count {
                return Err(ClientError::no_such_partition("produce", topic, partition));
            }
            return Ok(partition);
        }
        if let Some(key) = record.key {
            return Ok(partition_for_key(key, count).0);
        }
        let first = || Sticky { partition: u32::try_from(random % u64::from(count)).expect("less than count"), bytes: 0 };
        let sticky = self.sticky.entry(topic.id).or_insert_with(first);
        if sticky.bytes >= self.options.batch_bytes || sticky.partition >= count {
            *sticky = Sticky { partition: (sticky.partition + 1) % count, bytes: 0 };
        }
        sticky.bytes += record.content_bytes();
        Ok(sticky.partition)
    }

    /// Accepts a record into the open batch of its partition. The bool: whether there is something new for the driver to send.
    ///
    /// # Errors
    /// The record fits no batch; it was not accepted.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        topic: &TopicInfo,
        partition: u32,
        record: &Record<'_>,
        timestamp: TimestampMs,
        reservation: Option<Reservation>,
    ) -> Result<(DeliveryFuture, bool)> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        let key = self.ensure_queue(topic, partition);
        let mut fresh = false;
        loop {
            if self.queue(key).open.is_none() {
                self.begin_batch(now, key, topic);
                fresh = true;
            }
            let open = self.queue(key).open.as_mut().expect("it was just begun");
            match open.builder.push(timestamp, record.key, record.value, &record.headers) {
                Ok(()) => break,
                Err(PushError::Full) => {
                    assert!(!fresh, "a first record goes in whatever the batch size");
                    self.close_open_batch(key);
                }
                Err(error) => {
                    if fresh {
                        let unused = self.queue(key).open.take().expect("it was just begun");
                        self.unfinished.remove(&unused.number);
                    }
                    let place = format!("{}/{partition}", topic.name);
                    let kind = match error {
                        PushError::TooLarge { .. } => ErrorKind::TooLarge,
                        _ => ErrorKind::InvalidArgument,
                    };
                    return Err(ClientError::new(kind, "produce", place, error));
                }
            }
        }
        let batch_bytes = self.options.batch_bytes;
        let linger = self.options.linger;
        let open = self.queue(key).open.as_mut().expect("it took the record");
        let delivery = DeliveryFuture::new(Arc::clone(&open.outcome), open.records);
        open.records += 1;
        match (&mut open.reservation, reservation) {
            (Some(held), Some(more)) => held.merge(more),
            (held, more) => *held = more,
        }
        let due = open.due(linger);
        if open.builder.len_bytes() >= batch_bytes {
            self.close_open_batch(key);
        } else if fresh && due > now {
            self.timers.push(Reverse((due, key)));
        }
        // The first record of a lingering batch sets a timer that the driver does not know of yet.
        let wake = self.make_runnable(now, key) || (fresh && due > now);
        Ok((delivery, wake))
    }

    /// Accepts a finished batch.
    ///
    /// # Errors
    /// It is not a batch a producer may send; it was not accepted.
    pub(crate) fn push_batch(
        &mut self,
        now: Instant,
        topic: &TopicInfo,
        partition: u32,
        batch: Bytes,
        reservation: Option<Reservation>,
    ) -> Result<(DeliveryFuture, bool)> {
        let place = || format!("{}/{partition}", topic.name);
        let invalid = |cause: String| ClientError::new(ErrorKind::InvalidArgument, "produce", place(), cause);
        if partition >= topic.partition_count() {
            return Err(ClientError::no_such_partition("produce", topic, partition));
        }
        let header = BatchHeader::decode(&batch).map_err(|error| invalid(error.to_string()))?;
        header.check_produced().map_err(|error| invalid(error.to_string()))?;
        if header.total_length() != batch.len() {
            return Err(invalid(format!("a batch of {} bytes was given as {}", header.total_length(), batch.len())));
        }
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        let key = self.ensure_queue(topic, partition);
        self.close_open_batch(key);
        let outcome = Arc::new(BatchOutcome::default());
        let delivery = DeliveryFuture::new(Arc::clone(&outcome), 0);
        // What stands in it belongs to whoever built it.
        let batch = Batch {
            number: self.next_number(),
            payload: Payload::Built(batch),
            records: header.record_count,
            outcome,
            deadline: now + self.options.delivery_timeout,
            attempts: 0,
            alone: false,
            is_prebuilt: true,
            stamp: None,
            built_stamp: None,
            is_uncertain: false,
            _reservation: reservation,
        };
        self.queue(key).waiting.insert(batch.number, batch);
        let wake = self.make_runnable(now, key);
        Ok((delivery, wake))
    }

    /// Moves the open batch, if any, to the end of those that wait.
    pub(super) fn close_open_batch(&mut self, key: PartitionKey) {
        let delivery_timeout = self.options.delivery_timeout;
        let queue = self.queue(key);
        let Some(open) = queue.open.take() else { return };
        assert!(open.records > 0, "a batch is begun for a record");
        let batch = Batch {
            number: open.number,
            payload: Payload::Building(open.builder),
            records: open.records,
            outcome: open.outcome,
            deadline: open.begun + delivery_timeout,
            attempts: 0,
            alone: false,
            is_prebuilt: false,
            stamp: None,
            built_stamp: None,
            is_uncertain: false,
            _reservation: open.reservation,
        };
        queue.waiting.insert(batch.number, batch);
    }

    fn begin_batch(&mut self, now: Instant, key: PartitionKey, topic: &TopicInfo) {
        let message_bytes_max = topic.config.message_bytes_max.min(wire::limits::MESSAGE_BYTES_MAX_CEILING);
        let options = BuilderOptions {
            compression: self.options.compression.unwrap_or(topic.config.compression),
            batch_bytes_max: u32::try_from(self.options.batch_bytes).unwrap_or(u32::MAX).clamp(1, wire::limits::BATCH_BYTES_MAX),
            message_bytes_max,
            ..BuilderOptions::default()
        };
        let number = self.next_number();
        self.queue(key).open = Some(OpenBatch {
            number,
            builder: Box::new(BatchBuilder::new(options)),
            records: 0,
            outcome: Arc::default(),
            begun: now,
            reservation: None,
        });
    }

    fn next_number(&mut self) -> u64 {
        let number = self.batch_next;
        self.batch_next += 1;
        self.unfinished.insert(number);
        number
    }

    fn ensure_queue(&mut self, topic: &TopicInfo, partition: u32) -> PartitionKey {
        let key = topic.key(partition);
        self.queues.entry(key).or_insert_with(|| Queue {
            place: format!("{}/{partition}", topic.name).into(),
            topic: Arc::clone(&topic.name),
            open: None,
            waiting: BTreeMap::new(),
            requests_in_flight: 0,
            sequences: Sequences::new(),
            is_relaxed: false,
            failures: 0,
            unknown_answers: 0,
            last_error: None,
            not_before: None,
            queued: false,
        });
        key
    }

    /// The compression of a topic's batches, for those who build batches themselves.
    pub(crate) fn compression(&self, topic: &TopicInfo) -> Compression {
        self.options.compression.unwrap_or(topic.config.compression)
    }
}
