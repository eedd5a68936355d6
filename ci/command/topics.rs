//! `corelane topic` and `corelane cluster`.

use serde_json::json;

use crate::broker::Broker;

#[test]
fn a_topic_is_created_listed_described_altered_and_deleted() {
    let broker = Broker::start();
    assert_eq!(broker.run(&["topic", "list", "--json"]).json(), json!([]));
    broker.run(&["topic", "create", "orders", "--partitions", "3", "--compression", "lz4", "--retention", "7d"]).ok();
    broker.run(&["topic", "create", "orders", "--if-not-exists"]).ok();
    broker.run(&["topic", "create", "only-checked", "--validate-only"]).ok();

    let listed = broker.run(&["topic", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!((&listed[0]["name"], &listed[0]["partitions"]), (&json!("orders"), &json!(3)));
    let table = broker.run(&["topic", "list"]).lines();
    assert!(table[0].starts_with("TOPIC"), "{table:?}");
    assert!(table[1].starts_with("orders"), "{table:?}");

    broker.run(&["topic", "alter", "orders", "--partitions", "5", "--retention", "forever"]).ok();
    let described = broker.run(&["topic", "describe", "orders", "--json"]).json();
    assert_eq!(described["settings"]["retention"], "forever");
    assert_eq!(described["settings"]["compression"], "lz4");
    assert_eq!(described["id"], listed[0]["id"]);
    assert_eq!(described["partitions"].as_array().map(Vec::len), Some(5));
    let text = broker.run(&["topic", "describe", "orders"]).ok();
    assert!(text.contains("retention            forever"), "{text}");
    assert_eq!(
        text.lines().filter(|line| line.starts_with(|first: char| first == ' ' || first.is_ascii_digit())).count(),
        13 + 5
    );

    broker.run(&["topic", "delete", "orders"]).fails_with(2).saying("--yes");
    broker.run(&["topic", "delete", "orders", "--yes"]).ok();
    broker.run(&["topic", "delete", "orders", "--yes", "--if-exists"]).ok();
    assert_eq!(broker.run(&["topic", "list", "--json"]).json(), json!([]));
}

#[test]
fn a_topic_is_compacted_when_it_is_told() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "--cleanup", "compact", "--tombstone-retention", "2h"]).ok();
    broker.run(&["topic", "alter", "t", "--cleanup", "compact,delete", "--compaction-lag", "10m"]).ok();
    let settings = broker.run(&["topic", "describe", "t", "--json"]).json()["settings"].clone();
    assert_eq!(settings["cleanup"], "compact,delete");
    assert_eq!((&settings["tombstone_retention"], &settings["compaction_lag"]), (&json!("2h"), &json!("10m")));
    broker.run(&["topic", "alter", "t", "--cleanup", "shrink"]).fails_with(2).saying("compact,delete");
}

#[test]
fn the_oldest_records_are_deleted_up_to_a_place() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "--partitions", "2"]).ok();
    broker.run_with(&["produce", "t", "--partition", "0"], b"a\nb\nc\nd\n").ok();
    broker.run_with(&["produce", "t", "--partition", "1"], b"e\n").ok();
    let delete = |arguments: &[&str]| broker.run(&[&["topic", "delete-records", "t"], arguments].concat());
    delete(&["--before", "2"]).fails_with(2).saying("--yes");
    delete(&["--before", "beginning", "--yes"]).fails_with(2);
    delete(&["--before", "2", "--partition", "7", "--yes"]).fails_with(4);

    let planned = json!([{"partition": 0, "log_start": 2, "deleted": 2}, {"partition": 1, "log_start": 1, "deleted": 1}]);
    assert_eq!(delete(&["--before", "2", "--dry-run", "--json"]).json(), planned);
    assert_eq!(broker.run(&["consume", "t", "--partition", "0"]).lines(), ["a", "b", "c", "d"]);
    assert_eq!(delete(&["--before", "2", "--yes", "--json"]).json(), planned);
    assert_eq!(broker.run(&["consume", "t"]).lines(), ["c", "d"]);
    // All are younger than an hour, and older than what is still to come.
    assert_eq!(delete(&["--before", "1h", "--yes", "--json"]).json()[0]["deleted"], 0);
    let table = delete(&["--before", "2100-01-01", "--yes"]).lines();
    assert_eq!(table[1].split_whitespace().collect::<Vec<_>>(), ["0", "4", "2"], "{table:?}");
    assert!(broker.run(&["consume", "t"]).lines().is_empty());
    broker.run_with(&["produce", "t", "--partition", "0"], b"f\n").ok();
    assert_eq!(broker.run(&["consume", "t"]).lines(), ["f"]);
    assert_eq!(delete(&["--before", "end", "--partition", "0", "--yes", "--json"]).json()[0]["log_start"], 5);
}

#[test]
fn the_brokers_own_topics_are_left_alone() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "__mine"]).fails_with(6).saying("the broker's own");
    broker.run(&["topic", "delete", "__groups", "--yes"]).fails_with(6).saying("the broker's own");
}

#[test]
fn the_cluster_is_described() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "--partitions", "4"]).ok();
    // Shards publish what they hold now and then: it is asked for until it is all there.
    let shard_count = loop {
        let cluster = broker.run(&["cluster", "describe", "--json"]).json();
        assert_eq!((&cluster["topics"], &cluster["partitions"]), (&json!(1), &json!(4)));
        let shards = cluster["brokers"][0]["shards"].as_array().expect("shards").clone();
        if shards.iter().filter_map(|shard| shard["partitions"].as_u64()).sum::<u64>() == 4 {
            break shards.len();
        }
    };
    let table = broker.run(&["cluster", "describe"]).lines();
    assert_eq!(table.len(), 2 + shard_count, "a summary, headings, a line a shard: {table:?}");
}
