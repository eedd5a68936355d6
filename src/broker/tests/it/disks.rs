//! Disks that are read-only or full: refused in words, and good again once there is a reason for it.
//!
//! They are small file systems in memory. Where mounting one is not permitted the tests say so and pass.

use crate::groups::Member;
use crate::support::{HANG_GUARD, Raw, Site, batch, config, noise, refused, stop};
use broker::Config;
use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};
use wire::{DeleteTopicRequest, ErrorCode, GroupHeartbeatRequest, MemberEpoch, TopicConfig, TopicId, limits::SEGMENT_BYTES_MIN};

/// A file system of its own, gone when dropped.
struct Mounted {
    path: PathBuf,
}

fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(path).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

impl Mounted {
    fn new(site: &Site, size: &str) -> Option<Self> {
        let path = site.folder.path().join("mounted");
        std::fs::create_dir(&path).unwrap();
        match mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "none"], &path) {
            Ok(()) => Some(Mounted { path }),
            Err(why) => {
                eprintln!("skipped: a file system cannot be mounted here: {why}");
                None
            }
        }
    }

    fn remount(&self, option: &str) {
        // The kernel closes the files of a broker that has ended a little later.
        let begun = Instant::now();
        while let Err(why) = mount(&["-o", &format!("remount,{option}")], &self.path) {
            assert!(begun.elapsed() < HANG_GUARD, "{why}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.path.display());
    }
}

#[test]
fn a_read_only_disk_is_refused_in_words_and_taken_when_it_is_writable_again() {
    let site = Site::new();
    let Some(mounted) = Mounted::new(&site, "256m") else { return };
    let config = || config(&mounted.path, 2);
    let broker = broker::start(config()).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("kept", TopicConfig::default());
    client.produce(topic, 0, batch(&["v"]));
    stop(broker);

    mounted.remount("ro");
    let words = refused(config());
    assert!(words.contains("mounted") && words.contains("Read-only"), "{words}");
    mounted.remount("rw");
    let broker = broker::start(config()).unwrap();
    assert_eq!(Raw::connect(broker.addr()).read_all(topic, 0), [b"v"]);
    stop(broker);
}

/// Produces until there is no room; gives how many values were acknowledged.
fn fill(client: &mut Raw, topic: TopicId) -> u64 {
    let mut count = 0;
    loop {
        let reply = client.try_produce(topic, 0, batch(&[noise(4 << 20, count)]));
        if reply.error != ErrorCode::None {
            assert_eq!(reply.error, ErrorCode::DiskFull, "{:?}", reply.message);
            return count;
        }
        count += 1;
        assert!(count < 1000, "the disk is never full");
    }
}

#[test]
fn a_full_disk_refuses_producers_while_consumers_go_on_until_there_is_room() {
    let site = Site::new();
    let Some(mounted) = Mounted::new(&site, "512m") else { return };
    let mut config: Config = config(&mounted.path, 1);
    config.log.free_bytes_min = "128MiB".parse().unwrap();
    config.log.free_bytes_resume = "192MiB".parse().unwrap();
    let broker = broker::start(config.clone()).unwrap();
    let mut client = Raw::connect(broker.addr());
    // The values are old: retention must not make room meanwhile.
    let for_ever = TopicConfig { segment_bytes: SEGMENT_BYTES_MIN, retention_ms: None, ..TopicConfig::default() };
    let large = client.create("large", for_ever);
    let kept = client.create("kept", TopicConfig::default());
    client.produce(kept, 0, batch(&["before"]));
    let count = fill(&mut client, large);
    assert!(count > 10, "{count} values fill the disk");
    let refused = client.try_produce(kept, 0, batch(&["refused"]));
    assert_eq!(refused.error, ErrorCode::DiskFull);
    assert!(refused.message.unwrap().contains("bytes are left"));
    assert_eq!(client.read_all(large, 0).len() as u64, count);
    assert_eq!(client.read_all(kept, 0), [b"before"]);
    stop(broker);

    // It is full at the start, too.
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    assert_eq!(client.try_produce(kept, 0, batch(&["refused"])).error, ErrorCode::DiskFull);
    assert_eq!(client.read_all(large, 0).len() as u64, count);
    assert_eq!(client.ask(&DeleteTopicRequest { name: "large".to_owned() }).error, ErrorCode::None);
    let begun = Instant::now();
    while client.try_produce(kept, 0, batch(&["after"])).error == ErrorCode::DiskFull {
        assert!(begun.elapsed() < HANG_GUARD, "the room of the deleted topic is not found");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.read_all(kept, 0), [b"before".to_vec(), b"after".to_vec()]);
    stop(broker);
}

/// An orderly stop and start leave the member where it was: a heartbeat, a commit and what is committed, with the disk at its mark.
#[test]
fn groups_go_on_while_a_full_disk_refuses_producers_and_say_so_when_they_cannot() {
    let site = Site::new();
    let Some(mounted) = Mounted::new(&site, "512m") else { return };
    let mut config: Config = config(&mounted.path, 1);
    config.log.free_bytes_min = "128MiB".parse().unwrap();
    config.log.free_bytes_resume = "192MiB".parse().unwrap();
    let broker = broker::start(config.clone()).unwrap();
    let mut client = Raw::connect(broker.addr());
    let for_ever = TopicConfig { segment_bytes: SEGMENT_BYTES_MIN, retention_ms: None, ..TopicConfig::default() };
    let large = client.create("orders", for_ever);
    let (mut member, other) = (Member::new("billing", "m-1"), Member::new("billing", "m-2"));
    member.settle(&mut client, large);
    let count = fill(&mut client, large);
    assert_eq!(member.commit(&mut client, large, 0, 1), ErrorCode::None);
    assert_eq!(member.beat(&mut client, large).error, ErrorCode::None);
    assert_eq!(client.read_all(large, 0).len() as u64, count);
    // Others may come and go: what is said of members is written too.
    assert_eq!(other.beat(&mut client, large).error, ErrorCode::None);
    let leave = GroupHeartbeatRequest { member_epoch: MemberEpoch::LEAVE, owned: None, ..other.request(large) };
    assert_eq!(client.ask(&leave).error, ErrorCode::None);
    member.settle(&mut client, large);
    stop(broker);

    // The reserve is gone as well.
    config.log.free_bytes_min = "2TiB".parse().unwrap();
    config.log.free_bytes_resume = "2TiB".parse().unwrap();
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    for _ in 0..3 {
        assert_eq!(member.commit(&mut client, large, 0, 2), ErrorCode::DiskFull);
        assert_eq!(member.beat(&mut client, large).error, ErrorCode::None, "a heartbeat waits for no commit");
    }
    assert_eq!(client.read_all(large, 0).len() as u64, count);
    stop(broker);
}
