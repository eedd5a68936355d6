//! A calibration of the disk under the build folder, cut short.

use tuning::iobench::{IobenchArgs, IobenchError, PROFILE_FILE, Profile, measure_disk, run};

fn args(data_dir: &std::path::Path) -> IobenchArgs {
    IobenchArgs { data_dir: data_dir.to_owned(), output: None, scratch_mib: 16, measure_ms: 20, json: false }
}

#[test]
fn a_calibration_writes_a_profile_and_leaves_no_scratch_file() {
    // The build folder stands on a disk; the system's folder for temporary files may be memory without O_DIRECT.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    run(&args(folder.path())).unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [PROFILE_FILE]);
    let profile: Profile = toml::from_str(&std::fs::read_to_string(folder.path().join(PROFILE_FILE)).unwrap()).unwrap();
    assert_eq!(profile.version, 1);
    assert!((1..=4).contains(&profile.settings.commit_groups_in_flight));
    assert!((64 << 10..=1 << 20).contains(&profile.settings.direct_write_threshold_bytes));
    assert!(profile.measured.iter().all(|row| row.bytes_per_second > 0.0 && row.p50_us <= row.p99_us));
}

#[test]
fn a_disk_without_room_is_told_before_anything_is_written() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut args = args(folder.path());
    args.scratch_mib = 1 << 40;
    let error = measure_disk(&args).unwrap_err();
    assert!(matches!(error, IobenchError::NoSpace { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
