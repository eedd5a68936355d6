//! A member of a consumer group: records in, what became of them out.
//!
//! ```text
//!   coordinator ◄── heartbeats ──► membership ── given, revoked, lost ──┐
//!                                                                       ▼
//!   log ── fetch ──► Consumer ──► retrying: keys in order, failed ones held ──► next() ──► the program
//!                                     ▲                                                        │
//!   coordinator ◄── settle, poll ─────┘◄──────────────────── done(), fail() ───────────────────┘
//! ```

mod driver;
mod record;
mod stream;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use wire::ErrorCode;

use self::driver::Driver;
pub use self::record::GroupRecord;
use self::record::Held;
pub use self::stream::RecordStream;
use crate::arrived::Arrived;
use crate::client::ClientShared;
use crate::core::retrying::{Assignment, Mark, Progress, RetryingCore};
use crate::error::{ClientError, ErrorKind, Result};
use crate::options::{Acknowledge, GroupOptions};

/// A member of a consumer group. The partitions of its topics are shared among the members; each is read by one of them at a time.
///
/// Every record is delivered **at least once**: again when its member ended before what became of it was committed. Records of one key are
/// delivered in the order of the log, the next one only when the one before was [done](GroupConsumer::done) or
/// [failed](GroupConsumer::fail). A record that failed is delivered again when it is due by the group's policy; until it is done or given
/// up (to the dead-letter topic, by default), later ones of its key wait, and other keys go on.
///
/// [`GroupConsumer::close`] leaves the group in order. Dropping it leaves the rest to the session time-out.
///
/// ```no_run
/// # async fn handle(_: corelane_client::RecordView<'_>) -> Result<(), String> { Ok(()) }
/// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
/// use corelane_client::{Acknowledge, GroupOptions};
/// let options = GroupOptions { acknowledge: Acknowledge::Explicit, ..GroupOptions::new("billing", ["orders"]) };
/// let consumer = client.group_consumer(options);
/// loop {
///     let record = consumer.next().await?;
///     match handle(record.record()).await {
///         Ok(()) => consumer.done(&record),
///         Err(reason) => consumer.fail(&record, &reason),
///     }
/// }
/// # }
/// ```
pub struct GroupConsumer {
    shared: Arc<Shared>,
    acknowledge: Acknowledge,
    /// How long the last commit may take.
    close_within: Duration,
    driver: Option<JoinHandle<()>>,
}

/// What changes of the partitions that a member reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebalance {
    /// Topic and partition: read from now on.
    Given(Vec<(Arc<str>, u32)>),
    /// They go to another member when what is in hand of them is done or failed, or the rebalance time-out is over. No more records of them
    /// are delivered.
    Revoked(Vec<(Arc<str>, u32)>),
    /// They are another member's already: this one was not heard of for a session. What is in hand is delivered there again.
    Lost(Vec<(Arc<str>, u32)>),
}

/// Told of a [`Rebalance`]; it must not block.
pub type OnRebalance = Arc<dyn Fn(&Rebalance) + Send + Sync>;

/// Between the handle and its driver.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something to do for the driver.
    wake: Notify,
    /// Something to take for the caller.
    arrived: Arrived,
}

pub(super) struct State {
    core: RetryingCore<Held>,
    /// Delivered, where dropping them acknowledges them.
    in_hand: Vec<InHand>,
    assignment: Vec<(Arc<str>, u32)>,
    /// Errors of partitions that cannot go on by themselves, to be handed out.
    errors: VecDeque<ClientError>,
    /// The group cannot be joined or gone on with.
    failure: Option<ClientError>,
    commits: Vec<Commit>,
    is_closing: bool,
}

/// A record that is done when the program has dropped it and asks for another one.
struct InHand {
    assignment: Assignment,
    offset: wire::Offset,
    presence: Weak<()>,
}

/// What [`GroupConsumer::take`] finds.
enum Taken {
    Nothing,
    Record(GroupRecord),
    /// A partition cannot go on by itself.
    Error(ClientError),
    /// The group cannot be gone on with.
    End(ClientError),
}

/// Somebody who waits until the coordinator knows what was done and failed.
struct Commit {
    mark: Mark,
    done: oneshot::Sender<Result<()>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupConsumer {
    pub(crate) fn start(client: Arc<ClientShared>, options: GroupOptions) -> Self {
        let state = State {
            core: RetryingCore::new(options.in_flight_max),
            in_hand: Vec::new(),
            assignment: Vec::new(),
            errors: VecDeque::new(),
            failure: None,
            commits: Vec::new(),
            is_closing: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Notify::new(), arrived: Arrived::default() });
        let (acknowledge, close_within) = (options.acknowledge, client.options().operation_timeout);
        let driver = tokio::spawn(Driver::new(Arc::clone(&shared), client, options).run());
        Self { shared, acknowledge, close_within, driver: Some(driver) }
    }

    /// The next record, of whichever partition; waits until there is one. Cancelling the wait loses nothing.
    ///
    /// With [`Acknowledge::OnNext`], the records that it gave before and that the program has dropped are done, unless they were failed.
    ///
    /// # Errors
    /// The group cannot be joined, or a partition cannot go on by itself (its data is damaged, its position is gone): the error names
    /// it, and the others go on with the next call.
    pub async fn next(&self) -> Result<GroupRecord> {
        self.acknowledge_dropped();
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            match self.take() {
                Taken::Record(record) => return Ok(record),
                Taken::Error(error) | Taken::End(error) => return Err(error),
                Taken::Nothing => arrived.await,
            }
        }
    }

    /// [`GroupConsumer::next`], for at most `wait`; `None` when nothing came.
    ///
    /// # Errors
    /// As `next`.
    pub async fn poll(&self, wait: Duration) -> Result<Option<GroupRecord>> {
        match tokio::time::timeout(wait, self.next()).await {
            Ok(record) => record.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The records, one after the other, as a stream for `StreamExt`: to end it on a signal, or to handle several at a time.
    ///
    /// ```no_run
    /// # async fn handle(_: corelane_client::RecordView<'_>) -> Result<(), String> { Ok(()) }
    /// # async fn shutdown() {}
    /// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
    /// use corelane_client::{Acknowledge, GroupOptions};
    /// use futures_util::{StreamExt, TryStreamExt};
    /// let options = GroupOptions { acknowledge: Acknowledge::Explicit, ..GroupOptions::new("billing", ["orders"]) };
    /// let consumer = client.group_consumer(options);
    /// let records = consumer.records().take_until(shutdown());
    /// // Sixteen at a time, of sixteen keys: those of one key still come one after the other.
    /// let handled = records.try_for_each_concurrent(16, async |record| {
    ///     match handle(record.record()).await {
    ///         Ok(()) => consumer.done(&record),
    ///         Err(reason) => consumer.fail(&record, &reason),
    ///     }
    ///     Ok(())
    /// });
    /// handled.await?;
    /// consumer.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn records(&self) -> RecordStream<'_> {
        RecordStream::new(self)
    }

    fn take(&self) -> Taken {
        let mut state = self.shared.state();
        if let Some(error) = state.errors.pop_front() {
            return Taken::Error(error);
        }
        if let Some(failure) = &state.failure {
            return Taken::End(failure.clone());
        }
        let Some(delivery) = state.core.next() else { return Taken::Nothing };
        let presence = (self.acknowledge == Acknowledge::OnNext).then(|| Arc::new(()));
        if let Some(presence) = &presence {
            let (assignment, offset) = (delivery.assignment, delivery.offset);
            state.in_hand.push(InHand { assignment, offset, presence: Arc::downgrade(presence) });
        }
        drop(state);
        // There may be more for another caller, and room for more to be fetched.
        self.shared.arrived.notify();
        self.shared.wake.notify_one();
        Taken::Record(GroupRecord::new(delivery, presence))
    }

    /// What was delivered and dropped counts as handled. What the program still has does not: another task may be at it.
    fn acknowledge_dropped(&self) {
        if self.acknowledge == Acknowledge::Explicit {
            return;
        }
        let mut state = self.shared.state();
        let State { in_hand, core, .. } = &mut *state;
        let mut is_any = false;
        in_hand.retain(|record| {
            let is_dropped = record.presence.strong_count() == 0;
            if is_dropped {
                core.done(record.assignment, record.offset);
                is_any = true;
            }
            !is_dropped
        });
        drop(state);
        if is_any {
            self.shared.wake.notify_one();
        }
    }

    /// A record was handled: the group's position may pass it, and the next of its key is delivered.
    pub fn done(&self, record: &GroupRecord) {
        let (assignment, offset) = record.place();
        let mut state = self.shared.state();
        state.in_hand.retain(|in_hand| (in_hand.assignment, in_hand.offset) != (assignment, offset));
        state.core.done(assignment, offset);
        drop(state);
        self.shared.arrived.notify();
        self.shared.wake.notify_one();
    }

    /// A record could not be handled, for this reason. It is delivered again, or given up, as the group's policy says; until then later ones
    /// of its key wait.
    pub fn fail(&self, record: &GroupRecord, reason: &str) {
        let (assignment, offset) = record.place();
        let mut state = self.shared.state();
        state.in_hand.retain(|in_hand| (in_hand.assignment, in_hand.offset) != (assignment, offset));
        state.core.fail(assignment, offset, reason);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Waits until everything done and failed so far is committed: it is durable at the coordinator. Of a partition with a record in hand the
    /// commit ends there; what was done behind it is committed when that one is.
    ///
    /// # Errors
    /// A partition went to another member before that, the coordinator has no room for what failed, or the group cannot be gone on with: what
    /// was done may be delivered again, and what failed counts as not tried.
    pub async fn commit(&self) -> Result<()> {
        let (done, committed) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let mark = state.core.mark();
            state.commits.push(Commit { mark, done });
            // It may all be committed already.
            state.answer_commits();
        }
        self.shared.wake.notify_one();
        committed.await.unwrap_or_else(|_| Err(ClientError::closed("commit")))
    }

    /// The partitions that are read now: topic and partition.
    pub fn assignment(&self) -> Vec<(Arc<str>, u32)> {
        self.shared.state().assignment.clone()
    }

    /// Ends in order: delivers nothing more, commits what is done, and leaves the group, so that its partitions go to others at once. A static
    /// member (one with an instance id) only goes for a while.
    ///
    /// What is in hand comes again elsewhere. With [`Acknowledge::OnNext`] that includes the last record, since nothing says whether it was
    /// handled: say [done](GroupConsumer::done) if it was.
    ///
    /// # Errors
    /// As [`GroupConsumer::commit`]; or what was done and failed could not all be committed within the client's `operation_timeout`.
    pub async fn close(mut self) -> Result<()> {
        let committed = tokio::time::timeout(self.close_within, self.commit()).await;
        let committed = committed.unwrap_or_else(|_| {
            let cause = "the coordinator did not take the last commit in time";
            Err(ClientError::new(ErrorKind::TimedOut, "close", "", cause))
        });
        self.shared.state().is_closing = true;
        self.shared.wake.notify_one();
        if let Some(driver) = self.driver.take() {
            // It ends by itself; a panic there was reported by the runtime.
            let _ended = driver.await;
        }
        committed
    }
}

impl Drop for GroupConsumer {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

impl State {
    /// Answers those who wait for commits that are reached, or cannot be any more.
    fn answer_commits(&mut self) {
        for mut commit in std::mem::take(&mut self.commits) {
            let answer = match self.core.progress(&mut commit.mark) {
                Progress::Open => {
                    self.commits.push(commit);
                    continue;
                }
                Progress::Told => Ok(()),
                Progress::NoRoom => Err((ErrorCode::Overloaded, "the coordinator has no room for records that failed")),
                Progress::Lost => Err((ErrorCode::UnknownMember, "a partition went to another member before it was committed")),
            };
            let answer = answer.map_err(|(code, cause)| ClientError::new(ErrorKind::Broker(code), "commit", "", cause));
            // Who waited may be gone.
            let _gone = commit.done.send(answer);
        }
    }

    /// The group cannot be gone on with: nobody waits any longer.
    fn fail(&mut self, error: &ClientError) {
        self.failure = Some(error.clone());
        for commit in std::mem::take(&mut self.commits) {
            let _gone = commit.done.send(Err(error.clone()));
        }
    }
}
