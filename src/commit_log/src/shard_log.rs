//! One shard's log: all its partitions on one disk.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashSet;
use shards::disk::{self, DiskError};
use shards::executor;
use shards::sync::Semaphore;
use wire::{Offset, PartitionKey};

use crate::checkpoint::Reach;
use crate::failure::{Failure, LogFailed};
use crate::file_cache::FileCache;
use crate::format::file_header;
use crate::format::record::{Entry, Record};
use crate::partition::{Inner, Partition};
use crate::partition_log::PartitionLog;
use crate::partition_state::PartitionState;
use crate::read_cache::ReadCache;
use crate::segment_index::IndexCache;
use crate::shard::{Committed, Shard};
use crate::start::{self, Start, StartError};
use crate::stats::{Counters, LogHistograms, LogStats};
use crate::tail_cache::TailCache;
use crate::wal::Wal;
use crate::{
    LogOptions, PartitionOptions, ShardDirectory, background, checkpoint, commit, flush, inventory, remove, scrub, segment_fill,
    segments, space, wal_files,
};

/// A handle on one shard's log. Cheap to clone; stays on its shard's thread.
#[derive(Debug, Clone)]
pub struct ShardLog {
    shard: Rc<Shard>,
}

/// Why a shard's log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The files of the shard's folder say something that this program cannot go on from.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The first checkpoint could not be written.
    #[error(transparent)]
    Failed(#[from] LogFailed),
}

/// Why a partition cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// There is one of this name.
    #[error("the partition exists")]
    Exists,
    /// A deleted partition of this name is still being removed. Retry.
    #[error("a deleted partition of this name is still being removed")]
    BeingRemoved,
    /// The log is being closed.
    #[error("the log is closing")]
    Closing,
    /// The shard's storage failed.
    #[error(transparent)]
    Failed(#[from] LogFailed),
}

impl ShardLog {
    /// Second phase of a start: goes on where recovery of all directories ended, with the partitions that this shard owns now. Returns when a
    /// checkpoint that names them is on stable storage and a write-ahead file is ready.
    ///
    /// That checkpoint still names the partitions which the directory had and the shard does not own any more, since the directory that has them
    /// now may not be open yet: see [`ShardLog::forget_moved`].
    pub async fn open(options: LogOptions, directory: ShardDirectory, states: Vec<PartitionState>) -> Result<Self, OpenError> {
        options.check();
        let mut start = start::prepare(&directory, &options).await?;
        let (states, expired) = inventory::take(directory.disk(), states).await?;
        let owned: HashSet<PartitionKey> = states.iter().map(|state| state.key).collect();
        let moved = start.partitions.iter().filter(|state| !owned.contains(&state.key)).cloned().collect();
        let unfit = std::mem::take(&mut start.unfit);
        let shard = Rc::new(new_shard(options, directory, start));
        shard.moved.replace(moved);
        // Before, they may have been on more shards.
        let fair_share = (shard.options.producers_max / states.len().max(1)).max(1);
        let remembered: usize = states.iter().map(|state| state.producers.len()).sum();
        let is_too_many = remembered > shard.options.producers_max;
        let producers_max = shard.options.producers_per_partition_max.min(if is_too_many { fair_share } else { usize::MAX });
        for state in states {
            assert!(state.boot < shard.options.boot, "the boot number is above all recovered ones");
            let mut inner = Inner::recovered(&shard, &state);
            inner.producers.keep_latest(producers_max);
            shard.producers_changed(0, inner.producers.len());
            let other = shard.partitions.borrow_mut().insert(state.key, Partition::new(state.key, inner));
            assert!(other.is_none(), "a partition has one state: {:?}", state.key);
        }
        wal_files::prepare(&shard).await?;
        for sequence in unfit {
            disk::remove_file(&shard.directory.path().join(file_header::file_name(sequence))).await?;
        }
        checkpoint::run(&shard, Reach::Due).await?;
        space::look(&shard).await;
        executor::spawn(commit::run(shard.clone())).detach();
        executor::spawn(wal_files::run(shard.clone())).detach();
        executor::spawn_background(background::run(shard.clone())).detach();
        executor::spawn_background(background::run_seals(shard.clone())).detach();
        executor::spawn_background(background::run_checkpoints(shard.clone())).detach();
        executor::spawn_background(remove::run_after(shard.clone(), expired)).detach();
        executor::spawn_background(space::watch(shard.clone())).detach();
        executor::spawn_background(scrub::run(shard.clone())).detach();
        Ok(Self { shard })
    }

    /// Third phase of a start, when the logs of all shards are open: no other directory needs to be told any more what this one had. Until then a
    /// crash finds each partition in at least one of them.
    pub async fn forget_moved(&self) -> Result<(), LogFailed> {
        if std::mem::take(&mut *self.shard.moved.borrow_mut()).is_empty() {
            return Ok(());
        }
        self.checkpoint().await
    }

    /// Begins a partition, empty. It can be appended to at once; it exists after a crash as soon as an append to it is durable, or when
    /// [`ShardLog::barrier`] resolves.
    pub fn create_partition(&self, key: PartitionKey, options: PartitionOptions) -> Result<PartitionLog, CreateError> {
        self.shard.failure.check()?;
        if self.shard.closing.get() {
            return Err(CreateError::Closing);
        }
        if self.shard.removing.borrow().contains(&key) {
            return Err(CreateError::BeingRemoved);
        }
        let start = Offset(0);
        let state = PartitionState::new(key, self.shard.options.boot, options, start);
        let inner = Inner::recovered(&self.shard, &state);
        let partition = Partition::new(key, inner);
        {
            let mut partitions = self.shard.partitions.borrow_mut();
            if partitions.contains_key(&key) {
                return Err(CreateError::Exists);
            }
            partitions.insert(key, partition.clone());
        }
        self.shard.note(Record { key, entry: Entry::Created { options, start } });
        Ok(PartitionLog { shard: self.shard.clone(), partition })
    }

    /// Ends a partition, durably when this returns; its files are removed in the background. One that does not exist is no error.
    pub async fn delete_partition(&self, key: PartitionKey) -> Result<(), LogFailed> {
        remove::delete(&self.shard, key).await
    }

    /// Resolves when everything recorded up to now (creations, options, batches of stable partitions) is on stable storage.
    pub async fn barrier(&self) -> Result<(), LogFailed> {
        self.shard.barrier().await
    }

    /// A partition of this shard.
    pub fn partition(&self, key: PartitionKey) -> Option<PartitionLog> {
        let partition = self.shard.partitions.borrow().get(&key).cloned()?;
        Some(PartitionLog { shard: self.shard.clone(), partition })
    }

    /// All partitions of this shard, in the order of their keys.
    pub fn partitions(&self) -> Vec<PartitionLog> {
        let partitions = checkpoint::all(&self.shard);
        partitions.into_iter().map(|partition| PartitionLog { shard: self.shard.clone(), partition }).collect()
    }

    /// Calls `callback` after each commit with the partitions whose durable end moved. It runs within the commit loop: short, and no await.
    pub fn on_commit(&self, callback: impl Fn(&[Committed]) + 'static) {
        self.shard.callbacks.borrow_mut().push(Rc::new(callback));
    }

    /// The partitions that have closed a segment since the last call: retention may find something there before the time that it was told.
    pub fn take_rolled(&self) -> Vec<PartitionKey> {
        let rolled = std::mem::take(&mut *self.shard.rolled.borrow_mut());
        let partitions = self.shard.partitions.borrow();
        for partition in rolled.iter().filter_map(|key| partitions.get(key)) {
            partition.inner.borrow_mut().rolled = false;
        }
        rolled
    }

    /// Completes when, after this call, a partition has closed a segment.
    pub fn rolled(&self) -> impl Future<Output = ()> + use<> {
        self.shard.rolls.notified()
    }

    /// The failure of this shard's storage, if it failed.
    pub fn failure(&self) -> Option<LogFailed> {
        self.shard.failure.get()
    }

    /// Resolves when this shard's storage fails. From then on nothing is acknowledged; the process should end.
    pub async fn failed(&self) -> LogFailed {
        self.shard.failure.wait().await
    }

    /// Bytes of the block in which a batch of `length_bytes` should land, at its start, so that it is written from there; `None` for a batch so
    /// small that it is copied anyway.
    pub fn landing_bytes(&self, length_bytes: usize) -> Option<usize> {
        (length_bytes >= self.shard.options.in_place_bytes_min).then(|| segment_fill::padded_bytes(length_bytes))
    }

    /// Completes when something has become durable, or has moved from memory into segments, after this call: an append that was refused with
    /// [`crate::AppendError::Full`] may find room then.
    pub fn progressed(&self) -> impl Future<Output = ()> + use<> {
        self.shard.progress.notified()
    }

    /// Counters and levels.
    pub fn stats(&self) -> LogStats {
        let shard = &self.shard;
        LogStats {
            queue_bytes: shard.queue_bytes.get(),
            tail_cache_bytes: shard.tail.bytes(),
            read_cache_bytes: shard.reads.bytes(),
            wal_live_bytes: shard.wal.borrow().live_bytes(),
            disk_free_bytes: shard.free_bytes.get(),
            disk_full: shard.disk_full.get(),
            producers: shard.producers.get() as u64,
            open_files: shard.files.len() as u64,
            reclaiming_bytes: shard.reclaiming_bytes.get(),
            partitions: shard.partitions.borrow().len() as u64,
            ..shard.counters.get()
        }
    }

    /// Sizes and times of the writes since the log was opened.
    pub fn histograms(&self) -> LogHistograms {
        self.shard.counters.histograms()
    }

    /// Whether files that compaction has replaced, or the log start has passed, wait for checkpoints to be removed.
    pub fn has_superseded(&self) -> bool {
        !self.shard.superseded.borrow().is_empty()
    }

    /// Writes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<(), LogFailed> {
        checkpoint::run(&self.shard, Reach::Due).await
    }

    /// Ends the log in order: everything appended becomes durable, everything moves into segments, and a checkpoint leaves nothing to replay.
    /// Appends are refused from the call on; reads go on.
    ///
    /// Whether it succeeds or not, no file of the log is held open afterwards, except by reads.
    pub async fn close(&self) -> Result<(), LogFailed> {
        let closed = self.close_in_order().await;
        // The handle may live on in tasks that end with the executor, and what is dropped there is never closed.
        self.shard.files.close_all();
        self.shard.wal.borrow_mut().close_files();
        closed
    }

    async fn close_in_order(&self) -> Result<(), LogFailed> {
        let shard = &self.shard;
        shard.closing.set(true);
        loop {
            shard.failure.check()?;
            let progress = shard.progress.notified();
            // First: those among them that have nothing pending any more just go, and nobody tells of that.
            commit::release_relaxed(shard);
            if commit::is_idle(shard) {
                break;
            }
            progress.await;
        }
        checkpoint::flush_due(shard, Reach::Everything).await?;
        for partition in checkpoint::all(shard) {
            let _lock = shard.lock_segments(&partition).await;
            let mut inner = partition.inner.borrow_mut();
            if segments::is_large(&inner) {
                segments::seal(shard, &partition, &mut inner);
            }
        }
        while background::seal_one(shard).await? {}
        checkpoint::run(shard, Reach::Everything).await?;
        while background::seal_one(shard).await? {}
        disk::syncfs(shard.directory.disk()).await.map_err(|error| shard.fail(&error))?;
        shard.closed.set(true);
        shard.background.notify_waiters();
        shard.checkpoint_work.notify_waiters();
        shard.work.notify_waiters();
        shard.trim_work.notify_waiters();
        shard.seal_work.notify_waiters();
        Ok(())
    }
}

fn new_shard(options: LogOptions, directory: ShardDirectory, start: Start) -> Shard {
    Shard {
        disk: Arc::from(directory.disk()),
        storage_id: start.wal.storage_id,
        partitions: RefCell::default(),
        moved: RefCell::default(),
        queue: RefCell::default(),
        work: Default::default(),
        progress: Default::default(),
        background: Default::default(),
        checkpoint_work: Default::default(),
        flushes_wanted: RefCell::default(),
        flush_blocks: Semaphore::new(flush::FLUSH_BLOCKS_IN_FLIGHT_MAX),
        checkpoint_turn: Semaphore::new(1),
        wal: RefCell::new(Wal::new(start.wal, start.spare)),
        failure: Failure::default(),
        tail: TailCache::default(),
        files: FileCache::new(options.open_files_max),
        reads: ReadCache::new(options.read_cache_bytes_max, options.read_depth),
        indexes: IndexCache::default(),
        superseded: RefCell::default(),
        compaction_turn: Semaphore::new(1),
        sealing: RefCell::default(),
        seal_work: Default::default(),
        seal_turn: Semaphore::new(1),
        counters: Counters::default(),
        queue_bytes: Cell::new(0),
        producers: Cell::new(0),
        free_bytes: Cell::new(u64::MAX),
        disk_full: Cell::new(false),
        closing: Cell::new(false),
        closed: Cell::new(false),
        removals: Cell::new(0),
        removing: RefCell::default(),
        trims: RefCell::default(),
        trim_work: Default::default(),
        reclaiming_bytes: Cell::new(0),
        rolled: RefCell::default(),
        rolls: Default::default(),
        checkpoint_wanted: Cell::new(false),
        checkpoint_number: Cell::new(start.checkpoint_number),
        relaxed_timer: Cell::new(false),
        trailer_timer: Cell::new(false),
        is_quiet: Cell::new(false),
        callbacks: RefCell::default(),
        directory,
        options,
    }
}
