//! The order of a partition: offsets back to back, all of an append or nothing of it, and large batches behind little ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use commit_log::{AppendError, EpochStart, PartitionLog};
use shards::simulated::{Disk, DiskOptions, Fault, FaultKind, Target, crash_now};
use shards::{clock, executor};
use wire::batch::BatchHeader;
use wire::{LeaderEpoch, Offset, TimestampMs};

use crate::support::{append, batch, crash_drops_all, create, key, open, read_all, simulate, small_options};

fn data() -> PathBuf {
    PathBuf::from("/data")
}

/// An append whose outcome nobody waits for.
fn append_and_go(partition: &PartitionLog, tag: u64, value_bytes: usize) {
    let (header, bytes) = batch(tag, 1, value_bytes, 0);
    let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
    assert_eq!(appended.base_offset, Offset(tag), "batches get their offsets in the order of the calls");
}

/// The large one goes straight into the segment, and takes along the little ones before it: those that a slow group holds, and those that no group
/// has taken. When the power goes there is never one behind a missing one, and all that was durable is there.
#[test]
fn a_large_batch_does_not_overtake_the_little_ones_before_it_also_when_the_power_goes() {
    for slow in [Some("wal-"), Some(".seg"), None] {
        for wait_us in [0, 200, 500, 1_000, 100_000] {
            let disk = Disk::new(DiskOptions::default());
            let faulty = disk.clone();
            let durable = Arc::new(AtomicU64::new(0));
            let told = durable.clone();
            crash_drops_all(wait_us, &disk, async move {
                let log = open(&data(), small_options()).await;
                let partition = create(&log, 0);
                append(&partition, 0, 1, 100).await;
                append(&partition, 1, 1, 100 << 10).await;
                clock::sleep(Duration::from_secs(1)).await;
                if let Some(place) = slow {
                    let stall = FaultKind::Stall(Duration::from_secs(10));
                    faulty.inject(Fault::once(Target::Write, stall).on(place).always());
                }
                (2..5).for_each(|tag| append_and_go(&partition, tag, 100));
                // They are in a group by now.
                clock::sleep(Duration::from_micros(1)).await;
                (5..7).for_each(|tag| append_and_go(&partition, tag, 100));
                append_and_go(&partition, 7, 100 << 10);
                clock::sleep(Duration::from_micros(1)).await;
                append_and_go(&partition, 8, 100);
                clock::sleep(Duration::from_micros(wait_us)).await;
                told.store(partition.watermarks().durable_end.0, Ordering::Relaxed);
                crash_now().await;
            });
            let durable = durable.load(Ordering::Relaxed);
            if wait_us == 100_000 {
                let expected = match slow {
                    // The large one, with all before it.
                    Some("wal-") => 8,
                    // The group with the first of them.
                    Some(_) => 5,
                    None => 9,
                };
                assert_eq!(durable, expected, "{slow:?}");
            }
            simulate(2, &disk, async move {
                let log = open(&data(), small_options()).await;
                let partition = log.partition(key(0)).unwrap();
                let found = read_all(&partition, 0, 1 << 20).await;
                let expected: Vec<_> = (0..9).map(|tag| (tag, 1, tag)).collect();
                assert!(found.len() as u64 >= durable, "{slow:?}, {wait_us} µs: {found:?} of {durable} durable ones");
                assert_eq!(found, expected[..found.len()], "{slow:?}, {wait_us} µs");
                assert_eq!(append(&partition, 20, 1, 100).await, found.len() as u64);
                log.close().await.unwrap();
            });
        }
    }
}

#[test]
fn an_append_has_its_offsets_epoch_and_time_when_it_returns() {
    simulate(1, &Disk::new(DiskOptions::default()), async {
        let log = open(Path::new("/data"), small_options()).await;
        let partition = create(&log, 0);
        let (header, bytes) = batch(1, 3, 100, 1_000);
        let first = partition.append(header, bytes.clone(), LeaderEpoch(4), None).unwrap();
        let second = partition.append(header, bytes, LeaderEpoch(7), Some(TimestampMs(5_000))).unwrap();
        assert_eq!((first.base_offset, first.last_offset, first.is_duplicate), (Offset(0), Offset(2), false));
        assert_eq!((second.base_offset, second.last_offset, second.is_duplicate), (Offset(3), Offset(5), false));
        assert!(first.ticket < second.ticket);
        assert_eq!((partition.watermarks().appended_end, partition.watermarks().durable_end), (Offset(6), Offset(0)));
        assert_eq!(partition.durable(second.ticket).await.unwrap().durable_end, Offset(6), "with everything before it");
        let slices = partition.read(Offset(0), 1 << 20, Offset(6)).await.unwrap();
        let found: Vec<BatchHeader> = crate::support::decode(&slices).into_iter().map(|(header, _)| header).collect();
        assert_eq!(found.iter().map(|header| header.leader_epoch).collect::<Vec<_>>(), [LeaderEpoch(4), LeaderEpoch(7)]);
        assert_eq!(found.iter().map(|header| header.max_timestamp_ms.0).collect::<Vec<_>>(), [1_002, 5_000]);
        let epochs = [(4, 0), (7, 3)].map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(epoch), start: Offset(start) });
        assert_eq!(partition.epochs(), epochs);
        log.close().await.unwrap();
    });
}

#[test]
fn a_refused_append_takes_no_offset() {
    let disk = Disk::new(DiskOptions::default());
    let slow = disk.clone();
    simulate(1, &disk, async move {
        let log = open(Path::new("/data"), small_options()).await;
        let (partition, deleted) = (create(&log, 0), create(&log, 1));
        append(&partition, 0, 1, 100).await;
        append(&partition, 1, 1, 100).await;
        let (header, bytes) = batch(2, 1, 100, 0);
        let appended = |partition: &PartitionLog| partition.append(header, bytes.clone(), LeaderEpoch(1), None);
        slow.inject(Fault::once(Target::Write, FaultKind::Stall(Duration::from_secs(1))).on("wal-"));
        let cut = {
            let partition = partition.clone();
            executor::spawn(async move { partition.truncate(Offset(1)).await })
        };
        clock::sleep(Duration::from_millis(1)).await;
        let refused = appended(&partition).unwrap_err();
        assert!(refused == AppendError::Truncating && refused.retryable());
        cut.await.unwrap();
        log.delete_partition(key(1)).await.unwrap();
        let refused = appended(&deleted).unwrap_err();
        assert!(refused == AppendError::Deleted && !refused.retryable());
        assert_eq!(appended(&partition).unwrap().base_offset, Offset(1), "where the cut was");
        log.close().await.unwrap();
        let refused = appended(&partition).unwrap_err();
        assert!(refused == AppendError::Closing && !refused.retryable());
        assert_eq!(partition.watermarks().appended_end, Offset(2));
        assert_eq!(log.stats().appended_batches, 3);
    });
}
