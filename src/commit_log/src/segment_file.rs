//! One segment that is being written.
//!
//! ```text
//!  0        4096                    position            allocated_end
//!  │ header  │ batches … pad │ batches … pad │ (reserved next) │
//! ```
//!
//! Positions are handed out in plain functions ([`SegmentFile::reserve`]) in offset order; the writes behind them run at the same time. A block
//! is never rewritten: each reservation starts on a block of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use shards::buffer::Shared;
use shards::disk::{self, DiskError, File};
use shards::sync::{Notify, Semaphore};

use wire::Offset;

use crate::LogOptions;
use crate::directory::segment_folder_path;
use crate::failure::{Failure, LogFailed};
use crate::file_cache::{FileCache, SegmentKey};
use crate::format::BLOCK_BYTES;
use crate::format::segment::{SegmentHeader, SegmentIndex};
use crate::segment_files;

/// Files that are written directly get their space in steps, ahead of need: as much again as they hold, within these bounds. Thousands of
/// partitions with one large batch each must not take a largest step each.
const ALLOCATION_STEP_BYTES_MIN: u64 = 1 << 20;
/// See [`ALLOCATION_STEP_BYTES_MIN`].
const ALLOCATION_STEP_BYTES_MAX: u64 = 32 << 20;

/// Which space a file gets before it is written into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocate {
    /// None.
    Nothing,
    /// What the write needs: space is scarce.
    Needed,
    /// A step.
    Ahead,
}

/// A part of the file given to one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    number: u64,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) key: SegmentKey,
    disk: Arc<Path>,
    storage_id: u64,
    /// See [`SegmentHeader::incarnation`]; 0 for a file that was there when the log was opened.
    pub(crate) incarnation: u64,
    position: Cell<u64>,
    allocated_end: Cell<u64>,
    exists: Cell<bool>,
    /// The file's name is on stable storage.
    name_synced: Cell<bool>,
    /// Held while the file is made or gets space.
    making: Semaphore,
    reservations: RefCell<Reservations>,
    completed: Notify,
    /// Sparse index of what was reserved under this handle.
    pub(crate) index: RefCell<SegmentIndex>,
    /// First offset that `index` covers: the segment's first, or where it was continued after a restart.
    pub(crate) index_start: u64,
    /// Position of that offset.
    pub(crate) index_start_position: u64,
}

#[derive(Debug, Default)]
struct Reservations {
    next: u64,
    open: VecDeque<u64>,
}

impl SegmentFile {
    /// A segment that has no file yet. No other file of this name ever had the `incarnation`.
    pub(crate) fn new(disk: Arc<Path>, key: SegmentKey, storage_id: u64, incarnation: u64) -> Self {
        assert!(incarnation > 0, "a file made from now on is told from those before");
        Self { incarnation, ..Self::with(disk, key, storage_id, BLOCK_BYTES as u64, key.base, false) }
    }

    /// A segment found on disk, to be continued at `position` with `offset`.
    pub(crate) fn existing(disk: Arc<Path>, key: SegmentKey, storage_id: u64, position: u64, offset: u64) -> Self {
        Self::with(disk, key, storage_id, position, offset, true)
    }

    fn with(disk: Arc<Path>, key: SegmentKey, storage_id: u64, position: u64, offset: u64, exists: bool) -> Self {
        assert!(position.is_multiple_of(BLOCK_BYTES as u64), "appends start on a block");
        assert!(position >= BLOCK_BYTES as u64, "the header block is not overwritten");
        Self {
            key,
            disk,
            storage_id,
            incarnation: 0,
            position: Cell::new(position),
            allocated_end: Cell::new(position),
            exists: Cell::new(exists),
            name_synced: Cell::new(exists),
            making: Semaphore::new(1),
            reservations: RefCell::default(),
            completed: Notify::new(),
            index: RefCell::new(SegmentIndex::new(Offset(key.base))),
            index_start: offset,
            index_start_position: position,
        }
    }

    /// The data directory that holds it.
    pub(crate) fn disk(&self) -> &Arc<Path> {
        &self.disk
    }

    /// Where the next reservation starts.
    pub(crate) fn position(&self) -> u64 {
        self.position.get()
    }

    /// Takes the next `bytes` (whole blocks) of the file.
    pub(crate) fn reserve(&self, bytes: u64) -> Reservation {
        assert!(bytes > 0, "an empty reservation");
        assert!(bytes.is_multiple_of(BLOCK_BYTES as u64), "a reservation is whole blocks");
        let mut reservations = self.reservations.borrow_mut();
        let number = reservations.next;
        reservations.next += 1;
        reservations.open.push_back(number);
        let position = self.position.get();
        self.position.set(position + bytes);
        Reservation { number, position, bytes }
    }

    /// Writes a reservation. Completed when the disk has taken all of it; durable only after a sync.
    pub(crate) async fn write(
        &self,
        files: &FileCache,
        options: &LogOptions,
        reservation: Reservation,
        buffers: Vec<Shared>,
        allocate: Allocate,
    ) -> Result<(), DiskError> {
        let (file, header) = self.ready(files, reservation.position + reservation.bytes, allocate).await?;
        let depth = options.segment_write_depth as usize;
        let mut writes = FuturesUnordered::new();
        writes.extend(header.map(|header| file.write_at(0, header)));
        let mut position = reservation.position;
        for buffer in buffers {
            if writes.len() >= depth {
                writes.try_next().await?;
            }
            let length = buffer.len() as u64;
            writes.push(file.write_at(position, buffer));
            position += length;
        }
        assert_eq!(position, reservation.position + reservation.bytes, "the buffers fill their reservation");
        while writes.try_next().await?.is_some() {}
        self.reservations.borrow_mut().open.retain(|number| *number != reservation.number);
        self.completed.notify_waiters();
        Ok(())
    }

    /// Waits until everything before `reservation` is written: a block that is not would be a hole in front of acknowledged batches. A write that
    /// failed has failed the shard, and never completes.
    pub(crate) async fn written_before(&self, failure: &Failure, reservation: Reservation) -> Result<(), LogFailed> {
        while self.reservations.borrow().open.front().is_some_and(|number| *number < reservation.number) {
            if let Either::Right((failed, _)) = select(self.completed.notified(), pin!(failure.wait())).await {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Puts on stable storage everything that is written, and the file's name.
    pub(crate) async fn sync(&self, files: &FileCache) -> Result<(), DiskError> {
        let file = self.open(files).await?;
        file.fdatasync().await?;
        if !self.name_synced.get() {
            sync_name(&self.disk, self.key).await?;
            self.name_synced.set(true);
        }
        Ok(())
    }

    /// Gives space ahead of need, when the file is near the end of what it has.
    pub(crate) async fn allocate_ahead(&self, files: &FileCache) -> Result<(), DiskError> {
        if self.position.get() + self.step_bytes() / 2 <= self.allocated_end.get() {
            return Ok(());
        }
        let file = self.open(files).await?;
        let _making = self.making.acquire(1).await;
        let step_bytes = self.step_bytes();
        self.allocate(&file, (self.position.get() + step_bytes / 2).next_multiple_of(step_bytes)).await
    }

    /// The open file.
    pub(crate) async fn open(&self, files: &FileCache) -> Result<Rc<File>, DiskError> {
        files.get(self.key, &self.disk).await
    }

    /// The file, with space up to `end` where that is asked for; and the header of a new one, to be written with the first batches.
    async fn ready(&self, files: &FileCache, end: u64, allocate: Allocate) -> Result<(Rc<File>, Option<Shared>), DiskError> {
        if self.exists.get() && (allocate == Allocate::Nothing || end <= self.allocated_end.get()) {
            return Ok((self.open(files).await?, None));
        }
        let _making = self.making.acquire(1).await;
        let (file, header) = if self.exists.get() {
            (self.open(files).await?, None)
        } else {
            let (file, header) = self.create(files).await?;
            (file, Some(header))
        };
        match allocate {
            Allocate::Nothing => {}
            Allocate::Needed => self.allocate(&file, end).await?,
            Allocate::Ahead => {
                if end > self.allocated_end.get() {
                    self.allocate(&file, end.next_multiple_of(self.step_bytes())).await?;
                }
            }
        }
        Ok((file, header))
    }

    async fn create(&self, files: &FileCache) -> Result<(Rc<File>, Shared), DiskError> {
        let file = Rc::new(segment_files::create(&self.key.path(&self.disk)).await?);
        let header = SegmentHeader {
            partition: self.key.partition,
            base_offset: Offset(self.key.base),
            storage_id: self.storage_id,
            incarnation: self.incarnation,
        };
        let mut block = shards::buffer::allocate(BLOCK_BYTES);
        header.encode(&mut block);
        files.insert(self.key, file.clone());
        self.exists.set(true);
        Ok((file, block.freeze()))
    }

    fn step_bytes(&self) -> u64 {
        self.position.get().next_power_of_two().clamp(ALLOCATION_STEP_BYTES_MIN, ALLOCATION_STEP_BYTES_MAX)
    }

    async fn allocate(&self, file: &File, end: u64) -> Result<(), DiskError> {
        let start = self.allocated_end.get();
        if end > start {
            file.fallocate(start, end - start).await?;
            self.allocated_end.set(end);
        }
        Ok(())
    }
}

/// Puts the name of a segment's file on stable storage; those of the folders that lead to it are since the log was opened.
pub(crate) async fn sync_name(disk: &Path, key: SegmentKey) -> Result<(), DiskError> {
    disk::sync_dir(&segment_folder_path(disk, key.partition)).await
}
