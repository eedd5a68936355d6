//! Files that are there and should not be, and the reverse.

use std::path::{Path, PathBuf};

use commit_log::{LogOptions, PartitionState, ShardDirectory, ShardLog, newest, recover};
use shards::disk::{self, File, OpenOptions};
use shards::simulated::{Disk, DiskOptions};
use wire::Offset;

use crate::support::{append, create, key, open, read_all, simulate, small_options};

fn data() -> PathBuf {
    PathBuf::from("/data")
}

/// The folder of the one partition's segments.
fn folder() -> PathBuf {
    data().join("segments/03")
}

/// A file in it.
fn name(of: u32, end: &str) -> String {
    format!("{}-{of:06}-{end}", key(0).topic.to_hex())
}

async fn put(name: &str) {
    File::open(&folder().join(name), OpenOptions::creating_new()).await.unwrap().close().await.unwrap();
}

async fn names() -> Vec<String> {
    disk::list_dir(&folder()).await.unwrap().into_iter().map(|entry| entry.name).collect()
}

async fn states() -> (Vec<PartitionState>, u64) {
    let recovered = recover(&ShardDirectory::new(data(), 0)).await.unwrap();
    (newest(recovered.partitions), recovered.boot_max)
}

async fn open_with(states: Vec<PartitionState>, boot: u64) -> Result<ShardLog, commit_log::OpenError> {
    ShardLog::open(LogOptions { boot, ..small_options() }, ShardDirectory::new(data(), 0), states).await
}

/// A closed log with one partition of three batches in one segment.
fn closed() -> Disk {
    let disk = Disk::new(DiskOptions::default());
    simulate(1, &disk, async {
        let log = open(&data(), small_options()).await;
        let partition = create(&log, 0);
        for tag in 0..3 {
            append(&partition, tag, 1, 100 << 10).await;
        }
        log.close().await.unwrap();
    });
    disk
}

const KEPT: &str = "00000000000000000000.seg";
const LEFT: &str = "00000000000000000007.seg";

#[test]
fn leftovers_of_a_crash_are_removed_and_other_files_stay() {
    simulate(2, &closed(), async {
        let of_another = name(9, "00000000000000000007.seg");
        let others = ["notes.txt".to_owned(), of_another.clone()];
        for left in [name(0, LEFT), name(0, "00000000000000000000.seg.new")].iter().chain(&others) {
            put(left).await;
        }
        let log = open(&data(), small_options()).await;
        assert_eq!(names().await, [name(0, KEPT), of_another, "notes.txt".to_owned()]);
        assert_eq!(read_all(&log.partition(key(0)).unwrap(), 0, 1 << 20).await.len(), 3);
        log.close().await.unwrap();
    });
}

#[test]
fn nothing_is_removed_from_a_partition_that_has_lost_something() {
    simulate(2, &closed(), async {
        put(&name(0, LEFT)).await;
        put(&name(9, LEFT)).await;
        let (mut states, boot) = states().await;
        states[0].lossy = true;
        let log = open_with(states, boot + 1).await.unwrap();
        assert_eq!(names().await, [name(0, KEPT), name(0, LEFT), name(9, LEFT)]);
        // Until it is deleted.
        log.delete_partition(key(0)).await.unwrap();
        log.checkpoint().await.unwrap();
        assert_eq!(names().await, [name(9, LEFT)]);
        log.close().await.unwrap();
    });
}

#[test]
fn a_removed_segment_is_lost_and_appends_go_on_behind_it() {
    for is_logged in [false, true] {
        let disk = closed();
        simulate(2, &disk, async move {
            let log = open(&data(), small_options()).await;
            if is_logged {
                // It stands in the log only, and recovery would put it behind what is gone.
                append(&log.partition(key(0)).unwrap(), 3, 1, 100).await;
            }
        });
        simulate(3, &disk, async move {
            disk::remove_file(&folder().join(name(0, KEPT))).await.unwrap();
            let (states, boot) = states().await;
            let log = open_with(states, boot + 1).await.unwrap();
            let partition = log.partition(key(0)).unwrap();
            assert!(partition.is_lossy());
            let read = partition.read(Offset(0), 1000, Offset(3)).await;
            assert!(matches!(read, Err(commit_log::ReadError::Lost { end: Offset(3), .. })), "{read:?}");
            let next = 3 + u64::from(is_logged);
            assert_eq!(append(&partition, 9, 1, 100).await, next);
            assert_eq!(read_all(&partition, 3, 1 << 20).await.last(), Some(&(next, 1, 9)));
            log.close().await.unwrap();
        });
    }
}

#[test]
fn a_data_directory_that_is_not_mounted_is_no_loss() {
    simulate(2, &closed(), async {
        let (mut states, boot) = states().await;
        states[0].segments[0].disk = Path::new("/data/other").into();
        let refused = open_with(states, boot + 1).await.unwrap_err();
        assert!(refused.to_string().contains("/data/other"), "{refused}");
    });
}
