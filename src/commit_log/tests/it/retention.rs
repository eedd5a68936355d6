//! What is not kept goes: by age and by size, closed by age though nothing more is appended, durably before the first file, and without a broken read.

use std::path::Path;
use std::time::Duration;

use commit_log::{LogOptions, PartitionLog, PartitionOptions, ReadError, Retention, ShardLog};
use shards::simulated::{CrashMode, Disk, DiskOptions, SimOptions, Simulation};
use shards::{clock, executor};
use wire::{LeaderEpoch, Offset};

use crate::support::{append, batch, crash_at, create, key, on_both, open, read_all, simulate, small_options};

const HOUR_MS: u64 = 3_600_000;
const BY_AGE: Retention = Retention { age_ms: Some(HOUR_MS), bytes: None };

fn files(disk: &Disk) -> usize {
    let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "seg");
    disk.files().iter().filter(|(path, _)| is_segment(path)).count()
}

/// Appends a batch of one record at `timestamp_ms`, and shows it to consumers.
async fn append_at(log: &PartitionLog, tag: u64, bytes: usize, timestamp_ms: i64) {
    let (header, bytes) = batch(tag, 1, bytes, timestamp_ms);
    let appended = log.append(header, bytes, LeaderEpoch(1), None).unwrap();
    let durable = log.durable(appended.ticket).await.unwrap();
    log.set_high_watermark(durable.durable_end);
}

fn closing_after(log: &ShardLog, segment_ms: u64) -> PartitionLog {
    let options = PartitionOptions { segment_ms, segment_bytes: 256 << 10, ..PartitionOptions::default() };
    log.create_partition(key(0), options).unwrap()
}

async fn wait_for_removals(log: &ShardLog, partition: &PartitionLog) {
    while log.stats().reclaiming_bytes > 0
        || partition.segments().iter().any(|one| one.end_offset <= partition.watermarks().log_start)
    {
        clock::sleep(Duration::from_millis(1)).await;
    }
    // The last name may just be going.
    clock::sleep(Duration::from_millis(20)).await;
}

#[test]
fn a_partition_without_appends_ends_up_empty() {
    // In a segment, and still in memory: the second is too small to be flushed by itself.
    for bytes in [100 << 10, 100] {
        let disk = Disk::new(DiskOptions::default());
        simulate(1, &disk, async move {
            let log = open(Path::new("/data"), small_options()).await;
            let partition = closing_after(&log, HOUR_MS / 4);
            append_at(&partition, 1, bytes, clock::wall_ms()).await;
            let appended_ms = clock::wall_ms();
            let mut looks = 0;
            loop {
                let retained = partition.retain(BY_AGE, clock::wall_ms()).await.unwrap();
                looks += 1;
                let Some(next_ms) = retained.next_ms else { break };
                assert!(next_ms > clock::wall_ms(), "what was due is done");
                clock::sleep(Duration::from_millis(next_ms.abs_diff(clock::wall_ms()))).await;
            }
            assert_eq!(looks, 3, "one to close, one to expire");
            let kept_ms = clock::wall_ms() - appended_ms;
            assert!(kept_ms < 2 * HOUR_MS as i64 && kept_ms >= HOUR_MS as i64 - 10, "{kept_ms}");
            assert_eq!(partition.watermarks().log_start, Offset(1));
            assert!(matches!(
                partition.read(Offset(0), 1000, Offset(1)).await,
                Err(ReadError::OutOfRange { start: Offset(1), .. })
            ));
            wait_for_removals(&log, &partition).await;
            assert_eq!(partition.size_bytes(), 0);
            log.close().await.unwrap();
        });
        assert_eq!(files(&disk), 0);
    }
}

#[test]
fn sizes_are_kept_and_the_log_tells_of_closed_segments() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partition = closing_after(&log, u64::MAX);
        let rolled = log.rolled();
        for tag in 0..12 {
            append_at(&partition, tag, 100 << 10, 0).await;
        }
        rolled.await;
        assert_eq!((log.take_rolled(), log.take_rolled()), (vec![key(0)], vec![]));
        let before = partition.size_bytes();
        let kept = Retention { age_ms: None, bytes: Some(600 << 10) };
        let retained = partition.retain(kept, clock::wall_ms()).await.unwrap();
        assert_eq!(retained.segments, 3);
        assert_eq!(retained.log_start, Offset(6));
        wait_for_removals(&log, &partition).await;
        assert_eq!(partition.size_bytes(), before - retained.bytes);
        assert_eq!(read_all(&partition, 6, 1 << 20).await.len(), 6);
        assert_eq!(partition.retain(kept, clock::wall_ms()).await.unwrap().segments, 0);
        log.close().await.unwrap();
    });
}

#[test]
fn a_smaller_segment_size_closes_what_is_open() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partition = closing_after(&log, u64::MAX);
        append_at(&partition, 1, 100 << 10, 0).await;
        partition.retain(Retention::default(), clock::wall_ms()).await.unwrap();
        assert_eq!(partition.segments().len(), 0);
        partition.alter(PartitionOptions { segment_bytes: 64 << 10, ..partition.options() }).await.unwrap();
        partition.retain(Retention::default(), clock::wall_ms()).await.unwrap();
        assert_eq!(partition.segments().len(), 1);
        log.close().await.unwrap();
    });
}

#[test]
fn a_clock_that_goes_back_does_not_keep_records_for_ever() {
    let disk = Disk::new(DiskOptions::default());
    let year_ms = 365 * 24 * HOUR_MS as i64;
    let at = |wall_start_ms| SimOptions { wall_start_ms, ..SimOptions::default() };
    let now_ms = SimOptions::default().wall_start_ms;
    let future = Simulation::new(1, at(now_ms + 10 * year_ms)).mount("/data", &disk).run(async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = closing_after(&log, HOUR_MS);
        // Three times 100 KiB: one segment closed, one open.
        for tag in 0..3 {
            append_at(&partition, tag, 100 << 10, clock::wall_ms()).await;
        }
        assert_eq!(partition.segments().len(), 1);
        log.close().await.unwrap();
    });
    assert!(matches!(future.outcome, shards::simulated::Outcome::Finished(())));
    simulate(2, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        partition.set_high_watermark(Offset(3));
        assert_eq!(partition.retain(BY_AGE, clock::wall_ms()).await.unwrap().segments, 0);
        clock::sleep(Duration::from_millis(HOUR_MS + 1)).await;
        assert_eq!(partition.retain(BY_AGE, clock::wall_ms()).await.unwrap().segments, 1, "the closed one");
        clock::sleep(Duration::from_millis(HOUR_MS + 1)).await;
        assert_eq!(partition.retain(BY_AGE, clock::wall_ms()).await.unwrap().segments, 1, "what was open");
        log.close().await.unwrap();
    });
}

#[test]
fn readers_of_what_goes_are_told_where_the_log_starts() {
    on_both(|disk| async move {
        let options = LogOptions { read_cache_bytes_max: 0, tail_cache_bytes_max: 0, ..small_options() };
        let log = open(&disk, options).await;
        let options = PartitionOptions { segment_bytes: 8 << 20, ..PartitionOptions::default() };
        let partition = log.create_partition(key(0), options).unwrap();
        // Segments large enough for their space to go in steps.
        for tag in 0..40 {
            append_at(&partition, tag, 1 << 20, 0).await;
        }
        let reader = {
            let partition = partition.clone();
            executor::spawn(async move {
                let mut passed = 0;
                let mut from = 0;
                while from < 40 {
                    match partition.read(Offset(from), 1 << 20, Offset(40)).await {
                        Ok(slices) => {
                            from +=
                                slices.iter().flat_map(|slice| crate::support::decode(std::slice::from_ref(slice))).count() as u64
                        }
                        Err(ReadError::OutOfRange { start, .. }) => {
                            assert!(start.0 > from);
                            (from, passed) = (start.0, passed + 1);
                        }
                        Err(error) => panic!("at {from}: {error}"),
                    }
                    executor::yield_now().await;
                }
                passed
            })
        };
        for bytes in (0..40).rev() {
            let kept = Retention { age_ms: None, bytes: Some(bytes << 20) };
            partition.retain(kept, clock::wall_ms()).await.unwrap();
            clock::sleep(Duration::from_micros(300)).await;
        }
        let _passed: u64 = reader.await;
        wait_for_removals(&log, &partition).await;
        assert_eq!(log.stats().corrupt_batches, 0);
        log.close().await.unwrap();
    });
}

#[test]
fn a_crash_at_any_io_of_retention_keeps_the_rest_and_leaves_no_file() {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = closing_after(&log, u64::MAX);
        for tag in 0..9 {
            append_at(&partition, tag, 100 << 10, 0).await;
        }
        log.close().await.unwrap();
    });
    let mut moved = 0;
    for count in (10..200).step_by(3) {
        let disk = disk.fork();
        crash_at(count, &disk, async {
            let log = open(Path::new("/data"), small_options()).await;
            let partition = log.partition(key(0)).unwrap();
            partition.set_high_watermark(Offset(9));
            partition.retain(Retention { age_ms: None, bytes: Some(200 << 10) }, clock::wall_ms()).await.unwrap();
            log.checkpoint().await.unwrap();
            wait_for_removals(&log, &partition).await;
        });
        let start = simulate(count, &disk, async {
            let log = open(Path::new("/data"), small_options()).await;
            let partition = log.partition(key(0)).unwrap();
            let start = partition.watermarks().log_start.0;
            assert!(start == 0 || start == 6, "{start}");
            let expected: Vec<_> = (start..9).map(|tag| (tag, 1, tag)).collect();
            assert_eq!(read_all(&partition, start, 1 << 20).await, expected);
            // Leftovers go in the background.
            clock::sleep(Duration::from_secs(1)).await;
            log.close().await.unwrap();
            start
        });
        moved += u64::from(start > 0);
        assert_eq!(files(&disk) as u64, if start > 0 { 2 } else { 5 }, "crash at I/O {count}");
        disk.crash(CrashMode::PowerCut, count);
    }
    assert!(moved > 0, "some crashes come after the move");
}

#[test]
fn a_partition_at_rest_costs_no_look() {
    simulate(1, &Disk::new(DiskOptions::default()), async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = create(&log, 0);
        assert_eq!(partition.retain(BY_AGE, clock::wall_ms()).await.unwrap().next_ms, None);
        append(&partition, 1, 1, 100).await;
        partition.set_high_watermark(Offset(1));
        assert!(partition.retain(BY_AGE, clock::wall_ms()).await.unwrap().next_ms.is_some());
        log.close().await.unwrap();
    });
}

#[test]
fn a_log_start_that_is_asked_for_twice_is_durable_both_times() {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = create(&log, 0);
        append(&partition, 1, 4, 100).await;
        partition.set_high_watermark(Offset(4));
        let first = {
            let partition = partition.clone();
            executor::spawn(async move { partition.set_log_start(Offset(3)).await.unwrap() })
        };
        executor::yield_now().await;
        partition.set_log_start(Offset(2)).await.unwrap();
        // As if the power went now: what was answered stays.
        let retained = partition.retain(Retention::default(), clock::wall_ms()).await.unwrap();
        assert!(retained.log_start >= Offset(2));
        first.await;
        log.close().await.unwrap();
    });
}
