//! Machines, logs and batches for the scenarios.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use commit_log::{LogOptions, PartitionLog, PartitionOptions, ShardDirectory, ShardLog, newest, recover};
use shards::buffer::Shared;
use shards::run::{CorePlan, RunOptions};
use shards::simulated::{CrashMode, CrashPoint, Disk, DiskOptions, Outcome, SimOptions, Simulation};
use wire::batch::{BatchBuilder, BatchHeader, BatchView, BuilderOptions};
use wire::{LeaderEpoch, Offset, PartitionIndex, PartitionKey, TimestampMs, TopicId};

/// Small files, so that a test sees rolling, recycling and eviction.
pub(crate) fn small_options() -> LogOptions {
    LogOptions {
        direct_write_threshold_bytes: 64 << 10,
        wal_bytes_max: 4 << 20,
        wal_file_bytes: 1 << 20,
        tail_cache_bytes_max: 1 << 20,
        unflushed_bytes_max: 1 << 20,
        read_cache_bytes_max: 1 << 20,
        relaxed_flush_ms_max: 20,
        open_files_max: 16,
        free_bytes_min: 0,
        free_bytes_resume: 0,
        ..LogOptions::default()
    }
}

/// Runs the scenario on a simulated disk and on a real one; its argument is the data directory.
pub(crate) fn on_both<F, Fut>(scenario: F)
where
    F: Fn(PathBuf) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    for seed in 0..4 {
        let disk = Disk::new(DiskOptions::default());
        simulate(seed, &disk, scenario(PathBuf::from("/data")));
    }
    on_real(scenario);
}

/// Runs a program on a simulated disk to its end.
pub(crate) fn simulate<T: 'static>(seed: u64, disk: &Disk, program: impl Future<Output = T> + 'static) -> T {
    let report = Simulation::new(seed, SimOptions::default()).mount("/data", disk).run(program);
    match report.outcome {
        Outcome::Finished(output) => output,
        other => panic!("seed {seed}: the program did not finish: {:?}", std::mem::discriminant(&other)),
    }
}

/// Runs a program on a simulated disk until the power goes at its I/O number `count`, or to its end.
pub(crate) fn crash_at(count: u64, disk: &Disk, program: impl Future<Output = ()> + 'static) {
    let options = SimOptions { crash: Some(CrashPoint::IoCount(count)), ..SimOptions::default() };
    let report = Simulation::new(count, options).mount("/data", disk).run(program);
    assert_ne!(report.outcome, Outcome::Stuck, "at I/O {count}");
    disk.crash(CrashMode::PowerCut, count);
}

/// Runs a program that ends with the power: nothing survives that was not durable.
pub(crate) fn crash_drops_all(seed: u64, disk: &Disk, program: impl Future<Output = ()> + 'static) {
    let options = SimOptions { crash_mode: CrashMode::PowerCutDropsAll, ..SimOptions::default() };
    let report = Simulation::new(seed, options).mount("/data", disk).run(program);
    assert_eq!(report.outcome, Outcome::Crashed);
    disk.clear_faults();
}

fn on_real<F, Fut>(scenario: F)
where
    F: Fn(PathBuf) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let mut options = RunOptions::new(CorePlan::shared(1).unwrap());
    options.data_directories = vec![root.clone()];
    options.io_memory_bytes = 4 << 20;
    let running = shards::run::run::<(), _, _, String>(options, move |_context| {
        let program = scenario(root.clone());
        async move {
            program.await;
            Ok(())
        }
    });
    running.unwrap().join().unwrap();
}

/// Starts as a broker does: recovers the directory, then opens it.
pub(crate) async fn open(disk: &Path, options: LogOptions) -> ShardLog {
    let directory = ShardDirectory::new(disk, 0);
    let recovered = recover(&directory).await.unwrap();
    assert_eq!(recovered.report.lossy, [], "nothing may be lost here");
    let options = LogOptions { boot: recovered.boot_max + 1, ..options };
    ShardLog::open(options, directory, newest(recovered.partitions)).await.unwrap()
}

pub(crate) fn key(partition: u32) -> PartitionKey {
    PartitionKey { topic: TopicId([7; 16]), partition: PartitionIndex(partition) }
}

/// Names of the files of a partition's segments.
pub(crate) async fn segments_of(disk: &Path, partition: u32) -> Vec<String> {
    let start = format!("{}-{partition:06}-", key(partition).topic.to_hex());
    let segments = disk.join("segments");
    let mut found = Vec::new();
    for folder in shards::disk::list_dir(&segments).await.unwrap() {
        let entries = shards::disk::list_dir(&segments.join(folder.name)).await.unwrap();
        found.extend(entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with(&start)));
    }
    found
}

pub(crate) fn create(log: &ShardLog, partition: u32) -> PartitionLog {
    log.create_partition(key(partition), PartitionOptions::default()).unwrap()
}

/// A batch of `count` records, each with a value of `value_bytes` that depends on `tag`, at time `timestamp_ms`.
pub(crate) fn batch(tag: u64, count: u32, value_bytes: usize, timestamp_ms: i64) -> (BatchHeader, Shared) {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    for index in 0..count {
        let mut value = format!("{tag}/{index}/").into_bytes();
        value.resize(value_bytes.max(value.len()), b'a' + (tag % 26) as u8);
        builder.push(TimestampMs(timestamp_ms + i64::from(index)), None, Some(&value), &[]).unwrap();
    }
    let bytes = builder.build();
    let header = BatchHeader::decode(&bytes).unwrap();
    (header, Shared::copy_from_slice(&bytes))
}

/// Appends and waits until it is durable; returns the base offset.
pub(crate) async fn append(log: &PartitionLog, tag: u64, count: u32, value_bytes: usize) -> u64 {
    let (header, bytes) = batch(tag, count, value_bytes, 1_000 * tag as i64);
    loop {
        match log.append(header, bytes.clone(), LeaderEpoch(1), None) {
            Ok(appended) => {
                log.durable(appended.ticket).await.unwrap();
                return appended.base_offset.0;
            }
            // As a producer does.
            Err(error) if error.retryable() => shards::clock::sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// All batches from `from` to the end of the log, as `(base offset, records, first value's tag)`, checked on the way.
pub(crate) async fn read_all(log: &PartitionLog, from: u64, bytes_max: usize) -> Vec<(u64, u32, u64)> {
    let mut found = Vec::new();
    let mut next = from;
    loop {
        let end = log.watermarks().appended_end;
        let slices = log.read(Offset(next), bytes_max, end).await.unwrap();
        if slices.is_empty() {
            assert_eq!(next, end.0, "an empty read is the end of the log");
            return found;
        }
        for (header, tag) in decode(&slices) {
            assert!(header.base_offset.0 <= next, "no offset is skipped");
            found.push((header.base_offset.0, header.record_count, tag));
            next = header.next_offset().0;
        }
    }
}

/// The batches in what a read returned, with the tag of each.
pub(crate) fn decode(slices: &[Shared]) -> Vec<(BatchHeader, u64)> {
    let mut bytes = wire::AlignedVec::new();
    for slice in slices {
        bytes.extend_from_slice(slice);
    }
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let view = BatchView::new(&bytes[at..]).unwrap();
        let header = *view.header();
        let mut tag = None;
        for record in view.records() {
            let text = record.value.unwrap();
            let digits = text.split(|byte| *byte == b'/').next().unwrap();
            let value: u64 = std::str::from_utf8(digits).unwrap().parse().unwrap();
            assert_eq!(*tag.get_or_insert(value), value, "the records of a batch belong together");
        }
        found.push((header, tag.unwrap()));
        at += header.total_length();
    }
    found
}
