use super::{create, finish_on, new_disk, pages, run_on};
use crate::disk::{self, File, OpenOptions};
use crate::simulated::{CrashMode, CrashPoint, Disk, Outcome, SimOptions, Simulation};

fn contents(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    disk.contents(path.as_ref())
}

#[test]
fn a_durable_write_survives_every_power_cut() {
    for seed in 0..50 {
        let disk = new_disk();
        finish_on(&disk, seed, async {
            let file = create("/a", OpenOptions::creating_new().with_dsync()).await;
            file.write_at(4096, pages(7, 2)).await.unwrap();
        });
        disk.crash(CrashMode::PowerCut, seed);
        let bytes = contents(&disk, "/a").unwrap();
        assert_eq!(bytes.len(), 3 * 4096);
        assert!(bytes[..4096].iter().all(|byte| *byte == 0));
        assert!(bytes[4096..].iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_write_without_a_sync_is_kept_dropped_torn_or_garbled() {
    let mut whole = 0;
    let mut nothing = 0;
    let mut torn = 0;
    let mut garbage = 0;
    for seed in 0..200 {
        let disk = new_disk();
        finish_on(&disk, seed, async {
            let file = create("/a", OpenOptions::creating_new()).await;
            file.write_at(0, pages(1, 4)).await.unwrap();
            file.fdatasync().await.unwrap();
            file.write_at(0, pages(2, 4)).await.unwrap();
            let seen = file.read_at(0, 4096).await.unwrap();
            assert!(seen.iter().all(|byte| *byte == 2), "reads see what was written");
        });
        disk.crash(CrashMode::PowerCut, seed);
        let bytes = contents(&disk, "/a").unwrap();
        let new = bytes.chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 2)).count();
        let old = bytes.chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 1)).count();
        match (old, new) {
            (0, 32) => whole += 1,
            (32, 0) => nothing += 1,
            _ => torn += 1,
        }
        garbage += 32 - old - new;
    }
    assert!(whole > 10 && nothing > 10 && torn > 10 && garbage > 10, "{whole} {nothing} {torn} {garbage}");
}

#[test]
fn a_kill_takes_nothing_that_was_written_and_a_later_power_cut_may() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = new_disk();
        finish_on(&disk, seed, async {
            let file = create("/a", OpenOptions::creating_new()).await;
            file.write_at(0, pages(1, 1)).await.unwrap();
        });
        disk.crash(CrashMode::Kill, seed);
        assert_eq!(contents(&disk, "/a").unwrap(), vec![1; 4096]);
        disk.crash(CrashMode::PowerCut, seed);
        lost += u32::from(contents(&disk, "/a").unwrap() != vec![1; 4096]);
    }
    assert!(lost > 5);
}

#[test]
fn a_name_needs_a_sync_of_its_folder() {
    let mut lost = 0;
    let mut kept = 0;
    for seed in 0..100 {
        let disk = new_disk();
        finish_on(&disk, seed, async {
            let file = File::open("/a".as_ref(), OpenOptions::creating_new()).await.unwrap();
            file.write_at(0, pages(1, 1)).await.unwrap();
            file.fdatasync().await.unwrap();
        });
        disk.crash(CrashMode::PowerCut, seed);
        match contents(&disk, "/a") {
            None => lost += 1,
            Some(bytes) => {
                assert_eq!(bytes, vec![1; 4096]);
                kept += 1;
            }
        }
    }
    assert!(lost > 10 && kept > 10, "{lost} {kept}");
}

#[test]
fn a_folder_without_a_sync_of_its_parent_takes_its_files_along() {
    let lost = (0..50).filter(|seed| {
        let disk = new_disk();
        finish_on(&disk, *seed, async {
            disk::create_dir_all("/d/e".as_ref()).await.unwrap();
            disk::sync_dir("/".as_ref()).await.unwrap();
            create("/d/e/a", OpenOptions::creating_new()).await;
        });
        disk.crash(CrashMode::PowerCut, *seed);
        contents(&disk, "/d/e/a").is_none()
    });
    assert!((5..45).contains(&lost.count()));
}

#[test]
fn a_syncfs_covers_everything() {
    for seed in 0..50 {
        let disk = new_disk();
        finish_on(&disk, seed, async {
            disk::create_dir_all("/d/e".as_ref()).await.unwrap();
            let file = File::open("/d/e/a".as_ref(), OpenOptions::creating_new()).await.unwrap();
            file.fallocate(0, 64 << 10).await.unwrap();
            file.write_at(0, pages(3, 1)).await.unwrap();
            disk::syncfs("/".as_ref()).await.unwrap();
        });
        disk.crash(CrashMode::PowerCut, seed);
        let bytes = contents(&disk, "/d/e/a").unwrap();
        assert_eq!(bytes.len(), 64 << 10);
        assert!(bytes[..4096].iter().all(|byte| *byte == 3));
        assert!(bytes[4096..].iter().all(|byte| *byte == 0), "fallocated extents read zero");
    }
}

/// At every single I/O of the replacement.
#[test]
fn a_file_written_atomically_is_old_or_new_at_every_crash() {
    let mut old_seen = 0;
    let mut new_seen = 0;
    for io_count in 1.. {
        let disk = new_disk();
        finish_on(&disk, io_count, async { disk::write_file_atomically("/a".as_ref(), b"old").await.unwrap() });
        let options = SimOptions { crash: Some(CrashPoint::IoCount(io_count)), ..SimOptions::default() };
        let report = Simulation::new(io_count, options).mount("/", &disk).run(async {
            disk::write_file_atomically("/a".as_ref(), &[9; 10_000]).await.unwrap();
        });
        let bytes = contents(&disk, "/a").unwrap();
        if bytes == b"old" {
            old_seen += 1;
            assert_eq!(report.outcome, Outcome::Crashed, "it was reported durable");
        } else {
            assert_eq!(bytes, [9; 10_000]);
            new_seen += 1;
        }
        if report.outcome == Outcome::Finished(()) {
            break;
        }
    }
    assert!(old_seen > 5 && new_seen > 1, "{old_seen} {new_seen}");
}

#[test]
fn a_crash_of_a_copy_leaves_the_disk_alone() {
    let disk = new_disk();
    let copied = disk.clone();
    finish_on(&disk, 5, async move {
        let file = create("/a", OpenOptions::creating_new()).await;
        file.write_at(0, pages(1, 1)).await.unwrap();
        let copy = copied.fork();
        copy.crash(CrashMode::PowerCutDropsAll, 1);
        assert_eq!(copy.contents("/a".as_ref()).unwrap(), b"");
        assert_eq!(file.read_at(0, 4096).await.unwrap().len(), 4096);
    });
}

#[test]
fn a_disk_is_mounted_again_after_a_crash() {
    let disk = new_disk();
    let options = SimOptions { crash: Some(CrashPoint::IoCount(9)), ..SimOptions::default() };
    let report = Simulation::new(2, options).mount("/", &disk).run(async {
        let file = create("/a", OpenOptions::creating_new().with_dsync()).await;
        for page in 0..100 {
            file.write_at(page * 4096, pages(1, 1)).await.unwrap();
        }
    });
    assert_eq!(report.outcome, Outcome::Crashed);
    let length = finish_on(&disk, 3, async { File::open("/a".as_ref(), OpenOptions::reading()).await.unwrap().len().unwrap() });
    assert!((4096..=3 * 4096).contains(&length), "{length}");
}

#[test]
fn a_crash_is_part_of_the_seed() {
    let run = || {
        let disk = new_disk();
        let options = SimOptions { crash: Some(CrashPoint::IoCount(30)), ..SimOptions::default() };
        let report = Simulation::new(77, options).mount("/", &disk).run(async {
            let file = create("/a", OpenOptions::creating_new()).await;
            for page in 0..100 {
                file.write_at(page * 4096, pages(page as u8, 2)).await.unwrap();
            }
        });
        (report.trace_hash, contents(&disk, "/a"))
    };
    assert_eq!(run(), run());
    let other = run_on(&new_disk(), 1, async {});
    assert_ne!(run().0, other.trace_hash);
}
