//! What a run did: second by second, and as a whole.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use super::super::consumer::Inbox;
use super::super::producer::{Books, ProduceCounts};
use crate::groups::Book;
use crate::latency::Latencies;

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
    /// Fetches refused for a reason that passes, over the whole run.
    pub fetches_refused: u64,
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
    /// Share of the measured time in which the event loop had something to do: near 1, it is the limit and not the broker.
    pub busy: f64,
    /// CPU time of the thread of all groups' members, as a share of the measured time.
    pub members_busy: f64,
    /// What each group received.
    pub groups: Vec<Book>,
    /// Time in which a backlog was drained.
    pub drained_in: Option<Duration>,
    /// Why the connection broke, in a run that expected it.
    pub disconnected: Option<String>,
    /// The books, for the verifier.
    pub books: Books,
    /// The inbox, for the verifier.
    pub inbox: Inbox,
}
