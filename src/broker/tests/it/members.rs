//! Groups as programs use them: members of the client crate against a broker, with records that fail.

mod resets;
mod streams;
mod topics;

use crate::support::{HANG_GUARD, Raw, Site, stop};
use corelane_client::{
    Acknowledge, Client, ClientOptions, ConsumerOptions, GroupConsumer, GroupOptions, GroupRecord, ProducerOptions, Record,
    StartAt, TopicConfig,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use wire::{AlterGroupRequest, Change, ErrorCode, Exhausted, RetryPolicyChanges, dead_letter};

const TOPIC: &str = "orders";
const KEYS: u64 = 7;

/// Runs a test's client side; one that takes longer than anything may has hung.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(HANG_GUARD, test).await.expect("it hangs") });
}

async fn connect(address: SocketAddr) -> Client {
    Client::connect(ClientOptions::new([address.to_string()])).await.unwrap()
}

/// Records 0 to `count`, of [`KEYS`] keys in turn; their value is their number.
async fn fill(client: &Client, count: u64) {
    let producer = client.producer(ProducerOptions::default());
    let mut sent = Vec::new();
    for number in 0..count {
        let (key, value) = (format!("k{}", number % KEYS), number.to_string());
        sent.push(producer.send(Record::to(TOPIC).key(&key).value(&value)).await.unwrap());
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
}

async fn create(client: &Client, partitions: u32) {
    client.admin().create_topic(TOPIC, TopicConfig { partitions, ..TopicConfig::default() }).await.unwrap();
}

fn options() -> GroupOptions {
    GroupOptions {
        acknowledge: Acknowledge::Explicit,
        session_timeout: Duration::from_secs(10),
        ..GroupOptions::new("billing", [TOPIC])
    }
}

fn number(record: &GroupRecord) -> u64 {
    std::str::from_utf8(record.record().value.unwrap()).unwrap().parse().unwrap()
}

/// Failed records of the group are tried `attempts` times, at once.
fn set_policy(address: SocketAddr, attempts: u32, exhausted: Exhausted) {
    let changes = RetryPolicyChanges {
        attempts_max: Some(attempts),
        backoff_first_ms: Some(1),
        backoff_max_ms: Some(5),
        exhausted: Some(exhausted),
        ..RetryPolicyChanges::default()
    };
    let reply = Raw::connect(address).ask(&AlterGroupRequest {
        group: "billing".to_owned(),
        topic: None,
        retry: Change::Set(changes),
        offsets_retention: Change::Keep,
        resume: false,
    });
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
}

/// Handles records until `handled` has all of `count`; gives those of each key in the order in which they were handled.
async fn handle_all(consumer: &GroupConsumer, count: u64, handled: &Mutex<BTreeMap<u64, Vec<u64>>>) {
    while handled.lock().unwrap().values().map(Vec::len).sum::<usize>() < usize::try_from(count).unwrap() {
        if let Some(record) = consumer.poll(Duration::from_millis(20)).await.unwrap() {
            let number = number(&record);
            handled.lock().unwrap().entry(number % KEYS).or_default().push(number);
            consumer.done(&record);
        }
    }
}

fn in_order(handled: &Mutex<BTreeMap<u64, Vec<u64>>>) -> bool {
    handled.lock().unwrap().values().all(|numbers| numbers.is_sorted_by(|one, next| one < next))
}

#[test]
fn members_handle_every_record_once_and_each_key_in_order() {
    let site = Site::new();
    let broker = site.start(2);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 4).await;
        fill(&client, 1000).await;
        let handled = Arc::new(Mutex::new(BTreeMap::new()));
        let (one, other) = (client.group_consumer(options()), connect(broker.addr()).await.group_consumer(options()));
        tokio::join!(handle_all(&one, 1000, &handled), handle_all(&other, 1000, &handled));
        one.close().await.unwrap();
        other.close().await.unwrap();
        assert!(in_order(&handled), "{handled:?}");

        // What is handled is committed: the next member begins behind it.
        let next = client.group_consumer(options());
        assert!(next.poll(Duration::from_millis(300)).await.unwrap().is_none());
        next.close().await.unwrap();
    });
    stop(broker);
}

#[test]
fn a_member_that_comes_takes_over_without_a_break_of_order() {
    let site = Site::new();
    let broker = site.start(1);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 6).await;
        let handled = Arc::new(Mutex::new(BTreeMap::new()));
        let one = client.group_consumer(options());
        fill(&client, 500).await;
        handle_all(&one, 100, &handled).await;
        let other = client.group_consumer(options());
        tokio::join!(handle_all(&one, 500, &handled), handle_all(&other, 500, &handled));
        assert!(in_order(&handled), "{handled:?}");
        // Both have a part now, and one that leaves gives its own to the other.
        while one.assignment().len() != 3 || other.assignment().len() != 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        one.close().await.unwrap();
        while other.assignment().len() != 6 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other.close().await.unwrap();
    });
    stop(broker);
}

#[test]
fn a_failed_record_comes_again_and_only_its_key_waits() {
    let site = Site::new();
    let broker = site.start(2);
    set_policy(broker.addr(), 5, Exhausted::DeadLetter);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 2).await;
        fill(&client, 210).await;
        let consumer = client.group_consumer(options());
        let handled = Mutex::new(BTreeMap::<u64, Vec<u64>>::new());
        let mut failures = BTreeMap::<u64, u32>::new();
        while handled.lock().unwrap().values().map(Vec::len).sum::<usize>() < 210 {
            let record = consumer.next().await.unwrap();
            let number = number(&record);
            // Every tenth fails twice.
            let failed = failures.entry(number).or_default();
            assert_eq!(record.attempt(), *failed + 1);
            if number.is_multiple_of(10) && *failed < 2 {
                *failed += 1;
                consumer.fail(&record, "not yet");
            } else {
                handled.lock().unwrap().entry(number % KEYS).or_default().push(number);
                consumer.done(&record);
            }
        }
        assert!(in_order(&handled), "{handled:?}");
        consumer.close().await.unwrap();
        let topics = client.admin().list_topics().await.unwrap();
        assert!(topics.iter().all(|topic| !topic.name.contains("dlq")), "nothing was given up");
    });
    stop(broker);
}

#[test]
fn what_keeps_failing_becomes_a_dead_letter_that_tells_its_story() {
    let site = Site::new();
    let broker = site.start(2);
    set_policy(broker.addr(), 3, Exhausted::DeadLetter);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 3).await;
        fill(&client, 140).await;
        let consumer = client.group_consumer(options());
        let handled = Mutex::new(BTreeMap::<u64, Vec<u64>>::new());
        let poison: BTreeSet<u64> = [3, 10, 77, 139].into();
        while handled.lock().unwrap().values().map(Vec::len).sum::<usize>() < 140 - poison.len() {
            let record = consumer.next().await.unwrap();
            let number = number(&record);
            if poison.contains(&number) {
                consumer.fail(&record, "cannot be understood");
            } else {
                handled.lock().unwrap().entry(number % KEYS).or_default().push(number);
                consumer.done(&record);
            }
        }
        assert!(in_order(&handled), "{handled:?}");
        consumer.close().await.unwrap();

        let letters = client.consumer(ConsumerOptions::default());
        letters.assign_all("orders.dlq.billing", StartAt::Earliest).await.unwrap();
        let mut found = BTreeSet::new();
        while found.len() < poison.len() {
            let batch = letters.next_batch().await.unwrap();
            for record in batch.records() {
                let text = |name| std::str::from_utf8(record.headers.last(name).unwrap().value.unwrap()).unwrap().to_owned();
                let number: u64 = std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap();
                assert!(found.insert(number), "{number} is there twice");
                assert_eq!(record.key, Some(format!("k{}", number % KEYS).as_bytes()));
                assert_eq!((text(dead_letter::HEADER_TOPIC), text(dead_letter::HEADER_GROUP)), (TOPIC.into(), "billing".into()));
                assert_eq!(
                    (text(dead_letter::HEADER_ATTEMPTS), text(dead_letter::HEADER_REASON)),
                    ("3".into(), "cannot be understood".into())
                );
                assert!(text(dead_letter::HEADER_OFFSET).parse::<u64>().unwrap() < 140);
            }
        }
        assert_eq!(found, poison);
    });
    stop(broker);
}

#[test]
fn a_group_goes_on_over_a_restart_of_the_broker() {
    let site = Site::new();
    let mut config = site.config(2);
    // The client comes back to the same address.
    let broker = broker::start(config.clone()).unwrap();
    config.listen.address = broker.addr();
    let broker = Mutex::new(Some(broker));
    run(async {
        let client = connect(config.listen.address).await;
        create(&client, 3).await;
        fill(&client, 300).await;
        let consumer = client.group_consumer(options());
        let handled = Mutex::new(BTreeMap::new());
        handle_all(&consumer, 150, &handled).await;
        consumer.commit().await.unwrap();
        stop(broker.lock().unwrap().take().unwrap());
        let restarted = broker::start(config.clone()).unwrap();
        *broker.lock().unwrap() = Some(restarted);
        handle_all(&consumer, 300, &handled).await;
        assert!(in_order(&handled), "committed records do not come again, and none is missed: {handled:?}");
        consumer.close().await.unwrap();
    });
    stop(broker.lock().unwrap().take().unwrap());
}

#[test]
fn a_member_that_closes_has_told_what_failed_and_what_was_handled_again() {
    let site = Site::new();
    let broker = site.start(1);
    set_policy(broker.addr(), 5, Exhausted::DeadLetter);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 1).await;
        fill(&client, 1).await;
        let options = || GroupOptions { auto_commit: None, ..options() };
        // A job that takes one record, fails, and exits in order: each time is an attempt.
        for attempt in 1..=3 {
            let consumer = client.group_consumer(options());
            let record = consumer.next().await.unwrap();
            assert_eq!(record.attempt(), attempt);
            consumer.fail(&record, "not yet");
            consumer.close().await.unwrap();
        }
        let consumer = client.group_consumer(options());
        let record = consumer.next().await.unwrap();
        consumer.done(&record);
        consumer.close().await.unwrap();
        let group = client.admin().describe_group("billing").await.unwrap();
        assert_eq!(group.partitions.iter().map(|partition| partition.parked_records).sum::<u32>(), 0, "{group:?}");
    });
    stop(broker);
}
