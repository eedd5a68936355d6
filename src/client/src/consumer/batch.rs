//! A batch handed to the caller.

use std::sync::Arc;

use wire::{BatchHeader, Offset, PartitionKey, RecordView, SharedBatch};

use crate::core::fetching::RawBatch;
use crate::error::{ClientError, ErrorKind, Result};
use crate::transport::Frame;

/// A stored batch, checked, in the buffer of the frame that brought it. Records borrow from it; nothing is copied.
///
/// It keeps the whole frame's buffer alive: copy what is kept for long.
#[derive(Clone)]
pub struct FetchedBatch {
    topic: Arc<str>,
    key: PartitionKey,
    batch: SharedBatch,
    from: Offset,
    high_watermark: Offset,
}

impl FetchedBatch {
    pub(crate) fn check(raw: RawBatch) -> Result<Self> {
        let partition = raw.key.partition.0;
        let batch = raw.frame.batch(raw.begin).map_err(|error| {
            let place = format!("{}/{partition} at offset {}", raw.topic, raw.header.base_offset.0);
            ClientError::new(ErrorKind::Corrupt, "fetch", place, error)
        })?;
        Ok(Self { topic: raw.topic, key: raw.key, batch, from: raw.from, high_watermark: raw.high_watermark })
    }

    /// The batch at `begin` of a reply's frame, from `from` on.
    pub(crate) fn read(
        frame: &Frame,
        begin: usize,
        topic: Arc<str>,
        key: PartitionKey,
        from: Offset,
        high_watermark: Offset,
    ) -> Result<Self> {
        let partition = key.partition.0;
        let batch = frame.batch(begin).map_err(|error| {
            ClientError::new(ErrorKind::Corrupt, "fetch", format!("{topic}/{partition} at offset {}", from.0), error)
        })?;
        Ok(Self { topic, key, batch, from, high_watermark })
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.key.partition.0
    }

    pub(crate) fn key(&self) -> PartitionKey {
        self.key
    }

    /// The records at or after the position asked for, in order.
    pub fn records(&self) -> impl Iterator<Item = RecordView<'_>> {
        let from = self.from;
        self.batch.records().skip_while(move |record| record.offset < from)
    }

    /// The records at or after the position asked for, each with its place in the batch.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, RecordView<'_>)> {
        let from = self.from;
        self.batch.records().enumerate().skip_while(move |(_, record)| record.offset < from)
    }

    /// The record at a place that [`FetchedBatch::numbered`] gave.
    pub(crate) fn record(&self, place: usize) -> RecordView<'_> {
        self.batch.records().nth(place).expect("the place was taken from this batch")
    }

    /// The batch as stored: times, counts, compression.
    pub fn header(&self) -> &BatchHeader {
        self.batch.header()
    }

    /// The offset after the last record of the batch: where to go on.
    pub fn next_offset(&self) -> Offset {
        self.batch.header().next_offset()
    }

    /// The end of what could be read when the batch was fetched: how far behind the caller is.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }
}
