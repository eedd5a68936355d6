//! Damage at rest is found although nobody reads.

use std::path::PathBuf;
use std::time::Duration;

use commit_log::{LogOptions, PartitionOptions};
use shards::clock;
use shards::simulated::{Disk, DiskOptions};
use wire::Offset;

use crate::support::{append, key, open, simulate, small_options};

const RATE: u64 = 1 << 20;

fn scrubbed(bytes_per_second: u64) -> LogOptions {
    LogOptions { scrub_bytes_per_second: bytes_per_second, scrub_pause_ms: 1_000, ..small_options() }
}

fn segments(disk: &Disk) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect()
}

/// Two partitions of six batches in three segments each.
fn closed() -> Disk {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(&PathBuf::from("/data"), small_options()).await;
        for number in 0..2 {
            let options = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
            let partition = log.create_partition(key(number), options).unwrap();
            for tag in 0..6 {
                append(&partition, tag, 1, 100 << 10).await;
            }
        }
        log.close().await.unwrap();
    });
    assert_eq!(segments(&disk).len(), 6);
    disk
}

#[test]
fn a_damaged_sealed_segment_marks_its_partition_and_no_other() {
    let disk = closed();
    // Within the second batch of the second segment of partition 1.
    assert!(disk.flip_bit(&segments(&disk)[4], 4096 + 106_496 + 500, 2));
    simulate(2, &disk, async {
        let log = open(&PathBuf::from("/data"), scrubbed(RATE)).await;
        let marked = |number| log.partition(key(number)).unwrap().is_lossy();
        assert!(!marked(1), "nobody has read it yet");
        while log.stats().scrub_passes == 0 {
            clock::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!((marked(0), marked(1)), (false, true));
        assert_eq!(log.stats().scrub_damaged_ranges, 1);
        log.close().await.unwrap();
    });
    simulate(3, &disk, async {
        let log = open(&PathBuf::from("/data"), small_options()).await;
        assert!(log.partition(key(1)).unwrap().is_lossy(), "the mark stays");
        log.close().await.unwrap();
    });
}

#[test]
fn a_pass_keeps_to_its_rate_and_zero_is_off() {
    let disk = closed();
    simulate(2, &disk, async {
        for rate in [RATE, RATE / 4, 0] {
            let started = clock::monotonic();
            let log = open(&PathBuf::from("/data"), scrubbed(rate)).await;
            while log.stats().scrub_passes == 0 && started.elapsed() < Duration::from_secs(60) {
                clock::sleep(Duration::from_millis(10)).await;
            }
            let stats = log.stats();
            assert_eq!(stats.scrub_damaged_ranges, 0);
            match stats.scrubbed_bytes.checked_div(rate) {
                Some(seconds) => {
                    assert!(stats.scrubbed_bytes > 800_000, "{stats:?}");
                    assert!(started.elapsed() >= Duration::from_secs(seconds), "{stats:?}");
                }
                None => assert_eq!((stats.scrub_passes, stats.scrubbed_bytes), (0, 0)),
            }
            log.close().await.unwrap();
        }
    });
}

#[test]
fn a_segment_that_is_cut_or_removed_meanwhile_is_not_damaged() {
    let disk = closed();
    for seed in 2..6 {
        let disk = disk.fork();
        simulate(seed, &disk, async move {
            let log = open(&PathBuf::from("/data"), scrubbed(RATE)).await;
            let [first, second] = [0, 1].map(|number| log.partition(key(number)).unwrap());
            first.set_high_watermark(Offset(6));
            clock::sleep(Duration::from_millis(1_000 + 60 * seed)).await;
            first.set_log_start(Offset(3)).await.unwrap();
            second.truncate(Offset(1)).await.unwrap();
            append(&second, 9, 1, 100 << 10).await;
            while log.stats().scrub_passes < 2 {
                clock::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(log.stats().scrub_damaged_ranges, 0);
            assert!(!first.is_lossy() && !second.is_lossy());
            log.close().await.unwrap();
        });
    }
}
