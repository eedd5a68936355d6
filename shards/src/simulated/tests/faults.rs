use std::time::Duration;

use super::{create, finish_on, new_disk, pages};
use crate::clock;
use crate::disk::OpenOptions;
use crate::simulated::{CrashMode, Fault, FaultKind, Target};

#[test]
fn an_error_strikes_once_or_for_ever() {
    let disk = new_disk();
    disk.inject(Fault::once(Target::Write, FaultKind::Errno(libc::EIO)).on("/a").after(1));
    disk.inject(Fault::once(Target::Read, FaultKind::Errno(libc::EIO)).always());
    finish_on(&disk, 1, async {
        let file = create("/a", OpenOptions::creating_new()).await;
        file.write_at(0, pages(1, 1)).await.unwrap();
        assert_eq!(file.write_at(0, pages(1, 1)).await.unwrap_err().errno(), Some(libc::EIO));
        file.write_at(0, pages(1, 1)).await.unwrap();
        file.read_at(0, 1).await.unwrap_err();
        file.read_at(0, 1).await.unwrap_err();
    });
    assert_eq!(disk.fault_counts().errors, 3);
}

#[test]
fn a_sync_after_a_failed_sync_lies() {
    let lost = (0..40).filter(|seed| {
        let disk = new_disk();
        disk.inject(Fault::once(Target::Sync, FaultKind::Errno(libc::EIO)).on("/a"));
        finish_on(&disk, *seed, async {
            let file = create("/a", OpenOptions::creating_new()).await;
            file.write_at(0, pages(1, 1)).await.unwrap();
            file.fdatasync().await.unwrap_err();
            file.fdatasync().await.unwrap();
        });
        disk.crash(CrashMode::PowerCut, *seed);
        disk.contents("/a".as_ref()).unwrap() != vec![1; 4096]
    });
    assert!(lost.count() > 5);
}

#[test]
fn a_durable_write_that_fails_may_be_read_until_the_power_goes() {
    let in_cache = (0..40).filter(|seed| {
        let disk = new_disk();
        disk.inject(Fault::once(Target::Write, FaultKind::Errno(libc::EIO)).on("/a"));
        finish_on(&disk, *seed, async {
            let file = create("/a", OpenOptions::creating_new().with_dsync()).await;
            file.write_at(0, pages(1, 1)).await.unwrap_err();
            file.fdatasync().await.unwrap();
            crate::disk::sync_dir("/".as_ref()).await.unwrap();
        });
        let was_read = disk.contents("/a".as_ref()) == Some(vec![1; 4096]);
        disk.crash(CrashMode::PowerCutDropsAll, *seed);
        was_read && disk.contents("/a".as_ref()) != Some(vec![1; 4096])
    });
    assert!(in_cache.count() > 5);
}

#[test]
fn a_lost_write_is_reported_done_and_is_not_there() {
    let disk = new_disk();
    disk.inject(Fault::once(Target::Write, FaultKind::LostWrite).after(1));
    finish_on(&disk, 1, async {
        let file = create("/a", OpenOptions::creating_new().with_dsync()).await;
        file.write_at(0, pages(1, 1)).await.unwrap();
        file.write_at(0, pages(2, 1)).await.unwrap();
        assert_eq!(file.read_at(0, 1).await.unwrap()[0], 1);
    });
    assert_eq!(disk.fault_counts().lost_writes, 1);
}

#[test]
fn a_misdirected_write_lands_elsewhere_in_the_file() {
    let moved = (0..20).filter(|seed| {
        let disk = new_disk();
        disk.inject(Fault::once(Target::Write, FaultKind::MisdirectedWrite).after(1));
        finish_on(&disk, *seed, async {
            let file = create("/a", OpenOptions::creating_new()).await;
            file.write_at(0, pages(1, 8)).await.unwrap();
            file.write_at(0, pages(2, 1)).await.unwrap();
        });
        let bytes = disk.contents("/a".as_ref()).unwrap();
        assert_eq!(bytes.iter().filter(|byte| **byte == 2).count(), 4096);
        bytes[0] == 1
    });
    assert!(moved.count() > 5);
}

#[test]
fn a_short_write_says_how_much_it_wrote() {
    let disk = new_disk();
    disk.inject(Fault::once(Target::Write, FaultKind::ShortWrite));
    let error = finish_on(&disk, 1, async {
        let file = create("/a", OpenOptions::creating_new()).await;
        file.write_at(0, pages(1, 8)).await.unwrap_err()
    });
    assert!(error.is_full());
}

#[test]
fn a_full_disk_refuses_growth_and_takes_overwrites() {
    let disk = new_disk();
    disk.set_capacity_bytes(10 * 4096);
    finish_on(&disk, 1, async {
        let file = create("/a", OpenOptions::creating_new()).await;
        file.fallocate(0, 8 * 4096).await.unwrap();
        assert!(file.fallocate(8 * 4096, 4 * 4096).await.unwrap_err().is_full());
        assert!(file.write_at(8 * 4096, pages(1, 4)).await.unwrap_err().is_full());
        file.write_at(0, pages(1, 8)).await.unwrap();
        assert_eq!(crate::disk::free_space("/".as_ref()).await.unwrap().available_bytes, 2 * 4096);
        file.close().await.unwrap();
        crate::disk::remove_file("/a".as_ref()).await.unwrap();
        assert_eq!(crate::disk::free_space("/".as_ref()).await.unwrap().available_bytes, 10 * 4096);
    });
    assert_eq!(disk.fault_counts().disk_full, 2);
}

#[test]
fn a_bit_flips_at_rest() {
    let disk = new_disk();
    finish_on(&disk, 1, async {
        let file = create("/a", OpenOptions::creating_new().with_dsync()).await;
        file.write_at(0, pages(0, 2)).await.unwrap();
    });
    assert!(disk.flip_bit("/a".as_ref(), 5000, 3));
    assert!(!disk.flip_bit("/a".as_ref(), 9000, 3));
    disk.crash(CrashMode::PowerCut, 1);
    assert_eq!(disk.contents("/a".as_ref()).unwrap()[5000], 8);
}

#[test]
fn a_stall_holds_one_operation_up() {
    let disk = new_disk();
    disk.inject(Fault::once(Target::Write, FaultKind::Stall(Duration::from_secs(5))));
    let took = finish_on(&disk, 1, async {
        let file = create("/a", OpenOptions::creating_new()).await;
        let start = clock::monotonic();
        file.write_at(0, pages(1, 1)).await.unwrap();
        start.elapsed()
    });
    assert!(took >= Duration::from_secs(5));
}
