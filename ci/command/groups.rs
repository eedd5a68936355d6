//! `corelane group` and `corelane dlq`.

use std::time::Duration;

use corelane_client::{Acknowledge, GroupOptions};
use serde_json::{Value, json};

use crate::broker::{Broker, guarded};

/// A worker of `billing` that fails every record whose value is not a number, until `count` others are handled; then it leaves.
fn work(broker: &Broker, count: usize) {
    guarded(async {
        let options = GroupOptions { acknowledge: Acknowledge::Explicit, ..GroupOptions::new("billing", ["orders"]) };
        let consumer = broker.client().await.group_consumer(options);
        let mut handled = 0;
        while handled < count {
            let record = consumer.next().await.expect("a record");
            let is_number =
                std::str::from_utf8(record.record().value.unwrap_or_default()).is_ok_and(|text| text.parse::<u64>().is_ok());
            if is_number {
                consumer.done(&record);
                handled += 1;
            } else {
                consumer.fail(&record, "not a number");
            }
        }
        consumer.close().await.expect("it leaves in order");
    });
}

/// Name, groups and records of each dead-letter topic.
fn listed(broker: &Broker) -> Vec<(String, Vec<String>, u64)> {
    let listed = broker.run(&["dlq", "list", "--json"]).json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let row = |topic: &Value| {
        let groups = topic["groups"].as_array().expect("groups").iter().map(text).collect();
        (text(&topic["topic"]), groups, topic["records"].as_u64().expect("a number"))
    };
    listed.as_array().expect("topics").iter().map(row).collect()
}

fn dead_letters(broker: &Broker) -> u64 {
    let listed = broker.run(&["dlq", "list", "--json"]).json();
    listed.as_array().into_iter().flatten().filter_map(|topic| topic["records"].as_u64()).sum()
}

#[test]
fn a_group_is_described_reset_and_deleted() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "orders", "--partitions", "2"]).ok();
    broker.run_with(&["produce", "orders", "--key-separator", ":"], b"a:1\nb:2\nc:3\nd:4\n").ok();
    assert_eq!(broker.run(&["group", "list", "--json"]).json(), json!([]));
    broker.run(&["group", "describe", "billing"]).fails_with(4).saying("no such group");
    work(&broker, 4);

    let listed = broker.run(&["group", "list", "--json"]).json();
    assert_eq!(
        (&listed[0]["group"], &listed[0]["state"], &listed[0]["members"]),
        (&json!("billing"), &json!("empty"), &json!(0))
    );
    let described = broker.run(&["group", "describe", "billing", "--json"]).json();
    let partitions = described["partitions"].as_array().expect("partitions").clone();
    let sum = |name: &str| partitions.iter().filter_map(|part| part[name].as_u64()).sum::<u64>();
    assert_eq!((sum("committed"), sum("lag"), sum("parked_records")), (4, 0, 0), "{described}");
    let text = broker.run(&["group", "describe", "billing"]).ok();
    assert!(text.contains("orders") && text.contains("LAG"), "{text}");

    // Reset: said first, then done; only within what the log holds.
    broker.run(&["group", "reset-offsets", "billing", "--topic", "orders", "--to", "beginning", "--dry-run"]).ok();
    let lag = |broker: &Broker| {
        let described = broker.run(&["group", "describe", "billing", "--json"]).json();
        described["partitions"].as_array().into_iter().flatten().filter_map(|part| part["lag"].as_u64()).sum::<u64>()
    };
    assert_eq!(lag(&broker), 0);
    broker.run(&["group", "reset-offsets", "billing", "--topic", "orders", "--to", "beginning"]).ok();
    assert_eq!(lag(&broker), 4);
    broker.run(&["group", "reset-offsets", "billing", "--topic", "orders", "--shift", "-100"]).ok();
    assert_eq!(lag(&broker), 4);
    broker.run(&["group", "reset-offsets", "billing", "--topic", "orders", "--to", "1000"]).ok();
    assert_eq!(lag(&broker), 0);
    broker.run(&["group", "reset-offsets", "billing", "--topic", "nowhere", "--to", "end"]).fails_with(4);
    broker.run(&["group", "reset-offsets", "billing", "--topic", "orders"]).fails_with(2);

    broker.run(&["group", "alter", "billing"]).fails_with(2).saying("nothing to change");
    broker.run(&["group", "alter", "billing", "--attempts", "7", "--exhausted", "skip"]).ok();
    let described = broker.run(&["group", "describe", "billing", "--json"]).json();
    assert_eq!((&described["retry"]["attempts"], &described["retry"]["exhausted"]), (&json!("7"), &json!("skip")));
    let retention_ms = |to: &str| {
        broker.run(&["group", "alter", "billing", "--offsets-retention", to]).ok();
        broker.run(&["group", "describe", "billing", "--json"]).json()["offsets_retention_ms"].as_u64()
    };
    let configured = described["offsets_retention_ms"].as_u64();
    assert_eq!(["30d", "forever", "default"].map(retention_ms), [Some(30 * 86_400_000), None, configured]);
    broker.run(&["group", "alter", "billing", "--offsets-retention", "soon"]).fails_with(2);
    broker.run(&["group", "delete", "billing"]).ok();
    broker.run(&["group", "delete", "billing"]).fails_with(4);
    broker.run(&["topic", "delete", "__groups", "--yes"]).fails_with(6);
}

#[test]
fn dead_letters_are_listed_looked_at_replayed_and_dropped() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "orders", "--partitions", "2"]).ok();
    broker.run(&["group", "alter", "billing", "--attempts", "2", "--backoff", "1ms", "--backoff-max", "1ms"]).ok();
    broker.run_with(&["produce", "orders", "--key-separator", ":"], b"a:1\na:broken\nb:2\nb:wrong\na:3\n").ok();
    assert_eq!(dead_letters(&broker), 0);
    work(&broker, 3);
    // The last of them may still be on its way when the worker leaves.
    while dead_letters(&broker) < 2 {
        std::thread::park_timeout(Duration::from_millis(20));
    }

    let topic = "orders.dlq.billing";
    let mut values: Vec<String> = broker.run(&["dlq", "peek", topic]).lines();
    values.sort();
    assert_eq!(values.len(), 2, "{values:?}");
    assert!(
        values.iter().all(|line| line.contains("not a number") && line.contains("corelane.dead_letter.attempts")),
        "{values:?}"
    );
    assert_eq!(broker.run(&["dlq", "peek", topic, "--key", "a"]).lines().len(), 1);
    assert!(broker.run(&["dlq", "peek", topic, "--reason", "timeout"]).lines().is_empty());

    let said = |text: String, part: &str| assert!(text.contains(part), "{text}");
    said(broker.run(&["dlq", "replay", topic, "--dry-run"]).ok(), "2 records would be sent");
    broker.run(&["topic", "create", "repaired"]).ok();
    said(broker.run(&["dlq", "replay", topic, "--to", "repaired", "--key", "a"]).ok(), "1 records sent");
    assert_eq!(broker.run(&["consume", "repaired"]).lines(), ["broken"]);
    said(broker.run(&["dlq", "replay", topic]).ok(), "2 records sent");
    // What was replayed as a whole is not sent again unless that is asked for.
    said(broker.run(&["dlq", "replay", topic]).ok(), "0 records sent");
    said(broker.run(&["dlq", "replay", topic, "--again", "--dry-run"]).ok(), "2 records would be sent");
    let orders = broker.run(&["consume", "orders", "--format", "json"]).lines();
    assert_eq!(orders.len(), 7);
    assert_eq!(orders.iter().filter(|line| line.contains("corelane.replayed_from")).count(), 2);
    assert!(orders.iter().all(|line| !line.contains("dead_letter")), "{orders:?}");

    broker.run(&["dlq", "drop", topic, "--before", "end"]).fails_with(2).saying("--yes");
    broker.run(&["dlq", "drop", topic, "--before", "end", "--yes"]).ok();
    assert_eq!(dead_letters(&broker), 0);
}

#[test]
fn dead_letters_are_listed_wherever_the_policies_of_groups_send_them() {
    let broker = Broker::start();
    for topic in ["orders", "other", "unread.failed", "left.dlq.gone"] {
        broker.run(&["topic", "create", topic]).ok();
    }
    broker.run(&["group", "alter", "billing", "--attempts", "1", "--dead-letter-topic", "{topic}.failed"]).ok();
    // A topic with a policy of its own, which nobody has read yet, and whose dead letters go beside those of another group.
    broker.run(&["group", "alter", "audit", "--topic", "other", "--dead-letter-topic", "orders.failed"]).ok();
    broker.run_with(&["produce", "orders"], b"broken\n1\n").ok();
    work(&broker, 1);
    let is_written = |broker: &Broker| {
        let part = &broker.run(&["group", "describe", "billing", "--json"]).json()["partitions"][0];
        (&part["dead_lettered"], &part["dead_letters_pending"]) == (&json!(1), &json!(0))
    };
    // It may still be on its way when the worker leaves.
    while !is_written(&broker) {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let groups = ["audit", "billing"].map(str::to_owned).to_vec();
    // Of those that no policy names, the one that is called like a dead-letter topic.
    assert_eq!(listed(&broker), [("left.dlq.gone".to_owned(), Vec::new(), 0), ("orders.failed".to_owned(), groups, 1)]);
    assert_eq!(broker.run(&["dlq", "peek", "orders.failed"]).lines().len(), 1);
    let table = broker.run(&["dlq", "list"]).ok();
    assert!(table.contains("GROUPS") && table.contains("audit, billing"), "{table}");
}

#[test]
fn a_replay_that_was_interrupted_goes_on_where_it_ended() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "orders"]).ok();
    broker.run(&["group", "alter", "billing", "--attempts", "1"]).ok();
    let large = "x".repeat(5000);
    broker.run_with(&["produce", "orders"], format!("broken\n{large}\nlast\n1\n").as_bytes()).ok();
    work(&broker, 1);
    while dead_letters(&broker) < 3 {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let topic = "orders.dlq.billing";
    broker.run(&["topic", "create", "small", "--message-bytes-max", "1KiB"]).ok();
    broker.run(&["topic", "create", "repaired"]).ok();
    broker.run(&["dlq", "replay", topic, "--to", "small"]).fails_with(6);
    assert_eq!(broker.run(&["consume", "small"]).lines(), ["broken"]);
    let said = broker.run(&["dlq", "replay", topic, "--to", "repaired"]).ok();
    assert!(said.contains("2 records sent"), "{said}");
    assert_eq!(broker.run(&["consume", "repaired"]).lines(), [large.as_str(), "last"]);
    // Dead letters do not expire, and so neither does what was replayed of them.
    let described = broker.run(&["group", "describe", "corelane.dlq-replay", "--json"]).json();
    assert_eq!(described.get("offsets_retention_ms"), Some(&json!(null)), "{described}");
}
