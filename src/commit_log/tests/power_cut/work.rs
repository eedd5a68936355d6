//! What the log is used for: several producers on several partitions, small and large batches, truncations, log start moves, deletions,
//! checkpoints, all at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use commit_log::{AppendError, CompactError, CompactionTerms, Durability, LogFailed, PartitionLog, PartitionOptions};
use shards::buffer::{self, Shared};
use shards::{clock, executor, random};
use wire::batch::{BatchBuilder, BuilderOptions};
use wire::{BatchHeader, Compression, LeaderEpoch, Offset, PartitionIndex, PartitionKey, TimestampMs, TopicId};

use crate::logs::Logs;
use crate::oracle::{Batch, Existence, Expected, Oracle};

const PRODUCERS: u64 = 4;
const PARTITIONS_MAX: usize = 8;

/// One life's work on a log.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) logs: Logs,
    pub(crate) oracle: Rc<RefCell<Oracle>>,
    /// Names of new partitions.
    pub(crate) next_partition: Rc<Cell<u32>>,
    /// The disk loses or misplaces writes: a read may find damage.
    pub(crate) lying_disk: bool,
    /// What each producer is at, for the report of one that never ends.
    pub(crate) doing: Rc<RefCell<Vec<String>>>,
    /// What is going on, for the record of a crash.
    pub(crate) in_checkpoint: Rc<Cell<bool>>,
    /// The same.
    pub(crate) in_compaction: Rc<Cell<u32>>,
}

impl Work {
    /// Works until each producer has taken `steps` steps. An error is the failure of the log.
    pub(crate) async fn run(&self, steps: u64) -> Result<(), LogFailed> {
        self.watch_commits();
        for _ in 0..3 {
            self.create().await?;
        }
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let work = self.clone();
                self.doing.borrow_mut().push(String::new());
                executor::spawn(async move { work.produce(usize::try_from(producer).unwrap(), steps).await })
            })
            .collect();
        for producer in producers {
            producer.await?;
        }
        Ok(())
    }

    fn watch_commits(&self) {
        for log in self.logs.all() {
            let oracle = self.oracle.clone();
            log.on_commit(move |commits| {
                let mut oracle = oracle.borrow_mut();
                for committed in commits {
                    // A partition that is being deleted may have its last commits reported.
                    if let Some(expected) = oracle.partitions.get_mut(&committed.key) {
                        expected.acknowledged(committed.durable_end.0);
                    }
                }
            });
        }
    }

    async fn produce(&self, producer: usize, steps: u64) -> Result<(), LogFailed> {
        for _ in 0..steps {
            let Some(partition) = self.pick() else {
                self.create().await?;
                continue;
            };
            if self.oracle.borrow_mut().expect(partition.key()).compacts && random::below(6) == 0 {
                self.doing.borrow_mut()[producer] = format!("compaction of {:?}", partition.key());
                self.compact(&partition).await?;
                continue;
            }
            let step = random::below(100);
            self.doing.borrow_mut()[producer] = format!("step {step} on {:?}", partition.key());
            match step {
                0..55 => self.append_small(&partition).await?,
                55..72 => self.append_large(&partition).await?,
                72..77 => self.read(&partition).await,
                77..82 => self.move_high_watermark(&partition),
                82..86 => self.truncate(&partition).await?,
                86..90 => self.move_log_start(&partition).await?,
                90..92 => self.delete(partition.key()).await?,
                92..95 => self.create().await?,
                95..97 => self.alter(&partition).await?,
                97..99 => self.checkpoint().await?,
                _ => self.oracle.borrow_mut().expect(partition.key()).epoch += 1,
            }
            if random::below(4) == 0 {
                clock::sleep(Duration::from_micros(random::below(5_000))).await;
            }
        }
        self.doing.borrow_mut()[producer] = "done".to_owned();
        Ok(())
    }

    fn pick(&self) -> Option<PartitionLog> {
        let oracle = self.oracle.borrow();
        let usable = |expected: &Expected| matches!(expected.existence, Existence::Creating | Existence::Present);
        let keys: Vec<_> = oracle.partitions.iter().filter(|(_, expected)| usable(expected)).map(|(key, _)| *key).collect();
        if keys.is_empty() {
            return None;
        }
        let key = keys[usize::try_from(random::below(keys.len() as u64)).unwrap()];
        Some(self.logs.partition(key).unwrap_or_else(|| panic!("{key:?} is not open")))
    }

    async fn create(&self) -> Result<(), LogFailed> {
        let live = self.logs.partitions().len();
        if live >= PARTITIONS_MAX {
            return Ok(());
        }
        let number = self.next_partition.get();
        self.next_partition.set(number + 1);
        let key = PartitionKey { topic: TopicId([(number / 3) as u8; 16]), partition: PartitionIndex(number) };
        let compacts = random::below(3) == 0;
        let expected = Expected { compacts, ..Expected::new(Existence::Creating) };
        self.oracle.borrow_mut().partitions.insert(key, expected);
        match self.logs.of(key).create_partition(key, options(compacts)) {
            Ok(_) => {}
            Err(commit_log::CreateError::Failed(failed)) => {
                self.oracle.borrow_mut().partitions.remove(&key);
                return Err(failed);
            }
            Err(error) => panic!("{key:?}: {error}"),
        }
        if random::below(2) == 0 {
            self.logs.of(key).barrier().await?;
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            if expected.existence == Existence::Creating {
                expected.existence = Existence::Present;
            }
        }
        Ok(())
    }

    async fn append_small(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        let count = 1 + random::below(6);
        for _ in 0..count {
            let bytes = 20 + random::below(2_000);
            self.append(partition, bytes, random::below(8) == 0).await?;
        }
        Ok(())
    }

    async fn append_large(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        let bytes = 12_000 + random::below(40_000);
        self.append(partition, bytes, random::below(3) == 0).await
    }

    /// A batch in memory: a large one mostly where the log writes it from, as from a socket.
    fn landed(&self, key: PartitionKey, batch: &[u8]) -> Shared {
        match self.logs.of(key).landing_bytes(batch.len()) {
            Some(block_bytes) if !batch.len().is_multiple_of(3) => {
                let mut block = buffer::allocate(block_bytes);
                block[..batch.len()].copy_from_slice(batch);
                block.freeze().slice(..batch.len())
            }
            _ => Shared::copy_from_slice(batch),
        }
    }

    async fn append(&self, partition: &PartitionLog, bytes: u64, wait: bool) -> Result<(), LogFailed> {
        let key = partition.key();
        let compacts = self.oracle.borrow_mut().expect(key).compacts;
        let (header, batch) = build(bytes, compacts);
        let (epoch, cuts) = {
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            (expected.epoch, expected.cuts)
        };
        let appended = match partition.append(header, self.landed(key, &batch), LeaderEpoch(epoch), None) {
            Ok(appended) => appended,
            Err(AppendError::Failed(failed)) => return Err(failed),
            Err(AppendError::Full { .. } | AppendError::DiskFull { .. }) => {
                clock::sleep(Duration::from_millis(2)).await;
                return Ok(());
            }
            Err(AppendError::Truncating | AppendError::Deleted) => return Ok(()),
            Err(AppendError::Closing) => panic!("{key:?}: the log is closing"),
        };
        let next = appended.last_offset.0 + 1;
        self.oracle.borrow_mut().expect(key).appended(Batch { base: appended.base_offset.0, next, epoch, bytes: batch.into() });
        if wait {
            let durable = partition.durable(appended.ticket).await;
            let mut oracle = self.oracle.borrow_mut();
            let Some(expected) = oracle.partitions.get_mut(&key) else { return Ok(()) };
            let concerns = expected.cuts == cuts && expected.truncating.is_none();
            match durable {
                Ok(durable) if concerns => {
                    assert!(durable.durable_end.0 >= next, "{key:?}: the ticket is not covered");
                    expected.acknowledged(next);
                }
                Err(failed) if matches!(expected.existence, Existence::Present | Existence::Creating) && concerns => {
                    return Err(failed);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A read of something that must be there.
    async fn read(&self, partition: &PartitionLog) {
        let key = partition.key();
        let (from, end, cuts) = {
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            let start = expected.log_start_wanted;
            if start >= expected.appended_end || expected.truncating.is_some() {
                return;
            }
            (start + random::below(expected.appended_end - start), expected.appended_end, expected.cuts)
        };
        let read = partition.read(Offset(from), 1 + random::below(100_000) as usize, Offset(end)).await;
        let oracle = self.oracle.borrow();
        let Some(expected) = oracle.partitions.get(&key) else { return };
        let disturbed = expected.cuts != cuts
            || expected.truncating.is_some()
            || expected.log_start_wanted > from
            || !matches!(expected.existence, Existence::Present | Existence::Creating);
        match read {
            Ok(slices) => {
                let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                if !disturbed {
                    assert!(expected.check_bytes(key, from, &bytes, false) > from, "{key:?}: nothing at {from} below {end}");
                }
            }
            Err(error) => {
                let excused = disturbed || self.logs.failure().is_some() || self.lying_disk;
                assert!(excused, "{key:?}: cannot read {from} below {end}: {error}");
            }
        }
    }

    fn move_high_watermark(&self, partition: &PartitionLog) {
        let mut oracle = self.oracle.borrow_mut();
        let expected = oracle.expect(partition.key());
        let marks = partition.watermarks();
        if expected.truncating.is_none() && marks.durable_end >= marks.high_watermark {
            partition.set_high_watermark(marks.durable_end);
            expected.high_watermark = marks.durable_end.0;
        }
    }

    async fn truncate(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        let key = partition.key();
        let to = {
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            let floor = expected.high_watermark.max(expected.log_start_wanted);
            let places: Vec<u64> = expected.batches.iter().map(|batch| batch.base).filter(|base| *base >= floor).collect();
            if expected.truncating.is_some() || places.is_empty() {
                return Ok(());
            }
            // Mostly near the end: a truncation to the middle empties the log.
            let back = random::below(places.len().min(6) as u64);
            let to = places[places.len() - 1 - usize::try_from(back).unwrap()];
            expected.truncating = Some(to);
            to
        };
        partition.truncate(Offset(to)).await?;
        let end = partition.watermarks().appended_end;
        assert!(
            self.oracle.borrow().partitions[&key].existence > Existence::Present || end.0 == to,
            "{key:?}: cut at {to}, and the log ends at {end}"
        );
        let mut oracle = self.oracle.borrow_mut();
        // Of one that is being deleted nothing is cut, and a crash may undo the deletion: it stays open whether it was.
        if let Some(expected) = oracle.partitions.get_mut(&key).filter(|expected| expected.existence <= Existence::Present) {
            expected.truncated(to);
        }
        oracle.coverage.truncations += 1;
        Ok(())
    }

    async fn move_log_start(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        let key = partition.key();
        let to = {
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            let room = expected.high_watermark.saturating_sub(expected.log_start_wanted);
            if expected.truncating.is_some() || room == 0 {
                return Ok(());
            }
            expected.log_start_wanted += 1 + random::below(room);
            expected.log_start_wanted
        };
        partition.set_log_start(Offset(to)).await?;
        let mut oracle = self.oracle.borrow_mut();
        if let Some(expected) = oracle.partitions.get_mut(&key) {
            expected.log_start = expected.log_start.max(to);
        }
        oracle.coverage.log_start_moves += 1;
        Ok(())
    }

    async fn delete(&self, key: PartitionKey) -> Result<(), LogFailed> {
        self.oracle.borrow_mut().expect(key).existence = Existence::Deleting;
        self.logs.of(key).delete_partition(key).await?;
        let mut oracle = self.oracle.borrow_mut();
        oracle.expect(key).existence = Existence::Deleted;
        oracle.coverage.deletions += 1;
        Ok(())
    }

    async fn alter(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        let compacts = self.oracle.borrow_mut().expect(partition.key()).compacts;
        let changed = options(compacts);
        partition.alter(changed).await
    }

    /// A pass of compaction over what is visible by then.
    async fn compact(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        self.move_high_watermark(partition);
        let tombstone_retention_ms = if random::below(2) == 0 { 0 } else { 50 };
        let lag_ms = if random::below(3) == 0 { 20 } else { 0 };
        self.in_compaction.set(self.in_compaction.get() + 1);
        let done = partition.compact(CompactionTerms { lag_ms, tombstone_retention_ms }).await;
        self.in_compaction.set(self.in_compaction.get() - 1);
        match done {
            Ok(done) => {
                let is_sound = done.damaged.is_empty() || self.lying_disk || self.logs.failure().is_some();
                assert!(is_sound, "called damaged without damage: {done:?}");
                let mut oracle = self.oracle.borrow_mut();
                oracle.coverage.compactions += 1;
                oracle.coverage.compactions_that_go_on += u64::from(!done.is_complete);
                oracle.coverage.records_compacted += done.removed_records;
            }
            Err(CompactError::Failed(failed)) => return Err(failed),
            Err(CompactError::NoRoom(_)) => self.oracle.borrow_mut().coverage.compactions_without_room += 1,
            Err(CompactError::NotReadBack(error)) => assert!(self.lying_disk, "{error}"),
            Err(CompactError::Deleted) => {}
            Err(CompactError::Closing) => panic!("the log is closing"),
        }
        Ok(())
    }

    async fn checkpoint(&self) -> Result<(), LogFailed> {
        self.in_checkpoint.set(true);
        let logs = self.logs.all();
        let one = if logs.len() > 1 { random::below(logs.len() as u64) } else { 0 };
        let result = logs[usize::try_from(one).unwrap()].checkpoint().await;
        self.in_checkpoint.set(false);
        result
    }
}

fn options(compacts: bool) -> PartitionOptions {
    PartitionOptions {
        // What is compacted is sealed before: small ones.
        segment_bytes: (if compacts { 16 << 10 } else { 64 << 10 }) << random::below(3),
        segment_ms: 1_000 + random::below(100_000),
        durability: if random::below(6) == 0 { Durability::Relaxed } else { Durability::Stable },
    }
}

/// Keys of a partition that is compacted.
const KEYS: u64 = 10;

/// A batch of one to four records, `bytes` of values that never repeat; `keyed`: of few keys, some of them tombstones.
fn build(bytes: u64, keyed: bool) -> (BatchHeader, Vec<u8>) {
    let compression = match random::below(if keyed { 8 } else { 1 }) {
        6 => Compression::Lz4,
        7 => Compression::Zstd,
        _ => Compression::None,
    };
    let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
    let count = 1 + random::below(4);
    for _ in 0..count {
        let mut value = vec![0; usize::try_from(bytes / count + 1).unwrap()];
        random::fill(&mut value);
        let key = keyed.then(|| [random::below(KEYS) as u8]);
        let is_tombstone = keyed && random::below(6) == 0;
        let value = (!is_tombstone).then_some(&value[..]);
        builder.push(TimestampMs(clock::wall_ms()), key.as_ref().map(|key| &key[..]), value, &[]).unwrap();
    }
    let batch = builder.build();
    (BatchHeader::decode(&batch).unwrap(), batch.to_vec())
}
