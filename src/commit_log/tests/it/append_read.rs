//! Appending, acknowledging, reading; small and large batches; restarts.

use crate::support::{append, create, key, on_both, open, read_all, small_options};

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
