//! Where partitions live: disks, rules, shards. Whatever of it changes between two starts, what was stored is there.

use crate::support::{Raw, Site, batch, refused, stop};
use broker::Config;
use std::{
    fs,
    path::{Path, PathBuf},
};
use wire::{
    DeleteTopicRequest, DescribeTopicRequest, ErrorCode, ListOffsetsPartition, ListOffsetsRequest, OffsetAt, PartitionIndex,
    TopicConfig, TopicId,
};

const PARTITIONS: u32 = 6;

fn topic_config() -> TopicConfig {
    TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() }
}

/// Everything of the site's configuration, and what the text adds.
fn with(site: &Site, shards: u16, text: &str) -> Config {
    let added = Config::from_toml(text).unwrap();
    Config { disk: added.disk, placement: added.placement, ..site.config(shards) }
}

fn disk(path: &Path, shards: &str) -> String {
    format!("[[disk]]\npath = \"{}\"\nshards = \"{shards}\"\n", path.display())
}

/// One more record in each partition, behind those that are there.
fn append_round(client: &mut Raw, topic: TopicId, round: u64) {
    for partition in 0..PARTITIONS {
        let reply = client.produce(topic, partition, batch(&[format!("{partition}/{round}")]));
        assert_eq!(reply.base_offset.0, round, "partition {partition}");
    }
}

fn check_rounds(client: &mut Raw, topic: TopicId, rounds: u64) {
    for partition in 0..PARTITIONS {
        let expected: Vec<Vec<u8>> = (0..rounds).map(|round| format!("{partition}/{round}").into_bytes()).collect();
        assert_eq!(client.read_all(topic, partition), expected, "partition {partition}");
    }
}

fn owners(client: &mut Raw, name: &str) -> Vec<u16> {
    client.topic(name).partitions.iter().map(|part| part.shard).collect()
}

/// Bytes of segments on a disk.
fn segment_bytes(disk: &Path) -> u64 {
    bytes_of(disk, "")
}

/// Bytes of segments whose names begin so: with the id of a topic.
fn bytes_of(disk: &Path, start: &str) -> u64 {
    let folders = fs::read_dir(disk.join("segments")).into_iter().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap()).map(Result::unwrap);
    let wanted = files.filter(|file| file.file_name().to_str().unwrap().starts_with(start));
    wanted.map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn each_shard_writes_to_its_disk_and_disks_may_be_given_to_others() {
    let site = Site::new();
    let disks: Vec<PathBuf> = ["d0", "d1", "d2"].map(|name| site.folder.path().join(name)).to_vec();
    let two = |first: &str, second: &str| disk(&disks[0], first) + &disk(&disks[1], second);
    // (shards, disks): as it was, the other way round, all on one beside an idle one, more of both.
    let lives = [
        (2, two("0", "1")),
        (2, two("1", "0")),
        (1, format!("[[disk]]\npath = \"{}\"\n[[disk]]\npath = \"{}\"\n", disks[0].display(), disks[1].display())),
        (4, two("0,3", "1") + &disk(&disks[2], "2")),
        (3, two("2", "1") + &disk(&disks[2], "0")),
    ];
    let mut topic = None;
    for (round, (shards, text)) in (0..).zip(&lives) {
        let broker = broker::start(with(&site, *shards, text)).unwrap();
        let mut client = Raw::connect(broker.addr());
        let topic = *topic.get_or_insert_with(|| client.create("kept", topic_config()));
        check_rounds(&mut client, topic, round);
        append_round(&mut client, topic, round);
        stop(broker);
        if round == 0 {
            let bytes = [&disks[0], &disks[1]].map(|disk| segment_bytes(disk));
            assert!(bytes.iter().all(|bytes| *bytes > 0), "{bytes:?}");
            assert_eq!(segment_bytes(site.folder.path()), 0, "the data directory is no disk when others are given");
        }
    }
    let words = refused(with(&site, 2, &two("0", "1")));
    assert!(words.contains("d2"), "{words}");
    let broker = broker::start(with(&site, 3, &lives[4].1)).unwrap();
    check_rounds(&mut Raw::connect(broker.addr()), topic.unwrap(), 5);
    stop(broker);
}

#[test]
fn a_rule_pins_topics_to_shards_and_may_change_between_starts() {
    let site = Site::new();
    let rule = |shards: &str| format!("[[placement]]\ntopic = \"payments.*\"\nshards = \"{shards}\"\n");
    let (mut pinned, mut other) = (None, None);
    for (round, shards) in (0..).zip(["1", "0,2", "2", "0-2"]) {
        let broker = broker::start(with(&site, 3, &rule(shards))).unwrap();
        let mut client = Raw::connect(broker.addr());
        let pinned = *pinned.get_or_insert_with(|| client.create("payments.eu", topic_config()));
        let other = *other.get_or_insert_with(|| client.create("orders", topic_config()));
        let allowed: broker::config::ShardSet = shards.parse().unwrap();
        let found = owners(&mut client, "payments.eu");
        assert!(found.iter().all(|owner| allowed.as_slice().contains(owner)), "{found:?} with {shards}");
        assert!(allowed.as_slice().iter().all(|shard| found.contains(shard)), "{found:?} with {shards}");
        assert!((0..3).all(|shard| owners(&mut client, "orders").contains(&shard)), "other topics are spread over all");
        for topic in [pinned, other] {
            check_rounds(&mut client, topic, round);
            append_round(&mut client, topic, round);
        }
        stop(broker);
    }
}

#[test]
fn a_deleted_topic_stays_away_whatever_directories_it_was_in() {
    let site = Site::new();
    let mut topics = Vec::new();
    for shards in [1, 3, 2, 3, 1, 2] {
        let broker = site.start(shards);
        let mut client = Raw::connect(broker.addr());
        // One lives through one restart, and goes.
        if let [.., old, _] = topics.as_slice() {
            let (name, id): &(String, TopicId) = old;
            check_rounds(&mut client, *id, 1);
            assert_eq!(client.ask(&DeleteTopicRequest { name: name.clone() }).error, ErrorCode::None);
        }
        let name = format!("t{}", topics.len());
        let id = client.create(&name, topic_config());
        append_round(&mut client, id, 0);
        for (name, gone) in topics.iter().rev().skip(1) {
            assert_eq!(client.topic(name).error, ErrorCode::UnknownTopicOrPartition);
            assert_eq!(client.fetch(*gone, 0, 0).0.error, ErrorCode::UnknownTopicOrPartition);
        }
        topics.push((name, id));
        stop(broker);
    }
    for (name, gone) in topics.iter().rev().skip(2) {
        assert_eq!(bytes_of(site.folder.path(), &gone.to_hex()), 0, "segments of {name} are still there");
    }
}

#[test]
fn every_request_finds_partitions_of_three_shards_from_any_of_them() {
    let site = Site::new();
    let broker = site.start(3);
    let topic = Raw::connect(broker.addr()).create("t", topic_config());
    for shard in 0..3 {
        let (mut client, hello) = Raw::connect_to_shard(broker.addr(), Some(shard));
        assert_eq!(hello.shard, shard);
        let round = u64::from(shard);
        append_round(&mut client, topic, round);
        check_rounds(&mut client, topic, round + 1);
        let at = |partition| ListOffsetsPartition { topic, partition: PartitionIndex(partition), at: OffsetAt::Latest };
        let reply = client.ask(&ListOffsetsRequest { partitions: (0..PARTITIONS).map(at).collect() });
        assert!(reply.partitions.iter().all(|part| (part.error, part.offset.0) == (ErrorCode::None, round + 1)), "{reply:?}");
        let described = client.ask(&DescribeTopicRequest { name: "t".to_owned() });
        let ends: Vec<u64> = described.partitions.iter().map(|part| part.log_end.0).collect();
        assert_eq!(ends, vec![round + 1; PARTITIONS as usize]);
    }
    stop(broker);
}
