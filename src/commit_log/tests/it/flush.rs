//! From memory into segments: how much is under way at a time, and who waits for it.

use std::path::Path;
use std::time::Duration;

use commit_log::{LogOptions, PartitionOptions};
use shards::simulated::{Disk, DiskOptions, Fault, FaultKind, Target};
use shards::{clock, executor};
use wire::LeaderEpoch;

use crate::support::{append, batch, create, open, read_all, simulate, small_options};

/// Bytes of flushes on their way to the disk.
const IN_FLIGHT_BYTES_MAX: u64 = 1 << 20;

/// Each of sixteen flushes filled its buffers and then waited for room: sixteen times the bound was held.
#[test]
fn flushes_that_wait_for_room_hold_no_buffers() {
    const PARTITIONS: u32 = 16;
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async move {
        let large =
            LogOptions { wal_bytes_max: 64 << 20, wal_file_bytes: 4 << 20, unflushed_bytes_max: 64 << 20, ..small_options() };
        let log = open(Path::new("/data"), large).await;
        let partitions: Vec<_> = (0..PARTITIONS).map(|number| create(&log, number)).collect();
        for partition in &partitions {
            for tag in 0..10 {
                append(partition, tag, 1, 40 << 10).await;
            }
        }
        let size_bytes = || partitions.iter().map(|partition| partition.size_bytes()).sum::<u64>();
        let before = size_bytes();
        slow.inject(Fault::once(Target::Write, FaultKind::Stall(Duration::from_secs(1))).on(".seg").always());
        let checkpointed = log.clone();
        executor::spawn(async move { checkpointed.checkpoint().await }).detach();
        clock::sleep(Duration::from_millis(500)).await;
        // What is being flushed counts in memory and in its segment.
        let under_way = size_bytes() - before;
        assert!(under_way > 0, "flushes have begun");
        let headers = u64::from(PARTITIONS) * 4096;
        assert!(under_way <= IN_FLIGHT_BYTES_MAX + headers, "{under_way} bytes are under way");
        slow.clear_faults();
        for partition in &partitions {
            assert_eq!(read_all(partition, 0, 1 << 20).await.len(), 10);
        }
        log.close().await.unwrap();
    });
}

#[test]
fn appends_do_not_wait_for_the_index_of_a_segment_that_was_closed() {
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async move {
        // No checkpoint flushes anything here.
        let options = LogOptions { wal_bytes_max: 64 << 20, wal_file_bytes: 4 << 20, ..small_options() };
        let log = open(Path::new("/data"), options).await;
        let closing = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
        let closed = log.create_partition(crate::support::key(0), closing).unwrap();
        slow.inject(Fault::once(Target::Change, FaultKind::Stall(Duration::from_secs(60))).on(".seg"));
        for tag in 0..3 {
            append(&closed, tag, 1, 100 << 10).await;
        }
        assert_eq!(closed.segments().len(), 1);
        let begun = clock::monotonic();
        let appended = create(&log, 1);
        for tag in 0..300 {
            append(&appended, tag, 1, 10_000).await;
        }
        assert!(log.stats().flushed_bytes >= 1 << 20, "more than the memory takes: {:?}", log.stats());
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?} of the simulated clock", begun.elapsed());
        log.close().await.unwrap();
    });
}

/// All that was there before the restart is read for the index, and the partition's writes waited for that.
#[test]
fn appends_do_not_wait_for_what_is_read_for_the_index_of_a_continued_segment() {
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = create(&log, 0);
        for tag in 0..8 {
            append(&partition, tag, 1, 1 << 20).await;
        }
        log.close().await.unwrap();
    });
    simulate(2, &disk, async move {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = log.partition(crate::support::key(0)).unwrap();
        append(&partition, 8, 1, 1 << 20).await;
        partition.alter(PartitionOptions { segment_bytes: 4 << 20, ..partition.options() }).await.unwrap();
        slow.inject(Fault::once(Target::Read, FaultKind::Stall(Duration::from_secs(60))).on(".seg"));
        let begun = clock::monotonic();
        for tag in 9..12 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        log.checkpoint().await.unwrap();
        assert_eq!(partition.segments().len(), 1);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?} of the simulated clock", begun.elapsed());
        log.close().await.unwrap();
        assert_eq!(log.stats().indexes_rebuilt, 1, "of what was continued");
    });
    simulate(3, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = log.partition(crate::support::key(0)).unwrap();
        let expected: Vec<_> = (0..12).map(|tag| (tag, 1, tag)).collect();
        assert_eq!(read_all(&partition, 0, 1 << 20).await, expected);
        assert_eq!((log.stats().indexes_rebuilt, log.stats().indexes_read), (1, 1), "the closed one has its own");
        log.close().await.unwrap();
    });
}

/// A consumer read an old part of a segment that was continued after a restart and has just been closed, before its index was written: the index that was
/// built for the consumer was taken for that of the part before the restart, and the shard ended.
#[test]
fn a_reader_may_come_before_the_index_of_a_continued_segment_is_written() {
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let [_, second] = [0, 1].map(|number| create(&log, number));
        for tag in 0..8 {
            append(&second, tag, 1, 1 << 20).await;
        }
        log.close().await.unwrap();
    });
    simulate(2, &disk, async move {
        let log = open(Path::new("/data"), small_options()).await;
        let [first, second] = [0, 1].map(|number| log.partition(crate::support::key(number)).unwrap());
        append(&second, 8, 1, 1 << 20).await;
        first.alter(PartitionOptions { segment_bytes: 256 << 10, ..first.options() }).await.unwrap();
        second.alter(PartitionOptions { segment_bytes: 4 << 20, ..second.options() }).await.unwrap();
        // One index at a time: the second's waits for the first's.
        slow.inject(Fault::once(Target::Change, FaultKind::Stall(Duration::from_secs(5))).on(".seg"));
        for tag in 0..3 {
            append(&first, tag, 1, 100 << 10).await;
        }
        for tag in 9..12 {
            append(&second, tag, 1, 100 << 10).await;
        }
        assert_eq!(second.segments().len(), 1);
        assert_eq!(read_all(&second, 0, 1 << 20).await.len(), 12);
        assert_eq!(log.stats().indexes_rebuilt, 1, "the reader came first");
        clock::sleep(Duration::from_secs(10)).await;
        log.close().await.unwrap();
    });
    simulate(3, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let second = log.partition(crate::support::key(1)).unwrap();
        let expected: Vec<_> = (0..12).map(|tag| (tag, 1, tag)).collect();
        assert_eq!(read_all(&second, 0, 1 << 20).await, expected);
        assert_eq!((log.stats().indexes_rebuilt, log.stats().indexes_read), (1, 1), "the closed one has its own");
        log.close().await.unwrap();
    });
}

/// The index of a segment was still to be written when a cut took the segment, and another of the same name and end was closed: the file was shortened
/// to where the first had ended.
#[test]
fn the_late_index_of_a_segment_that_was_cut_does_not_touch_the_one_that_took_its_name() {
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async move {
        let log = open(Path::new("/data"), small_options()).await;
        let closing = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
        let [first, second] = [0, 1].map(|number| log.create_partition(crate::support::key(number), closing).unwrap());
        slow.inject(Fault::once(Target::Change, FaultKind::Stall(Duration::from_secs(5))).on(".seg"));
        for tag in 0..3 {
            append(&first, tag, 1, 100 << 10).await;
        }
        for tag in 0..3 {
            append(&second, tag, 1, 100 << 10).await;
        }
        second.truncate(wire::Offset(0)).await.unwrap();
        for tag in 10..13 {
            append(&second, tag, 1, 116 << 10).await;
        }
        assert_eq!(second.segments().len(), 1);
        clock::sleep(Duration::from_secs(10)).await;
        log.close().await.unwrap();
    });
    simulate(2, &disk, async {
        let log = open(Path::new("/data"), small_options()).await;
        let second = log.partition(crate::support::key(1)).unwrap();
        assert_eq!(read_all(&second, 0, 1 << 20).await, [(0, 1, 10), (1, 1, 11), (2, 1, 12)]);
        // And it is appended to as ever.
        let (header, bytes) = batch(13, 1, 100, 0);
        let appended = second.append(header, bytes, LeaderEpoch(1), None).unwrap();
        assert_eq!(appended.base_offset, wire::Offset(3));
        second.durable(appended.ticket).await.unwrap();
        log.close().await.unwrap();
    });
}
