//! Damage, failing writes, full disks.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use commit_log::{AppendError, LogOptions, PartitionLog, ReadError};
use shards::simulated::{Disk, DiskOptions, Fault, FaultKind, Target};
use wire::{LeaderEpoch, Offset};

use crate::support::{append, batch, create, key, open, read_all, simulate, small_options};

const EIO: i32 = 5;

fn data() -> PathBuf {
    PathBuf::from("/data")
}

#[test]
fn a_damaged_batch_is_an_error_and_its_neighbours_are_read() {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = create(&log, 0);
        // Each is a direct write: it starts on a block of its own.
        for tag in 0..5 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        log.close().await.unwrap();
    });
    let (path, _) = disk.files().into_iter().find(|(path, _)| path.extension().is_some_and(|end| end == "seg")).unwrap();
    // Within the payload of the third batch.
    assert!(disk.flip_bit(&path, 4096 + 2 * 106_496 + 50_000, 3));
    simulate(2, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        let end = Offset(5);
        let before = partition.read(Offset(0), 1 << 20, end).await.unwrap();
        assert_eq!(crate::support::decode(&before).len(), 2);
        let damaged = partition.read(Offset(2), 1 << 20, end).await;
        assert!(matches!(damaged, Err(ReadError::Corrupt { offset: Offset(2), .. })), "{damaged:?}");
        assert_eq!(read_all(&partition, 3, 1 << 20).await, [(3, 1, 3), (4, 1, 4)]);
        assert!(log.stats().corrupt_batches > 0);
        log.close().await.unwrap();
    });
}

#[test]
fn batches_missing_at_the_start_of_a_segment_are_not_passed_over() {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = create(&log, 0);
        for tag in 0..4 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        log.close().await.unwrap();
    });
    let (path, length) = disk.files().into_iter().find(|(path, _)| path.extension().is_some_and(|end| end == "seg")).unwrap();
    // The first two batches never reached the disk, and the index is gone with them.
    assert!(disk.damage(&path, 4096, 2 * 106_496, |bytes| bytes.fill(0)));
    disk.damage(&path, length - 4096, 4096, |bytes| bytes.fill(0));
    simulate(2, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        for offset in 0..2 {
            let read = partition.read(Offset(offset), 1 << 20, Offset(4)).await;
            assert!(matches!(read, Err(ReadError::Corrupt { .. })), "{offset}: {read:?}");
        }
        assert_eq!(read_all(&partition, 2, 1 << 20).await, [(2, 1, 2), (3, 1, 3)]);
        log.close().await.unwrap();
    });
}

#[test]
fn a_failed_write_stops_the_shard_and_nothing_is_acknowledged_after_it() {
    for (target, place, size) in
        [(Target::Write, "wal-", 100), (Target::Write, ".seg", 100 << 10), (Target::Sync, ".seg", 100 << 10)]
    {
        let disk = Disk::new(DiskOptions::default());
        let faulty = disk.clone();
        simulate(1, &disk, async move {
            let log = open(&data(), small_options()).await;
            let partition = create(&log, 0);
            append(&partition, 1, 1, size).await;
            // The log's files that are made ahead are there: the next write into one is the append's.
            shards::clock::sleep(Duration::from_secs(1)).await;
            faulty.inject(Fault::once(target, FaultKind::Errno(EIO)).on(place));
            let (header, bytes) = batch(2, 1, size, 0);
            let appended = partition.append(header, bytes.clone(), LeaderEpoch(1), None).unwrap();
            partition.durable(appended.ticket).await.unwrap_err();
            assert_eq!(partition.watermarks().durable_end, Offset(1), "{place}");
            assert!(matches!(partition.append(header, bytes, LeaderEpoch(1), None), Err(AppendError::Failed(_))));
            assert!(log.failure().is_some());
            log.failed().await;
            log.close().await.unwrap_err();
            // Reads go on.
            assert_eq!(crate::support::decode(&partition.read(Offset(0), 1 << 20, Offset(1)).await.unwrap()).len(), 1);
        });
    }
}

/// The second of two direct writes waited for ever for the first, which had failed.
#[test]
fn a_failed_direct_write_ends_the_one_behind_it() {
    for (target, place) in [(Target::Write, ".seg"), (Target::Write, "wal-")] {
        let disk = Disk::new(DiskOptions::default());
        let faulty = disk.clone();
        simulate(1, &disk, async move {
            let log = open(&data(), LogOptions { scrub_bytes_per_second: 0, ..small_options() }).await;
            let partition = create(&log, 0);
            append(&partition, 1, 1, 100).await;
            shards::clock::sleep(Duration::from_secs(1)).await;
            // Every task of the log holds it, and the log holds this.
            let held = Rc::new(());
            let by_log = held.clone();
            log.on_commit(move |_| drop(by_log.clone()));
            faulty.inject(Fault::once(target, FaultKind::Errno(EIO)).on(place));
            let (header, bytes) = batch(2, 1, 100 << 10, 0);
            let first = partition.append(header, bytes.clone(), LeaderEpoch(1), None).unwrap();
            shards::executor::yield_now().await;
            let second = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
            partition.durable(first.ticket).await.unwrap_err();
            partition.durable(second.ticket).await.unwrap_err();
            log.close().await.unwrap_err();
            drop((log, partition));
            shards::clock::sleep(Duration::from_secs(10)).await;
            assert_eq!(Rc::strong_count(&held), 1, "a task of the log has not ended: {target:?} on {place}");
        });
    }
}

/// Power-cut seed 221. A direct write takes along what a slow group holds, and makes it durable before the group is done.
#[test]
fn a_cut_waits_for_a_group_that_a_direct_write_has_overtaken() {
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async move {
        let log = open(&data(), small_options()).await;
        let partition = create(&log, 0);
        append(&partition, 0, 1, 100 << 10).await;
        shards::clock::sleep(Duration::from_millis(100)).await;
        slow.inject(Fault::once(Target::Write, FaultKind::Stall(Duration::from_secs(1))).on("wal-"));
        let (header, bytes) = batch(1, 1, 100, 0);
        let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
        shards::clock::sleep(Duration::from_millis(1)).await;
        append(&partition, 2, 1, 100 << 10).await;
        assert!(partition.watermarks().durable_end > appended.last_offset, "the direct write was first");
        assert_eq!(log.stats().groups, 2, "and the group is under way");
        partition.truncate(Offset(1)).await.unwrap();
        assert_eq!(append(&partition, 3, 1, 100).await, 1);
        assert_eq!(read_all(&partition, 0, 1 << 20).await, [(0, 1, 0), (1, 1, 3)]);
        log.close().await.unwrap();
    });
}

#[test]
fn below_the_mark_appends_are_refused_and_reads_go_on() {
    let disk = Disk::new(DiskOptions { capacity_bytes: 64 << 20, ..DiskOptions::default() });
    let resized = disk.clone();
    simulate(1, &disk, async move {
        let marks = LogOptions { free_bytes_min: 8 << 20, free_bytes_resume: 16 << 20, ..small_options() };
        let log = open(&data(), marks).await;
        let partition = create(&log, 0);
        append(&partition, 1, 1, 100).await;
        resized.set_capacity_bytes(10 << 20);
        wait_until(|| log.stats().disk_full).await;
        let (header, bytes) = batch(2, 1, 100, 0);
        let refused = partition.append(header, bytes, LeaderEpoch(1), None).unwrap_err();
        assert!(matches!(refused, AppendError::DiskFull { .. }), "{refused}");
        assert!(refused.retryable());
        assert_eq!(read_all(&partition, 0, 1000).await, [(0, 1, 1)]);
        resized.set_capacity_bytes(64 << 20);
        wait_until(|| !log.stats().disk_full).await;
        append(&partition, 3, 1, 100).await;
        log.close().await.unwrap();
    });
}

#[test]
fn a_partition_with_the_reserve_goes_on_below_the_mark_and_ends_at_half_of_it() {
    let disk = Disk::new(DiskOptions { capacity_bytes: 64 << 20, ..DiskOptions::default() });
    let resized = disk.clone();
    simulate(1, &disk, async move {
        let marks = LogOptions { free_bytes_min: 8 << 20, free_bytes_resume: 16 << 20, ..small_options() };
        let log = open(&data(), marks).await;
        let (partition, reserved) = (create(&log, 0), create(&log, 1));
        reserved.use_space_reserve();
        append(&partition, 1, 1, 100).await;
        append(&reserved, 1, 1, 100).await;
        let refused = |partition: &PartitionLog| {
            let (header, bytes) = batch(2, 1, 100, 0);
            matches!(partition.append(header, bytes, LeaderEpoch(1), None), Err(AppendError::DiskFull { .. }))
        };
        let used_bytes = (64 << 20) - shards::disk::free_space(Path::new("/data")).await.unwrap().available_bytes;
        resized.set_capacity_bytes(used_bytes + (7 << 20));
        wait_until(|| log.stats().disk_full).await;
        assert!(refused(&partition));
        append(&reserved, 2, 1, 100).await;
        resized.set_capacity_bytes(used_bytes + (3 << 20));
        wait_until(|| log.stats().disk_free_bytes < 4 << 20).await;
        assert!(refused(&partition) && refused(&reserved));
        assert_eq!(read_all(&reserved, 0, 1000).await.len(), 2);
        log.close().await.unwrap();
    });
}

/// Each took 32 MiB ahead of need: 1,000 of them filled a disk of 30 GiB with 140 MB of batches, and a shard failed for want of space.
#[test]
fn many_partitions_with_a_large_batch_each_take_little_space_and_fail_no_write_on_a_full_disk() {
    const LARGE_BYTES: usize = 100 << 10;
    let disk = Disk::new(DiskOptions { capacity_bytes: 256 << 20, ..DiskOptions::default() });
    simulate(1, &disk, async move {
        let marks = LogOptions { free_bytes_min: 32 << 20, free_bytes_resume: 64 << 20, ..small_options() };
        let log = open(&data(), marks).await;
        let partitions: Vec<_> = (0..100).map(|index| create(&log, index)).collect();
        for partition in &partitions {
            append(partition, 1, 1, LARGE_BYTES).await;
        }
        wait_until(|| log.stats().disk_free_bytes < 200 << 20).await;
        assert!(log.stats().disk_free_bytes > 128 << 20, "{} bytes are free", log.stats().disk_free_bytes);
        let mut refused = None;
        for partition in partitions.iter().cycle() {
            let (header, bytes) = batch(2, 1, LARGE_BYTES, 0);
            match partition.append(header, bytes, LeaderEpoch(1), None) {
                Ok(appended) => drop(partition.durable(appended.ticket).await.unwrap()),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            shards::clock::sleep(Duration::from_millis(10)).await;
        }
        assert!(matches!(refused, Some(AppendError::DiskFull { .. })), "{refused:?}");
        assert!(log.stats().disk_free_bytes > 16 << 20, "what was accepted left room: {}", log.stats().disk_free_bytes);
        log.close().await.unwrap();
    });
}

#[test]
fn another_brokers_folder_is_refused() {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        open(&data(), small_options()).await.close().await.unwrap();
        let directory = commit_log::ShardDirectory::new(Path::new("/data"), 0);
        let options = LogOptions { broker_id: 9, boot: 2, ..small_options() };
        let refused = commit_log::ShardLog::open(options, directory, Vec::new()).await.unwrap_err();
        assert!(refused.to_string().contains("broker"), "{refused}");
    });
}

/// Lets virtual time pass until the condition holds.
async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        shards::clock::sleep(std::time::Duration::from_millis(10)).await;
    }
}
