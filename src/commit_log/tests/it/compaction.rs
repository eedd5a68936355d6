//! Compaction: what stays of a log, that readers and restarts find it, and that a crash at any moment loses nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use commit_log::{CompactError, CompactionTerms, LogOptions, PartitionLog, PartitionOptions, ShardLog};
use shards::buffer::Shared;
use shards::clock;
use shards::simulated::{Disk, DiskOptions, Fault, FaultKind, Target};
use wire::batch::{BatchBuilder, BatchHeader, BatchView, BuilderOptions};
use wire::{Compression, LeaderEpoch, Offset, TimestampMs};

use crate::support::{crash_at, key, on_both, open, simulate, small_options};

const TERMS: CompactionTerms = CompactionTerms { lag_ms: 0, tombstone_retention_ms: 10_000 };

/// Offset to timestamp, key, and of the value what it says and its length.
type Log = BTreeMap<u64, (i64, Vec<u8>, Option<(String, usize)>)>;

/// Nothing is read from memory that stands in a segment: there batches are as they were appended until they leave.
fn uncached() -> LogOptions {
    LogOptions { tail_cache_bytes_max: 0, ..small_options() }
}

async fn create(log: &ShardLog, number: u32) -> PartitionLog {
    let options = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
    let partition = log.create_partition(key(number), options).unwrap();
    log.barrier().await.unwrap();
    partition
}

/// Appends a batch with these keys; the value says the offset, and is missing where `is_tombstone` says so. Returns the end.
async fn append(partition: &PartitionLog, compression: Compression, keys: &[u32], value_bytes: usize, is_tombstone: bool) -> u64 {
    let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
    let next = partition.watermarks().appended_end.0;
    for (key, offset) in keys.iter().zip(next..) {
        let value = format!("{offset}/{}", "x".repeat(value_bytes));
        let value = (!is_tombstone).then_some(value.as_bytes());
        builder.push(TimestampMs(1000 + offset as i64), Some(&key.to_le_bytes()), value, &[]).unwrap();
    }
    let bytes = builder.build();
    let header = BatchHeader::decode(&bytes).unwrap();
    let appended = loop {
        match partition.append(header, Shared::copy_from_slice(&bytes), LeaderEpoch(1), None) {
            Ok(appended) => break appended,
            Err(error) => assert!(error.retryable(), "{error}"),
        }
        clock::sleep(Duration::from_millis(1)).await;
    };
    partition.durable(appended.ticket).await.unwrap();
    let end = Offset(appended.last_offset.0 + 1);
    partition.set_high_watermark(end);
    end.0
}

/// Everything from `from` on, as a consumer reads it: each batch, checked.
async fn read(partition: &PartitionLog, from: u64) -> Log {
    let end = partition.watermarks().appended_end;
    let mut found = Log::new();
    let mut next = Offset(from);
    while next < end {
        let slices = partition.read(next, 10_000, end).await.unwrap();
        let mut bytes = wire::AlignedVec::new();
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        let mut at = 0;
        assert!(!bytes.is_empty(), "something stands at {next} below {end}");
        while at < bytes.len() {
            let view = BatchView::new(&bytes[at..]).unwrap();
            assert!(view.header().base_offset <= next, "no offset is passed over");
            for record in view.records().filter(|record| record.offset.0 >= from) {
                let value = record.value.map(|value| {
                    let said = value.split(|byte| *byte == b'/').next().unwrap();
                    (String::from_utf8_lossy(said).into_owned(), value.len())
                });
                found.insert(record.offset.0, (record.timestamp_ms.0, record.key.unwrap().to_vec(), value));
            }
            next = view.header().next_offset();
            at += view.header().total_length();
        }
    }
    found
}

/// The newest record of each key, of those below `end`; and everything from `end` on.
fn compacted(log: &Log, end: u64) -> Log {
    let is_newest = |offset: &u64, key: &[u8]| !log.range(offset + 1..end).any(|(_, (_, other, _))| other == key);
    log.iter().filter(|(offset, (_, key, _))| **offset >= end || is_newest(offset, key)).map(|(o, r)| (*o, r.clone())).collect()
}

fn sealed_end(partition: &PartitionLog) -> u64 {
    partition.segments().last().map_or(0, |segment| segment.end_offset.0)
}

/// Appends batches of eight records of these many keys: each is written straight into its segment, three to a segment.
async fn fill(partition: &PartitionLog, compression: Compression, rounds: u32, keys: u32) {
    for round in 0..rounds {
        let keys: Vec<u32> = (0..8).map(|number| (round * 5 + number * 3) % keys).collect();
        append(partition, compression, &keys, 9_000, false).await;
    }
}

#[test]
fn of_each_key_the_newest_record_stays_and_is_found_by_every_way() {
    on_both(|disk| async move {
        let log = open(&disk, uncached()).await;
        for (number, compression) in [(0, Compression::None), (1, Compression::Lz4), (2, Compression::Zstd)] {
            let partition = create(&log, number).await;
            // What is compressed is not large: it goes through the log, and a flush makes a segment of it.
            fill(&partition, compression, 40, 40).await;
            fill(&partition, Compression::None, 4, 40).await;
        }
        log.checkpoint().await.unwrap();
        for number in 0..3 {
            let partition = log.partition(key(number)).unwrap();
            let whole = read(&partition, 0).await;
            let (end, segments, bytes) = (sealed_end(&partition), partition.segments().len(), partition.size_bytes());
            let done = partition.compact(TERMS).await.unwrap();
            assert!(done.is_complete && done.damaged.is_empty(), "{done:?}");
            let expected = compacted(&whole, end);
            assert_eq!(read(&partition, 0).await, expected, "partition {number}");
            assert_eq!(done.removed_records as usize, whole.len() - expected.len());
            assert!(done.removed_records > 100 && partition.size_bytes() < bytes, "partition {number}: {done:?}");
            assert!(partition.segments().len() <= segments);
            for from in (0..partition.watermarks().appended_end.0).step_by(7) {
                let found = read(&partition, from).await;
                assert_eq!(found, expected.range(from..).map(|(o, r)| (*o, r.clone())).collect::<Log>(), "from {from}");
            }
            for offset in (0..partition.watermarks().appended_end.0).step_by(11) {
                let found = partition.offset_for_timestamp(TimestampMs(1000 + offset as i64)).await.unwrap();
                let first = expected.range(offset..).next().map(|(offset, record)| (Offset(*offset), TimestampMs(record.0)));
                assert_eq!(found, first, "partition {number}: at the time of offset {offset}");
            }
            // What became small becomes one; then nothing is left to do, and nothing is written.
            partition.compact(TERMS).await.unwrap();
            let written = log.stats().compaction_written_bytes;
            let again = partition.compact(TERMS).await.unwrap();
            assert_eq!((again.removed_records, log.stats().compaction_written_bytes), (0, written));
            assert_eq!(read(&partition, 0).await, expected, "partition {number}");
        }
        let before: Vec<Log> = futures_of(&log).await;
        log.close().await.unwrap();
        drop(log);

        let log = open(&disk, uncached()).await;
        assert_eq!(futures_of(&log).await, before);
        for number in 0..3 {
            let partition = log.partition(key(number)).unwrap();
            assert!(!partition.is_lossy());
            fill(&partition, Compression::None, 20, 20).await;
            log.checkpoint().await.unwrap();
            let whole = read(&partition, 0).await;
            let end = sealed_end(&partition);
            partition.compact(TERMS).await.unwrap();
            assert_eq!(read(&partition, 0).await, compacted(&whole, end));
        }
        log.close().await.unwrap();
    });
}

async fn futures_of(log: &ShardLog) -> Vec<Log> {
    let mut found = Vec::new();
    for partition in log.partitions() {
        found.push(read(&partition, 0).await);
    }
    found
}

#[test]
fn a_tombstone_stays_for_its_time_after_it_is_clean_and_then_goes_with_its_key() {
    simulate(1, &Disk::new(DiskOptions::default()), async {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = create(&log, 0).await;
        append(&partition, Compression::None, &[1, 2, 3], 20_000, false).await;
        append(&partition, Compression::None, &[1], 0, true).await;
        append(&partition, Compression::None, &[4], 190_000, false).await;
        append(&partition, Compression::None, &[5], 190_000, false).await;
        assert_eq!(sealed_end(&partition), 5);
        let offsets = async || read(&partition, 0).await.into_keys().collect::<Vec<_>>();
        assert_eq!(offsets().await, [0, 1, 2, 3, 4, 5]);
        let tombstone = CompactionTerms { tombstone_retention_ms: 5_000, ..TERMS };
        assert_eq!(partition.compaction_need(tombstone).tombstones_due_ms, None);
        partition.compact(tombstone).await.unwrap();
        assert_eq!(offsets().await, [1, 2, 3, 4, 5], "the value is gone, its tombstone stays");
        let due_ms = partition.compaction_need(tombstone).tombstones_due_ms.unwrap();
        clock::sleep(Duration::from_millis(4_000)).await;
        partition.compact(tombstone).await.unwrap();
        assert_eq!(partition.compaction_need(tombstone).tombstones_due_ms, Some(due_ms), "a pass more does not make it younger");
        assert_eq!(offsets().await, [1, 2, 3, 4, 5]);
        log.close().await.unwrap();
        drop((log, partition));

        let log = open(Path::new("/data"), uncached()).await;
        let partition = log.partition(key(0)).unwrap();
        assert_eq!(partition.compaction_need(tombstone).tombstones_due_ms, Some(due_ms));
        clock::sleep(Duration::from_millis(1_500)).await;
        partition.compact(tombstone).await.unwrap();
        assert_eq!(read(&partition, 0).await.into_keys().collect::<Vec<_>>(), [1, 2, 4, 5]);
        assert_eq!(partition.compaction_need(tombstone).tombstones_due_ms, None);
        log.close().await.unwrap();
    });
}

#[test]
fn with_more_keys_than_the_table_holds_it_takes_several_passes() {
    simulate(1, &Disk::new(DiskOptions::default()), async {
        // Room for 56 keys.
        let options = LogOptions { compaction_table_bytes_max: 0, ..uncached() };
        let log = open(Path::new("/data"), options).await;
        let partition = create(&log, 0).await;
        fill(&partition, Compression::None, 60, 200).await;
        let whole = read(&partition, 0).await;
        let end = sealed_end(&partition);
        let mut dirty = u64::MAX;
        let mut passes = 0;
        loop {
            let need = partition.compaction_need(TERMS);
            assert!(need.dirty_bytes < dirty || passes == 0, "a pass gets on: {need:?}");
            dirty = need.dirty_bytes;
            passes += 1;
            let done = partition.compact(TERMS).await.unwrap();
            assert!(done.keys <= 56, "{done:?}");
            if done.is_complete {
                break;
            }
        }
        assert!(passes >= 3, "{passes}");
        assert_eq!(partition.compaction_need(TERMS).dirty_bytes, 0);
        assert_eq!(read(&partition, 0).await, compacted(&whole, end));
        log.close().await.unwrap();
    });
}

#[test]
fn small_segments_become_one_so_that_there_are_few_files() {
    let disk = Disk::new(DiskOptions::default());
    let names = disk.clone();
    simulate(1, &disk, async move {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = create(&log, 0).await;
        for _ in 0..16 {
            // Always the same keys: of each round little stays.
            fill(&partition, Compression::None, 9, 8).await;
            log.checkpoint().await.unwrap();
            partition.compact(TERMS).await.unwrap();
        }
        let segments = partition.segments();
        assert!(segments.len() <= 8, "{segments:?}");
        for pair in segments.windows(2) {
            assert_eq!(pair[0].end_offset, pair[1].base_offset, "offsets stand without a hole");
        }
        // What was replaced goes with the checkpoints after.
        for _ in 0..4 {
            log.checkpoint().await.unwrap();
        }
        assert!(!log.has_superseded());
        let files = names.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "seg"));
        assert!(files.count() <= segments.len() + 1, "the segments and the active one");
        log.close().await.unwrap();
    });
}

#[test]
fn what_is_young_or_above_the_high_watermark_or_active_is_not_touched() {
    simulate(1, &Disk::new(DiskOptions::default()), async {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = create(&log, 0).await;
        for number in 0..12_u8 {
            let mut builder = BatchBuilder::new(BuilderOptions::default());
            let now = TimestampMs(clock::wall_ms());
            let value = format!("{number}/{}", "x".repeat(72_000));
            builder.push(now, Some(b"key"), Some(value.as_bytes()), &[]).unwrap();
            let bytes = builder.build();
            let header = BatchHeader::decode(&bytes).unwrap();
            let appended = partition.append(header, Shared::copy_from_slice(&bytes), LeaderEpoch(1), None).unwrap();
            partition.durable(appended.ticket).await.unwrap();
            clock::sleep(Duration::from_secs(1)).await;
        }
        let ends: Vec<u64> = partition.segments().iter().map(|segment| segment.end_offset.0).collect();
        assert_eq!(ends, [3, 6, 9]);
        let steps: [(u64, u64, u64); 5] = [
            // Nothing is below the high watermark.
            (0, 0, 0),
            // Everything is young.
            (7, 60_000, 0),
            // The first segment is not.
            (7, 9_500, 2),
            // The third one is not below the high watermark.
            (7, 0, 5),
            // The last one is active.
            (12, 0, 8),
        ];
        for (high_watermark, lag_ms, first) in steps {
            partition.set_high_watermark(Offset(high_watermark));
            partition.compact(CompactionTerms { lag_ms, ..TERMS }).await.unwrap();
            let left: Vec<u64> = read(&partition, 0).await.into_keys().collect();
            assert_eq!(left, (first..12).collect::<Vec<_>>(), "high watermark {high_watermark}, lag {lag_ms} ms");
        }
        log.close().await.unwrap();
    });
}

#[test]
fn a_damaged_segment_is_left_as_it_is_and_reported() {
    let disk = Disk::new(DiskOptions::default());
    let segments = |disk: &Disk| -> Vec<PathBuf> {
        let files = disk.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect()
    };
    simulate(1, &disk, async {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = create(&log, 0).await;
        fill(&partition, Compression::None, 30, 10).await;
        append(&partition, Compression::None, &[3], 0, true).await;
        fill(&partition, Compression::None, 6, 2).await;
        log.close().await.unwrap();
    });
    let damaged = segments(&disk)[2].clone();
    assert!(disk.flip_bit(&damaged, 4096 + 3_000, 2));
    let content = disk.contents(&damaged).unwrap();
    let names = disk.clone();
    simulate(2, &disk, async move {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = log.partition(key(0)).unwrap();
        partition.set_high_watermark(partition.watermarks().appended_end);
        let terms = CompactionTerms { tombstone_retention_ms: 0, ..TERMS };
        for _ in 0..3 {
            fill(&partition, Compression::None, 6, 2).await;
            let done = partition.compact(terms).await.unwrap();
            assert_eq!(done.damaged.len(), 1, "{done:?}");
            assert!(partition.is_lossy());
            assert_eq!(names.contents(&damaged).unwrap(), content);
        }
        assert!(log.stats().compaction_removed_records > 100, "the others are cleaned");
        assert_eq!(log.stats().compaction_damaged_segments, 3);
        // The value of key 3 may stand in the damaged one.
        assert_eq!(partition.compaction_need(terms).tombstones_due_ms, None);
        log.close().await.unwrap();
    });
}

#[test]
fn a_full_disk_ends_a_pass_and_changes_nothing() {
    let disk = Disk::new(DiskOptions::default());
    let faults = disk.clone();
    simulate(1, &disk, async move {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = create(&log, 0).await;
        fill(&partition, Compression::None, 20, 10).await;
        let (whole, segments) = (read(&partition, 0).await, partition.segments());
        let full = FaultKind::Errno(28);
        faults.inject(Fault::once(Target::Write, full).on("-00000001.seg").after(1));
        assert!(matches!(partition.compact(TERMS).await, Err(CompactError::NoRoom(_))));
        assert_eq!(partition.segments(), segments);
        assert!(faults.files().iter().all(|(path, _)| !path.to_string_lossy().contains("-00000001.seg")));
        let end = sealed_end(&partition);
        partition.compact(TERMS).await.unwrap();
        assert_eq!(read(&partition, 0).await, compacted(&whole, end));
        assert!(log.failure().is_none());
        log.close().await.unwrap();
    });
}

#[test]
fn readers_retention_truncation_and_deletion_go_on_beside_it() {
    for seed in 0..6 {
        let disk = Disk::new(DiskOptions::default());
        simulate(seed, &disk, async move {
            let options = LogOptions { compaction_bytes_per_second: 4 << 20, ..uncached() };
            let log = open(Path::new("/data"), options).await;
            let partition = create(&log, 0).await;
            fill(&partition, Compression::None, 40, 30).await;
            let whole = read(&partition, 0).await;
            let high_watermark = partition.watermarks().high_watermark;
            let end = sealed_end(&partition);
            let compacting = {
                let partition = partition.clone();
                shards::executor::spawn_background(async move { partition.compact(TERMS).await })
            };
            clock::sleep(Duration::from_millis(20 + 120 * seed)).await;
            let start = 50 + 20 * seed;
            match seed % 3 {
                0 => partition.set_log_start(Offset(start)).await.unwrap(),
                1 => partition.truncate(high_watermark).await.unwrap(),
                _ => {}
            }
            while seed < 5 && partition.compaction_need(TERMS).dirty_since_ms.is_some() {
                let found = read(&partition, start).await;
                let newest: BTreeMap<_, _> =
                    found.values().map(|(time, key, value)| (key.clone(), (*time, value.clone()))).collect();
                let expected: BTreeMap<_, _> =
                    whole.range(start..).map(|(_, (time, key, value))| (key.clone(), (*time, value.clone()))).collect();
                assert_eq!(newest, expected);
                assert!(found.iter().all(|(offset, record)| whole[offset] == *record));
                clock::sleep(Duration::from_millis(150)).await;
            }
            if seed == 5 {
                log.delete_partition(key(0)).await.unwrap();
                assert_eq!(compacting.await, Err(CompactError::Deleted));
            } else {
                compacting.await.unwrap();
                assert_eq!(read(&partition, start).await, compacted(&whole, end).split_off(&start));
            }
            log.close().await.unwrap();
        });
    }
}

/// A crash at each of the I/Os of a pass, and of what follows it.
#[test]
fn a_crash_at_any_moment_loses_nothing_but_what_was_superseded() {
    let before = Disk::new(DiskOptions::default());
    let whole = simulate(1, &before, async {
        let log = open(Path::new("/data"), uncached()).await;
        let partition = create(&log, 0).await;
        fill(&partition, Compression::None, 12, 12).await;
        append(&partition, Compression::None, &[5], 0, true).await;
        fill(&partition, Compression::None, 9, 3).await;
        let whole = read(&partition, 0).await;
        log.close().await.unwrap();
        whole
    });
    let mut outcomes = BTreeMap::new();
    for count in (1..260).step_by(6) {
        let disk = before.fork();
        crash_at(count, &disk, async {
            let log = open(Path::new("/data"), uncached()).await;
            let partition = log.partition(key(0)).unwrap();
            partition.set_high_watermark(partition.watermarks().appended_end);
            partition.compact(TERMS).await.unwrap();
            append(&partition, Compression::None, &[77], 100, false).await;
            for _ in 0..4 {
                log.checkpoint().await.unwrap();
            }
            log.close().await.unwrap();
        });
        let (names, whole) = (disk.clone(), whole.clone());
        let left = simulate(count, &disk, async move {
            let log = open(Path::new("/data"), uncached()).await;
            let partition = log.partition(key(0)).unwrap();
            let end = *whole.keys().last().unwrap() + 1;
            let mut found = read(&partition, 0).await;
            found.split_off(&end);
            assert!(found.iter().all(|(offset, record)| whole[offset] == *record), "at I/O {count}");
            for (offset, record) in compacted(&whole, end) {
                assert_eq!(found.get(&offset), Some(&record), "at I/O {count}");
            }
            let files =
                names.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "seg"));
            assert!(files.count() <= partition.segments().len() + 1, "at I/O {count}: orphans are removed");
            // It goes on from whatever the crash left.
            partition.set_high_watermark(partition.watermarks().appended_end);
            partition.compact(TERMS).await.unwrap();
            let sealed = sealed_end(&partition);
            let again = read(&partition, 0).await.range(..sealed).count();
            assert_eq!(again, compacted(&whole, sealed).range(..sealed).count(), "at I/O {count}");
            log.close().await.unwrap();
            found.len()
        });
        *outcomes.entry(left).or_insert(0) += 1;
    }
    assert!(outcomes.len() >= 3, "crashes before, within and after the pass: {outcomes:?}");
}
