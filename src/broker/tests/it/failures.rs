//! A start or a broker that fails ends its shards, then gives up its locks: the program that embeds it lives on, and may start again.

use crate::support::{HANG_GUARD, Raw, Site, batch, noise, refused, stop};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};
use wire::{ErrorCode, TopicConfig, TopicId, limits::SEGMENT_BYTES_MIN};

/// What went wrong with a data directory, and how it is put right.
type Cause = (&'static str, fn(&Path), fn(&Path));

fn put_file_in_place_of(path: &Path) {
    fs::rename(path, path.with_extension("away")).unwrap();
    fs::write(path, "not a directory").unwrap();
}

fn put_back(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::rename(path.with_extension("away"), path).unwrap();
}

const CAUSES: [Cause; 4] = [
    (
        "an old superblock was restored",
        |data| {
            fs::rename(data.join("superblock"), data.join("superblock.newer")).unwrap();
            fs::copy(data.join("superblock.old"), data.join("superblock")).unwrap();
        },
        |data| fs::rename(data.join("superblock.newer"), data.join("superblock")).unwrap(),
    ),
    ("metadata", |data| put_file_in_place_of(&data.join("metadata")), |data| put_back(&data.join("metadata"))),
    ("recovery of", |data| put_file_in_place_of(&shard_directory(data)), |data| put_back(&shard_directory(data))),
    ("cannot use the directory", |data| put_file_in_place_of(data), |data| put_back(data)),
];

/// The directory of the second of two shards: the first has no trouble.
fn shard_directory(data: &Path) -> PathBuf {
    data.join("shard-0001")
}

#[test]
fn a_start_that_fails_leaves_directory_and_port_to_the_next() {
    let site = Site::new();
    let data = site.folder.path().join("data");
    let mut config = site.config(2);
    config.broker.data.clone_from(&data);
    stop(broker::start(config.clone()).unwrap());
    fs::copy(data.join("superblock"), data.join("superblock.old")).unwrap();
    // Each try counts as a start: the old one must be old enough for two.
    stop(broker::start(config.clone()).unwrap());
    let broker = broker::start(config.clone()).unwrap();
    config.listen.address = broker.addr();
    config.http.address = broker.http_addr().unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("kept", TopicConfig { partitions: 4, ..TopicConfig::default() });
    stop(broker);

    for (round, (words, breaks, mends)) in (0..).zip(CAUSES) {
        breaks(&data);
        for _ in 0..2 {
            let told = refused(config.clone());
            assert!(told.contains(words), "{told:?} does not say {words:?}");
        }
        mends(&data);
        let broker = broker::start(config.clone()).unwrap();
        let mut client = Raw::connect(broker.addr());
        for partition in 0..4 {
            assert_eq!(client.produce(topic, partition, batch(&["v"])).base_offset.0, round);
        }
        stop(broker);
    }
}

/// Produces until the broker answers otherwise, or ends.
fn produce_until_it_fails(client: &mut Raw, topic: TopicId) -> u64 {
    let mut acknowledged = 0;
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < HANG_GUARD, "the storage does not fail");
        let reply = client.try_produce(topic, 0, batch(&[noise(8 << 20, acknowledged)]));
        if reply.error != ErrorCode::None {
            assert_eq!(reply.error, ErrorCode::StorageFailed, "{:?}", reply.message);
            return acknowledged;
        }
        acknowledged += 1;
    }
}

#[test]
fn a_broker_whose_storage_fails_ends_and_the_next_has_what_was_acknowledged() {
    let site = Site::new();
    let mut config = site.config(2);
    let broker = broker::start(config.clone()).unwrap();
    config.listen.address = broker.addr();
    let mut client = Raw::connect(broker.addr());
    let for_ever = TopicConfig { segment_bytes: SEGMENT_BYTES_MIN, retention_ms: None, ..TopicConfig::default() };
    let topic = client.create("kept", for_ever);
    client.produce(topic, 0, batch(&[noise(8 << 20, 0)]));
    // The next segment cannot be made.
    let segments = site.folder.path().join("segments");
    put_file_in_place_of(&segments);
    let acknowledged = 1 + produce_until_it_fails(&mut client, topic);
    let told = broker.join().unwrap_err().to_string();
    assert!(told.contains("failed"), "{told}");

    put_back(&segments);
    let broker = broker::start(config).unwrap();
    let values = Raw::connect(broker.addr()).read_all(topic, 0);
    assert!(values.len() as u64 >= acknowledged, "{} of {acknowledged}", values.len());
    stop(broker);
}
