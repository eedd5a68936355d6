//! What is sent, and what is known about it afterwards.

use wire::{AckLevel, Offset, TimestampMs};

/// One record to send. It borrows: the bytes are copied once, into the batch.
///
/// ```
/// use corelane_client::Record;
/// let record = Record::to("orders").key(b"customer-7").value(b"{\"total\": 12}").header("trace", b"ab12");
/// assert_eq!(record.topic, "orders");
/// ```
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition; `None` lets the key choose, or without a key the producer.
    pub partition: Option<u32>,
    /// Records of one key go to one partition, as long as the number of partitions stays.
    pub key: Option<&'a [u8]>,
    /// The content; `None` is distinct from empty.
    pub value: Option<&'a [u8]>,
    /// Names with values, in order; a name may repeat.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
    /// Create time; `None` takes the clock when the record is accepted.
    pub timestamp: Option<TimestampMs>,
}

impl<'a> Record<'a> {
    /// An empty record for `topic`.
    pub fn to(topic: &'a str) -> Self {
        Self { topic, partition: None, key: None, value: None, headers: Vec::new(), timestamp: None }
    }

    /// With this key.
    #[must_use]
    pub fn key(mut self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// With this value.
    #[must_use]
    pub fn value(mut self, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.value = Some(value.as_ref());
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.headers.push((name, Some(value.as_ref())));
        self
    }

    /// For this partition, whatever the key.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// With this create time.
    #[must_use]
    pub fn timestamp(mut self, timestamp: TimestampMs) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// Bytes of key, value and headers: what the message limit of a topic counts.
    pub fn content_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }
}

/// A record that the broker acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The partition that holds it.
    pub partition: u32,
    /// Its offset there. Of a prebuilt batch: the offset of its first record.
    pub offset: Offset,
    /// The broker's clock when it appended, where the topic stamps append time.
    pub append_time: Option<TimestampMs>,
    /// What the acknowledgement promises: `Stable` means on stable storage.
    pub level: AckLevel,
    /// Replicas that had it on stable storage when it was acknowledged.
    pub replicas_durable: u8,
}
