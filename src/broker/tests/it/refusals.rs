//! A broker that cannot start says why, and leaves nothing behind.

use crate::support::{Raw, Site, batch, config, refused, stop};
use broker::Config;
use std::{fs, net::TcpListener};
use wire::TopicConfig;

#[test]
fn one_data_directory_has_one_broker() {
    let site = Site::new();
    let broker = site.start(1);
    let words = refused(site.config(1));
    assert!(words.contains("in use by") && words.contains(&std::process::id().to_string()), "{words}");
    Raw::connect(broker.addr()).create("t", TopicConfig::default());
    stop(broker);
    stop(site.start(1));
}

#[test]
fn a_taken_port_is_named_with_its_key() {
    let site = Site::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let mut taken = site.config(1);
    taken.listen.address = address;
    let words = refused(taken);
    assert!(words.contains(&address.to_string()) && words.contains("listen.address"), "{words}");
    let mut taken = site.config(1);
    taken.http.address = address;
    let words = refused(taken);
    assert!(words.contains(&address.to_string()) && words.contains("http.address"), "{words}");

    // Neither can a second broker join the first by SO_REUSEPORT.
    let broker = site.start(1);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut second = config(folder.path(), 1);
    second.listen.address = broker.addr();
    let words = refused(second);
    assert!(words.contains("listen.address"), "{words}");
    stop(broker);
}

/// A directory without write permission is no obstacle to root, which runs the tests in some places: a file in its place is to all.
#[test]
fn a_data_directory_that_cannot_be_one_is_named() {
    let site = Site::new();
    let path = site.folder.path().join("a file");
    fs::write(&path, "not a directory").unwrap();
    for data in [path.clone(), path.join("below")] {
        let words = refused(config(&data, 1));
        assert!(words.contains("a file"), "{words}");
    }
}

#[test]
fn damaged_metadata_stops_the_start_instead_of_losing_topics() {
    let site = Site::new();
    let broker = site.start(1);
    Raw::connect(broker.addr()).create("t", TopicConfig::default());
    stop(broker);
    for entry in fs::read_dir(site.folder.path().join("metadata")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let words = refused(site.config(1));
    assert!(words.contains("metadata"), "{words}");
}

#[test]
fn a_missing_shard_directory_stops_the_start_until_it_is_back() {
    let site = Site::new();
    let path = |name: &str| site.folder.path().join(name);
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    (0..2).for_each(|partition| drop(client.produce(topic, partition, batch(&["a", "b", "c"]))));
    stop(broker);
    for (name, shards) in [("shard-0000", 2), ("shard-0001", 2), ("shard-0001", 1), ("shard-0000", 3)] {
        fs::rename(path(name), path("away")).unwrap();
        let directory = path(name).display().to_string();
        let words = refused(site.config(shards));
        assert!(words.contains(&directory) && words.contains("bring it back"), "{words}");
        // One that is empty is as good as none.
        fs::create_dir(path(name)).unwrap();
        let words = refused(site.config(shards));
        assert!(words.contains(&directory), "{words}");
        // And one that still says whose it was, but not what it held.
        fs::copy(path("away").join("superblock"), path(name).join("superblock")).unwrap();
        let words = refused(site.config(shards));
        assert!(words.contains(&directory) && words.contains("no checkpoint"), "{words}");
        fs::remove_dir_all(path(name)).unwrap();
        fs::rename(path("away"), path(name)).unwrap();
    }
    // Fewer shards empty the other directory: then nothing is missed with it.
    for (round, shards) in [2, 1, 1, 3].into_iter().enumerate() {
        if round == 2 {
            fs::remove_dir_all(path("shard-0001")).unwrap();
        }
        let broker = site.start(shards);
        let mut client = Raw::connect(broker.addr());
        (0..2).for_each(|partition| assert_eq!(client.read_all(topic, partition), [b"a", b"b", b"c"]));
        stop(broker);
    }
    fs::rename(path("shard-0002"), path("away")).unwrap();
    let words = refused(site.config(3));
    assert!(words.contains("shard-0002"), "{words}");
}

#[test]
fn an_unknown_key_names_the_nearest_and_its_place() {
    let error = Config::from_toml("[memory]\nin_flight_bytes_mx = \"1GiB\"\n").unwrap_err().to_string();
    assert!(error.contains("in_flight_bytes_mx") && error.contains("`in_flight_bytes_max`"), "{error}");
    assert!(error.contains(":2:"), "{error}");
    let error = Config::from_toml("[lissten]\n").unwrap_err().to_string();
    assert!(error.contains("`listen`"), "{error}");
}
