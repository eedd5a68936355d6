//! The producing side: plans, queues per partition, requests in flight, the ledger of what was acknowledged.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use wire::limits::PARTITIONS_PER_REQUEST_MAX;
use wire::{Acks, ErrorCode, FrameHeader, ProducePartition, ProduceRequest, TimestampMs, encode_request};

use super::DriverError;
use super::link::{Link, Piece};
use super::session::Partition;
use super::spread::{Chooser, Spread, key_bytes};
use super::template::{Templates, batch_count};
use crate::latency::Latencies;
use crate::message::Stamp;
use crate::plan::Plan;
use crate::verify::Messages;

/// How long a refused batch waits before it is sent again, in nanoseconds.
const RETRY_DELAY_NS: u64 = 10_000_000;
/// Bytes queued on a connection beyond which no further request is built: the socket is full, later batches would only be smaller.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

/// How requests are made.
#[derive(Debug, Clone, Copy)]
pub struct Requests {
    /// Largest batch.
    pub batch_bytes_max: usize,
    /// Batches of one request together.
    pub request_bytes_max: usize,
    /// Requests unanswered on one connection.
    pub in_flight_max: usize,
    /// How long a batch waits to become larger.
    pub linger_ns: u64,
    /// Time that the broker gets.
    pub timeout_ms: u32,
}

impl Default for Requests {
    fn default() -> Self {
        Requests { batch_bytes_max: 256 << 10, request_bytes_max: 1 << 20, in_flight_max: 16, linger_ns: 0, timeout_ms: 30_000 }
    }
}

/// When messages are made.
#[derive(Debug)]
pub enum Pace {
    /// By the clock, whatever the broker does.
    Open(Plan),
    /// As many unanswered as this: saturation, whose latency says nothing.
    Closed {
        /// Messages queued or in flight.
        unanswered_max: u64,
    },
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    intended_ns: u64,
    sent_ns: u64,
    key: u32,
}

/// A partition as one producer sees it.
#[derive(Debug)]
struct Lane {
    partition: Partition,
    port: usize,
    queue: VecDeque<Waiting>,
    /// Sequence of the first in the queue.
    front_sequence: u64,
    in_flight: bool,
    listed: bool,
}

/// A connection of the producer to one shard.
#[derive(Debug)]
pub struct Port {
    /// Its index among the run's links.
    pub link: usize,
    ready: VecDeque<usize>,
    in_flight: HashMap<u64, Vec<Part>>,
}

#[derive(Debug)]
struct Part {
    lane: usize,
    first_sequence: u64,
    messages: Vec<Waiting>,
    batch_bytes: u64,
}

/// Counted by all producers together since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProduceCounts {
    /// Due by the plan.
    pub offered: u64,
    /// Handed over.
    pub sent: u64,
    /// Acknowledged.
    pub acked: u64,
    /// Bytes of acknowledged batches: what the broker was given to store.
    pub acked_bytes: u64,
    /// Refused for good, or unknown.
    pub failed: u64,
    /// Batches sent again after a refusal that allowed it.
    pub retried: u64,
    /// Requests answered.
    pub requests: u64,
}

/// What the producers share.
#[derive(Debug)]
pub struct Books {
    /// Batches made ahead.
    pub templates: Templates,
    /// How requests are made.
    pub requests: Requests,
    /// Counters.
    pub counts: ProduceCounts,
    /// What was acknowledged, for the verifier; `None` when the run does not verify.
    pub acknowledged: Option<Messages>,
    /// Latencies since the last second's end of messages due in `measured`.
    pub latencies: Latencies,
    /// Messages due in this time count.
    pub measured: std::ops::Range<u64>,
    /// The last refusal.
    pub last_refusal: Option<(ErrorCode, Option<String>)>,
}

/// One producer: a plan and its partitions.
#[derive(Debug)]
pub struct Producer {
    number: u32,
    pace: Pace,
    spread: Chooser,
    lanes: Vec<Lane>,
    ports: Vec<Port>,
    delayed: Vec<(u64, usize)>,
    unanswered: u64,
    stopped: bool,
}

impl Producer {
    /// A producer of `partitions` over `ports`; `port_of` names the port of each partition.
    pub fn new(
        number: u32,
        pace: Pace,
        spread: Spread,
        partitions: Vec<Partition>,
        links: Vec<usize>,
        mut port_of: impl FnMut(&Partition) -> usize,
    ) -> Producer {
        assert!(!partitions.is_empty(), "a producer has a partition");
        let spread = Chooser::new(spread, partitions.len(), u64::from(number));
        let lane = |partition: Partition| Lane {
            port: port_of(&partition),
            partition,
            queue: VecDeque::new(),
            front_sequence: 0,
            in_flight: false,
            listed: false,
        };
        let lanes = partitions.into_iter().map(lane).collect();
        let ports = links.into_iter().map(|link| Port { link, ready: VecDeque::new(), in_flight: HashMap::new() }).collect();
        Producer { number, pace, spread, lanes, ports, delayed: Vec::new(), unanswered: 0, stopped: false }
    }

    /// Makes no further messages.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Messages queued or in flight.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// When something is to be done without a reply: the next message, or a retry.
    pub fn due_ns(&self, linger_ns: u64) -> Option<u64> {
        let plan = match &self.pace {
            Pace::Open(plan) if !self.stopped => Some(plan.due_ns()),
            _ => None,
        };
        let retry = self.delayed.iter().map(|(at, _)| *at).min();
        let first = |port: &Port| Some(self.lanes[*port.ready.front()?].queue.front()?.sent_ns + linger_ns);
        let linger = if linger_ns > 0 { self.ports.iter().filter_map(first).min() } else { None };
        [plan, retry, linger].into_iter().flatten().min()
    }

    /// Takes from the plan what is due and queues it. In a closed loop: fills up.
    pub fn make(&mut self, now_ns: u64, until_ns: u64, books: &mut Books) {
        if !self.delayed.is_empty() {
            self.list_delayed(now_ns);
        }
        if self.stopped {
            return;
        }
        loop {
            let intended_ns = match &mut self.pace {
                Pace::Open(plan) => {
                    if plan.due_ns() > now_ns || plan.due_ns() >= until_ns {
                        break;
                    }
                    plan.take()
                }
                Pace::Closed { unanswered_max } => {
                    if self.unanswered >= *unanswered_max || now_ns >= until_ns {
                        break;
                    }
                    now_ns
                }
            };
            let (lane, key) = self.spread.choose(self.lanes.len());
            self.lanes[lane].queue.push_back(Waiting { intended_ns, sent_ns: now_ns, key });
            self.unanswered += 1;
            if books.measured.contains(&intended_ns) {
                books.counts.offered += 1;
            }
            books.counts.sent += 1;
            self.list(lane);
        }
    }

    fn list_delayed(&mut self, now_ns: u64) {
        let due: Vec<usize> = self.delayed.iter().filter(|(at, _)| *at <= now_ns).map(|(_, lane)| *lane).collect();
        self.delayed.retain(|(at, _)| *at > now_ns);
        for lane in due {
            self.lanes[lane].in_flight = false;
            self.list(lane);
        }
    }

    fn list(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        if !lane.listed && !lane.in_flight && !lane.queue.is_empty() {
            lane.listed = true;
            self.ports[lane.port].ready.push_back(index);
        }
    }

    /// Builds one request that may go out now and queues it on its link; returns the link, or `None` when nothing may go out.
    pub fn send(&mut self, now_ns: u64, wall_ms: i64, links: &mut [Link], books: &mut Books) -> Option<usize> {
        for port in 0..self.ports.len() {
            let index = self.ports[port].link;
            let link = &mut links[index];
            let may_ask = self.ports[port].in_flight.len() < books.requests.in_flight_max;
            if may_ask && link.output_bytes() < OUTPUT_BYTES_MAX && self.send_one(port, now_ns, wall_ms, link, books) {
                return Some(index);
            }
        }
        None
    }

    fn send_one(&mut self, port: usize, now_ns: u64, wall_ms: i64, link: &mut Link, books: &mut Books) -> bool {
        let requests = books.requests;
        let count_max = books.templates.shape().count_max(requests.batch_bytes_max);
        let mut parts = Vec::new();
        let mut batches = Vec::new();
        let mut partitions = Vec::new();
        let mut bytes = 0;
        while bytes < requests.request_bytes_max && partitions.len() < PARTITIONS_PER_REQUEST_MAX {
            let Some(&index) = self.ports[port].ready.front() else { break };
            let lane = &mut self.lanes[index];
            let first = lane.queue.front().expect("a listed lane has messages");
            if first.sent_ns + requests.linger_ns > now_ns && lane.queue.len() < count_max {
                break;
            }
            self.ports[port].ready.pop_front();
            lane.listed = false;
            lane.in_flight = true;
            let count = batch_count(lane.queue.len(), count_max);
            let messages: Vec<Waiting> = lane.queue.drain(..count).collect();
            let first_sequence = lane.front_sequence;
            lane.front_sequence += count as u64;
            let (producer, partition) = (self.number, lane.partition);
            let stamp = |index: usize| Stamp {
                producer,
                sequence: first_sequence + index as u64,
                intended_ns: messages[index].intended_ns,
                partition: partition.number,
            };
            let batch = books.templates.batch(count, TimestampMs(wall_ms), stamp, |index| key_bytes(messages[index].key));
            bytes += batch.len();
            partitions.push(ProducePartition {
                topic: partition.topic,
                partition: partition.index,
                batch_lengths: vec![batch.len() as u32],
            });
            parts.push(Part { lane: index, first_sequence, messages, batch_bytes: batch.len() as u64 });
            batches.push(batch);
        }
        if parts.is_empty() {
            return false;
        }
        let correlation = link.correlation();
        let request = ProduceRequest { acks: Acks::AllInSync, timeout_ms: requests.timeout_ms, partitions };
        link.queue(Piece::Own(encode_request(correlation, &request, bytes)));
        for batch in batches {
            link.queue(Piece::Own(batch));
        }
        self.ports[port].in_flight.insert(correlation, parts);
        true
    }

    /// A reply came on `port`.
    ///
    /// # Errors
    /// When it is not one.
    pub fn reply(
        &mut self,
        port: usize,
        address: SocketAddr,
        header: &FrameHeader,
        frame: &[u8],
        now_ns: u64,
        books: &mut Books,
    ) -> Result<(), DriverError> {
        let body = Link::access::<ProduceRequest>(address, header, frame)?;
        let Some(parts) = self.ports[port].in_flight.remove(&header.correlation_id) else {
            return Err(DriverError::protocol(address, "a reply to no request"));
        };
        if parts.len() != body.partitions.len() {
            return Err(DriverError::protocol(address, "a produce reply names other partitions than its request"));
        }
        books.counts.requests += 1;
        for (part, reply) in parts.into_iter().zip(body.partitions.iter()) {
            let code = ErrorCode::from_code(reply.error.to_native());
            if code.is_none() {
                self.acknowledged(part, now_ns, books);
            } else {
                books.last_refusal = Some((code, reply.message.as_ref().map(|text| text.as_str().to_owned())));
                self.refused(part, code, now_ns, books);
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, part: Part, now_ns: u64, books: &mut Books) {
        let count = part.messages.len() as u64;
        books.counts.acked += count;
        books.counts.acked_bytes += part.batch_bytes;
        self.unanswered -= count;
        for message in &part.messages {
            if books.measured.contains(&message.intended_ns) {
                books.latencies.record(message.intended_ns, message.sent_ns, now_ns);
            }
        }
        let lane = &mut self.lanes[part.lane];
        lane.in_flight = false;
        let partition = lane.partition.number;
        self.list(part.lane);
        if let Some(ledger) = &mut books.acknowledged {
            ledger.add(partition, self.number, part.first_sequence..part.first_sequence + count);
        }
    }

    /// Sent again, in order, when the broker surely did not take it; given up otherwise, since it may be there.
    fn refused(&mut self, part: Part, code: ErrorCode, now_ns: u64, books: &mut Books) {
        let not_taken = matches!(code, ErrorCode::Overloaded | ErrorCode::DiskFull | ErrorCode::UnknownTopicOrPartition);
        let lane = &mut self.lanes[part.lane];
        if not_taken {
            for message in part.messages.into_iter().rev() {
                lane.queue.push_front(message);
            }
            lane.front_sequence = part.first_sequence;
            // It stays in flight, as far as others are concerned, until the delay is over.
            self.delayed.push((now_ns + RETRY_DELAY_NS, part.lane));
            books.counts.retried += 1;
            return;
        }
        let count = part.messages.len() as u64;
        books.counts.failed += count;
        self.unanswered -= count;
        lane.in_flight = false;
        self.list(part.lane);
    }

    /// Links of its ports, in order.
    pub fn links(&self) -> impl Iterator<Item = usize> + '_ {
        self.ports.iter().map(|port| port.link)
    }
}
