//! The event loop: makes what is due, sends what may go, takes what arrives, and closes the books once a second.

mod outcome;

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use super::DriverError;
use super::consumer::{Consumer, Inbox};
use super::link::Link;
use super::poll::Poll;
use super::producer::{Books, ProduceCounts, Producer};
use crate::groups::Groups;
use crate::latency::{self, Latencies};
use crate::process;
use hdrhistogram::Histogram;
pub use outcome::{Outcome, Second};

/// One line of the display and of the result's series.
const SECOND_NS: u64 = 1_000_000_000;
/// Reads of one connection before the others get their turn.
const READS_PER_TURN_MAX: usize = 8;
/// Bytes handed to a socket before the plan is looked at: over loopback the call itself carries them to the receiver, for about 0.1 ms.
const PORTION_BYTES_MAX: usize = 256 * 1024;
/// The event loop sleeps until this long before a message is due and then looks again and again: a CPU that slept takes up to this long
/// to wake, most of all that of a virtual machine. Only where the broker can have another CPU.
const SPIN_NS: u64 = 100_000;

/// How often a run that ends looks whether the groups have received everything.
const GROUPS_LOOK_NS: u64 = 5_000_000;

/// What an event loop drives.
#[derive(Debug)]
pub struct Load {
    /// Connections; producers and consumers name them by index.
    pub links: Vec<Link>,
    /// Producers.
    pub producers: Vec<Producer>,
    /// Consumers.
    pub consumers: Vec<Consumer>,
    /// Consumer groups, which read on a thread of their own.
    pub groups: Option<Groups>,
    /// Books of the producers.
    pub books: Books,
    /// Books of the consumers.
    pub inbox: Inbox,
    /// How many subscriptions and groups receive each message.
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

#[derive(Debug, Clone, Copy)]
enum Owner {
    Producer { producer: usize, port: usize },
    Consumer { consumer: usize },
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    at_ns: u64,
    idle_ns: u64,
    members_cpu: Duration,
    counts: ProduceCounts,
    consumed: u64,
}

struct Engine<'a> {
    load: Load,
    schedule: Schedule,
    owners: Vec<Option<Owner>>,
    poll: Poll,
    may_spin: bool,
    /// Time in which there was nothing to do.
    idle_ns: u64,
    /// Links with fetches to send; kept for its memory.
    touched: Vec<usize>,
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
pub fn run(mut load: Load, schedule: Schedule, observe: &mut dyn FnMut(&Second)) -> Result<Outcome, DriverError> {
    let mut owners = vec![None; load.links.len()];
    for (producer, item) in load.producers.iter().enumerate() {
        for (port, link) in item.links().enumerate() {
            owners[link] = Some(Owner::Producer { producer, port });
        }
    }
    for (consumer, item) in load.consumers.iter().enumerate() {
        for link in item.links() {
            owners[link] = Some(Owner::Consumer { consumer });
        }
    }
    // Sleeping is only as exact as the timer: its slack is 50 us unless told otherwise.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
        .map_err(|error| DriverError::EventLoop(error.into()))?;
    let poll = Poll::new(&mut load.links)?;
    let started = SystemTime::now();
    let engine = Engine {
        owners,
        poll,
        may_spin: process::usable_cpus().len() > 1,
        idle_ns: 0,
        touched: Vec::new(),
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
    engine.run(started)
}

impl Engine<'_> {
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
        if let Some(groups) = &self.load.groups {
            groups.begin(self.zero);
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
            match self.turn(measured.end) {
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
        let measured_ns = end_ns.saturating_sub(begin.at_ns);
        Ok(Outcome {
            started,
            measured: Duration::from_nanos(measured_ns),
            offered: self.load.books.counts.offered,
            sent: end.counts.sent - begin.counts.sent,
            acked: end.counts.acked - begin.counts.acked,
            consumed: end.consumed - begin.consumed,
            fetches_refused: self.load.inbox.refused,
            totals: self.load.books.counts,
            publish: self.publish,
            end_to_end: self.end_to_end,
            unanswered: begin_unanswered..end_unanswered,
            backlog: begin_backlog..end_backlog,
            unsettled,
            members_busy: (end.members_cpu - begin.members_cpu).as_nanos() as f64 / measured_ns.max(1) as f64,
            groups: self.load.groups.map_or(Ok(Vec::new()), Groups::leave)?,
            busy: 1.0 - (end.idle_ns - begin.idle_ns) as f64 / measured_ns.max(1) as f64,
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
        if let Some(groups) = &self.load.groups {
            groups.relent();
        }
        let any_reads = !self.load.consumers.is_empty() || self.load.groups.is_some();
        while self.unanswered() > 0 || (any_reads && self.backlog() > 0) {
            let now_ns = self.now_ns();
            if now_ns >= end_ns {
                break;
            }
            if now_ns >= self.second.at_ns + SECOND_NS {
                self.close_second(now_ns, measured);
            }
            // What the groups receive does not wake this thread.
            self.turn(end_ns.min(now_ns + GROUPS_LOOK_NS))?;
        }
        // What arrived since the last second's end.
        self.take_latencies();
        Ok(())
    }

    fn set_measured(&mut self, measured: Range<u64>) {
        self.load_end_ns = measured.end;
        self.load.books.measured = measured.clone();
        if let Some(groups) = &self.load.groups {
            groups.measure(measured.clone());
        }
        self.load.inbox.measured = measured;
    }

    fn unanswered(&self) -> u64 {
        self.load.producers.iter().map(Producer::unanswered).sum()
    }

    fn backlog(&self) -> u64 {
        // A message may reach its consumer before its producer reads the acknowledgement.
        (self.load.books.counts.acked * self.load.copies).saturating_sub(self.consumed())
    }

    /// Messages that subscriptions and groups have received.
    fn consumed(&self) -> u64 {
        self.load.inbox.messages() + self.load.groups.as_ref().map_or(0, Groups::messages)
    }

    fn mark(&self, at_ns: u64) -> Mark {
        let members_cpu = self.load.groups.as_ref().map_or(Duration::ZERO, Groups::cpu);
        Mark { at_ns, idle_ns: self.idle_ns, members_cpu, counts: self.load.books.counts, consumed: self.consumed() }
    }

    /// One turn: make what is due, send what may go, wait, receive.
    fn turn(&mut self, until_ns: u64) -> Result<(), DriverError> {
        let (begun_ns, made_before) = (self.now_ns(), self.load.books.counts.sent);
        self.make();
        let any_sent = self.send()?;
        let linger_ns = self.load.books.requests.linger_ns;
        let due_ns = self.load.producers.iter().filter_map(|producer| producer.due_ns(linger_ns)).min();
        let wake_ns = due_ns.unwrap_or(u64::MAX).min(until_ns).min(self.second.at_ns + SECOND_NS);
        let wait_ns = self.now_ns();
        let left_ns = wake_ns.saturating_sub(wait_ns);
        let sleep_ns = if self.may_spin { left_ns.saturating_sub(SPIN_NS) } else { left_ns };
        let ready = self.poll.wait(Duration::from_nanos(sleep_ns))?;
        let had_work = any_sent || ready > 0 || self.load.books.counts.sent > made_before;
        if !had_work && sleep_ns == 0 {
            // Whoever else needs this CPU, as the broker's own helpers may, gets it while there is nothing to do.
            rustix::thread::sched_yield();
        }
        if sleep_ns > 0 || !had_work {
            self.idle_ns += self.now_ns() - if had_work { wait_ns } else { begun_ns };
        }
        for number in 0..ready {
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

    /// Takes from every plan what is due. Called between any two steps that take long: the plan does not wait for the sockets.
    fn make(&mut self) {
        let now_ns = self.now_ns();
        let load = &mut self.load;
        for producer in &mut load.producers {
            producer.make(now_ns, self.load_end_ns, &mut load.books);
        }
    }

    /// Sends requests and fetches as far as they may go out; returns whether any did.
    fn send(&mut self) -> Result<bool, DriverError> {
        let wall_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64);
        let mut any = false;
        for producer in 0..self.load.producers.len() {
            loop {
                let now_ns = self.now_ns();
                let Load { links, producers, books, .. } = &mut self.load;
                let Some(link) = producers[producer].send(now_ns, wall_ms, links, books) else { break };
                any = true;
                self.flush(link)?;
                self.make();
            }
        }
        if self.consuming {
            let mut touched = std::mem::take(&mut self.touched);
            for consumer in &mut self.load.consumers {
                consumer.send(&mut self.load.links, &mut touched);
            }
            any |= !touched.is_empty();
            for link in touched.drain(..) {
                self.flush(link)?;
            }
            self.touched = touched;
        }
        Ok(any)
    }

    fn flush(&mut self, link: usize) -> Result<(), DriverError> {
        while self.poll.flush(link, &mut self.load.links[link], PORTION_BYTES_MAX)? {
            self.make();
        }
        for batch in self.load.links[link].take_sent() {
            self.load.books.templates.give_back(batch);
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<(), DriverError> {
        let owner = self.owners[index].expect("every link was made for a producer or a consumer");
        for _ in 0..READS_PER_TURN_MAX {
            let more = self.load.links[index].fill()?;
            self.make();
            let now_ns = self.now_ns();
            let Load { links, producers, consumers, books, inbox, .. } = &mut self.load;
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
        let mut end_to_end = std::mem::replace(&mut self.load.inbox.end_to_end, latency::histogram());
        if let Some(groups) = &self.load.groups {
            end_to_end.add(groups.take_latencies()).expect("all latency histograms have the same bounds");
        }
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
