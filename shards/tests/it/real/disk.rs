use std::path::{Path, PathBuf};

use shards::buffer::{self, Shared};
use shards::disk::{self, DiskErrorKind, File, OpenOptions};

use super::on_shard;

const PAGE: usize = 4096;

fn pages(count: usize, seed: u8) -> Shared {
    let mut buffer = buffer::allocate(count * PAGE);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = seed.wrapping_add((index / 7) as u8);
    }
    buffer.freeze()
}

/// Runs `body` on a shard with a fresh directory.
fn in_directory<T, Fut>(body: impl Fn(PathBuf) -> Fut + Send + Sync + 'static) -> T
where
    T: Send + std::fmt::Debug + 'static,
    Fut: Future<Output = T> + 'static,
{
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    on_shard(move || body(path.clone()))
}

#[test]
fn what_is_written_is_read() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        let bytes = pages(3, 1);
        file.write_at(4096, bytes.clone()).await.unwrap();
        file.fdatasync().await.unwrap();
        assert_eq!(file.len().unwrap(), 4 * PAGE as u64);
        assert_eq!(file.read_at(4096, 3 * PAGE).await.unwrap(), bytes);
        // Any position and length.
        assert_eq!(&file.read_at(4096 + 5, 100).await.unwrap()[..], &bytes[5..105]);
        assert_eq!(&file.read_at(4095, 2).await.unwrap()[..], &[0, bytes[0]]);
        assert!(file.read_at(1 << 40, 10).await.unwrap().is_empty());
        file.close().await.unwrap();
    });
}

/// A part of a block, a block of the heap, and more than the registered memory: all arrive whole.
#[test]
fn every_kind_of_memory_can_be_written() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new().with_dsync()).await.unwrap();
        let bytes = pages(8, 9);
        file.write_at(0, bytes.slice(2 * PAGE..4 * PAGE)).await.unwrap();
        let mut plain = buffer::allocate_plain(PAGE);
        plain.fill(77);
        file.write_at(2 * PAGE as u64, plain.freeze()).await.unwrap();
        let mut cut = buffer::allocate(4 * PAGE);
        cut.fill(78);
        cut.truncate(PAGE);
        file.write_at(3 * PAGE as u64, cut.freeze()).await.unwrap();
        assert_eq!(&file.read_at(0, 2 * PAGE).await.unwrap()[..], &bytes[2 * PAGE..4 * PAGE]);
        assert!(file.read_at(2 * PAGE as u64, PAGE).await.unwrap().iter().all(|byte| *byte == 77));
        assert!(file.read_at(3 * PAGE as u64, 2 * PAGE).await.unwrap().iter().all(|byte| *byte == 78));
        assert_eq!(file.len().unwrap(), 4 * PAGE as u64);

        let large: Vec<Shared> = (0..4).map(|seed| pages(512, seed)).collect();
        for (bytes, index) in large.iter().zip(0u64..) {
            file.write_at(index * (2 << 20), bytes.clone()).await.unwrap();
        }
        for (bytes, index) in large.iter().zip(0u64..) {
            assert_eq!(file.read_at(index * (2 << 20), 2 << 20).await.unwrap(), *bytes);
        }
    });
}

/// glommio decides once per thread and device, by a read of the first opened file, whether the device can be polled: an empty
/// file says yes, and every later read fails with EOPNOTSUPP.
#[test]
fn b2_reads_work_in_a_fresh_directory() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("empty"), OpenOptions::creating_new()).await.unwrap();
        let bytes = pages(2, 3);
        file.write_at(0, bytes.clone()).await.unwrap();
        file.fdatasync().await.unwrap();
        assert_eq!(file.read_at(0, 2 * PAGE).await.unwrap(), bytes);
    });
    in_directory(|directory| async move {
        let file = File::open(&directory.join("preallocated"), OpenOptions::creating_new()).await.unwrap();
        file.fallocate(0, 1 << 20).await.unwrap();
        assert!(file.read_at(0, PAGE).await.unwrap().iter().all(|byte| *byte == 0));
        let bytes = pages(2, 4);
        file.write_at(8192, bytes.clone()).await.unwrap();
        file.fdatasync().await.unwrap();
        assert_eq!(file.read_at(8192, 2 * PAGE).await.unwrap(), bytes);
        assert_eq!(disk::list_dir(&directory).await.unwrap().len(), 1, "the probe file is gone");
    });
}

/// glommio's unaligned read returns stale bytes past the end of file.
#[test]
fn b3_a_read_ends_with_the_file() {
    in_directory(|directory| async move {
        let path = directory.join("a");
        disk::write_file_atomically(&path, &[5; 1000]).await.unwrap();
        let file = File::open(&path, OpenOptions::reading()).await.unwrap();
        assert_eq!(file.read_at(990, 100).await.unwrap()[..], [5; 10]);
        assert!(file.read_at(1000, 100).await.unwrap().is_empty());
        assert!(file.read_at(1001, 100).await.unwrap().is_empty());
        assert_eq!(file.read_at(0, 5000).await.unwrap().len(), 1000);
    });
}

/// A read above the largest request of the device, and one that the file ends in the middle of a piece.
#[test]
fn a_large_read_is_split() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        let bytes = pages(700, 1);
        file.write_at(0, bytes.clone()).await.unwrap();
        assert_eq!(file.read_at(0, 700 * PAGE).await.unwrap(), bytes);
        assert_eq!(file.read_at(0, 16 << 20).await.unwrap(), bytes);
        assert_eq!(&file.read_at(100, 2 << 20).await.unwrap()[..], &bytes[100..100 + (2 << 20)]);
    });
}

/// glommio asks for the size by path.
#[test]
fn the_length_survives_a_rename() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        file.write_at(0, pages(2, 0)).await.unwrap();
        disk::rename(&directory.join("a"), &directory.join("b")).await.unwrap();
        assert_eq!(file.len().unwrap(), 2 * PAGE as u64);
        file.truncate(PAGE as u64).await.unwrap();
        assert_eq!(file.len().unwrap(), PAGE as u64);
        disk::remove_file(&directory.join("b")).await.unwrap();
        assert_eq!(file.len().unwrap(), PAGE as u64);
        assert_eq!(file.read_at(0, 2 * PAGE).await.unwrap().len(), PAGE);
    });
}

#[test]
fn zeroes_cover_exactly_the_range() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        let bytes = pages(600, 1);
        file.write_at(0, bytes.clone()).await.unwrap();
        file.write_zeroes(PAGE as u64, 300 * PAGE as u64).await.unwrap();
        let read = file.read_at(0, 600 * PAGE).await.unwrap();
        assert_eq!(&read[..PAGE], &bytes[..PAGE]);
        assert!(read[PAGE..301 * PAGE].iter().all(|byte| *byte == 0));
        assert_eq!(&read[301 * PAGE..], &bytes[301 * PAGE..]);
    });
}

#[test]
fn many_requests_at_once_stay_within_the_ring() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        let writes: Vec<_> = (0..400u64)
            .map(|index| {
                let file = file.clone();
                shards::executor::spawn(async move { file.write_at(index * PAGE as u64, pages(1, index as u8)).await })
            })
            .collect();
        for write in writes {
            write.await.unwrap();
        }
        for index in 0..400u64 {
            assert_eq!(file.read_at(index * PAGE as u64, PAGE).await.unwrap(), pages(1, index as u8));
        }
    });
}

/// A dropped write is not cancelled: it is done before the file is closed, and its memory is not used again before.
#[test]
fn a_dropped_write_still_happens() {
    in_directory(|directory| async move {
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        let bytes = pages(16, 5);
        {
            let mut write = Box::pin(file.write_at(0, bytes.clone()));
            std::future::poll_fn(|context| {
                let _ = write.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
        }
        while file.len().unwrap() < 16 * PAGE as u64 {
            shards::clock::sleep(shards::TICK).await;
        }
        assert_eq!(file.read_at(0, 16 * PAGE).await.unwrap(), bytes);
    });
}

#[test]
fn directories_and_small_files() {
    in_directory(|directory| async move {
        let nested = directory.join("x/y");
        disk::create_dir_all(&nested).await.unwrap();
        assert!(disk::exists(&nested).await.unwrap());
        disk::write_file_atomically(&nested.join("f"), b"one").await.unwrap();
        disk::write_file_atomically(&nested.join("f"), b"two").await.unwrap();
        assert_eq!(disk::read_file(&nested.join("f"), 3).await.unwrap(), b"two");
        let refused = disk::read_file(&nested.join("f"), 2).await.unwrap_err();
        assert_eq!(refused.kind, DiskErrorKind::TooLarge { length: 3, limit: 2 });
        let names: Vec<String> = disk::list_dir(&nested).await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["f"]);
        disk::sync_dir(&nested).await.unwrap();
        disk::syncfs(&nested).await.unwrap();
        let space = disk::free_space(&nested).await.unwrap();
        assert!(space.total_bytes >= space.available_bytes);
        assert!(space.available_bytes > 0);
        disk::remove_dir_all(&directory.join("x")).await.unwrap();
        assert!(!disk::exists(&nested).await.unwrap());
        assert!(disk::read_file(&nested, 1).await.unwrap_err().is_not_found());
    });
}

#[test]
fn errors_say_what_and_where() {
    in_directory(|directory| async move {
        let missing = directory.join("missing");
        let error = File::open(&missing, OpenOptions::reading()).await.unwrap_err();
        assert!(error.is_not_found());
        assert_eq!(error.path, missing);
        assert!(error.to_string().starts_with("cannot open /"), "{error}");
        let file = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
        let again = File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap_err();
        assert!(again.is_already_there());
        let reading = File::open(&directory.join("a"), OpenOptions::reading()).await.unwrap();
        assert_eq!(reading.write_at(0, pages(1, 0)).await.unwrap_err().errno(), Some(libc::EBADF));
        file.close().await.unwrap();
    });
}

/// A small file system of its own, unmounted at the end.
struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    /// `None` when this process may not mount.
    fn tmpfs(bytes: usize) -> Option<Mounted> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then_some(Mounted { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg("-l").arg(self.path()).status().unwrap();
    }
}

/// glommio's stream writer claims success after a short write.
#[test]
fn b4_a_full_disk_is_an_error_and_nothing_more_is_acknowledged_than_is_there() {
    let Some(mounted) = Mounted::tmpfs(512 << 10) else {
        eprintln!("not run: this process may not mount");
        return;
    };
    let path = mounted.path().join("a");
    let shown = path.clone();
    let acknowledged = on_shard(move || {
        let path = path.clone();
        async move {
            let file = File::open(&path, OpenOptions::creating_new()).await.unwrap();
            let mut acknowledged = 0;
            // Not a divisor of what fits, so that one write is cut short.
            for index in 0..u64::MAX {
                let bytes = pages(24, index as u8);
                match file.write_at(index * 24 * PAGE as u64, bytes).await {
                    Ok(()) => acknowledged += 24 * PAGE as u64,
                    Err(error) => {
                        assert!(error.is_full(), "{error}");
                        break;
                    }
                }
            }
            let error = file.write_at(0, pages(256, 0)).await.unwrap_err();
            assert!(error.is_full(), "{error}");
            file.close().await.unwrap();
            acknowledged
        }
    });
    assert!(acknowledged > 0);
    assert!(std::fs::metadata(shown).unwrap().len() >= acknowledged);
}

#[test]
fn descriptors_are_not_leaked() {
    in_directory(|directory| async move {
        let open = || {
            std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter(|entry| {
                    let target = std::fs::read_link(entry.as_ref().unwrap().path());
                    target.is_ok_and(|target| target.starts_with(&directory))
                })
                .count()
        };
        for index in 0..200 {
            let file = File::open(&directory.join(format!("{index}")), OpenOptions::creating_new()).await.unwrap();
            file.fallocate(0, 8192).await.unwrap();
            if index % 2 == 0 {
                file.close().await.unwrap();
            }
        }
        for _ in 0..1000 {
            if open() == 0 {
                return;
            }
            shards::clock::sleep(shards::TICK).await;
        }
        panic!("{} files are still open", open());
    });
}
