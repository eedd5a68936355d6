//! The cheapest load: requests made once and sent again and again, and readers that only count.
//!
//! A closed loop for figures of throughput and cost. It keeps no books per message; the open-loop engine does that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::{
    Acks, AlignedVec, BatchHeader, ErrorCode, FetchPartition, FetchRequest, FrameHeader, Offset, ProducePartition,
    ProduceRequest, encode_request,
};

use super::DriverError;
use super::link::{Link, Piece};
use super::poll::Poll;
use super::session::Partition;
use crate::latency;

/// How long to wait for what is under way when the time is over.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// Long enough to cost nothing, short enough that the end of the time is seen.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// How long the broker may hold an empty fetch.
const FETCH_WAIT_MS: u32 = 500;
/// Bytes of one fetch reply.
const FETCH_BYTES_MAX: u32 = 4 << 20;

/// Where a repeated request goes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The partition.
    pub partition: Partition,
    /// The shard whose connection is used: the partition's own, or another to force a hop.
    pub by_shard: u16,
}

/// What to repeat.
#[derive(Debug)]
pub struct BlastOptions<'a> {
    /// The broker.
    pub broker: SocketAddr,
    /// Its shards: one connection to each.
    pub shard_count: u16,
    /// Where requests go.
    pub targets: &'a [Target],
    /// The batch of every request.
    pub batch: Rc<AlignedVec>,
    /// Requests unanswered per target.
    pub depth: u32,
    /// Readers that follow all targets' partitions, each from the end, on a connection of its own.
    pub readers: usize,
    /// Producers wait while the slowest reader is this far behind, so that readers stay at the tail.
    pub lag_bytes_max: u64,
}

/// What was done in the measured time.
#[derive(Debug)]
pub struct Blasted {
    /// Measured time.
    pub elapsed: Duration,
    /// Requests acknowledged.
    pub requests: u64,
    /// Bytes of their batches.
    pub acked_bytes: u64,
    /// Bytes of batches that all readers received together.
    pub read_bytes: u64,
    /// Requests refused.
    pub refused: u64,
    /// The last refusal.
    pub last_refusal: Option<ErrorCode>,
    /// From sending to acknowledgement.
    pub latency: Histogram<u64>,
    /// Share of the time that this thread was on its CPU: near 1, the client is the limit.
    pub client_busy: f64,
}

struct Reader {
    link: usize,
    next: BTreeMap<usize, Offset>,
    bytes: u64,
    asked: bool,
}

/// Connections with their prepared requests.
pub struct Blast<'a> {
    options: BlastOptions<'a>,
    links: Vec<Link>,
    poll: Poll,
    frames: Vec<Rc<AlignedVec>>,
    in_flight: Vec<u32>,
    sent_at: Vec<Instant>,
    waiting: Vec<usize>,
    readers: Vec<Reader>,
    acked_bytes: u64,
    window: Window,
}

#[derive(Default)]
struct Window {
    open: bool,
    requests: u64,
    acked_bytes: u64,
    refused: u64,
    last_refusal: Option<ErrorCode>,
    latency: Option<Histogram<u64>>,
}

impl<'a> Blast<'a> {
    /// Connects and prepares. Readers start at `ends`, the offsets at which each target's partition ends now.
    ///
    /// # Errors
    /// When the broker is not there or refuses.
    pub fn new(options: BlastOptions<'a>, ends: &[Offset]) -> Result<Blast<'a>, DriverError> {
        assert!(options.depth > 0, "a request must be allowed");
        let mut links = Vec::new();
        for shard in 0..options.shard_count {
            links.push(Link::connect(options.broker, "perf-blast", Some(shard))?.0);
        }
        let mut readers = Vec::new();
        for _ in 0..options.readers {
            for shard in 0..options.shard_count {
                let owned = options.targets.iter().enumerate().filter(|(_, target)| target.partition.shard == shard);
                let next: BTreeMap<usize, Offset> = owned.map(|(index, _)| (index, ends[index])).collect();
                if next.is_empty() {
                    continue;
                }
                links.push(Link::connect(options.broker, "perf-blast-reader", Some(shard))?.0);
                readers.push(Reader { link: links.len() - 1, next, bytes: 0, asked: false });
            }
        }
        let batch_bytes = options.batch.len();
        let frame = |(index, target): (usize, &Target)| {
            let partition = ProducePartition {
                topic: target.partition.topic,
                partition: target.partition.index,
                batch_lengths: vec![batch_bytes as u32],
            };
            let request = ProduceRequest { acks: Acks::AllInSync, timeout_ms: 30_000, partitions: vec![partition] };
            // The target's index is the correlation id: a reply names it.
            Rc::new(encode_request(index as u64, &request, batch_bytes))
        };
        Ok(Blast {
            poll: Poll::new(&mut links)?,
            frames: options.targets.iter().enumerate().map(frame).collect(),
            in_flight: vec![0; options.targets.len()],
            sent_at: vec![Instant::now(); options.targets.len()],
            waiting: (0..options.targets.len()).collect(),
            acked_bytes: 0,
            window: Window::default(),
            links,
            readers,
            options,
        })
    }

    /// Makes load; after `warmup` it measures for `time`, calling `edge` at the beginning and at the end of it.
    ///
    /// # Errors
    /// When a connection breaks or a reply is not one.
    pub fn run(&mut self, warmup: Duration, time: Duration, edge: &mut dyn FnMut()) -> Result<Blasted, DriverError> {
        let started = Instant::now();
        while started.elapsed() < warmup {
            self.turn(true)?;
        }
        edge();
        let (opened, cpu) = (Instant::now(), crate::process::thread_cpu());
        let read_before = self.read_bytes();
        self.window = Window { open: true, latency: Some(latency::histogram()), ..Window::default() };
        while opened.elapsed() < time {
            self.turn(true)?;
        }
        self.window.open = false;
        let elapsed = opened.elapsed();
        let busy = (crate::process::thread_cpu() - cpu).as_secs_f64() / elapsed.as_secs_f64();
        let read_bytes = self.read_bytes() - read_before;
        edge();
        let window = std::mem::take(&mut self.window);
        let settle = Instant::now();
        while settle.elapsed() < SETTLE_MAX && (self.in_flight.iter().any(|&count| count > 0) || self.lag() > 0) {
            self.turn(false)?;
        }
        Ok(Blasted {
            elapsed,
            requests: window.requests,
            acked_bytes: window.acked_bytes,
            read_bytes,
            refused: window.refused,
            last_refusal: window.last_refusal,
            latency: window.latency.unwrap_or_else(latency::histogram),
            client_busy: busy,
        })
    }

    fn read_bytes(&self) -> u64 {
        self.readers.iter().map(|reader| reader.bytes).sum()
    }

    /// Bytes acknowledged that the readers have not received, all of them together, per reader.
    fn lag(&self) -> u64 {
        if self.options.readers == 0 {
            return 0;
        }
        (self.acked_bytes * self.options.readers as u64).saturating_sub(self.read_bytes()) / self.options.readers as u64
    }

    fn turn(&mut self, produce: bool) -> Result<(), DriverError> {
        let mut touched = Vec::new();
        if produce && self.lag() <= self.options.lag_bytes_max {
            for index in std::mem::take(&mut self.waiting) {
                let link = usize::from(self.options.targets[index].by_shard);
                while self.in_flight[index] < self.options.depth {
                    self.links[link].queue(Piece::Shared(Rc::clone(&self.frames[index])));
                    self.links[link].queue(Piece::Shared(Rc::clone(&self.options.batch)));
                    self.in_flight[index] += 1;
                    self.sent_at[index] = Instant::now();
                }
                touched.push(link);
            }
        }
        for reader in 0..self.readers.len() {
            if !self.readers[reader].asked {
                self.ask(reader);
                touched.push(self.readers[reader].link);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for link in touched {
            self.flush(link)?;
        }
        self.wait()
    }

    fn ask(&mut self, reader: usize) {
        let Reader { link, next, asked, .. } = &mut self.readers[reader];
        let partitions = next
            .iter()
            .map(|(&index, &offset)| FetchPartition {
                topic: self.options.targets[index].partition.topic,
                partition: self.options.targets[index].partition.index,
                offset,
                max_bytes: FETCH_BYTES_MAX / 4,
                leader_epoch: None,
            })
            .collect();
        let request = FetchRequest { max_wait_ms: FETCH_WAIT_MS, min_bytes: 1, max_bytes: FETCH_BYTES_MAX, partitions };
        self.links[*link].queue(Piece::Own(encode_request(reader as u64, &request, 0)));
        *asked = true;
    }

    fn flush(&mut self, link: usize) -> Result<(), DriverError> {
        while self.poll.flush(link, &mut self.links[link], usize::MAX)? {}
        self.links[link].take_sent();
        Ok(())
    }

    fn wait(&mut self) -> Result<(), DriverError> {
        for number in 0..self.poll.wait(WAIT_MAX)? {
            let ready = self.poll.ready(number);
            if ready.writable {
                self.flush(ready.link)?;
            }
            if ready.readable {
                self.receive(ready.link)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<(), DriverError> {
        self.links[index].fill()?;
        let mut answered = Vec::new();
        let link = &mut self.links[index];
        let address = link.address();
        if index < usize::from(self.options.shard_count) {
            while let Some((header, frame)) = link.next_frame()? {
                let body = Link::access::<ProduceRequest>(address, &header, frame)?;
                let code =
                    body.partitions.first().map_or(ErrorCode::Internal, |reply| ErrorCode::from_code(reply.error.to_native()));
                answered.push((header.correlation_id as usize, code));
            }
        } else {
            let readers = &mut self.readers;
            while let Some((header, frame)) = link.next_frame()? {
                let reader = readers.get_mut(header.correlation_id as usize);
                let reader = reader.ok_or_else(|| DriverError::protocol(address, "a reply to no fetch"))?;
                reader.take(address, &header, frame)?;
            }
        }
        for (target, code) in answered {
            self.answered(target, code, address)?;
        }
        Ok(())
    }

    fn answered(&mut self, target: usize, code: ErrorCode, address: SocketAddr) -> Result<(), DriverError> {
        let in_flight = self.in_flight.get_mut(target).filter(|count| **count > 0);
        let in_flight = in_flight.ok_or_else(|| DriverError::protocol(address, "a reply to no request"))?;
        *in_flight -= 1;
        self.waiting.push(target);
        let bytes = self.options.batch.len() as u64;
        if code.is_none() {
            self.acked_bytes += bytes;
        }
        if self.window.open {
            if code.is_none() {
                self.window.requests += 1;
                self.window.acked_bytes += bytes;
                if let Some(latency) = &mut self.window.latency {
                    latency.saturating_record(self.sent_at[target].elapsed().as_nanos() as u64);
                }
            } else {
                self.window.refused += 1;
                self.window.last_refusal = Some(code);
            }
        }
        Ok(())
    }
}

impl Reader {
    fn take(&mut self, address: SocketAddr, header: &FrameHeader, frame: &[u8]) -> Result<(), DriverError> {
        let body = Link::access::<FetchRequest>(address, header, frame)?;
        let mut attached = &frame[header.attachment_range()];
        self.bytes += attached.len() as u64;
        self.asked = false;
        for (reply, next) in body.partitions.iter().zip(self.next.values_mut()) {
            let code = ErrorCode::from_code(reply.error.to_native());
            if !code.is_none() && !code.retryable() {
                return Err(DriverError::Refused { operation: "fetch at the tail".to_owned(), code, message: None });
            }
            let (mut batches, rest) = attached
                .split_at_checked(reply.batch_bytes.to_native() as usize)
                .ok_or_else(|| DriverError::protocol(address, "a fetch reply is shorter than it says"))?;
            attached = rest;
            while !batches.is_empty() {
                let batch = BatchHeader::decode(batches).map_err(|error| DriverError::protocol(address, error.to_string()))?;
                *next = batch.next_offset();
                batches = batches.get(batch.total_length()..).unwrap_or_default();
            }
        }
        Ok(())
    }
}
