//! The event loop: makes what is due, sends what may go, takes what arrives, and closes the books once a second.

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use super::DriverError;
use super::consumer::{Consumer, Inbox};
use super::link::Link;
use super::producer::{Books, ProduceCounts, Producer};
use crate::latency::{self, Latencies};

/// One line of the display and of the result's series.
const SECOND_NS: u64 = 1_000_000_000;
/// Reads of one connection before the others get their turn.
const READS_PER_TURN_MAX: usize = 8;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// What an event loop drives.
#[derive(Debug)]
pub struct Load {
    /// Connections; producers and consumers name them by index.
    pub links: Vec<Link>,
    /// Producers.
    pub producers: Vec<Producer>,
    /// Consumers.
    pub consumers: Vec<Consumer>,
    /// Books of the producers.
    pub books: Books,
    /// Books of the consumers.
    pub inbox: Inbox,
    /// How many subscriptions receive each message.
    pub copies: u64,
}

/// The phases of a run.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Load that does not count.
    pub warmup: Duration,
    /// Load that counts.
    pub measure: Duration,
    /// How long to wait, after the load, for what is still under way.
    pub settle_max: Duration,
    /// Consumers start only once this many messages wait for them, and the run ends when they have caught up.
    pub backlog: Option<Backlog>,
    /// A broken connection ends the run as an outcome and not as an error: the broker is being killed on purpose.
    pub expect_disconnect: bool,
}

/// A backlog that is built and then drained under load.
#[derive(Debug, Clone, Copy)]
pub struct Backlog {
    /// Messages, of each subscription.
    pub messages: u64,
    /// Share of it that must be drained, 0 to 1.
    pub drain_ratio: f64,
}

/// One second of a run.
#[derive(Debug)]
pub struct Second {
    /// Since the run's start.
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// Whether it counts.
    pub measured: bool,
    /// Counters within it.
    pub counts: ProduceCounts,
    /// Messages consumed within it.
    pub consumed: u64,
    /// Messages queued or in flight at its end.
    pub unanswered: u64,
    /// Messages acknowledged and not consumed at its end, all subscriptions together.
    pub backlog: u64,
    /// Publish latencies of messages acknowledged within it.
    pub publish: Latencies,
    /// End-to-end latencies of messages consumed within it.
    pub end_to_end: Histogram<u64>,
}

/// What a run did.
#[derive(Debug)]
pub struct Outcome {
    /// When it started, by the wall clock.
    pub started: SystemTime,
    /// The measured time.
    pub measured: Duration,
    /// Messages that the plan wanted in the measured time; in a closed loop, those made.
    pub offered: u64,
    /// Messages handed over in the measured time.
    pub sent: u64,
    /// Messages acknowledged in the measured time.
    pub acked: u64,
    /// Messages consumed in the measured time.
    pub consumed: u64,
    /// Over the whole run.
    pub totals: ProduceCounts,
    /// Publish latencies of messages due in the measured time.
    pub publish: Latencies,
    /// End-to-end latencies of messages due in the measured time.
    pub end_to_end: Histogram<u64>,
    /// Messages queued or in flight when the measured time began and ended.
    pub unanswered: Range<u64>,
    /// Messages acknowledged and not consumed when the measured time began and ended.
    pub backlog: Range<u64>,
    /// Messages still unanswered or unconsumed when waiting ended.
    pub unsettled: u64,
    /// Time in which a backlog was drained.
    pub drained_in: Option<Duration>,
    /// Why the connection broke, in a run that expected it.
    pub disconnected: Option<String>,
    /// The books, for the verifier.
    pub books: Books,
    /// The inbox, for the verifier.
    pub inbox: Inbox,
}

#[derive(Debug, Clone, Copy)]
enum Owner {
    Producer { producer: usize, port: usize },
    Consumer { consumer: usize },
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    at_ns: u64,
    counts: ProduceCounts,
    consumed: u64,
}

struct Engine<'a> {
    load: Load,
    schedule: Schedule,
    owners: Vec<Option<Owner>>,
    epoll: OwnedFd,
    /// Links that wait for room in their socket.
    blocked: Vec<bool>,
    zero: Instant,
    /// End of message making.
    load_end_ns: u64,
    consuming: bool,
    publish: Latencies,
    end_to_end: Histogram<u64>,
    second: Mark,
    observe: &'a mut dyn FnMut(&Second),
}

/// Runs a load; calls `observe` once a second.
///
/// # Errors
/// When a connection breaks unexpectedly, or the broker answers something that is not the protocol.
pub fn run(load: Load, schedule: Schedule, observe: &mut dyn FnMut(&Second)) -> Result<Outcome, DriverError> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| DriverError::EventLoop(error.into()))?;
    let mut owners = vec![None; load.links.len()];
    for (producer, item) in load.producers.iter().enumerate() {
        for (port, link) in item.links().enumerate() {
            owners[link] = Some(Owner::Producer { producer, port });
        }
    }
    let started = SystemTime::now();
    let mut engine = Engine {
        blocked: vec![false; load.links.len()],
        owners,
        epoll,
        zero: Instant::now(),
        load_end_ns: 0,
        consuming: schedule.backlog.is_none(),
        publish: Latencies::default(),
        end_to_end: latency::histogram(),
        second: Mark::default(),
        observe,
        load,
        schedule,
    };
    // Sleeping until the next message is due is only as exact as the timer: its slack is 50 us unless told otherwise.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
        .map_err(|error| DriverError::EventLoop(error.into()))?;
    engine.register()?;
    engine.run(started)
}

/// Lets one consumer read until it has `messages`, or for `time_max`.
///
/// # Errors
/// As [`run`].
pub fn drain(
    mut links: Vec<Link>,
    mut consumer: Consumer,
    inbox: &mut Inbox,
    messages: u64,
    time_max: Duration,
) -> Result<(), DriverError> {
    let started = Instant::now();
    let mut touched = Vec::new();
    while inbox.messages() < messages && started.elapsed() < time_max {
        // Blocking sockets, one after the other: nothing is timed here.
        consumer.send(&mut links, &mut touched);
        touched.sort_unstable();
        for link in touched.drain(..) {
            links[link].flush()?;
            let (header, frame) = links[link].wait_frame()?;
            let address = links[link].address();
            consumer.reply(link, address, &header, &frame, 0, inbox)?;
        }
    }
    Ok(())
}

impl Engine<'_> {
    fn register(&mut self) -> Result<(), DriverError> {
        for (consumer, item) in self.load.consumers.iter().enumerate() {
            for link in item.links() {
                self.owners[link] = Some(Owner::Consumer { consumer });
            }
        }
        for (index, link) in self.load.links.iter_mut().enumerate() {
            link.start()?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, link.stream(), data, epoll::EventFlags::IN)
                .map_err(|error| DriverError::EventLoop(error.into()))?;
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    fn run(mut self, started: SystemTime) -> Result<Outcome, DriverError> {
        let warmup_ns = self.schedule.warmup.as_nanos() as u64;
        let measure_ns = self.schedule.measure.as_nanos() as u64;
        let mut measured = warmup_ns..warmup_ns + measure_ns;
        if self.schedule.backlog.is_some() {
            measured = warmup_ns..u64::MAX;
        }
        self.set_measured(measured.clone());
        let (mut begin, mut begin_backlog, mut begin_unanswered) = (None, 0, 0);
        let mut drain_started_ns = None;
        let mut drained_in = None;
        let mut disconnected = None;
        loop {
            let now_ns = self.now_ns();
            if begin.is_none() && now_ns >= measured.start {
                begin = Some(self.mark(now_ns));
                (begin_backlog, begin_unanswered) = (self.backlog(), self.unanswered());
            }
            if let Some(backlog) = self.schedule.backlog {
                if !self.consuming && self.backlog() >= backlog.messages * self.load.copies {
                    self.consuming = true;
                    drain_started_ns = Some(now_ns);
                }
                let left = (backlog.messages * self.load.copies) as f64 * (1.0 - backlog.drain_ratio);
                // "Drained" to the last message never comes under load: what a second of load adds does not count.
                let floor = left.max(self.load.books.counts.acked as f64 * 1e9 / now_ns.max(1) as f64);
                if let Some(start_ns) = drain_started_ns.filter(|_| measured.end == u64::MAX && self.backlog() as f64 <= floor) {
                    drained_in = Some(Duration::from_nanos(now_ns - start_ns));
                    measured.end = now_ns;
                    self.set_measured(measured.clone());
                }
            }
            if now_ns >= measured.end {
                break;
            }
            if now_ns >= self.second.at_ns + SECOND_NS {
                self.close_second(now_ns, &measured);
            }
            match self.turn(now_ns, measured.end) {
                Ok(()) => {}
                Err(error) if self.schedule.expect_disconnect && error.is_disconnect() => {
                    disconnected = Some(error.to_string());
                    measured.end = self.now_ns().max(measured.start + 1);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let end_ns = self.now_ns();
        let begin = begin.unwrap_or_default();
        let end = self.mark(end_ns);
        let (end_backlog, end_unanswered) = (self.backlog(), self.unanswered());
        self.close_second(end_ns, &measured);
        // What was due before the end and not made in time is made now: late, and counted as late, but not left out.
        for producer in &mut self.load.producers {
            producer.make(end_ns, self.load_end_ns, &mut self.load.books);
            producer.stop();
        }
        if disconnected.is_none() {
            self.settle(&measured)?;
        }
        let unsettled = self.unanswered() + self.backlog();
        Ok(Outcome {
            started,
            measured: Duration::from_nanos(end_ns.saturating_sub(begin.at_ns)),
            offered: self.load.books.counts.offered,
            sent: end.counts.sent - begin.counts.sent,
            acked: end.counts.acked - begin.counts.acked,
            consumed: end.consumed - begin.consumed,
            totals: self.load.books.counts,
            publish: self.publish,
            end_to_end: self.end_to_end,
            unanswered: begin_unanswered..end_unanswered,
            backlog: begin_backlog..end_backlog,
            unsettled,
            drained_in,
            disconnected,
            books: self.load.books,
            inbox: self.load.inbox,
        })
    }

    /// Waits for what is under way: latencies of late answers count, and every acknowledged message has time to arrive.
    fn settle(&mut self, measured: &Range<u64>) -> Result<(), DriverError> {
        let end_ns = self.now_ns() + self.schedule.settle_max.as_nanos() as u64;
        self.consuming = true;
        while self.unanswered() > 0 || (!self.load.consumers.is_empty() && self.backlog() > 0) {
            let now_ns = self.now_ns();
            if now_ns >= end_ns {
                break;
            }
            if now_ns >= self.second.at_ns + SECOND_NS {
                self.close_second(now_ns, measured);
            }
            self.turn(now_ns, end_ns)?;
        }
        // What arrived since the last second's end.
        self.take_latencies();
        Ok(())
    }

    fn set_measured(&mut self, measured: Range<u64>) {
        self.load_end_ns = measured.end;
        self.load.books.measured = measured.clone();
        self.load.inbox.measured = measured;
    }

    fn unanswered(&self) -> u64 {
        self.load.producers.iter().map(Producer::unanswered).sum()
    }

    fn backlog(&self) -> u64 {
        // A message may reach its consumer before its producer reads the acknowledgement.
        (self.load.books.counts.acked * self.load.copies).saturating_sub(self.load.inbox.messages())
    }

    fn mark(&self, at_ns: u64) -> Mark {
        Mark { at_ns, counts: self.load.books.counts, consumed: self.load.inbox.messages() }
    }

    /// One turn: make, send, wait, receive.
    fn turn(&mut self, now_ns: u64, until_ns: u64) -> Result<(), DriverError> {
        let mut touched = Vec::new();
        let load = &mut self.load;
        let wall_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64);
        for producer in &mut load.producers {
            producer.make(now_ns, self.load_end_ns, &mut load.books);
            producer.send(now_ns, wall_ms, &mut load.links, &mut load.books, &mut touched);
        }
        if self.consuming {
            for consumer in &mut load.consumers {
                consumer.send(&mut load.links, &mut touched);
            }
        }
        for link in touched {
            self.flush(link)?;
        }
        let linger_ns = self.load.books.requests.linger_ns;
        let due_ns = self.load.producers.iter().filter_map(|producer| producer.due_ns(linger_ns)).min();
        let wake_ns = due_ns.unwrap_or(u64::MAX).min(until_ns).min(self.second.at_ns + SECOND_NS);
        self.wait(wake_ns.saturating_sub(self.now_ns()))
    }

    fn flush(&mut self, link: usize) -> Result<(), DriverError> {
        let item = &mut self.load.links[link];
        let blocked = !item.flush()?;
        for batch in item.take_sent() {
            self.load.books.templates.give_back(batch);
        }
        if blocked != self.blocked[link] {
            self.blocked[link] = blocked;
            let flags = if blocked { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, item.stream(), epoll::EventData::new_u64(link as u64), flags)
                .map_err(|error| DriverError::EventLoop(error.into()))?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout_ns: u64) -> Result<(), DriverError> {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS_MAX];
        let timeout = Timespec { tv_sec: (timeout_ns / SECOND_NS) as i64, tv_nsec: (timeout_ns % SECOND_NS) as i64 };
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(DriverError::EventLoop(error.into())),
        };
        for event in &events[..count] {
            // Copied out: the kernel's struct is packed.
            let (flags, link) = (event.flags, event.data.u64() as usize);
            if flags.contains(epoll::EventFlags::OUT) {
                self.flush(link)?;
            }
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                self.receive(link)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<(), DriverError> {
        let owner = self.owners[index].expect("every link was made for a producer or a consumer");
        for _ in 0..READS_PER_TURN_MAX {
            let more = self.load.links[index].fill()?;
            let now_ns = self.now_ns();
            let Load { links, producers, consumers, books, inbox, copies: _ } = &mut self.load;
            let link = &mut links[index];
            let address = link.address();
            while let Some((header, frame)) = link.next_frame()? {
                match owner {
                    Owner::Producer { producer, port } => {
                        producers[producer].reply(port, address, &header, frame, now_ns, books)?;
                    }
                    Owner::Consumer { consumer } => {
                        consumers[consumer].reply(index, address, &header, frame, now_ns, inbox)?;
                    }
                }
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Adds the latest latencies to the run's and returns them.
    fn take_latencies(&mut self) -> (Latencies, Histogram<u64>) {
        let publish = std::mem::take(&mut self.load.books.latencies);
        let end_to_end = std::mem::replace(&mut self.load.inbox.end_to_end, latency::histogram());
        self.publish.add(&publish);
        self.end_to_end.add(&end_to_end).expect("all latency histograms have the same bounds");
        (publish, end_to_end)
    }

    fn close_second(&mut self, now_ns: u64, measured: &Range<u64>) {
        let (publish, end_to_end) = self.take_latencies();
        let (before, now) = (self.second, self.mark(now_ns));
        self.second = now;
        let counts = ProduceCounts {
            offered: now.counts.offered - before.counts.offered,
            sent: now.counts.sent - before.counts.sent,
            acked: now.counts.acked - before.counts.acked,
            acked_bytes: now.counts.acked_bytes - before.counts.acked_bytes,
            failed: now.counts.failed - before.counts.failed,
            retried: now.counts.retried - before.counts.retried,
            requests: now.counts.requests - before.counts.requests,
        };
        let (unanswered, backlog) = (self.unanswered(), self.backlog());
        (self.observe)(&Second {
            start: Duration::from_nanos(before.at_ns),
            length: Duration::from_nanos(now.at_ns - before.at_ns),
            measured: before.at_ns >= measured.start && before.at_ns < measured.end,
            counts,
            consumed: now.consumed - before.consumed,
            unanswered,
            backlog,
            publish,
            end_to_end,
        });
    }
}
