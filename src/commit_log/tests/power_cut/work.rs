//! What the log is used for: several producers on several partitions, small and large batches, truncations, log start moves, retention, deletions,
//! checkpoints, all at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use commit_log::{
    AppendError, Appended, CompactError, CompactionTerms, Durability, LogFailed, PartitionLog, PartitionOptions, Produced,
    ProducerError, Retention,
};
use shards::buffer::{self, Shared};
use shards::{clock, executor, random};
use wire::batch::{BatchBuilder, BuilderOptions};
use wire::{
    BatchHeader, Compression, LeaderEpoch, Offset, PartitionIndex, PartitionKey, ProducerEpoch, ProducerId, Sequence,
    TimestampMs, TopicId,
};

use crate::logs::Logs;
use crate::oracle::{Batch, Existence, Expected, Oracle};
use crate::writers::Writer;

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
    /// Writers name themselves and count.
    pub(crate) is_idempotent: bool,
    pub(crate) producers_max: usize,
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
                0..55 => self.append_small(&partition, producer).await?,
                55..72 => self.append_large(&partition, producer).await?,
                72..76 => self.read(&partition).await,
                76..78 => self.retain(&partition).await?,
                78..82 => self.move_high_watermark(&partition),
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

    async fn append_small(&self, partition: &PartitionLog, producer: usize) -> Result<(), LogFailed> {
        let count = 1 + random::below(6);
        for _ in 0..count {
            let bytes = 20 + random::below(2_000);
            self.append(partition, producer, bytes, random::below(8) == 0).await?;
        }
        Ok(())
    }

    async fn append_large(&self, partition: &PartitionLog, producer: usize) -> Result<(), LogFailed> {
        let bytes = 12_000 + random::below(40_000);
        self.append(partition, producer, bytes, random::below(3) == 0).await
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

    async fn append(&self, partition: &PartitionLog, producer: usize, bytes: u64, wait: bool) -> Result<(), LogFailed> {
        let key = partition.key();
        let Some((header, batch)) = self.next_batch(key, producer, bytes) else { return Ok(()) };
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
            Err(AppendError::Producer(error)) => {
                self.refused(key, header.producer_id, &error);
                return Ok(());
            }
        };
        self.sent(key, &header, appended);
        let next = appended.last_offset.0 + 1;
        if !appended.is_duplicate {
            let (base, produced) = (appended.base_offset.0, Produced::of(&header));
            self.oracle.borrow_mut().expect(key).appended(Batch { base, next, epoch, bytes: batch.into(), produced });
        }
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

    /// What a writer sends next: what it has to send again, or something new. `None` while it has as much in flight as it may.
    fn next_batch(&self, key: PartitionKey, producer: usize, bytes: u64) -> Option<(BatchHeader, Vec<u8>)> {
        let compacts = self.oracle.borrow_mut().expect(key).compacts;
        if !self.is_idempotent {
            return Some(build(bytes, compacts, None));
        }
        let id = ProducerId(1 + i64::try_from(producer).unwrap());
        let mut oracle = self.oracle.borrow_mut();
        let expected = oracle.expect(key);
        expected.writers.are_bounded = self.producers_max < usize::try_from(PRODUCERS).unwrap();
        expected.writers.may_be_forgotten |= expected.writers.are_bounded;
        let writer = expected.writers.writers.entry(id).or_insert_with(|| Writer::new(0));
        if let Some((_, batch)) = writer.again.front() {
            return Some((BatchHeader::decode(batch).unwrap(), batch.to_vec()));
        }
        let named = (id, writer.epoch, writer.next_sequence);
        expected.writers.has_room(id, &expected.batches, expected.acknowledged_end).then(|| build(bytes, compacts, Some(named)))
    }

    /// A writer's batch has its offsets: those it had, if and only if it was in the log already.
    fn sent(&self, key: PartitionKey, header: &BatchHeader, appended: Appended) {
        let Some(produced) = Produced::of(header) else {
            assert!(!appended.is_duplicate, "{key:?}: a duplicate of nobody");
            return;
        };
        let mut oracle = self.oracle.borrow_mut();
        let expected = oracle.expect(key);
        // A writer that was forgotten may have begun its epoch again: what it sent before does not count any more.
        let is_first =
            |other: Produced| (other.id, other.epoch, other.base_sequence) == (produced.id, produced.epoch, Sequence::ZERO);
        let begun = expected.batches.iter().rposition(|batch| batch.produced.is_some_and(is_first)).unwrap_or(0);
        let known = expected.batches[begun..].iter().find(|batch| batch.produced == Some(produced));
        let offsets = known.map(|batch| (batch.base, batch.next - 1));
        let story = format!("{key:?}: {produced:?} got {appended:?}; the log has it at {offsets:?}");
        let is_believed = expected.writers.are_bounded && produced.base_sequence == Sequence::ZERO;
        assert!(appended.is_duplicate == known.is_some() || is_believed, "{story}");
        if appended.is_duplicate {
            assert_eq!(offsets, Some((appended.base_offset.0, appended.last_offset.0)), "{story}");
        }
        let writer = expected.writers.writers.get_mut(&produced.id).unwrap();
        if writer.again.front().is_some_and(|(again, _)| *again == produced) {
            writer.again.pop_front();
            let coverage = &mut oracle.coverage;
            coverage.sent_again_duplicate += u64::from(appended.is_duplicate);
            coverage.sent_again_new += u64::from(!appended.is_duplicate);
        } else {
            assert!(!appended.is_duplicate, "{story}");
            writer.next_sequence = produced.next_sequence();
        }
    }

    /// A refusal is right only where the log may have forgotten the writer.
    fn refused(&self, key: PartitionKey, id: ProducerId, error: &ProducerError) {
        let mut oracle = self.oracle.borrow_mut();
        let writers = &mut oracle.expect(key).writers;
        assert!(matches!(error, ProducerError::Unknown { .. }) && writers.may_be_forgotten, "{key:?}: {error}");
        writers.writers.get_mut(&id).unwrap().begin_epoch();
        oracle.coverage.producers_forgotten += 1;
    }

    /// A read of something that must be there.
    async fn read(&self, partition: &PartitionLog) {
        let key = partition.key();
        let (from, end, cuts) = {
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            let start = expected.log_start_wanted.max(partition.watermarks().log_start.0);
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
            || expected.log_start_wanted.max(partition.watermarks().log_start.0) > from
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
            let start = expected.log_start_wanted.max(partition.watermarks().log_start.0);
            let room = expected.high_watermark.saturating_sub(start);
            if expected.truncating.is_some() || room == 0 {
                return Ok(());
            }
            expected.log_start_wanted = start + 1 + random::below(room);
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

    /// Retention by age or size, as the broker has it done. What will go is not known before; where the log starts then, is.
    async fn retain(&self, partition: &PartitionLog) -> Result<(), LogFailed> {
        let key = partition.key();
        {
            let mut oracle = self.oracle.borrow_mut();
            let expected = oracle.expect(key);
            if expected.truncating.is_some() {
                return Ok(());
            }
            expected.retaining += 1;
        }
        let retention = Retention {
            age_ms: (random::below(2) == 0).then(|| random::below(100)),
            bytes: (random::below(3) > 0).then(|| random::below(256 << 10)),
        };
        let retained = partition.retain(retention, clock::wall_ms()).await?;
        let start = partition.watermarks().log_start.0;
        let mut oracle = self.oracle.borrow_mut();
        if let Some(expected) = oracle.partitions.get_mut(&key) {
            expected.retaining -= 1;
            expected.log_start_wanted = expected.log_start_wanted.max(start);
            expected.log_start = expected.log_start.max(retained.log_start.0);
        }
        oracle.coverage.segments_expired += retained.segments;
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
        segment_ms: if random::below(2) == 0 { 1 + random::below(100) } else { 100_000 },
        durability: if random::below(6) == 0 { Durability::Relaxed } else { Durability::Stable },
    }
}

/// Keys of a partition that is compacted.
const KEYS: u64 = 10;

/// A batch of one to four records, `bytes` of values that never repeat; `keyed`: of few keys, some of them tombstones; `producer`: its id, epoch
/// and sequence.
fn build(bytes: u64, keyed: bool, producer: Option<(ProducerId, ProducerEpoch, Sequence)>) -> (BatchHeader, Vec<u8>) {
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
    if let Some((id, epoch, sequence)) = producer {
        builder.set_producer(id, epoch, sequence);
    }
    let batch = builder.build();
    (BatchHeader::decode(&batch).unwrap(), batch.to_vec())
}
