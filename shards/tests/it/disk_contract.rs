//! What `shards::disk` promises, checked with the same cases on the real and on the simulated machine.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use shards::buffer::{self, Shared};
use shards::disk::{self, DirEntry, File, OpenOptions};
use shards::executor;
use shards::run::{CorePlan, CoreSpec, RunOptions, ShardContext, run};
use shards::simulated::{Disk, DiskOptions, Outcome, SimOptions, Simulation};

type Case = fn(PathBuf) -> Pin<Box<dyn Future<Output = ()>>>;

/// Runs `case` in an empty directory of a real disk, then of simulated ones.
fn on_both_machines(case: Case) {
    on_the_real_machine(case);
    for seed in 0..10 {
        let disk = Disk::new(DiskOptions::default());
        let report = Simulation::new(seed, SimOptions::default()).mount("/", &disk).run(async move {
            disk::create_dir_all("/data".as_ref()).await.unwrap();
            case(PathBuf::from("/data")).await;
        });
        assert_eq!(report.outcome, Outcome::Finished(()), "seed {seed}");
    }
}

fn on_the_real_machine(case: Case) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // Not under /tmp, which may be a file system without direct I/O.
    let name = format!("disk-contract-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let mut options = RunOptions::new(CorePlan::detect(&CoreSpec::Count(1), None).unwrap());
    options.io_memory_bytes = 1 << 20;
    options.data_directories = vec![directory.clone()];
    let root = directory.join("data");
    std::fs::create_dir(&root).unwrap();
    let running = run::<(), _, _, std::convert::Infallible>(options, move |context: ShardContext<()>| {
        let root = root.clone();
        async move {
            case(root).await;
            context.mesh.close();
            Ok(())
        }
    });
    running.unwrap().join().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

fn pages(byte: u8, count: usize) -> Shared {
    let mut bytes = buffer::allocate(count * 4096);
    bytes.fill(byte);
    bytes.freeze()
}

fn writing_new() -> OpenOptions {
    OpenOptions::creating_new()
}

#[test]
fn reads_give_what_was_written_at_any_position_and_nothing_past_the_end() {
    on_both_machines(|root| {
        Box::pin(async move {
            let file = File::open(&root.join("a"), writing_new()).await.unwrap();
            assert_eq!(file.len().unwrap(), 0);
            assert!(file.read_at(0, 100).await.unwrap().is_empty());
            file.write_at(0, pages(1, 2)).await.unwrap();
            file.write_at(8192, pages(2, 1)).await.unwrap();
            assert_eq!(file.len().unwrap(), 12288);
            let bytes = file.read_at(8000, 1000).await.unwrap();
            assert_eq!(bytes.len(), 1000);
            assert!(bytes[..192].iter().all(|byte| *byte == 1) && bytes[192..].iter().all(|byte| *byte == 2));
            assert_eq!(file.read_at(12200, 1000).await.unwrap().len(), 88);
            assert!(file.read_at(12288, 1000).await.unwrap().is_empty());
            assert!(file.read_at(1 << 30, 1).await.unwrap().is_empty());
            file.close().await.unwrap();
        })
    });
}

#[test]
fn a_hole_and_a_preallocated_range_read_as_zeroes() {
    on_both_machines(|root| {
        Box::pin(async move {
            let file = File::open(&root.join("a"), writing_new()).await.unwrap();
            file.write_at(3 * 4096, pages(1, 1)).await.unwrap();
            assert!(file.read_at(0, 12288).await.unwrap().iter().all(|byte| *byte == 0));
            file.fallocate(0, 8 * 4096).await.unwrap();
            assert_eq!(file.len().unwrap(), 8 * 4096);
            assert_eq!(file.read_at(3 * 4096, 1).await.unwrap()[0], 1);
            assert!(file.read_at(4 * 4096, 4 * 4096).await.unwrap().iter().all(|byte| *byte == 0));
            file.write_zeroes(3 * 4096, 4096).await.unwrap();
            assert_eq!(file.read_at(3 * 4096, 1).await.unwrap()[0], 0);
            file.fdatasync().await.unwrap();
            file.close().await.unwrap();
        })
    });
}

#[test]
fn a_truncated_file_ends_there_and_reads_zeroes_when_it_grows_again() {
    on_both_machines(|root| {
        Box::pin(async move {
            let file = File::open(&root.join("a"), writing_new().with_dsync()).await.unwrap();
            file.write_at(0, pages(1, 2)).await.unwrap();
            file.truncate(5000).await.unwrap();
            assert_eq!(file.len().unwrap(), 5000);
            assert_eq!(file.read_at(4096, 4096).await.unwrap().len(), 904);
            file.truncate(8192).await.unwrap();
            let bytes = file.read_at(4096, 4096).await.unwrap();
            assert!(bytes[..904].iter().all(|byte| *byte == 1) && bytes[904..].iter().all(|byte| *byte == 0));
            file.close().await.unwrap();
        })
    });
}

#[test]
fn writes_in_flight_together_all_land() {
    on_both_machines(|root| {
        Box::pin(async move {
            let file = File::open(&root.join("a"), writing_new().with_dsync()).await.unwrap();
            file.write_zeroes(0, 64 * 4096).await.unwrap();
            let tasks: Vec<_> = (0..64u8)
                .map(|number| {
                    let file = file.clone();
                    executor::spawn(async move { file.write_at(u64::from(number) * 4096, pages(number, 1)).await.unwrap() })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            let bytes = file.read_at(0, 64 * 4096).await.unwrap();
            for (number, page) in bytes.chunks(4096).enumerate() {
                assert!(page.iter().all(|byte| usize::from(*byte) == number));
            }
            file.close().await.unwrap();
        })
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_both_machines(|root| {
        Box::pin(async move {
            let file = File::open(&root.join("a"), writing_new()).await.unwrap();
            file.write_at(0, pages(1, 1)).await.unwrap();
            disk::rename(&root.join("a"), &root.join("b")).await.unwrap();
            assert_eq!(file.len().unwrap(), 4096);
            disk::remove_file(&root.join("b")).await.unwrap();
            file.write_at(4096, pages(2, 1)).await.unwrap();
            assert_eq!(file.read_at(4096, 1).await.unwrap()[0], 2);
            assert!(!disk::exists(&root.join("b")).await.unwrap());
            file.close().await.unwrap();
        })
    });
}

#[test]
fn opening_says_what_is_there_and_what_is_not() {
    on_both_machines(|root| {
        Box::pin(async move {
            let path = root.join("a");
            assert!(File::open(&path, OpenOptions::reading()).await.unwrap_err().is_not_found());
            assert!(File::open(&root.join("no/a"), writing_new()).await.unwrap_err().is_not_found());
            File::open(&path, writing_new()).await.unwrap().close().await.unwrap();
            assert!(File::open(&path, writing_new()).await.unwrap_err().is_already_there());
            let create = OpenOptions { create: true, ..OpenOptions::writing() };
            File::open(&path, create).await.unwrap().close().await.unwrap();
            assert!(File::open(&path, OpenOptions::writing()).await.unwrap().is_empty().unwrap());
        })
    });
}

#[test]
fn folders_list_their_entries_by_name() {
    on_both_machines(|root| {
        Box::pin(async move {
            disk::create_dir_all(&root.join("x/y")).await.unwrap();
            disk::create_dir_all(&root.join("x/y")).await.unwrap();
            disk::write_file_atomically(&root.join("x/b"), b"bb").await.unwrap();
            disk::write_file_atomically(&root.join("x/a"), b"aa").await.unwrap();
            disk::sync_dir(&root.join("x")).await.unwrap();
            disk::syncfs(&root).await.unwrap();
            let entry = |name: &str, is_dir| DirEntry { name: name.to_owned(), is_dir };
            assert_eq!(disk::list_dir(&root.join("x")).await.unwrap(), [entry("a", false), entry("b", false), entry("y", true)]);
            assert!(disk::list_dir(&root.join("z")).await.unwrap_err().is_not_found());
            assert!(disk::remove_file(&root.join("x/c")).await.unwrap_err().is_not_found());
            disk::remove_dir_all(&root.join("x")).await.unwrap();
            assert!(disk::list_dir(&root).await.unwrap().is_empty());
        })
    });
}

#[test]
fn folders_are_made_many_at_a_time_and_those_that_are_there_stay() {
    on_both_machines(|root| {
        Box::pin(async move {
            let names = ["a", "b", "c"].map(str::to_owned);
            disk::create_dir_all(&root.join("b")).await.unwrap();
            disk::write_file_atomically(&root.join("b/f"), b"kept").await.unwrap();
            disk::create_dirs(&root, &names).await.unwrap();
            let found = disk::list_dir(&root).await.unwrap();
            assert!(found.iter().all(|entry| entry.is_dir));
            assert_eq!(found.into_iter().map(|entry| entry.name).collect::<Vec<_>>(), names);
            assert_eq!(disk::read_file(&root.join("b/f"), 4).await.unwrap(), b"kept");
            assert!(disk::create_dirs(&root.join("z"), &names).await.unwrap_err().is_not_found());
        })
    });
}

#[test]
fn a_rename_replaces_its_target() {
    on_both_machines(|root| {
        Box::pin(async move {
            disk::write_file_atomically(&root.join("a"), b"new").await.unwrap();
            disk::write_file_atomically(&root.join("b"), b"old").await.unwrap();
            disk::rename(&root.join("a"), &root.join("b")).await.unwrap();
            assert_eq!(disk::read_file(&root.join("b"), 100).await.unwrap(), b"new");
            assert!(!disk::exists(&root.join("a")).await.unwrap());
            assert!(disk::rename(&root.join("a"), &root.join("c")).await.unwrap_err().is_not_found());
        })
    });
}

#[test]
fn a_small_file_is_written_and_read_whole_within_its_bound() {
    on_both_machines(|root| {
        Box::pin(async move {
            let path = root.join("a");
            for length in [0, 1, 4095, 4096, 4097, 100_000] {
                let bytes: Vec<u8> = (0..length).map(|number: u32| number as u8).collect();
                disk::write_file_atomically(&path, &bytes).await.unwrap();
                assert_eq!(disk::read_file(&path, 100_000).await.unwrap(), bytes);
            }
            disk::read_file(&path, 99_999).await.unwrap_err();
            assert!(disk::read_file(&root.join("b"), 10).await.unwrap_err().is_not_found());
            assert_eq!(disk::list_dir(&root).await.unwrap().len(), 1);
        })
    });
}

#[test]
fn free_space_is_within_the_whole() {
    on_both_machines(|root| {
        Box::pin(async move {
            let space = disk::free_space(&root).await.unwrap();
            assert!(space.available_bytes > 0 && space.available_bytes <= space.total_bytes);
        })
    });
}
