//! The segment that a pass makes: written beside those that it will stand for, synced, and unknown to everybody until the log says so.
//!
//! A crash before that leaves a file that no state names: it is removed at the next start.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use shards::buffer::{self, BufferMut};
use shards::disk::{self, DiskError, File};
use wire::batch::{BatchHeader, write_padding};
use wire::{LeaderEpoch, Offset};

use super::pace::{Pace, Stopped};
use crate::file_cache::SegmentKey;
use crate::format::BLOCK_BYTES;
use crate::format::segment::{SegmentHeader, SegmentIndex};
use crate::segment_file;
use crate::segment_files;
use crate::segment_fill::{CHUNK_BYTES_MAX, padded_bytes};
use crate::shard::Shard;

/// Why a segment was not made.
#[derive(Debug)]
pub(crate) enum OutputError {
    /// There is no room on the disk. What was written is removed, and nothing else is touched.
    Full(DiskError),
    /// A write failed: the disk is not to be trusted.
    Disk(DiskError),
    Stopped,
}

impl From<Stopped> for OutputError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<DiskError> for OutputError {
    fn from(error: DiskError) -> Self {
        if error.is_full() { Self::Full(error) } else { Self::Disk(error) }
    }
}

/// A segment being made.
pub(crate) struct Output<'a> {
    shard: &'a Shard,
    pace: &'a Pace<'a>,
    key: SegmentKey,
    path: PathBuf,
    file: File,
    index: SegmentIndex,
    /// Where `chunk` goes.
    position: u64,
    /// What is not written yet: one write.
    chunk: Option<(BufferMut, usize)>,
    /// After the last batch.
    next: Offset,
    epoch: LeaderEpoch,
}

/// A segment that is on stable storage.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) key: SegmentKey,
    pub(crate) disk: Arc<Path>,
    pub(crate) end: Offset,
    pub(crate) end_position: u64,
    pub(crate) index: Rc<SegmentIndex>,
}

impl<'a> Output<'a> {
    pub(crate) async fn create(shard: &'a Shard, pace: &'a Pace<'a>, key: SegmentKey) -> Result<Self, OutputError> {
        let path = key.path(&shard.disk);
        // One of its name is of a pass that was given up, or that a crash ended.
        let file = segment_files::create(&path).await?;
        let mut header = buffer::allocate(BLOCK_BYTES);
        let incarnation = shard.wal.borrow().next_block();
        let (partition, base_offset) = (key.partition, Offset(key.base));
        SegmentHeader { partition, base_offset, storage_id: shard.storage_id, incarnation }.encode(&mut header);
        file.write_at(0, header.freeze()).await?;
        Ok(Self {
            shard,
            pace,
            key,
            path,
            file,
            index: SegmentIndex::new(base_offset),
            position: BLOCK_BYTES as u64,
            chunk: None,
            next: base_offset,
            epoch: LeaderEpoch(0),
        })
    }

    /// Adds a batch behind the others.
    pub(crate) async fn push(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        let header = BatchHeader::decode(bytes).expect("it was checked, or made, just before");
        assert_eq!(header.base_offset, self.next, "a segment holds its offsets without a hole");
        let full = self.chunk.as_ref().is_some_and(|(_, filled)| padded_bytes(filled + bytes.len()) > CHUNK_BYTES_MAX);
        if full {
            self.write_chunk().await?;
        }
        let room = padded_bytes(bytes.len()).max(CHUNK_BYTES_MAX);
        let (chunk, filled) = self.chunk.get_or_insert_with(|| (buffer::allocate(room), 0));
        chunk[*filled..*filled + bytes.len()].copy_from_slice(bytes);
        self.index.add(header.base_offset, self.position + *filled as u64, header.max_timestamp_ms.0);
        *filled += bytes.len();
        self.next = header.next_offset();
        self.epoch = header.leader_epoch;
        Ok(())
    }

    async fn write_chunk(&mut self) -> Result<(), OutputError> {
        let Some((mut chunk, filled)) = self.chunk.take() else { return Ok(()) };
        let padded = padded_bytes(filled);
        if filled < padded {
            write_padding(&mut chunk[filled..padded], self.next, self.epoch);
        }
        chunk.truncate(padded);
        self.file.write_at(self.position, chunk.freeze()).await?;
        self.position += padded as u64;
        self.shard.counters.add(|stats| stats.compaction_written_bytes += padded as u64);
        self.pace.keep(padded as u64).await?;
        Ok(())
    }

    /// Writes the rest and the index, and puts all of it on stable storage under its name.
    pub(crate) async fn finish(&mut self) -> Result<Made, OutputError> {
        self.write_chunk().await?;
        let bytes = self.index.encode(self.key.partition, self.position, self.next);
        let mut block = buffer::allocate(bytes.len());
        block.copy_from_slice(&bytes);
        self.file.write_at(self.position, block.freeze()).await?;
        self.file.fdatasync().await?;
        self.file.clone().close().await?;
        segment_file::sync_name(&self.shard.disk, self.key).await?;
        let index = std::mem::replace(&mut self.index, SegmentIndex::new(Offset(self.key.base)));
        let disk = self.shard.disk.clone();
        Ok(Made { key: self.key, disk, end: self.next, end_position: self.position, index: Rc::new(index) })
    }

    /// Gives the file up. Where it cannot be removed the next start does that.
    pub(crate) async fn abandon(self) {
        remove(&self.path).await;
    }
}

impl Made {
    /// Gives the file up, before anybody knows of it.
    pub(crate) async fn abandon(self) {
        remove(&self.key.path(&self.disk)).await;
    }
}

async fn remove(path: &Path) {
    if let Err(error) = disk::remove_file(path).await
        && !error.is_not_found()
    {
        tracing::warn!(%error, "the file of a compaction that was given up stays until the next start");
    }
}
