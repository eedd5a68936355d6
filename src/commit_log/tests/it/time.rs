//! Offsets by time: exact to the record against a model, and read from one index and one stretch whatever the size of the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use commit_log::format::BLOCK_BYTES;
use commit_log::format::segment::{SegmentHeader, SegmentIndex};
use commit_log::{
    Durability, LogOptions, PartitionLog, PartitionOptions, PartitionState, Retention, SegmentState, ShardDirectory, ShardLog,
};
use shards::buffer::{self, Shared};
use shards::disk::{self, File, OpenOptions};
use shards::random;
use shards::simulated::{Disk, DiskOptions};
use wire::batch::{BatchBuilder, BatchHeader, BuilderOptions, HEADER_BYTES, write_padding};
use wire::{Compression, LeaderEpoch, Offset, TimestampMs};

use crate::support::{key, open, simulate, small_options};

/// What the log holds: the timestamp of each offset.
#[derive(Default)]
struct Model {
    timestamps_ms: Vec<i64>,
    log_start: usize,
}

impl Model {
    fn find(&self, timestamp_ms: i64) -> Option<(Offset, TimestampMs)> {
        let kept = self.timestamps_ms.iter().enumerate().skip(self.log_start);
        let found = kept.into_iter().find(|(_, found_ms)| **found_ms >= timestamp_ms);
        found.map(|(offset, found_ms)| (Offset(offset as u64), TimestampMs(*found_ms)))
    }
}

/// A batch of records with these timestamps, compressed or not.
fn batch(timestamps_ms: &[i64], value_bytes: usize, compression: Compression) -> (BatchHeader, Shared) {
    let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
    for timestamp_ms in timestamps_ms {
        builder.push(TimestampMs(*timestamp_ms), None, Some(&vec![7; value_bytes]), &[]).unwrap();
    }
    let bytes = builder.build();
    (BatchHeader::decode(&bytes).unwrap(), Shared::copy_from_slice(&bytes))
}

async fn append_some(partition: &PartitionLog, model: &mut Model) {
    let now_ms = model.timestamps_ms.len() as i64 * 10;
    // Mostly about now, sometimes far behind or ahead.
    let spread = [20, 20, 500, 5_000][random::below(4) as usize];
    let count = 1 + random::below(5);
    let timestamps_ms: Vec<i64> = (0..count).map(|_| now_ms + random::below(2 * spread) as i64 - spread as i64).collect();
    let value_bytes = [30, 30, 3_000, 30_000][random::below(4) as usize];
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][random::below(3) as usize];
    let (header, bytes) = batch(&timestamps_ms, value_bytes, compression);
    let append_time = (random::below(6) == 0).then_some(TimestampMs(now_ms));
    let appended = match partition.append(header, bytes, LeaderEpoch(1), append_time) {
        Ok(appended) => appended,
        Err(error) => {
            assert!(error.retryable(), "{error}");
            return shards::clock::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    assert_eq!(appended.base_offset.0, model.timestamps_ms.len() as u64);
    match append_time {
        Some(append_time) => model.timestamps_ms.extend((0..count).map(|_| append_time.0)),
        None => model.timestamps_ms.extend(timestamps_ms),
    }
    if random::below(3) > 0 {
        partition.durable(appended.ticket).await.unwrap();
    }
}

async fn check(partition: &PartitionLog, model: &Model, seed: u64) {
    let end_ms = model.timestamps_ms.len() as i64 * 10;
    for _ in 0..20 {
        let timestamp_ms = random::below(end_ms.unsigned_abs() + 12_000) as i64 - 6_000;
        let found = partition.offset_for_timestamp(TimestampMs(timestamp_ms)).await.unwrap();
        assert_eq!(found, model.find(timestamp_ms), "seed {seed}: {timestamp_ms} from {} on", model.log_start);
    }
}

async fn changes(seed: u64, log: &ShardLog, partition: &PartitionLog, model: &mut Model) {
    for _ in 0..60 {
        match random::below(20) {
            0 => log.checkpoint().await.unwrap(),
            1 => {
                // Into the middle of a batch as well.
                partition.set_high_watermark(partition.watermarks().durable_end);
                let to = partition.watermarks().high_watermark.0.min(model.log_start as u64 + random::below(20));
                partition.set_log_start(Offset(to)).await.unwrap();
                model.log_start = model.log_start.max(to as usize);
            }
            2 => {
                partition.set_high_watermark(partition.watermarks().durable_end);
                let kept = Retention { age_ms: None, bytes: Some(512 << 10) };
                let retained = partition.retain(kept, shards::clock::wall_ms()).await.unwrap();
                model.log_start = model.log_start.max(retained.log_start.0 as usize);
            }
            3 => {
                let options = PartitionOptions { segment_ms: 1, ..partition.options() };
                partition.alter(options).await.unwrap();
                shards::clock::sleep(std::time::Duration::from_millis(2)).await;
                partition.retain(Retention::default(), shards::clock::wall_ms()).await.unwrap();
                partition.alter(PartitionOptions { segment_ms: u64::MAX, ..options }).await.unwrap();
            }
            4 => {
                // The last batches are cut off.
                let end = partition.watermarks().appended_end;
                let last = end.0.saturating_sub(1).max(partition.watermarks().high_watermark.0);
                let slices = partition.read(Offset(last), 1, end).await.unwrap();
                if let Some(first) = slices.first() {
                    let base = BatchHeader::decode(first).unwrap().base_offset;
                    if base >= partition.watermarks().high_watermark && base.0 >= model.log_start as u64 {
                        partition.truncate(base).await.unwrap();
                        model.timestamps_ms.truncate(base.0 as usize);
                    }
                }
            }
            _ => append_some(partition, model).await,
        }
        check(partition, model, seed).await;
    }
}

#[test]
fn the_first_record_at_or_after_a_time_is_found_as_a_scan_would() {
    for seed in 0..8 {
        let disk = Disk::new(DiskOptions::default());
        let mut model = Model::default();
        for life in 0..3 {
            model = simulate(seed * 10 + life, &disk, async move {
                let options = LogOptions { scrub_pause_ms: u64::MAX / 4, ..small_options() };
                let log = open(Path::new("/data"), options).await;
                let partition = log.partition(key(0)).unwrap_or_else(|| {
                    let durability = if seed % 3 == 0 { Durability::Relaxed } else { Durability::Stable };
                    let options = PartitionOptions { segment_bytes: 300 << 10, segment_ms: u64::MAX, durability };
                    log.create_partition(key(0), options).unwrap()
                });
                check(&partition, &model, seed).await;
                changes(seed, &log, &partition, &mut model).await;
                log.close().await.unwrap();
                model
            });
        }
    }
}

/// Segments of the large log, and what stands in each: batches of one record and 4 KiB, of which only those are really there that may be read.
const SEGMENTS: u64 = 400;
const SEGMENT_BYTES: u64 = 256 << 20;
const BATCH_BYTES: u64 = 4096;
const BATCHES: u64 = SEGMENT_BYTES / BATCH_BYTES - 1;

/// The timestamp of a record: they go up, and each stands a little before or behind its place.
fn timestamp_of(offset: u64) -> i64 {
    let wobble = (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as i64;
    1_000_000 + offset as i64 * 10 + wobble
}

/// The first record at or after a time: the wobble reaches about a hundred records.
fn expected(timestamp_ms: i64) -> (Offset, TimestampMs) {
    let about = ((timestamp_ms - 1_000_000) / 10).max(0) as u64;
    let found = (about.saturating_sub(200)..).find(|offset| timestamp_of(*offset) >= timestamp_ms).unwrap();
    (Offset(found), TimestampMs(timestamp_of(found)))
}

fn one_block(offset: u64) -> Vec<u8> {
    let (mut header, bytes) = batch(&[timestamp_of(offset)], 3_000, Compression::None);
    header.stamp(Offset(offset), LeaderEpoch(1), None);
    let mut block = vec![0; BLOCK_BYTES];
    block[..bytes.len()].copy_from_slice(&bytes);
    let mut first = [0; HEADER_BYTES];
    header.encode(&mut first);
    block[..HEADER_BYTES].copy_from_slice(&first);
    write_padding(&mut block[bytes.len()..], Offset(offset + 1), LeaderEpoch(1));
    block
}

/// Makes the file of a segment with its header, its index, and the batches around `wanted`.
async fn make_segment(path: &Path, base: u64, wanted: &[u64]) {
    let file = File::open(path, OpenOptions::creating_new()).await.unwrap();
    let mut block = buffer::allocate(BLOCK_BYTES);
    SegmentHeader { partition: key(0), base_offset: Offset(base), storage_id: 1, incarnation: 1 }.encode(&mut block);
    file.write_at(0, block.freeze()).await.unwrap();
    let mut index = SegmentIndex::new(Offset(base));
    for number in 0..BATCHES {
        index.add(Offset(base + number), (number + 1) * BATCH_BYTES, timestamp_of(base + number));
    }
    let bytes = index.encode(key(0), SEGMENT_BYTES, Offset(base + BATCHES));
    let mut end = buffer::allocate(bytes.len());
    end.copy_from_slice(&bytes);
    file.write_at(SEGMENT_BYTES, end.freeze()).await.unwrap();
    for around in wanted {
        for offset in around.saturating_sub(400).max(base)..(around + 400).min(base + BATCHES) {
            let mut block = buffer::allocate(BLOCK_BYTES);
            block.copy_from_slice(&one_block(offset));
            file.write_at((offset - base + 1) * BATCH_BYTES, block.freeze()).await.unwrap();
        }
    }
    file.close().await.unwrap();
}

#[test]
fn a_hundred_gigabytes_are_searched_by_one_index_and_one_read() {
    let wanted = [0, 77_777, BATCHES * 133 + 5, BATCHES * 250, BATCHES * 399 + 60_000];
    let disk = Disk::new(DiskOptions { capacity_bytes: 1 << 40, ..DiskOptions::default() });
    simulate(1, &disk, async move {
        let data: Arc<Path> = Arc::from(Path::new("/data"));
        // Where the partition's files are.
        let folder: PathBuf = data.join("segments/03");
        disk::create_dir_all(&folder).await.unwrap();
        let mut state = PartitionState::new(key(0), 0, PartitionOptions::default(), Offset(0));
        state.epochs.begin(LeaderEpoch(1), Offset(0));
        for number in 0..SEGMENTS {
            let base = number * BATCHES;
            make_segment(&folder.join(format!("{}-000000-{base:020}.seg", key(0).topic.to_hex())), base, &wanted).await;
            state.segments.push(SegmentState {
                disk: data.clone(),
                base: Offset(base),
                end: Offset(base + BATCHES),
                end_position: SEGMENT_BYTES,
                max_timestamp_ms: (base..base + BATCHES).map(timestamp_of).max().unwrap(),
                aged_from_ms: 1,
                sealed: true,
                generation: 0,
                tombstones_since_ms: None,
            });
        }
        state.high_watermark = Offset(SEGMENTS * BATCHES);
        let options = LogOptions { scrub_bytes_per_second: 0, ..small_options() };
        let log = ShardLog::open(options, ShardDirectory::new("/data", 0), vec![state]).await.unwrap();
        let partition = log.partition(key(0)).unwrap();
        assert!(partition.size_bytes() >= 100 << 30);
        for offset in wanted {
            for timestamp_ms in [timestamp_of(offset), timestamp_of(offset) + 1, timestamp_of(offset) - 3] {
                let before = log.stats();
                let found = partition.offset_for_timestamp(TimestampMs(timestamp_ms)).await.unwrap();
                assert_eq!(found, Some(expected(timestamp_ms)), "{timestamp_ms}");
                let after = log.stats();
                let read = (after.indexes_read - before.indexes_read, after.disk_reads - before.disk_reads);
                assert!(read.0 <= 1 && read.1 <= 1, "indexes and batches read: {read:?}");
                assert_eq!(after.indexes_rebuilt, 0);
                // 2,048 entries of 24 bytes, the trailer twice; one stretch.
                assert!(after.indexes_read_bytes - before.indexes_read_bytes <= 64 << 10);
                assert!(after.disk_read_bytes - before.disk_read_bytes <= (128 << 10) + BATCH_BYTES);
            }
        }
        let before = log.stats();
        assert_eq!(partition.offset_for_timestamp(TimestampMs(i64::MAX)).await.unwrap(), None);
        assert_eq!(partition.offset_for_timestamp(TimestampMs(i64::MIN)).await.unwrap(), Some(expected(0)));
        assert!(log.stats().indexes_read == before.indexes_read, "none for the future, a known one for the past");
        log.close().await.unwrap();
    });
}

#[test]
fn a_large_segment_has_its_index_after_a_restart_and_after_another() {
    let disk = Disk::new(DiskOptions::default());
    for life in 0..3 {
        simulate(life, &disk, async move {
            let log = open(Path::new("/data"), small_options()).await;
            let created = || log.create_partition(key(0), PartitionOptions::default()).unwrap();
            let partition = log.partition(key(0)).unwrap_or_else(created);
            // 8 MiB in the first life and a small segment to continue, 24 MiB with the second.
            assert_eq!(partition.segments().len() as u64, life / 2);
            let before = partition.watermarks().appended_end.0;
            for number in before..before + [8, 16, 0][life as usize] {
                let (header, bytes) = batch(&[number as i64 * 10], 1 << 20, Compression::None);
                let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
                partition.durable(appended.ticket).await.unwrap();
            }
            let end = partition.watermarks().appended_end.0;
            for number in [0, 5, end / 2, end - 1] {
                let found = partition.offset_for_timestamp(TimestampMs(number as i64 * 10 - 5)).await.unwrap();
                assert_eq!(found, Some((Offset(number), TimestampMs(number as i64 * 10))), "in life {life}");
            }
            assert_eq!(log.stats().indexes_rebuilt, u64::from(life == 1), "of the small part that was continued");
            log.close().await.unwrap();
        });
    }
}

#[test]
fn records_in_one_batch_are_told_apart() {
    simulate(1, &Disk::new(DiskOptions::default()), async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = log.create_partition(key(0), PartitionOptions::default()).unwrap();
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let base = partition.watermarks().appended_end.0;
            let from_ms = base as i64 * 1000;
            let (header, bytes) = batch(&[from_ms + 30, from_ms + 10, from_ms + 20, from_ms + 40], 200, compression);
            let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
            // Before it is written, and after.
            for durable in [false, true] {
                if durable {
                    partition.durable(appended.ticket).await.unwrap();
                }
                for (time, delta) in [(5, 0), (30, 0), (31, 3), (40, 3)] {
                    let found = partition.offset_for_timestamp(TimestampMs(from_ms + time)).await.unwrap();
                    assert_eq!(found.map(|(offset, _)| offset), Some(Offset(base + delta)), "{compression:?}, {durable}, {time}");
                }
            }
        }
        log.close().await.unwrap();
    });
}
