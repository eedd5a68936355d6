//! Partitions that move between shard directories, and directories that say less than they knew.

use std::path::PathBuf;

use commit_log::{LogOptions, PartitionState, ShardDirectory, ShardLog, newest, recover, retire};
use shards::simulated::{CrashMode, Disk, DiskOptions};
use wire::PartitionKey;

use crate::support::{append, crash_at, create, key, open, read_all, simulate, small_options};

fn data() -> PathBuf {
    PathBuf::from("/data")
}

fn directory(number: u16) -> ShardDirectory {
    ShardDirectory::new(data(), number)
}

/// Recovers the directories of two shards.
async fn recover_both() -> (Vec<PartitionState>, u64) {
    let mut states = Vec::new();
    let mut boot_max = 0;
    for number in 0..2 {
        let recovered = recover(&directory(number)).await.unwrap();
        assert_eq!(recovered.report.lossy, []);
        states.extend(recovered.partitions);
        boot_max = boot_max.max(recovered.boot_max);
    }
    (newest(states), boot_max)
}

async fn open_one(number: u16, states: Vec<PartitionState>, boot: u64) -> ShardLog {
    let log = ShardLog::open(LogOptions { boot, ..small_options() }, directory(number), states).await.unwrap();
    log.forget_moved().await.unwrap();
    log
}

/// Starts with two shards, the first with partition 0, the second with partition 1.
async fn open_both() -> [ShardLog; 2] {
    let (states, boot_max) = recover_both().await;
    let owned = |key: PartitionKey| states.iter().filter(|state| state.key == key).cloned().collect();
    let options = || LogOptions { boot: boot_max + 1, ..small_options() };
    let first = ShardLog::open(options(), directory(0), owned(key(0))).await.unwrap();
    let second = ShardLog::open(options(), directory(1), owned(key(1))).await.unwrap();
    for log in [&first, &second] {
        log.forget_moved().await.unwrap();
    }
    [first, second]
}

fn keys(states: &[PartitionState]) -> Vec<PartitionKey> {
    states.iter().map(|state| state.key).collect()
}

/// One directory with both partitions, closed in order.
fn one_directory() -> Disk {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(&data(), small_options()).await;
        for number in 0..2 {
            append(&create(&log, number), 10 + u64::from(number), 1, 100).await;
        }
        log.close().await.unwrap();
    });
    disk
}

#[test]
fn a_partition_that_moves_is_in_one_directory_or_the_other_whenever_the_power_goes() {
    for step in 1..260 {
        let disk = one_directory();
        crash_at(step, &disk, async {
            open_both().await;
        });
        simulate(2, &disk, async move {
            let logs = open_both().await;
            for (number, log) in (0..).zip(&logs) {
                let partition = log.partition(key(number)).unwrap_or_else(|| panic!("step {step}: {number} is gone"));
                assert_eq!(read_all(&partition, 0, 1000).await, [(0, 1, 10 + u64::from(number))], "step {step}");
            }
        });
    }
}

#[test]
fn a_deleted_partition_does_not_come_back_from_where_it_was_before() {
    let disk = one_directory();
    simulate(2, &disk, async {
        let [first, second] = open_both().await;
        second.delete_partition(key(1)).await.unwrap();
        // Its files are gone with the next checkpoint.
        second.checkpoint().await.unwrap();
        for log in [first, second] {
            log.close().await.unwrap();
        }
        assert_eq!(keys(&recover_both().await.0), [key(0)]);
    });
}

#[test]
fn a_deleted_partition_does_not_come_back_from_a_directory_that_no_shard_has() {
    let disk = one_directory();
    simulate(2, &disk, async {
        for log in open_both().await {
            log.close().await.unwrap();
        }
        let (states, boot_max) = recover_both().await;
        assert_eq!(keys(&states), [key(0), key(1)]);
        let log = open_one(0, states, boot_max + 1).await;
        retire(&directory(1)).await.unwrap();
        assert_eq!(read_all(&log.partition(key(1)).unwrap(), 0, 1000).await, [(0, 1, 11)]);
        log.delete_partition(key(1)).await.unwrap();
        log.close().await.unwrap();
        assert_eq!(keys(&recover_both().await.0), [key(0)]);
    });
}

#[test]
fn a_directory_with_a_log_to_replay_is_not_retired() {
    let disk = one_directory();
    simulate(2, &disk, async {
        let log = open(&data(), small_options()).await;
        append(&log.partition(key(0)).unwrap(), 12, 1, 100).await;
        assert!(retire(&directory(0)).await.is_err());
    });
}

/// The checkpoint before the unreadable one is whole, and its log may end just there as if nothing had followed.
#[test]
fn an_unreadable_checkpoint_marks_every_partition() {
    let disk = one_directory();
    let is_checkpoint = |path: &PathBuf| path.to_string_lossy().contains("checkpoint-");
    let newest_checkpoint = disk.files().into_iter().map(|(path, _)| path).rfind(is_checkpoint).unwrap();
    assert!(disk.flip_bit(&newest_checkpoint, 100, 1));
    disk.crash(CrashMode::Kill, 1);
    simulate(2, &disk, async {
        let recovered = recover(&directory(0)).await.unwrap();
        let lossy: Vec<_> = recovered.report.lossy.iter().map(|(key, _)| *key).collect();
        assert_eq!(lossy, keys(&recovered.partitions));
        assert!(recovered.partitions.iter().all(|state| state.lossy));
    });
}

/// What is left of a directory does not pass for one that never held anything.
#[test]
fn a_directory_that_has_lost_its_superblock_checkpoints_or_log_is_refused() {
    let sources = [("superblock", "superblock"), ("checkpoint-", "checkpoints"), ("wal-", "write-ahead log")];
    for (name, missing) in sources {
        for is_closed in [true, false] {
            let disk = Disk::new(DiskOptions::default());
            simulate(1, &disk, async move {
                let log = open(&data(), small_options()).await;
                append(&create(&log, 0), 1, 1, 100).await;
                if is_closed {
                    log.close().await.unwrap();
                }
            });
            disk.crash(CrashMode::Kill, 1);
            simulate(2, &disk, async move {
                let folder = directory(0).path();
                for entry in shards::disk::list_dir(&folder).await.unwrap() {
                    if entry.name.starts_with(name) {
                        shards::disk::remove_file(&folder.join(entry.name)).await.unwrap();
                    }
                }
                let refused = recover(&directory(0)).await.unwrap_err().to_string();
                let words = format!("{} has lost its {missing}: acknowledged messages may be missing", folder.display());
                assert!(refused.starts_with(&words), "{refused}");
            });
        }
    }
}

#[test]
fn a_log_whose_file_size_was_changed_is_never_without_a_file() {
    for step in 1..120 {
        let disk = one_directory();
        crash_at(step, &disk, async {
            open(&data(), LogOptions { wal_file_bytes: 512 << 10, ..small_options() }).await;
        });
        simulate(2, &disk, async move {
            let log = open(&data(), small_options()).await;
            assert_eq!(read_all(&log.partition(key(0)).unwrap(), 0, 1000).await, [(0, 1, 10)], "step {step}");
        });
    }
}
