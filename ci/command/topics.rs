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
        10 + 5
    );

    broker.run(&["topic", "delete", "orders"]).fails_with(2).saying("--yes");
    broker.run(&["topic", "delete", "orders", "--yes"]).ok();
    broker.run(&["topic", "delete", "orders", "--yes", "--if-exists"]).ok();
    assert_eq!(broker.run(&["topic", "list", "--json"]).json(), json!([]));
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
