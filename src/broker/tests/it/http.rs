//! Metrics and health.

use crate::support::{HANG_GUARD, Raw, Site, batch, stop};
use std::{
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

#[test]
fn http_can_be_left_out() {
    let site = Site::new();
    let mut config = site.config(1);
    config.http.enabled = false;
    let broker = broker::start(config).unwrap();
    assert_eq!(broker.http_addr(), None);
    stop(broker);
}
