//! The batches of a sealed segment one after the other, each checked, at the rate of compaction.

use shards::buffer::Shared;
use shards::disk::{DiskError, File, OpenOptions};
use wire::batch::{BatchError, BatchHeader, HEADER_BYTES, PayloadKind, verify_payload};

use super::pace::{Pace, Stopped};
use crate::format::BLOCK_BYTES;
use crate::partition::SealedSegment;

/// One read: after it the rate is waited for.
const READ_BYTES: usize = 256 << 10;

/// Why a walk ends before the segment does.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    /// The segment does not hold what it should: nothing of it is cleaned.
    #[error("the batch at offset {offset} is damaged: {reason}")]
    Damaged {
        /// The offset from which on.
        offset: u64,
        reason: String,
    },
    /// Its file is not there.
    #[error("the file is gone")]
    Gone,
    #[error("nobody needs it any more")]
    Stopped,
}

impl From<Stopped> for WalkError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}

/// A walk through one segment.
pub(crate) struct Walk<'a> {
    pace: &'a Pace<'a>,
    file: File,
    end: u64,
    /// Position after its batches.
    end_position: u64,
    position: u64,
    /// The offset that comes next.
    next: u64,
    bytes: Shared,
    bytes_position: u64,
}

impl<'a> Walk<'a> {
    /// Begins at the first batch. A handle of its own: the files that others read stay open.
    pub(crate) async fn begin(pace: &'a Pace<'a>, segment: &SealedSegment) -> Result<Self, WalkError> {
        let base = segment.key.base;
        let file = File::open(&segment.path(), OpenOptions::reading()).await.map_err(|error| unreadable(base, &error))?;
        let position = BLOCK_BYTES as u64;
        Ok(Self {
            pace,
            file,
            end: segment.end,
            end_position: segment.bytes,
            position,
            next: base,
            bytes: Shared::empty(),
            bytes_position: position,
        })
    }

    /// The next batch; `None` at the end of the segment.
    pub(crate) async fn next(&mut self) -> Result<Option<(BatchHeader, Shared)>, WalkError> {
        let mut wanted = HEADER_BYTES;
        loop {
            if self.next == self.end {
                return Ok(None);
            }
            if self.position >= self.end_position {
                return Err(self.damaged(&"the segment ends before this offset"));
            }
            if self.rest().len() < wanted {
                self.read(wanted).await?;
            }
            let header = BatchHeader::decode(&self.rest()).map_err(|error| self.damaged(&error))?;
            let total = header.total_length();
            if self.rest().len() < total {
                wanted = total;
                continue;
            }
            let batch = self.rest().slice(..total);
            self.check(&header, &batch).map_err(|error| self.damaged(&error))?;
            if header.payload_kind == PayloadKind::Padding {
                self.position += total as u64;
                wanted = HEADER_BYTES;
                continue;
            }
            if header.base_offset.0 != self.next || header.next_offset().0 > self.end {
                let found = header.base_offset;
                return Err(self.damaged(&format!("offset {found} stands here")));
            }
            self.position += total as u64;
            self.next = header.next_offset().0;
            return Ok(Some((header, batch)));
        }
    }

    /// Lets go of the file.
    pub(crate) async fn finish(self) -> Result<(), WalkError> {
        let end = self.end;
        self.file.close().await.map_err(|error| unreadable(end, &error))
    }

    fn check(&self, header: &BatchHeader, batch: &[u8]) -> Result<(), BatchError> {
        if self.position + header.total_length() as u64 > self.end_position {
            let found_bytes = (self.end_position - self.position) as usize;
            return Err(BatchError::Truncated { needed_bytes: header.total_length(), found_bytes });
        }
        verify_payload(header, batch)
    }

    /// What was read and not walked.
    fn rest(&self) -> Shared {
        let at = (self.position - self.bytes_position) as usize;
        if at < self.bytes.len() { self.bytes.slice(at..) } else { Shared::empty() }
    }

    /// Reads on, so that at least `wanted` bytes stand there from the position on, unless the segment ends.
    async fn read(&mut self, wanted: usize) -> Result<(), WalkError> {
        let start = self.position - self.position % BLOCK_BYTES as u64;
        let before = (self.position - start) as usize;
        let length = (before + wanted).max(READ_BYTES).next_multiple_of(BLOCK_BYTES);
        let left = usize::try_from(self.end_position - start).unwrap_or(usize::MAX);
        self.bytes = Shared::empty();
        let read = self.file.read_at(start, length.min(left)).await;
        self.bytes = read.map_err(|error| unreadable(self.next, &error))?;
        self.bytes_position = start;
        self.pace.keep(self.bytes.len() as u64).await?;
        if self.rest().len() < wanted.min(left - before) {
            return Err(self.damaged(&"the file ends before the segment does"));
        }
        Ok(())
    }

    fn damaged(&self, reason: &dyn std::fmt::Display) -> WalkError {
        WalkError::Damaged { offset: self.next, reason: reason.to_string() }
    }
}

fn unreadable(offset: u64, error: &DiskError) -> WalkError {
    if error.is_not_found() { WalkError::Gone } else { WalkError::Damaged { offset, reason: error.to_string() } }
}
