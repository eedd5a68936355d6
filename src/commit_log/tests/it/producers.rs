//! Idempotent producers through crashes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use commit_log::{PartitionLog, PartitionOptions};
use shards::buffer::Shared;
use shards::clock;
use shards::simulated::{Disk, DiskOptions};
use wire::batch::{BatchBuilder, BatchHeader, BuilderOptions};
use wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::support::{append, crash_at, key, open, simulate, small_options};

/// Enough for a write of its own.
const DIRECT_BYTES: usize = 100 << 10;

/// The first batch of producer 7.
fn first_batch() -> (BatchHeader, Shared) {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    builder.push(TimestampMs(1), None, Some(&vec![b'7'; DIRECT_BYTES]), &[]).unwrap();
    builder.set_producer(ProducerId(7), ProducerEpoch(0), Sequence(0));
    let bytes = builder.build();
    (BatchHeader::decode(&bytes).unwrap(), Shared::copy_from_slice(&bytes))
}

/// Appends it; whether the log had it already, and where it is.
async fn send(log: &PartitionLog) -> (bool, u64) {
    let (header, bytes) = first_batch();
    let appended = log.append(header, bytes, LeaderEpoch(1), None).unwrap();
    log.durable(appended.ticket).await.unwrap();
    (appended.is_duplicate, appended.base_offset.0)
}

/// Power cuts, seeds 14, 26 and 40. A batch went straight into a segment, and the log start passes that before a checkpoint knows of it: the file was
/// removed, and with it the only thing that named the producer.
#[test]
fn a_producer_is_remembered_when_retention_has_removed_its_batches() {
    let before = Disk::new(DiskOptions::default());
    simulate(1, &before, async {
        let log = open(Path::new("/data"), small_options()).await;
        let options = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
        let _created = log.create_partition(key(0), options).unwrap();
        log.close().await.unwrap();
    });
    let mut removed_at_crash = 0;
    for count in (1..600).step_by(3) {
        let disk = before.fork();
        crash_at(count, &disk, async {
            let log = open(Path::new("/data"), small_options()).await;
            let partition = log.partition(key(0)).unwrap();
            assert_eq!(send(&partition).await, (false, 0));
            for tag in 1..8 {
                append(&partition, tag, 1, DIRECT_BYTES).await;
            }
            partition.set_high_watermark(Offset(8));
            partition.set_log_start(Offset(6)).await.unwrap();
            // Until the files are gone.
            clock::sleep(Duration::from_secs(1)).await;
        });
        removed_at_crash += simulate(count, &disk, async move {
            let log = open(Path::new("/data"), small_options()).await;
            let partition = log.partition(key(0)).unwrap();
            let marks = partition.watermarks();
            let is_sent = marks.appended_end > Offset(0);
            assert_eq!(send(&partition).await, (is_sent, 0), "at I/O {count}");
            log.close().await.unwrap();
            u32::from(marks.log_start == Offset(6))
        });
    }
    assert!(removed_at_crash > 3, "crashes after the move of the log start");
}

/// It does not keep files for ever: checkpoints are written for their sake.
#[test]
fn files_below_the_log_start_are_removed_without_anybody_asking_for_a_checkpoint() {
    let disk = Disk::new(DiskOptions::default());
    let files = disk.clone();
    simulate(1, &disk, async move {
        let log = open(Path::new("/data"), small_options()).await;
        let options = PartitionOptions { segment_bytes: 256 << 10, ..PartitionOptions::default() };
        let partition = log.create_partition(key(0), options).unwrap();
        send(&partition).await;
        for tag in 1..8 {
            append(&partition, tag, 1, DIRECT_BYTES).await;
        }
        partition.set_high_watermark(Offset(8));
        partition.set_log_start(Offset(6)).await.unwrap();
        clock::sleep(Duration::from_secs(5)).await;
        assert!(!log.has_superseded());
        let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "seg");
        let left: Vec<_> = files.files().into_iter().map(|(path, _)| path).filter(|path| is_segment(path)).collect();
        let of_the_rest = |path: &PathBuf| path.to_string_lossy().ends_with("00000000000000000006.seg");
        assert!(left.len() == 1 && of_the_rest(&left[0]), "{left:?}");
        assert_eq!(send(&partition).await, (true, 0));
        log.close().await.unwrap();
    });
}
