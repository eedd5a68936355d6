//! Crashes whose moment matters, step by step. What random power cuts found stands here with the seed that found it.

use std::path::PathBuf;
use std::time::Duration;

use commit_log::format::block::{BLOCK_HEADER_BYTES, BlockHeader, BlockPlace};
use commit_log::format::file_header;
use commit_log::format::record::{Entry, Records};
use commit_log::{
    LogOptions, PartitionLog, PartitionState, ReadError, RecoveryReport, ShardDirectory, ShardLog, newest, recover,
};
use shards::simulated::{CrashMode, Disk, DiskOptions, Fault, FaultKind, Target, crash_now};
use shards::{clock, executor};
use wire::{LeaderEpoch, Offset};

use crate::support::{append, batch, create, key, open, read_all, simulate, small_options};

const EIO: i32 = 5;

fn data() -> PathBuf {
    PathBuf::from("/data")
}

fn new_disk() -> Disk {
    Disk::new(DiskOptions::default())
}

/// Recovers a directory that may have lost something, and opens it.
async fn open_damaged() -> (ShardLog, RecoveryReport) {
    let directory = ShardDirectory::new(data(), 0);
    let recovered = recover(&directory).await.unwrap();
    let options = LogOptions { boot: recovered.boot_max + 1, ..small_options() };
    let states: Vec<PartitionState> = newest(recovered.partitions);
    (ShardLog::open(options, directory, states).await.unwrap(), recovered.report)
}

/// A byte of a block whose loss leaves a damaged block.
const IN_BODY: u64 = BLOCK_HEADER_BYTES as u64 + 40;

/// A byte of a block whose loss leaves nothing that looks like a block.
const IN_HEADER: u64 = 40;

/// Flips a bit of byte `at` in each whole block that `fits`, given its records; returns how many there were.
fn damage_blocks(disk: &Disk, at: u64, fits: impl Fn(&[Entry<'_>]) -> bool) -> usize {
    let mut damaged = 0;
    for (path, _) in disk.files() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(file_sequence) = file_header::parse_file_name(name) else { continue };
        let bytes = disk.contents(&path).unwrap();
        for position in (4096..bytes.len()).step_by(4096) {
            let block = &bytes[position..];
            let storage_id = u64::from_le_bytes(block[8..16].try_into().unwrap());
            let place = BlockPlace { storage_id, file_sequence, position: position as u64 };
            let Ok(header) = BlockHeader::decode(block, place) else { continue };
            let Ok(records) = header.verify_body(block) else { continue };
            let entries: Vec<Entry<'_>> = Records::new(records).map(|record| record.unwrap().entry).collect();
            if fits(&entries) {
                assert!(disk.flip_bit(&path, position as u64 + at, 1));
                damaged += 1;
            }
        }
    }
    damaged
}

fn holds_batch(entries: &[Entry<'_>], base: u64) -> bool {
    let is_it = |entry: &Entry<'_>| match entry {
        Entry::Batch(bytes) => wire::BatchHeader::decode(bytes).unwrap().base_offset == Offset(base),
        _ => false,
    };
    entries.iter().any(is_it)
}

/// An append that the log accepts and whose outcome nobody waits for.
fn append_and_go(partition: &PartitionLog, tag: u64, value_bytes: usize) {
    let (header, bytes) = batch(tag, 1, value_bytes, 1_000 * tag as i64);
    let appended = partition.append(header, bytes, LeaderEpoch(1), None).unwrap();
    assert!(appended.last_offset >= appended.base_offset);
}

/// Seed 103.
#[test]
fn a_cut_lost_with_what_took_its_place_marks_the_partition() {
    let disk = new_disk();
    simulate(1, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = create(&log, 0);
        for tag in 0..3 {
            append(&partition, tag, 1, 100).await;
        }
        partition.truncate(Offset(2)).await.unwrap();
        append(&partition, 3, 1, 100).await;
        append(&partition, 4, 1, 100).await;
    });
    disk.crash(CrashMode::PowerCut, 1);
    let is_cut = |entries: &[Entry<'_>]| entries.iter().any(|entry| matches!(entry, Entry::Truncate(_)));
    assert_eq!(damage_blocks(&disk, IN_BODY, is_cut), 1);
    // Batch 2 stood in two blocks: before the cut and after it.
    let seen = std::cell::Cell::new(0);
    let is_second = |entries: &[Entry<'_>]| holds_batch(entries, 2) && seen.replace(seen.get() + 1) == 1;
    assert_eq!(damage_blocks(&disk, IN_BODY, is_second), 1);
    assert_eq!(seen.get(), 2);
    simulate(2, &disk, async {
        let (log, report) = open_damaged().await;
        let partition = log.partition(key(0)).unwrap();
        assert!(report.lossy.iter().any(|(lossy, _)| *lossy == key(0)), "{report:?}");
        assert!(partition.is_lossy());
        log.close().await.unwrap();
    });
}

/// Seeds 572 and 90. The cut removed a file and the log made one of the same name; the power goes before a sync of their folder, and takes back
/// both. The header of the older one may be whole, or torn if it was never synced.
#[test]
fn an_older_file_of_the_same_name_does_not_take_the_place_of_acknowledged_batches() {
    for is_torn in [false, true] {
        let disk = new_disk();
        let faulty = disk.clone();
        simulate(1, &disk, async move {
            let log = open(&data(), small_options()).await;
            let partition = create(&log, 0);
            for tag in 0..3 {
                append(&partition, tag, 1, 100 << 10).await;
            }
            log.checkpoint().await.unwrap();
            partition.truncate(Offset(0)).await.unwrap();
            append(&partition, 11, 1, 100).await;
            append(&partition, 12, 1, 100).await;
            faulty.inject(Fault::once(Target::Sync, FaultKind::Errno(EIO)).on(".seg"));
            append_and_go(&partition, 13, 100 << 10);
            log.failed().await;
        });
        disk.clear_faults();
        disk.crash(CrashMode::PowerCutDropsAll, 1);
        if is_torn {
            let (path, _) = disk.files().into_iter().find(|(path, _)| path.extension().is_some_and(|end| end == "seg")).unwrap();
            assert!(disk.flip_bit(&path, 40, 0));
        }
        simulate(2, &disk, async {
            let log = open(&data(), small_options()).await;
            let partition = log.partition(key(0)).unwrap();
            assert_eq!(read_all(&partition, 0, 1 << 20).await, [(0, 1, 11), (1, 1, 12)]);
            log.close().await.unwrap();
        });
    }
}

/// Seed 653. A sync fails, the process restarts and reads what only a cache holds; then the power goes.
#[test]
fn what_only_a_cache_holds_after_a_failed_sync_is_written_again_before_more_is_acknowledged() {
    for in_log_too in [false, true] {
        let disk = new_disk();
        let faulty = disk.clone();
        simulate(1, &disk, async move {
            let log = open(&data(), small_options()).await;
            let partition = create(&log, 0);
            append(&partition, 0, 1, 100 << 10).await;
            if in_log_too {
                // It goes into the segment with the direct write after it.
                append(&partition, 1, 1, 100).await;
            }
            faulty.inject(Fault::once(Target::Sync, FaultKind::Errno(EIO)).on(".seg"));
            append_and_go(&partition, 2, 100 << 10);
            log.failed().await;
        });
        disk.clear_faults();
        disk.crash(CrashMode::Kill, 1);
        let found = simulate(2, &disk, async move {
            let log = open(&data(), small_options()).await;
            let partition = log.partition(key(0)).unwrap();
            append(&partition, 3, 1, 100 << 10).await;
            append(&partition, 4, 1, 100).await;
            log.checkpoint().await.unwrap();
            read_all(&partition, 0, 1 << 20).await
        });
        assert!(found.len() >= if in_log_too { 4 } else { 3 }, "{found:?}");
        disk.crash(CrashMode::PowerCutDropsAll, 1);
        simulate(3, &disk, async move {
            let log = open(&data(), small_options()).await;
            assert_eq!(read_all(&log.partition(key(0)).unwrap(), 0, 1 << 20).await, found);
            log.close().await.unwrap();
        });
    }
}

/// The same, and the power goes in the middle of the recovery, at each of its steps: nothing acknowledged is torn.
#[test]
fn a_crash_while_recovery_writes_again_tears_nothing_acknowledged() {
    for step in 1..120 {
        let disk = new_disk();
        let faulty = disk.clone();
        simulate(1, &disk, async move {
            let log = open(&data(), small_options()).await;
            let partition = create(&log, 0);
            append(&partition, 0, 1, 100 << 10).await;
            append(&partition, 1, 1, 100).await;
            faulty.inject(Fault::once(Target::Sync, FaultKind::Errno(EIO)).on(".seg"));
            append_and_go(&partition, 2, 100 << 10);
            log.failed().await;
        });
        disk.clear_faults();
        disk.crash(CrashMode::Kill, step);
        crate::support::crash_at(step, &disk, async {
            open(&data(), small_options()).await;
        });
        simulate(3, &disk, async move {
            let log = open(&data(), small_options()).await;
            let found = read_all(&log.partition(key(0)).unwrap(), 0, 1 << 20).await;
            assert_eq!(found[..2], [(0, 1, 0), (1, 1, 1)], "step {step}");
            log.close().await.unwrap();
        });
    }
}

/// Seed 337. The last blocks, which look like a torn tail, held a move of the log start, and the files below it are removed.
#[test]
fn a_segment_without_its_file_is_a_lost_range() {
    let disk = new_disk();
    simulate(1, &disk, async {
        let log = open(&data(), small_options()).await;
        let options = commit_log::PartitionOptions { segment_bytes: 256 << 10, ..Default::default() };
        let partition = log.create_partition(key(0), options).unwrap();
        for tag in 0..8 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        partition.set_high_watermark(Offset(8));
        log.checkpoint().await.unwrap();
        partition.set_log_start(Offset(4)).await.unwrap();
        // Until the files are gone and the trailer is written.
        clock::sleep(Duration::from_secs(1)).await;
    });
    disk.crash(CrashMode::Kill, 1);
    let tail = std::cell::Cell::new(false);
    let is_tail = |entries: &[Entry<'_>]| {
        tail.set(tail.get() || entries.iter().any(|entry| matches!(entry, Entry::LogStart(_))));
        tail.get()
    };
    assert!(damage_blocks(&disk, IN_HEADER, is_tail) > 0);
    simulate(2, &disk, async {
        let (log, _) = open_damaged().await;
        let partition = log.partition(key(0)).unwrap();
        assert!(partition.is_lossy());
        let read = partition.read(Offset(0), 1000, Offset(8)).await;
        assert!(matches!(read, Err(ReadError::Lost { .. })), "{read:?}");
        assert_eq!(read_all(&partition, 4, 1 << 20).await, [(4, 1, 4), (5, 1, 5), (6, 1, 6), (7, 1, 7)]);
        log.close().await.unwrap();
    });
}

/// Seed 491. A checkpoint waits for the lock of one partition while the deletion of another begins, whose record is slow; the power goes before it is
/// durable. The deleted one is there as it was, or gone.
#[test]
fn a_checkpoint_does_not_leave_out_a_partition_whose_deletion_is_not_durable() {
    let disk = new_disk();
    let slow = disk.clone();
    let stall = |millis| FaultKind::Stall(Duration::from_millis(millis));
    crate::support::crash_drops_all(1, &disk, async move {
        let log = open(&data(), small_options()).await;
        let (first, second, third) = (create(&log, 0), create(&log, 1), create(&log, 2));
        append(&first, 0, 1, 100 << 10).await;
        // The replay begins with this batch: behind the record of the second one's creation, and before its batches.
        append(&third, 5, 1, 100).await;
        append(&second, 1, 1, 100).await;
        append(&second, 2, 1, 100).await;
        clock::sleep(Duration::from_millis(100)).await;
        slow.inject(Fault::once(Target::Write, stall(500)).on(".seg"));
        append_and_go(&first, 3, 100 << 10);
        clock::sleep(Duration::from_millis(1)).await;
        let checkpointed = log.clone();
        executor::spawn(async move { checkpointed.checkpoint().await }).detach();
        clock::sleep(Duration::from_millis(1)).await;
        slow.inject(Fault::once(Target::Write, stall(5_000)).on("wal-"));
        let deleted = log.clone();
        executor::spawn(async move { deleted.delete_partition(key(1)).await }).detach();
        clock::sleep(Duration::from_secs(2)).await;
        crash_now().await;
    });
    simulate(2, &disk, async {
        let log = open(&data(), small_options()).await;
        if let Some(second) = log.partition(key(1)) {
            assert_eq!(read_all(&second, 0, 1000).await, [(0, 1, 1), (1, 1, 2)]);
        }
        log.close().await.unwrap();
    });
}

/// A checkpoint is under way when a write fails and the log is closed: it must not say that the replay begins behind what is in the log.
#[test]
fn a_checkpoint_that_outlives_its_log_is_not_written() {
    let disk = new_disk();
    let faulty = disk.clone();
    simulate(1, &disk, async move {
        let log = open(&data(), small_options()).await;
        let partition = create(&log, 0);
        append(&partition, 1, 1, 100).await;
        faulty.inject(Fault::once(Target::Sync, FaultKind::Stall(Duration::from_secs(1))));
        let checkpointed = log.clone();
        executor::spawn(async move { checkpointed.checkpoint().await }).detach();
        clock::sleep(Duration::from_millis(1)).await;
        faulty.inject(Fault::once(Target::Write, FaultKind::Errno(EIO)).on("wal-"));
        append_and_go(&partition, 2, 100);
        log.failed().await;
        log.close().await.unwrap_err();
        clock::sleep(Duration::from_secs(2)).await;
    });
    disk.clear_faults();
    disk.crash(CrashMode::Kill, 1);
    simulate(2, &disk, async {
        let log = open(&data(), small_options()).await;
        let found = read_all(&log.partition(key(0)).unwrap(), 0, 1000).await;
        assert_eq!(found[0], (0, 1, 1));
        log.close().await.unwrap();
    });
}

/// Seed 736. A move of the log start is durable and its files are being removed, when the next move begins, whose record is slow; the power goes
/// before that is durable. What lies between the two is there.
#[test]
fn no_segment_is_removed_for_a_log_start_that_is_not_durable() {
    let disk = new_disk();
    let slow = disk.clone();
    let stall = |millis| FaultKind::Stall(Duration::from_millis(millis));
    crate::support::crash_drops_all(1, &disk, async move {
        let log = open(&data(), small_options()).await;
        let options = commit_log::PartitionOptions { segment_bytes: 256 << 10, ..Default::default() };
        let partition = log.create_partition(key(0), options).unwrap();
        for tag in 0..8 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        partition.set_high_watermark(Offset(8));
        clock::sleep(Duration::from_millis(100)).await;
        slow.inject(Fault::once(Target::Change, stall(500)).on(".seg"));
        partition.set_log_start(Offset(2)).await.unwrap();
        slow.inject(Fault::once(Target::Write, stall(5_000)).on("wal-"));
        let moved = partition.clone();
        executor::spawn(async move { moved.set_log_start(Offset(6)).await }).detach();
        clock::sleep(Duration::from_secs(2)).await;
        // What is removed may be so for good.
        shards::disk::syncfs(&data()).await.unwrap();
        crash_now().await;
    });
    simulate(2, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = log.partition(key(0)).unwrap();
        assert_eq!(partition.watermarks().log_start, Offset(2));
        assert!(!partition.is_lossy());
        assert_eq!(read_all(&partition, 2, 1 << 20).await.len(), 6);
        log.close().await.unwrap();
    });
}
