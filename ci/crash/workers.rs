//! A group of workers with records that keep failing: whatever is killed, every record is handled or a dead letter, none is both, and each key is
//! handled in order.
//!
//! ```text
//!   records, 1 in 100 of them poison ──► topic ──► two workers of a group ──► handled, or failed until it is a dead letter
//!                                          ▲               ▲
//!                              broker: kill -9         dropped without a word, and another one joins
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corelane_client::{
    Acknowledge, Change, Client, ConsumerOptions, GroupConsumer, GroupOptions, OffsetAt, ProducerOptions, Record,
    RetryPolicyChanges, StartAt, TopicConfig,
};
use perf::broker_process::BrokerProcess;
use tokio::task::JoinHandle;

use crate::broker;
use crate::draw::Draw;

const TOPIC: &str = "work";
const GROUP: &str = "workers";
const PARTITIONS: u32 = 4;
const KEYS: u64 = 50;
const RECORDS_PER_ROUND: u64 = 600;
const POISON_EVERY: u64 = 100;
const WORKERS: usize = 2;

/// What workers have done, by key: numbers in the order in which they were handled. Again is allowed after a crash, back is not.
type Handled = Arc<Mutex<BTreeMap<u64, Vec<u64>>>>;

/// A round that takes longer hangs.
const ROUND_GUARD: Duration = Duration::from_secs(180);

pub(crate) async fn survive(rounds: u64, draw: &mut Draw) {
    let mut broker = broker::start();
    let client = broker::client(&broker).await;
    client
        .admin()
        .create_topic(TOPIC, TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() })
        .await
        .expect("a new topic");
    let policy = RetryPolicyChanges {
        attempts_max: Some(3),
        backoff_first_ms: Some(5),
        backoff_max_ms: Some(20),
        ..RetryPolicyChanges::default()
    };
    client.admin().alter_group(GROUP, None, Change::Set(policy), Change::Keep, false).await.expect("a policy");
    let handled: Handled = Arc::default();
    let mut workers: Vec<JoinHandle<()>> = Vec::new();
    for round in 0..rounds {
        let guarded = tokio::time::timeout(ROUND_GUARD, one_round(&mut broker, round, &handled, &mut workers, draw));
        guarded.await.unwrap_or_else(|_| panic!("round {round} hangs"));
        println!("round {round}: every record has one end");
    }
    workers.iter().for_each(JoinHandle::abort);
    broker.stop().expect("a broker told to stop ends well");
}

async fn one_round(
    broker: &mut BrokerProcess,
    round: u64,
    handled: &Handled,
    workers: &mut Vec<JoinHandle<()>>,
    draw: &mut Draw,
) {
    while workers.len() < WORKERS {
        workers.push(work(broker::client(broker).await, Arc::clone(handled)));
    }
    let numbers = round * RECORDS_PER_ROUND..(round + 1) * RECORDS_PER_ROUND;
    let client = broker::client(broker).await;
    let end = numbers.end;
    let deaths = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(draw.below(400))).await;
            if draw.below(2) == 0 {
                broker.kill().expect("a broker of ours can be killed");
                broker.respawn_with("2").expect("the broker's process starts");
                broker.wait_ready().expect("the broker starts");
            } else {
                // A worker that dies says nothing: its session ends it.
                workers.remove(0).abort();
                workers.push(work(broker::client(broker).await, Arc::clone(handled)));
            }
        }
    };
    tokio::join!(send(&client, numbers), deaths);
    settle(&client, handled, end).await;
}

/// Waits until every record has an end, and checks that it is the right one.
async fn settle(client: &Client, handled: &Handled, count: u64) {
    let poison: BTreeSet<u64> = (0..count).filter(|number| is_poison(*number)).collect();
    let letters = loop {
        let letters = dead_letters(client).await;
        let done = handled.lock().expect("no worker panicked").values().flatten().copied().collect::<BTreeSet<u64>>().len();
        if letters.len() >= poison.len() && done + poison.len() >= usize::try_from(count).expect("small") {
            break letters;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let once: BTreeSet<u64> = letters.iter().copied().collect();
    assert_eq!(once.len(), letters.len(), "a dead letter is there twice: {letters:?}");
    assert_eq!(once, poison);
    for (key, numbers) in handled.lock().expect("no worker panicked").iter() {
        assert!(numbers.iter().all(|number| !is_poison(*number)), "poison was handled");
        // After a crash handling goes back to where the commit stands, and is in order again from there.
        let mut reached = BTreeSet::new();
        for pair in numbers.windows(2) {
            reached.insert(pair[0]);
            let expected_next = (pair[0] + KEYS..).step_by(KEYS as usize).find(|number| !is_poison(*number));
            assert!(reached.contains(&pair[1]) || Some(pair[1]) == expected_next, "key {key}: {} after {}", pair[1], pair[0]);
        }
    }
}

fn is_poison(number: u64) -> bool {
    number % POISON_EVERY == POISON_EVERY / 2
}

/// Every number among the dead letters, as often as it is there.
async fn dead_letters(client: &Client) -> Vec<u64> {
    let topic = format!("{TOPIC}.dlq.{GROUP}");
    let Ok(info) = client.topic(&topic).await else { return Vec::new() };
    let ends = client.admin().list_offsets(&topic, 0..info.partition_count(), OffsetAt::Latest).await.expect("offsets");
    let expected: u64 = ends.iter().map(|end| end.offset.0).sum();
    let consumer = client.consumer(ConsumerOptions::default());
    consumer.assign_all(&topic, StartAt::Earliest).await.expect("an assignment");
    let mut numbers = Vec::new();
    while (numbers.len() as u64) < expected {
        let batch = consumer.next_batch().await.expect("a batch");
        numbers.extend(batch.records().map(|record| number(record.value.expect("a value"))));
    }
    numbers
}

/// Sends the numbers, each of its key, through whatever kills of the broker.
async fn send(client: &Client, numbers: std::ops::Range<u64>) {
    let producer = client.producer(ProducerOptions::default());
    let mut sent = Vec::new();
    for number in numbers {
        let (key, value) = (format!("k{}", number % KEYS), number.to_string());
        sent.push(producer.send(Record::to(TOPIC).key(&key).value(&value)).await.expect("accepted"));
        if number.is_multiple_of(20) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    for delivery in sent {
        delivery.await.expect("delivered, however often it is tried");
    }
}

fn work(client: Client, handled: Handled) -> JoinHandle<()> {
    tokio::spawn(async move {
        let options = GroupOptions {
            acknowledge: Acknowledge::Explicit,
            auto_commit: Some(Duration::from_millis(100)),
            session_timeout: Duration::from_secs(3),
            ..GroupOptions::new(GROUP, [TOPIC])
        };
        let consumer: GroupConsumer = client.group_consumer(options);
        loop {
            let record = consumer.next().await.expect("a record, however long it takes");
            let number = number(record.record().value.expect("a value"));
            if is_poison(number) {
                consumer.fail(&record, "poison");
            } else {
                handled.lock().expect("no worker panicked").entry(number % KEYS).or_default().push(number);
                consumer.done(&record);
            }
        }
    })
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("text").parse().expect("a number")
}
