//! Load on every partition until the broker is killed in the middle of it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use corelane_client::{Client, DeliveryFuture, Producer, ProducerOptions, Record};
use futures_util::future::join_all;
use perf::broker_process::BrokerProcess;
use tokio::sync::{Notify, watch};

use crate::broker;
use crate::check::Ledger;
use crate::message;

/// Unanswered records of one partition.
const WINDOW: usize = 200;

/// Sends to every partition of every topic; kills the broker when so many records are acknowledged; enters into `ledger` what was
/// acknowledged before the end.
pub(crate) async fn until_killed(broker: &mut BrokerProcess, ledger: &mut Ledger, acknowledgements: u64) {
    let client = broker::client(broker).await;
    let (killed, is_killed) = watch::channel(false);
    let run = Run { is_killed, missing: Cell::new(acknowledgements), enough: Notify::new(), ledger: RefCell::new(ledger) };
    let partitions = run.ledger.borrow().partitions();
    let senders = join_all(partitions.iter().map(|&(topic, partition)| run.send(&client, topic, partition)));
    let kill = async {
        run.enough.notified().await;
        broker.kill().expect("a broker of ours can be killed");
        killed.send(true).expect("the senders listen");
    };
    tokio::join!(senders, kill);
}

struct Run<'a> {
    is_killed: watch::Receiver<bool>,
    missing: Cell<u64>,
    enough: Notify,
    ledger: RefCell<&'a mut Ledger>,
}

impl Run<'_> {
    /// No retries: each message is sent once, so that one found twice was written twice.
    async fn send(&self, client: &Client, topic: &'static str, partition: u32) {
        let options = ProducerOptions {
            retries: false,
            partition_requests_in_flight_max: 4,
            batch_bytes: 64 * 1024,
            delivery_timeout: Duration::from_secs(30),
            ..ProducerOptions::default()
        };
        let producer = client.producer(options);
        let mut is_killed = self.is_killed.clone();
        let mut unanswered = VecDeque::new();
        let sending = async {
            loop {
                let number = self.ledger.borrow_mut().next_number();
                let accepted = send_one(&producer, topic, partition, number).await;
                let Some(delivery) = accepted else { break };
                unanswered.push_back((number, delivery));
                if unanswered.len() == WINDOW {
                    // It stays in the queue until it is entered: the kill may end this at any await.
                    let (number, delivery) = unanswered.front_mut().expect("it is full");
                    self.await_one(topic, partition, *number, delivery).await;
                    unanswered.pop_front();
                }
            }
        };
        tokio::select! {
            () = sending => {}
            _ = is_killed.wait_for(|&killed| killed) => {}
        }
        // The connection is gone: each of these is answered by now, or fails.
        for (number, delivery) in &mut unanswered {
            self.await_one(topic, partition, *number, delivery).await;
        }
    }

    async fn await_one(&self, topic: &'static str, partition: u32, number: u64, delivery: &mut DeliveryFuture) {
        let Ok(delivered) = delivery.await else { return };
        assert_eq!(delivered.partition, partition, "{topic}: message {number} was delivered elsewhere");
        self.ledger.borrow_mut().acknowledged(topic, partition, delivered.offset, number);
        self.missing.set(self.missing.get().saturating_sub(1));
        if self.missing.get() == 0 {
            self.enough.notify_one();
        }
    }
}

async fn send_one(producer: &Producer, topic: &str, partition: u32, number: u64) -> Option<DeliveryFuture> {
    let value = message::value(number);
    producer.send(Record::to(topic).partition(partition).value(&value)).await.ok()
}
