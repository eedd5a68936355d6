//! Metrics and health.

use crate::support::{HANG_GUARD, Raw, Site, batch, noise, stop};
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};
use wire::TopicConfig;

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_and_health_are_answered() {
    let site = Site::new();
    let broker = site.start(2);
    let http = broker.http_addr().unwrap();
    for path in ["/healthz", "/readyz"] {
        let answer = get(http, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(get(http, "/nothing").starts_with("HTTP/1.1 404"));

    let mut client = Raw::connect(broker.addr());
    let topic = client.create("counted", TopicConfig::default());
    client.produce(topic, 0, batch(&["a", "b", "c"]));
    // Snapshots are taken once a second.
    let begun = Instant::now();
    loop {
        let text = get(http, "/metrics");
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("text/plain"), "{text}");
        if text.lines().any(|line| line.contains("records") && line.contains("topic=\"counted\"") && line.ends_with(" 3")) {
            break;
        }
        assert!(begun.elapsed() < HANG_GUARD, "the records are not counted:\n{text}");
        thread::sleep(Duration::from_millis(50));
    }
    stop(broker);
    assert!(TcpStream::connect(http).is_err(), "HTTP is served after the stop");
}

/// Every sample by its name with labels.
fn samples(text: &str) -> HashMap<String, f64> {
    let body = text.split_once("\r\n\r\n").unwrap().1;
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The metrics once `wanted` holds: snapshots are taken once a second.
pub(crate) fn metrics_when(http: SocketAddr, wanted: impl Fn(&HashMap<String, f64>) -> bool) -> HashMap<String, f64> {
    let begun = Instant::now();
    loop {
        let samples = samples(&get(http, "/metrics"));
        if wanted(&samples) {
            return samples;
        }
        assert!(begun.elapsed() < HANG_GUARD, "the metrics never show it: {samples:#?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_an_operator_needs_is_among_the_metrics_with_sane_values() {
    let site = Site::new();
    let broker = site.start(2);
    let http = broker.http_addr().unwrap();
    let (mut client, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let topic = client.create("counted", TopicConfig { partitions: 4, ..TopicConfig::default() });
    let (mut bytes, mut records) = (0, 0);
    for partition in 0..4 {
        for size in [10, 1 << 20] {
            let batch = batch(&[noise(size, 1), noise(size, 2)]);
            bytes += batch.len();
            records += 2;
            client.produce(topic, partition, batch);
        }
        client.read_all(topic, partition);
    }
    let (bytes, records) = (bytes as f64, f64::from(records));
    let shard = |name: &str, shard: u16| format!("corelane_{name}{{shard=\"{shard}\"}}");
    let of_topic = |name: &str| format!("corelane_topic_{name}_total{{topic=\"counted\"}}");
    let samples = metrics_when(http, |samples| {
        samples.get(&of_topic("fetched_bytes")).is_some_and(|found| *found >= bytes)
            && samples.get(&of_topic("appended_records")) == Some(&records)
    });
    let value = |name: &str, number| *samples.get(&shard(name, number)).unwrap_or_else(|| panic!("no {name} of shard {number}"));
    let sum = |name: &str| value(name, 0) + value(name, 1);

    assert_eq!((sum("appended_bytes_total"), sum("appended_batches_total")), (bytes, 8.0));
    assert!(sum("fetched_bytes_total") >= bytes && sum("fetched_batches_total") >= 8.0);
    assert_eq!(samples[&of_topic("appended_bytes")], bytes);
    assert_eq!(samples[&of_topic("appended_batches")], 8.0);
    for number in 0..2 {
        assert!((0.0..=1.0).contains(&value("shard_busy_ratio", number)));
        for queue in [
            "append_queue_bytes",
            "appends_waiting",
            "request_bytes",
            "requests_open",
            "reply_bytes",
            "mesh_waiting",
            "mesh_unsent",
            "topics_without_metrics",
        ] {
            assert_eq!(value(queue, number), 0.0, "{queue} of a broker at rest");
        }
        assert!(value("mesh_messages_total", number) > 0.0, "shard 0 asked for shard 1's partitions");
        assert!(value("disk_free_bytes", number) > 0.0 && value("disk_full", number) == 0.0);
    }
    let reads = ["reads_tail_total", "reads_cached_total", "reads_disk_total"].map(sum);
    assert!(reads.iter().sum::<f64>() >= 4.0, "{reads:?}");

    for name in ["commit_group_bytes", "commit_group_seconds", "direct_write_bytes", "direct_write_seconds"] {
        let mut total = 0.0;
        for number in 0..2 {
            let bucket = |le: &str| samples[&format!("corelane_{name}_bucket{{shard=\"{number}\",le=\"{le}\"}}")];
            let bounds = if name.ends_with("bytes") { ["4096", "33554432", "+Inf"] } else { ["0.00005", "1", "+Inf"] };
            let counts = bounds.map(bucket);
            assert!(counts.is_sorted(), "{name}: {counts:?}");
            let count = value(&format!("{name}_count"), number);
            assert_eq!(counts[2], count, "{name}");
            assert_eq!(value(&format!("{name}_sum"), number) > 0.0, count > 0.0, "{name}");
            total += count;
        }
        assert!(total > 0.0, "{name} was never observed");
    }
    stop(broker);
}

#[test]
fn the_busiest_topics_have_metrics_and_the_others_are_counted() {
    const NAMED: usize = 1000;
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topics = client.create_many(NAMED + 10);
    for (_, topic) in &topics[..NAMED + 7] {
        client.send_produce(*topic, 0, &[batch(&["v"])]);
    }
    for _ in 0..NAMED + 7 {
        assert_eq!(client.receive_produced().error, wire::ErrorCode::None);
    }
    let (busiest, topic) = topics.last().unwrap();
    client.produce(*topic, 0, batch(&[noise(1000, 1)]));
    let busiest = format!("corelane_topic_appended_bytes_total{{topic=\"{busiest}\"}}");
    let samples = metrics_when(broker.http_addr().unwrap(), |samples| samples.contains_key(&busiest));
    assert_eq!(samples["corelane_topics_without_metrics{shard=\"0\"}"], 8.0);
    assert_eq!(samples.keys().filter(|name| name.starts_with("corelane_topic_appended_bytes_total")).count(), NAMED);
    stop(broker);
}

#[test]
fn http_can_be_left_out() {
    let site = Site::new();
    let mut config = site.config(1);
    config.http.enabled = false;
    let broker = broker::start(config).unwrap();
    assert_eq!(broker.http_addr(), None);
    stop(broker);
}
