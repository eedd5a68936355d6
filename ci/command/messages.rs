//! `corelane produce` and `corelane consume`.

use std::collections::BTreeMap;

use corelane_client::{ProducerOptions, Record, TimestampMs};
use serde_json::{Value, json};

use crate::broker::{Broker, guarded};

fn with_topic(partitions: &str) -> Broker {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "--partitions", partitions]).ok();
    broker
}

#[test]
fn lines_come_back_in_every_format() {
    let broker = with_topic("1");
    broker
        .run_with(&["produce", "t", "--key-separator", ":", "--header", "host=web1"], b"alice:apples\nno key\nbob:pe:ars\n")
        .ok();
    assert_eq!(broker.run(&["consume", "t"]).lines(), ["apples", "no key", "pe:ars"]);
    assert_eq!(broker.run(&["consume", "t", "--format", "key-value"]).lines(), ["alice\tapples", "\tno key", "bob\tpe:ars"]);
    let with_arrow = broker.run(&["consume", "t", "--format", "key-value", "--key-separator", " -> "]).lines();
    assert_eq!(with_arrow[0], "alice -> apples");
    let records: Vec<Value> = broker
        .run(&["consume", "t", "--format", "json"])
        .lines()
        .iter()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    let keys: Vec<&Value> = records.iter().map(|record| &record["key"]).collect();
    assert_eq!(keys, [&json!("alice"), &Value::Null, &json!("bob")]);
    assert_eq!(records[2]["value"], "pe:ars");
    assert_eq!(records[2]["offset"], 2);
    assert_eq!(records[2]["headers"], json!([{"name": "host", "value": "web1"}]));
}

#[test]
fn many_lines_are_sent_in_order_and_counted() {
    let broker = with_topic("1");
    let lines: Vec<String> = (0..20_000).map(|number| format!("line {number}")).collect();
    let report = broker.run_with(&["produce", "t", "--json", "--compression", "zstd"], lines.join("\n").as_bytes()).json();
    assert_eq!((&report["records"], &report["failed"], &report["level"]), (&json!(20_000), &json!(0), &json!("stable")));
    assert_eq!(report["partitions"], json!([{"partition": 0, "first_offset": 0, "last_offset": 19_999}]));
    assert_eq!(broker.run(&["consume", "t"]).lines(), lines);
    let text = broker.run_with(&["produce", "t", "--rate", "1000000"], b"one more\n").ok();
    assert!(text.starts_with("1 record (8 B) to 1 partition of t"), "{text}");
    assert_eq!(broker.run_with(&["produce", "t", "--quiet"], b"and one\n").ok(), "");
}

#[test]
fn a_line_that_is_refused_is_named_and_the_others_are_stored() {
    let broker = with_topic("1");
    broker.run(&["topic", "alter", "t", "--message-bytes-max", "1KiB"]).ok();
    let long = "x".repeat(2000);
    let input = format!("a\n{long}\n{long}\nb\n{long}\n");
    let failed = broker.run_with(&["produce", "t", "--json"], input.as_bytes()).fails_with(6);
    let report: Value = serde_json::from_str(&failed.out).expect("the report comes with failures too");
    assert_eq!((&report["records"], &report["failed"]), (&json!(2), &json!(3)));
    assert_eq!(report["failures"][0]["first_line"], 2);
    assert_eq!(report["failures"][0]["last_line"], 3);
    failed.saying("lines 2 to 3: ").saying("line 5: ").saying("3 of 5 records were not acknowledged");
    assert_eq!(broker.run(&["consume", "t"]).lines(), ["a", "b"]);
}

#[test]
fn files_are_records_with_their_names_as_keys() {
    let broker = with_topic("1");
    let image = broker.folder.path().join("image.bin");
    let note = broker.folder.path().join("note.txt");
    std::fs::write(&image, [0xff, 0, 0xfe]).expect("a new file");
    std::fs::write(&note, "two\nlines\n").expect("a new file");
    let names = [image.to_str().expect("text"), note.to_str().expect("text")];
    broker.run(&["produce", "t", "--file", names[0], names[1]]).ok();
    broker.run_with(&["produce", "t", "--file", "-", "--key", "stdin"], b"all\nof it").ok();
    let lines = broker.run(&["consume", "t", "--format", "json"]).lines();
    let records: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert_eq!((&records[0]["key"], &records[0]["value_base64"]), (&json!("image.bin"), &json!("/wD+")));
    assert_eq!((&records[1]["key"], &records[1]["value"]), (&json!("note.txt"), &json!("two\nlines\n")));
    assert_eq!((&records[2]["key"], &records[2]["value"]), (&json!("stdin"), &json!("all\nof it")));
}

#[test]
fn keys_and_flags_choose_the_partition() {
    let broker = with_topic("4");
    let lines: String = (0..40).map(|number| format!("key {}:{number}\n", number % 8)).collect();
    broker.run_with(&["produce", "t", "--key-separator", ":"], lines.as_bytes()).ok();
    broker.run_with(&["produce", "t", "--partition", "3"], b"chosen\n").ok();
    let mut seen = 0;
    for partition in ["0", "1", "2", "3"] {
        let records = broker.run(&["consume", "t", "--partition", partition, "--format", "key-value"]).lines();
        seen += records.len();
        let mut by_key: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, _) in records.iter().filter_map(|record| record.split_once('\t')) {
            *by_key.entry(key).or_default() += 1;
        }
        let whole = by_key.iter().all(|(key, count)| *count == if key.is_empty() { 1 } else { 5 });
        assert!(whole, "a key is in one partition: {by_key:?} are in {partition}");
    }
    assert_eq!(seen, 41);
    assert!(broker.run(&["consume", "t", "--partition", "3"]).lines().contains(&"chosen".to_owned()));
}

#[test]
fn reading_begins_and_ends_where_it_is_told() {
    guarded(async {
        let broker = with_topic("1");
        let producer = broker.client().await.producer(ProducerOptions::default());
        let two_o_clock: jiff::Timestamp = "2026-11-24T14:00Z".parse().expect("a time");
        for minute in 0..10 {
            let timestamp = TimestampMs(two_o_clock.as_millisecond() + (minute - 5) * 60_000);
            let value = minute.to_string();
            let record = Record::to("t").value(&value).timestamp(timestamp);
            producer.send(record).await.expect("accepted").await.expect("delivered");
        }
        let cases: [(&[&str], std::ops::Range<u32>); 11] = [
            (&["--from", "beginning"], 0..10),
            (&["--from", "end"], 0..0),
            (&["--from", "7"], 7..10),
            (&["--from", "beginning", "--count", "3"], 0..3),
            (&["--from", "2", "--until", "5"], 2..5),
            // Local time: the test's zone is UTC.
            (&["--from", "2026-11-24T14:00"], 5..10),
            (&["--from", "2026-11-24T14:00Z", "--count", "1"], 5..6),
            (&["--from", "2026-11-24T15:01+01:00", "--until", "2026-11-24T14:03"], 6..8),
            (&["--from", "2026-11-24T14:01:30", "--until", "end"], 7..10),
            (&["--from", "2030-01-01"], 0..0),
            (&["--from", "3", "--follow", "--count", "2"], 3..5),
        ];
        for (arguments, expected) in cases {
            let expected: Vec<String> = expected.map(|number| number.to_string()).collect();
            assert_eq!(broker.run(&[&["consume", "t"], arguments].concat()).lines(), expected, "{arguments:?}");
        }
    });
}

#[test]
fn times_are_the_first_records_as_late_in_each_partition() {
    guarded(async {
        let broker = with_topic("3");
        let producer = broker.client().await.producer(ProducerOptions::default());
        let two_o_clock: jiff::Timestamp = "2026-11-24T14:00Z".parse().expect("a time");
        // Out of order in 0, nothing in 1, nothing late in 2.
        let minutes = [(0, [1, 9, 2, 5, 3, 7]), (2, [0, 1, 2, 3, 3, 1])];
        for (partition, minutes) in minutes {
            for minute in minutes {
                let (value, timestamp) = (format!("{partition}/{minute}"), two_o_clock.as_millisecond() + minute * 60_000);
                let record = Record::to("t").value(&value).partition(partition).timestamp(TimestampMs(timestamp));
                producer.send(record).await.expect("accepted").await.expect("delivered");
            }
        }
        let consume = |arguments: &[&str]| {
            let mut lines = broker.run(&[&["consume", "t"], arguments].concat()).lines();
            lines.sort_by_key(|line| line.split('/').next().map(str::to_owned));
            lines
        };
        assert_eq!(consume(&["--until", "2026-11-24T14:05"]), ["0/1", "2/0", "2/1", "2/2", "2/3", "2/3", "2/1"]);
        assert_eq!(consume(&["--from", "2026-11-24T14:05"]), ["0/9", "0/2", "0/5", "0/3", "0/7"]);
        let between = ["--from", "2026-11-24T14:02", "--until", "2026-11-24T14:03"];
        assert_eq!(consume(&between), ["2/2"], "9 is the first after both times in 0");
        let json: Vec<Value> = consume(&[&between[..], &["--json"]].concat())
            .iter()
            .map(|line| serde_json::from_str(line).expect("an object a line"))
            .collect();
        assert_eq!((&json[0]["value"], json.len()), (&json!("2/2"), 1));
        let only = ["--partition", "2", "--until", "2026-11-24T14:02", "--from", "1"];
        assert_eq!(consume(&only), ["2/1"]);
        // Waits for the record that ends it, and does not print it.
        let mut follow = crate::call::command(&["consume", "t", "--partition", "1", "--follow", "--until", "2026-11-24T14:05"]);
        follow.env("CORELANE_BROKER", &broker.address);
        let follow = std::thread::spawn(move || crate::call::finish(follow, b"").lines());
        for minute in ["13:59", "14:04", "14:06", "14:01"] {
            let timestamp: jiff::Timestamp = format!("2026-11-24T{minute}Z").parse().expect("a time");
            let record = Record::to("t").value(minute).partition(1).timestamp(TimestampMs(timestamp.as_millisecond()));
            producer.send(record).await.expect("accepted").await.expect("delivered");
        }
        let follow = follow.join().expect("the reader ends");
        assert_eq!(follow, ["13:59", "14:04"]);
    });
}

#[test]
fn an_offset_that_is_not_there_is_an_error() {
    let broker = with_topic("2");
    broker.run_with(&["produce", "t", "--partition", "0"], b"a\nb\n").ok();
    assert_eq!(broker.run(&["consume", "t", "--from", "2", "--partition", "0"]).lines(), [""; 0], "the end is a place");
    broker.run(&["consume", "t", "--from", "3", "--partition", "0"]).fails_with(4).saying("no offset 3: t/0 ends at 2");
    broker.run(&["consume", "t", "--from", "1"]).fails_with(4).saying("no offset 1: t/1 ends at 0");
    broker.run(&["consume", "t", "--from", "9", "--partition", "0", "--follow"]).fails_with(4).saying("no offset 9");
    broker.run(&["consume", "t", "--from", "2", "--until", "2"]).fails_with(2).saying("nothing between");
    broker.run(&["consume", "t", "--from", "1h", "--until", "2h"]).fails_with(2).saying("nothing between");
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let broker = with_topic("1");
    let lines = "a line that fills pipes\n".repeat(50_000);
    broker.run_with(&["produce", "t"], lines.as_bytes()).ok();
    let mut command = crate::call::command(&["consume", "t"]);
    command.env("CORELANE_BROKER", &broker.address).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("a child of ours can be awaited").success());
}
