//! Truncation, log start, deletion, relaxed partitions, lookup by time.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use commit_log::{AppendError, CreateError, Durability, LogOptions, PartitionOptions, ReadError};
use shards::clock;
use shards::simulated::{Disk, DiskOptions};
use wire::{LeaderEpoch, Offset, TimestampMs};

use crate::support::{append, batch, create, key, on_both, open, read_all, segments_of, simulate, small_options};

#[test]
fn a_truncated_log_goes_on_at_the_cut_and_stays_cut_after_a_restart() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partition = create(&log, 0);
        // The third batch goes straight into the segment, the others through the write-ahead log.
        for (tag, size) in [(1, 100), (2, 100), (3, 100 << 10), (4, 100)] {
            append(&partition, tag, 2, size).await;
        }
        partition.truncate(Offset(4)).await.unwrap();
        let marks = partition.watermarks();
        assert_eq!((marks.appended_end, marks.durable_end), (Offset(4), Offset(4)));
        assert!(matches!(partition.read(Offset(5), 1000, Offset(9)).await, Err(ReadError::OutOfRange { .. })));
        assert_eq!(append(&partition, 9, 3, 100).await, 4);
        let expected = [(0, 2, 1), (2, 2, 2), (4, 3, 9)];
        assert_eq!(read_all(&partition, 0, 1 << 20).await, expected);
        log.close().await.unwrap();
        drop((log, partition));

        let log = open(&disk, small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        assert_eq!(read_all(&partition, 0, 1 << 20).await, expected);
        partition.truncate(Offset(0)).await.unwrap();
        assert_eq!(append(&partition, 10, 1, 100 << 10).await, 0);
        assert_eq!(read_all(&partition, 0, 1 << 20).await, [(0, 1, 10)]);
        log.close().await.unwrap();
    });
}

#[test]
fn segments_below_the_log_start_are_removed() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let options = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
        let partition = log.create_partition(key(0), options).unwrap();
        for tag in 0..12 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        let before = partition.segments().len();
        assert!(before >= 4, "{:?}", partition.segments());
        partition.set_high_watermark(Offset(12));
        partition.set_log_start(Offset(9)).await.unwrap();
        assert!(matches!(partition.read(Offset(8), 1000, Offset(12)).await, Err(ReadError::OutOfRange { .. })));
        assert_eq!(read_all(&partition, 9, 1 << 20).await, [(9, 1, 9), (10, 1, 10), (11, 1, 11)]);
        // A checkpoint waits for removals.
        log.checkpoint().await.unwrap();
        assert!(partition.segments().iter().all(|segment| segment.end_offset > Offset(9)), "{:?}", partition.segments());
        log.close().await.unwrap();
        drop((log, partition));

        let log = open(&disk, small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        assert_eq!(partition.watermarks().log_start, Offset(9));
        assert_eq!(read_all(&partition, 9, 1 << 20).await, [(9, 1, 9), (10, 1, 10), (11, 1, 11)]);
        log.close().await.unwrap();
    });
}

#[test]
fn a_deleted_partition_is_gone_with_its_files() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let (kept, gone) = (create(&log, 0), create(&log, 1));
        append(&kept, 1, 1, 100).await;
        append(&gone, 2, 1, 100 << 10).await;
        assert_eq!(segments_of(&disk, 1).await.len(), 1);
        log.delete_partition(key(1)).await.unwrap();
        let (header, bytes) = batch(3, 1, 100, 0);
        assert_eq!(gone.append(header, bytes, LeaderEpoch(1), None), Err(AppendError::Deleted));
        assert_eq!(gone.read(Offset(0), 1000, Offset(1)).await, Err(ReadError::Deleted));
        log.checkpoint().await.unwrap();
        assert_eq!(segments_of(&disk, 1).await, [""; 0]);
        log.close().await.unwrap();
        drop((log, kept, gone));

        let log = open(&disk, small_options()).await;
        assert!(log.partition(key(1)).is_none());
        assert_eq!(read_all(&log.partition(key(0)).unwrap(), 0, 1000).await, [(0, 1, 1)]);
        assert_eq!(log.create_partition(key(0), PartitionOptions::default()).unwrap_err(), CreateError::Exists);
        log.close().await.unwrap();
    });
}

#[test]
fn commits_are_reported_in_order_and_a_relaxed_partition_is_read_before() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let reported = Rc::new(RefCell::new(Vec::new()));
        let sink = reported.clone();
        log.on_commit(move |committed| sink.borrow_mut().extend(committed.iter().map(|one| (one.key, one.durable_end))));
        let relaxed = PartitionOptions { durability: Durability::Relaxed, ..PartitionOptions::default() };
        let partition = log.create_partition(key(0), relaxed).unwrap();
        let (header, bytes) = batch(1, 2, 100, 0);
        let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
        partition.set_high_watermark(Offset(2));
        assert_eq!(read_all(&partition, 0, 1000).await, [(0, 2, 1)]);
        assert_eq!(partition.watermarks().durable_end, Offset(0));
        partition.durable(appended.ticket).await.unwrap();
        assert_eq!(append(&partition, 2, 1, 100 << 10).await, 2);
        assert_eq!(*reported.borrow(), [(key(0), Offset(2)), (key(0), Offset(3))]);
        log.close().await.unwrap();
    });
}

#[test]
fn a_time_is_found_in_segments_and_in_memory() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partition = create(&log, 0);
        // Batch `tag` holds the times 1000·tag, 1000·tag + 1, …
        for tag in 1..=40 {
            append(&partition, tag, 3, if tag % 2 == 0 { 40_000 } else { 100 }).await;
        }
        for reopened in [false, true] {
            let log = if reopened { open(&disk, small_options()).await } else { log.clone() };
            let partition = log.partition(key(0)).unwrap();
            for (time, expected) in
                [(0, Some((0, 1000))), (1001, Some((1, 1001))), (20_002, Some((59, 20_002))), (20_003, Some((60, 21_000)))]
            {
                let found = partition.offset_for_timestamp(TimestampMs(time)).await.unwrap();
                assert_eq!(found, expected.map(|(offset, time)| (Offset(offset), TimestampMs(time))), "{time}");
            }
            assert_eq!(partition.offset_for_timestamp(TimestampMs(40_003)).await.unwrap(), None);
            log.close().await.unwrap();
        }
    });
}

/// Power-cut seeds 215 and 1759. A batch waits for the relaxed bound when its partition becomes a stable one, and a direct write takes it along: what
/// waited is gone when the log is closed, and nothing tells of that.
#[test]
fn a_close_does_not_wait_for_what_has_become_durable_another_way() {
    simulate(1, &Disk::new(DiskOptions::default()), async move {
        let options = LogOptions { relaxed_flush_ms_max: 60_000, ..small_options() };
        let log = open(Path::new("/data"), options).await;
        let relaxed = PartitionOptions { durability: Durability::Relaxed, ..PartitionOptions::default() };
        let partition = log.create_partition(key(0), relaxed).unwrap();
        let (header, bytes) = batch(1, 1, 100, 0);
        let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
        partition.alter(PartitionOptions::default()).await.unwrap();
        append(&partition, 2, 1, 100 << 10).await;
        let begun = clock::monotonic();
        partition.durable(appended.ticket).await.unwrap();
        // Until the trailer is written: nothing else is left to do.
        clock::sleep(Duration::from_secs(1)).await;
        log.close().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "before the bound");
    });
}
