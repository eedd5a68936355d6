//! kill -9 again and again under a producer that sends until it is answered: each message is there once.
//!
//! The producers are the client's own, idempotent as by default, and go on through every kill: what was unanswered is sent again to the broker that
//! comes back, which must know what it has already.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corelane_client::{Client, ClientError, ClientOptions, DeliveryFuture, Producer, ProducerOptions, Record};
use wire::checksum::crc32c;

use super::crash::LOAD_MS;
use super::rig::{MESSAGE_BYTES, Rig, config, unique};
use super::{BarError, Judged, Limit};
use crate::driver::DriverError;
use crate::driver::session::Session;
use crate::message::{HEAD_BYTES, Stamp};
use crate::trial::read_back;
use crate::verify::Messages;

const PARTITIONS: u32 = 16;
const PRODUCERS: u32 = 2;
/// Messages of a producer at once, one for each partition, and the pause after them.
const PAUSE: Duration = Duration::from_millis(2);
/// Messages of a producer that wait for their answers; while the broker is away it makes no more.
const UNANSWERED_MAX: usize = 256;
/// How long the producers may take until the broker that came back answers them.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let mut broker = rig.broker()?;
    let topics = Session::connect(broker.address())?.create_topics(&unique("idempotent"), 1, &config(PARTITIONS))?;
    let load = Arc::new(Load { stops: AtomicBool::new(false), acknowledged: AtomicU64::new(0) });
    let (address, topic, for_thread) = (broker.address(), topics[0].name.clone(), Arc::clone(&load));
    let producers = std::thread::spawn(move || produce(address, &topic, &for_thread));
    for round in 0..rig.rounds {
        let (before, started) = (load.acknowledged.load(Ordering::Relaxed), Instant::now());
        while load.acknowledged.load(Ordering::Relaxed) == before && !producers.is_finished() {
            if started.elapsed() > ANSWER_MAX {
                return Err(BarError::Unfit(format!("round {round}: nothing was acknowledged for {ANSWER_MAX:?}")));
            }
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(Duration::from_millis(LOAD_MS[round as usize % LOAD_MS.len()]));
        broker.kill()?;
        broker.restart()?;
    }
    load.stops.store(true, Ordering::Relaxed);
    let sent = producers.join().expect("producers do not panic").map_err(DriverError::from)?;
    let (counts, read) = read_back(broker.address(), &topics, &sent)?;
    broker.stop()?;
    let detail = format!("{counts}; {} kills, {} messages sent and acknowledged, {read} read back", rig.rounds, sent.count());
    let figure = |name, what, value: u64| Judged::correct(name, what, Limit::AtMost(0.0), value as f64, detail.clone());
    Ok(vec![
        figure("idempotent-crash", "duplicates of an idempotent producer through kill -9", counts.duplicated),
        figure(
            "idempotent-crash-gaps",
            "messages of it that are missing, out of order or damaged",
            counts.lost + counts.reordered + counts.damaged,
        ),
    ])
}

struct Load {
    stops: AtomicBool,
    acknowledged: AtomicU64,
}

/// Sends until told to stop, and then waits until everything is acknowledged; returns all messages.
fn produce(broker: SocketAddr, topic: &str, load: &Load) -> Result<Messages, ClientError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of one thread can be made");
    runtime.block_on(async {
        let client = Client::connect(ClientOptions::new([broker.to_string()])).await?;
        let options = || ProducerOptions { batch_bytes: 64 << 10, ..ProducerOptions::default() };
        let mut senders: Vec<Sender> = (0..PRODUCERS).map(|number| Sender::new(number, client.producer(options()))).collect();
        while !load.stops.load(Ordering::Relaxed) {
            for sender in &mut senders {
                sender.send(topic).await?;
                // Only what is known already is waited for: kills must fall on messages in flight.
                sender.take_answers(UNANSWERED_MAX, load).await?;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let mut sent = Messages::default();
        for mut sender in senders {
            sender.take_answers(0, load).await?;
            for partition in 0..PARTITIONS {
                sent.add(partition, sender.number, 0..sender.next);
            }
        }
        Ok(sent)
    })
}

struct Sender {
    number: u32,
    producer: Producer,
    /// Number of the next message in every partition.
    next: u64,
    unanswered: VecDeque<DeliveryFuture>,
}

impl Sender {
    fn new(number: u32, producer: Producer) -> Sender {
        Sender { number, producer, next: 0, unanswered: VecDeque::new() }
    }

    /// One message to each partition.
    async fn send(&mut self, topic: &str) -> Result<(), ClientError> {
        let mut message = vec![0; MESSAGE_BYTES];
        let body_crc = crc32c(&message[HEAD_BYTES..]);
        for partition in 0..PARTITIONS {
            let stamp = Stamp { producer: self.number, sequence: self.next, intended_ns: 0, partition };
            stamp.write(message.first_chunk_mut().expect("a message has a head"), body_crc);
            let delivery = self.producer.send(Record::to(topic).partition(partition).value(&message)).await?;
            self.unanswered.push_back(delivery);
        }
        self.next += 1;
        Ok(())
    }

    /// Waits until at most so many messages are unanswered. A message that fails is an error: its producer has time enough.
    async fn take_answers(&mut self, unanswered_max: usize, load: &Load) -> Result<(), ClientError> {
        while self.unanswered.len() > unanswered_max {
            let delivery = self.unanswered.pop_front().expect("more than none");
            delivery.await?;
            load.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
