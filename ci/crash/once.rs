//! Idempotent producers that live through the kills: every record is stored once, in its order, where its delivery says.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use corelane_client::{
    Client, Compression, ConsumerOptions, DeliveryFuture, OffsetAt, Producer, ProducerOptions, Record, StartAt, TopicConfig,
};
use futures_util::future::join_all;
use perf::broker_process::BrokerProcess;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::draw::Draw;
use crate::{PARTITIONS, ROUND_GUARD, broker, message};

/// Unanswered records of one partition.
const WINDOW: usize = 300;
/// Longer than any round: no record may fail.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(600);

/// Written through the write-ahead log, and in part straight into segments.
const TOPICS: [(&str, Compression); 2] = [("once", Compression::None), ("once-compressed", Compression::Lz4)];

/// Kills and restarts the broker `rounds` times under its producers, and counts.
pub(crate) async fn survive(rounds: u64, draw: &mut Draw) {
    let mut broker = broker::start();
    let client = broker::client(&broker).await;
    for (name, compression) in TOPICS {
        let config = TopicConfig { partitions: PARTITIONS, compression, ..TopicConfig::default() };
        client.admin().create_topic(name, config).await.expect("a new topic");
    }
    let run = Run { stop: Cell::new(false), missing: Cell::new(0), enough: Notify::new() };
    let places = TOPICS.iter().flat_map(|(name, _)| (0..PARTITIONS).map(move |partition| (*name, partition)));
    let writers: Vec<Writer> = places.map(|(topic, partition)| Writer::new(&client, topic, partition)).collect();
    let load = join_all(writers.iter().map(|writer| writer.write(&run)));
    let kills = async {
        for round in 0..rounds {
            let guarded = timeout(ROUND_GUARD, one_round(broker, &run, draw)).await;
            broker = guarded.unwrap_or_else(|_| panic!("round {round} hangs"));
        }
        run.stop.set(true);
        broker
    };
    let (_, broker) = tokio::join!(load, kills);

    let mut records = 0;
    for writer in &writers {
        records += writer.check(&client).await;
    }
    println!("{rounds} kills, {records} records: no duplicate, no gap");
    broker.stop().expect("a broker told to stop ends well");
}

/// A kill when so many more records are acknowledged, sometimes another during the start, and a restart with any number of shards.
async fn one_round(mut broker: BrokerProcess, run: &Run, draw: &mut Draw) -> BrokerProcess {
    run.missing.set(200 + draw.below(3000));
    run.enough.notified().await;
    broker.kill().expect("a broker of ours can be killed");
    let shards = (1 + draw.below(2)).to_string();
    if draw.below(2) == 0 {
        broker.respawn_with(&shards).expect("the broker's process starts");
        // The fault is the moment of the kill, anywhere in start or recovery: nothing is waited for.
        tokio::time::sleep(Duration::from_millis(draw.below(500))).await;
        broker.kill().expect("a broker of ours can be killed");
    }
    broker.respawn_with(&shards).expect("the broker's process starts");
    let started = spawn_blocking(move || {
        broker.wait_ready().expect("the broker starts");
        broker
    });
    started.await.expect("waiting does not panic")
}

/// What the writers and the kills tell each other.
struct Run {
    stop: Cell<bool>,
    /// Acknowledgements before the next kill.
    missing: Cell<u64>,
    enough: Notify,
}

/// The producer of one partition.
struct Writer {
    topic: &'static str,
    partition: u32,
    producer: Producer,
    /// Offset of each message, in the order of their numbers.
    delivered: RefCell<Vec<u64>>,
}

impl Writer {
    fn new(client: &Client, topic: &'static str, partition: u32) -> Writer {
        let options = ProducerOptions {
            batch_bytes: 32 * 1024,
            partition_requests_in_flight_max: 4,
            delivery_timeout: DELIVERY_TIMEOUT,
            ..ProducerOptions::default()
        };
        Writer { topic, partition, producer: client.producer(options), delivered: RefCell::default() }
    }

    async fn write(&self, run: &Run) {
        let mut unanswered = VecDeque::new();
        for number in 0.. {
            if run.stop.get() {
                break;
            }
            let value = message::value(number);
            let record = Record::to(self.topic).partition(self.partition).value(&value);
            let accepted = self.producer.send(record).await;
            unanswered.push_back(accepted.unwrap_or_else(|error| panic!("record {number} is not accepted: {error}")));
            if unanswered.len() == WINDOW {
                self.answered(run, unanswered.pop_front().expect("it is full")).await;
            }
        }
        for delivery in unanswered {
            self.answered(run, delivery).await;
        }
    }

    async fn answered(&self, run: &Run, delivery: DeliveryFuture) {
        let delivered = delivery.await;
        let number = self.delivered.borrow().len();
        let delivered = delivered.unwrap_or_else(|error| panic!("{}/{} record {number}: {error}", self.topic, self.partition));
        self.delivered.borrow_mut().push(delivered.offset.0);
        let missing = run.missing.get();
        run.missing.set(missing.saturating_sub(1));
        if missing == 1 {
            run.enough.notify_one();
        }
    }

    /// Reads the partition: it holds the records in their order, each once, where they were said to be. Gives how many.
    async fn check(&self, client: &Client) -> usize {
        let place = format!("{}/{}", self.topic, self.partition);
        let delivered = self.delivered.take();
        let latest = client.admin().list_offsets(self.topic, [self.partition], OffsetAt::Latest).await.expect("the offsets");
        let end = latest[0].offset.0;
        assert_eq!(end, delivered.len() as u64, "{place}: as many records as were delivered");
        let consumer = client.consumer(ConsumerOptions::default());
        consumer.assign(self.topic, [self.partition], StartAt::Earliest).await.expect("an assignment");
        let mut next = 0;
        while (next as u64) < end {
            let batch = timeout(ROUND_GUARD, consumer.next_batch()).await;
            let batch = batch.unwrap_or_else(|_| panic!("{place}: reading hangs at {next}")).expect("a batch");
            for record in batch.records() {
                let number = message::number(record.value).unwrap_or_else(|wrong| panic!("{place} {next}: {wrong}"));
                assert_eq!(
                    number, next as u64,
                    "{place}: a record is missing, doubled or out of order at offset {}",
                    record.offset.0
                );
                assert_eq!(record.offset.0, delivered[next], "{place}: record {number} is not where its delivery says");
                next += 1;
            }
        }
        next
    }
}
