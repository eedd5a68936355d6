use shards::ShardId;
use shards::probe::probe;
use shards::run::{CorePlan, CoreSpec};

use super::{on_shards, options};

#[test]
fn the_host_is_probed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("new");
    let report = probe(&[&data], 8 << 20).unwrap();
    assert_eq!(report.disks.len(), 1);
    assert!(report.to_string().contains("direct I/O"), "{report}");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "the probe file is gone");
}

#[test]
fn a_directory_that_cannot_be_made_is_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = probe(&[&file.join("data")], 8 << 20).unwrap_err();
    assert!(error.what.contains("file/data"), "{error}");
    assert!(!error.to_string().contains('\n'));
    assert!(!error.remedy.is_empty());
}

#[test]
fn the_plan_of_this_host_keeps_a_core_for_housekeeping() {
    let plan = CorePlan::detect(&CoreSpec::AllButOne, None).unwrap();
    assert!(plan.shard_count() >= 1);
    assert_eq!(plan.housekeeping.len(), 1);
    let shared = CorePlan::shared(5).unwrap();
    assert_eq!(shared.shard_count(), 5);
}

/// Blocks of io_uring and eventfds are made once per shard, and go with it.
#[test]
fn a_machine_can_start_again_in_the_same_process() {
    for _ in 0..3 {
        let shard = on_shards::<(), _, _, _>(2, |context| async move { context.shard });
        assert_eq!(shard, ShardId(0));
    }
    let mut with_directory = options(2);
    let directory = tempfile::tempdir().unwrap();
    with_directory.data_directories = vec![directory.path().to_owned()];
    super::on_shards_with::<(), _, _, _>(with_directory, |_| async {});
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_missing_data_directory_stops_the_start() {
    let mut options = options(2);
    options.data_directories = vec!["/nowhere/at/all".into()];
    let started = shards::run::run::<(), _, _, _>(options, |_| async { Ok::<(), String>(()) });
    let why = started.unwrap_err().to_string();
    assert!(why.contains("/nowhere/at/all"), "{why}");
    assert!(why.contains("cannot start shard"), "{why}");
}
