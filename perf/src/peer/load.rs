//! The load on a peer: a plan per producer, batches of what is waiting, books of what was acknowledged.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::checksum::crc32c;

use super::{Connection, PeerError};
use crate::latency::Latencies;
use crate::message::{HEAD_BYTES, Stamp};
use crate::plan::{Arrival, Plan};
use crate::verify::Messages;
use crate::workload::Rate;

/// The runtime's timer is as exact as this; nearer to the next message the clock is looked at again and again.
const SPIN: Duration = Duration::from_millis(2);

/// What to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) rate: Rate,
    pub(super) arrival: Arrival,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    pub(super) message_bytes: usize,
    pub(super) batch_messages_max: usize,
    pub(super) in_flight_max: usize,
}

/// What was done.
#[derive(Debug)]
pub(super) struct Outcome {
    measured: Range<u64>,
    closed_loop: bool,
    /// Messages due in the measured time; in a closed loop, made in it.
    pub(super) offered: u64,
    /// Messages acknowledged in the measured time.
    pub(super) acked: u64,
    /// Of messages due in the measured time.
    pub(super) publish: Latencies,
    /// Over the whole run.
    pub(super) acknowledged: Messages,
}

impl Outcome {
    /// The measured time.
    pub(super) fn seconds(&self) -> f64 {
        (self.measured.end - self.measured.start) as f64 / 1e9
    }

    pub(super) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds().max(1e-9)
    }

    /// Why the run says nothing about the peer.
    pub(super) fn invalid(&self) -> Vec<String> {
        if self.closed_loop { Vec::new() } else { self.publish.lateness().into_iter().collect() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    intended_ns: u64,
    sent_ns: u64,
}

/// When the next message is made.
enum Pace {
    Open(Plan),
    Closed { unanswered_max: usize },
}

struct Producer<'a> {
    load: &'a Load,
    number: u32,
    pace: Pace,
    zero: Instant,
    body: Vec<u8>,
    body_crc: u32,
    queue: VecDeque<Waiting>,
    next_sequence: u64,
    unanswered: usize,
    outcome: &'a RefCell<Outcome>,
}

struct Batch {
    first_sequence: u64,
    messages: Vec<Waiting>,
}

impl Load {
    /// One producer on each connection, all on this thread.
    ///
    /// # Errors
    /// When the peer refuses a message or a connection breaks.
    pub(super) async fn run(&self, connections: Vec<Connection>) -> Result<Outcome, PeerError> {
        let warmup_ns = self.warmup.as_nanos() as u64;
        let outcome = RefCell::new(Outcome {
            measured: warmup_ns..warmup_ns + self.duration.as_nanos() as u64,
            closed_loop: !matches!(self.rate, Rate::PerSecond(_)),
            offered: 0,
            acked: 0,
            publish: Latencies::default(),
            acknowledged: Messages::default(),
        });
        let zero = Instant::now();
        let count = connections.len();
        let producers = connections.into_iter().zip(0..).map(|(connection, number)| {
            let mut body = vec![0; self.message_bytes - HEAD_BYTES];
            SmallRng::seed_from_u64(u64::from(number)).fill_bytes(&mut body);
            let pace = match self.rate {
                Rate::PerSecond(rate) => {
                    Pace::Open(Plan::new(self.arrival, rate / count as f64, f64::from(number) * 1e9 / rate, u64::from(number)))
                }
                Rate::Saturate(unanswered) => Pace::Closed { unanswered_max: unanswered as usize },
                Rate::Search => unreachable!("the command offers no search"),
            };
            let producer = Producer {
                load: self,
                number,
                pace,
                zero,
                body_crc: crc32c(&body),
                body,
                queue: VecDeque::new(),
                next_sequence: 0,
                unanswered: 0,
                outcome: &outcome,
            };
            producer.run(connection)
        });
        join_all(producers).await.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(outcome.into_inner())
    }
}

impl Producer<'_> {
    async fn run(mut self, connection: Connection) -> Result<(), PeerError> {
        let end_ns = self.outcome.borrow().measured.end;
        let mut in_flight = FuturesUnordered::new();
        while self.now_ns() < end_ns {
            self.make(end_ns);
            while in_flight.len() < self.load.in_flight_max && !self.queue.is_empty() {
                let (batch, messages) = self.take_batch();
                in_flight.push(publish(connection.clone(), batch, messages));
            }
            let due_ns = match &self.pace {
                Pace::Open(plan) => Some(plan.due_ns().min(end_ns)),
                Pace::Closed { .. } => None,
            };
            tokio::select! {
                Some((batch, published)) = in_flight.next() => {
                    published?;
                    self.acknowledged(&batch);
                }
                () = until(self.zero, due_ns) => {}
            }
        }
        // What was due before the end counts, however late.
        self.make(end_ns);
        while !self.queue.is_empty() || !in_flight.is_empty() {
            while in_flight.len() < self.load.in_flight_max && !self.queue.is_empty() {
                let (batch, messages) = self.take_batch();
                in_flight.push(publish(connection.clone(), batch, messages));
            }
            if let Some((batch, published)) = in_flight.next().await {
                published?;
                self.acknowledged(&batch);
            }
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    fn make(&mut self, end_ns: u64) {
        let now_ns = self.now_ns();
        loop {
            let intended_ns = match &mut self.pace {
                Pace::Open(plan) if plan.due_ns() <= now_ns && plan.due_ns() < end_ns => plan.take(),
                Pace::Closed { unanswered_max } if self.unanswered < *unanswered_max && now_ns < end_ns => now_ns,
                _ => break,
            };
            self.queue.push_back(Waiting { intended_ns, sent_ns: now_ns });
            self.unanswered += 1;
            let mut outcome = self.outcome.borrow_mut();
            if outcome.measured.contains(&intended_ns) {
                outcome.offered += 1;
            }
        }
    }

    fn take_batch(&mut self) -> (Batch, Vec<Vec<u8>>) {
        let count = self.queue.len().min(self.load.batch_messages_max);
        let batch = Batch { first_sequence: self.next_sequence, messages: self.queue.drain(..count).collect() };
        self.next_sequence += count as u64;
        let messages = (batch.first_sequence..).zip(&batch.messages).map(|(sequence, waiting)| {
            let mut message = vec![0; HEAD_BYTES];
            let stamp = Stamp { producer: self.number, sequence, intended_ns: waiting.intended_ns, partition: 0 };
            stamp.write(message.first_chunk_mut().expect("a message starts with its head"), self.body_crc);
            message.extend_from_slice(&self.body);
            message
        });
        let messages = messages.collect();
        (batch, messages)
    }

    fn acknowledged(&mut self, batch: &Batch) {
        let now_ns = self.now_ns();
        let count = batch.messages.len();
        self.unanswered -= count;
        let mut outcome = self.outcome.borrow_mut();
        if outcome.measured.contains(&now_ns) {
            outcome.acked += count as u64;
        }
        for message in &batch.messages {
            if outcome.measured.contains(&message.intended_ns) {
                outcome.publish.record(message.intended_ns, message.sent_ns, now_ns);
            }
        }
        outcome.acknowledged.add(0, self.number, batch.first_sequence..batch.first_sequence + count as u64);
    }
}

async fn publish(mut connection: Connection, batch: Batch, messages: Vec<Vec<u8>>) -> (Batch, Result<(), PeerError>) {
    let published = connection.publish(messages).await;
    (batch, published)
}

/// Returns when it is time; never, when there is no time given.
async fn until(zero: Instant, due_ns: Option<u64>) {
    let Some(due_ns) = due_ns else { return pending().await };
    let due = zero + Duration::from_nanos(due_ns);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN {
            tokio::time::sleep(left - SPIN).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}
