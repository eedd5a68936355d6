//! Appending, acknowledging, reading; small and large batches; restarts.

use std::path::Path;
use std::time::Duration;

use commit_log::{AppendError, LogOptions};
use shards::clock;
use shards::simulated::{Disk, DiskOptions};
use wire::{LeaderEpoch, Offset};

use crate::support::{append, batch, create, key, on_both, open, read_all, simulate, small_options};

#[test]
fn a_batch_is_read_back_and_survives_a_restart() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partition = create(&log, 0);
        assert_eq!(append(&partition, 1, 3, 100).await, 0);
        assert_eq!(append(&partition, 2, 2, 100).await, 3);
        let expected = [(0, 3, 1), (3, 2, 2)];
        assert_eq!(read_all(&partition, 0, 1 << 20).await, expected);
        log.close().await.unwrap();
        drop((log, partition));

        let log = open(&disk, small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        assert_eq!(read_all(&partition, 0, 1 << 20).await, expected);
        assert_eq!(append(&partition, 3, 1, 100).await, 5);
        assert_eq!(read_all(&partition, 3, 1 << 20).await, [(3, 2, 2), (5, 1, 3)]);
        log.close().await.unwrap();
    });
}

#[test]
fn large_batches_go_straight_into_segments_between_small_ones() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partition = create(&log, 0);
        let mut expected = Vec::new();
        for tag in 0..30 {
            let size = if tag % 3 == 1 { 100 << 10 } else { 500 };
            let base = append(&partition, tag, 2, size).await;
            expected.push((base, 2, tag));
        }
        assert!(log.stats().direct_writes >= 10, "{:?}", log.stats());
        assert_eq!(read_all(&partition, 0, 300 << 10).await, expected);
        log.close().await.unwrap();
        drop((log, partition));

        let log = open(&disk, small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        assert_eq!(read_all(&partition, 0, 300 << 10).await, expected);
        assert!(log.stats().disk_reads > 0);
        log.close().await.unwrap();
    });
}

#[test]
fn a_log_larger_than_its_memory_rolls_recycles_and_reads_cold() {
    on_both(|disk| async move {
        let log = open(&disk, small_options()).await;
        let partitions: Vec<_> = (0..5).map(|partition| create(&log, partition)).collect();
        let mut expected = vec![Vec::new(); 5];
        for tag in 0..400 {
            let partition = (tag % 5) as usize;
            let base = append(&partitions[partition], tag, 4, 10_000).await;
            expected[partition].push((base, 4, tag));
        }
        let stats = log.stats();
        assert!(stats.checkpoints > 0, "{stats:?}");
        assert!(stats.tail_cache_bytes <= 3 << 20, "{stats:?}");
        assert!(stats.wal_live_bytes <= 4 << 20, "{stats:?}");
        for (partition, expected) in partitions.iter().zip(&expected) {
            assert_eq!(&read_all(partition, 0, 100 << 10).await, expected);
        }
        assert!(log.stats().disk_reads > 0);
        log.close().await.unwrap();
    });
}

#[test]
fn several_batches_are_appended_back_to_back_or_not_at_all() {
    on_both(|disk| async move {
        let options = LogOptions { append_queue_bytes_max: 40 << 10, ..small_options() };
        let log = open(&disk, options).await;
        let partition = create(&log, 0);
        let several = |tags: std::ops::Range<u64>| tags.map(|tag| batch(tag, 2, 5_000, 1_000)).collect::<Vec<_>>();
        // Into an empty queue goes more than it holds.
        let all = partition.append_all(&several(0..5), LeaderEpoch(1), None).unwrap();
        assert_eq!((all.base_offset, all.last_offset), (Offset(0), Offset(9)));
        // Beside them each of the next would be too much.
        let refused = partition.append_all(&several(5..7), LeaderEpoch(1), None).unwrap_err();
        assert!(matches!(refused, AppendError::Full { .. }), "{refused:?}");
        partition.durable(all.ticket).await.unwrap();
        // The first of these would find room, the fourth would not: none is taken.
        let one = partition.append_all(&several(5..6), LeaderEpoch(1), None).unwrap();
        let refused = partition.append_all(&several(6..10), LeaderEpoch(1), None).unwrap_err();
        assert!(matches!(refused, AppendError::Full { .. }), "{refused:?}");
        assert_eq!(partition.watermarks().appended_end, Offset(12));
        partition.durable(one.ticket).await.unwrap();
        let expected: Vec<_> = (0..6).map(|tag| (tag * 2, 2, tag)).collect();
        assert_eq!(read_all(&partition, 0, 1 << 20).await, expected);
        assert_eq!(log.stats().appended_batches, 6);
        log.close().await.unwrap();
    });
}

#[test]
fn an_append_that_waits_for_memory_is_told_when_there_is_some() {
    for seed in 0..4 {
        simulate(seed, &Disk::new(DiskOptions::default()), async {
            // What is durable has to leave the memory before the next append.
            let log =
                open(Path::new("/data"), LogOptions { unflushed_bytes_max: 0, tail_cache_bytes_max: 0, ..small_options() }).await;
            let partition = create(&log, 0);
            let begun = clock::monotonic();
            for tag in 0..20 {
                let (header, bytes) = batch(tag, 1, 1_000, 1_000);
                loop {
                    let progressed = log.progressed();
                    match partition.append(header, bytes.clone(), LeaderEpoch(1), None) {
                        Ok(appended) => {
                            partition.durable(appended.ticket).await.unwrap();
                            break;
                        }
                        Err(error) => {
                            assert!(matches!(error, AppendError::Full { .. }), "{error}");
                            progressed.await;
                        }
                    }
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?} of the simulated clock", begun.elapsed());
            log.close().await.unwrap();
        });
    }
}
