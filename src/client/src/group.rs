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

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use wire::PartitionKey;

use self::driver::Driver;
pub use self::record::GroupRecord;
use self::record::Held;
use crate::client::ClientShared;
use crate::core::retrying::{Assignment, RetryingCore};
use crate::error::{ClientError, Result};
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
    arrived: Notify,
}

pub(super) struct State {
    core: RetryingCore<Held>,
    /// Delivered, and to be done with the next call when acknowledging is left to that.
    in_hand: Vec<(Assignment, wire::Offset)>,
    assignment: Vec<(Arc<str>, u32)>,
    /// Errors of partitions that cannot go on by themselves, to be handed out.
    errors: Vec<ClientError>,
    /// The group cannot be joined or gone on with.
    failure: Option<ClientError>,
    commits: Vec<Commit>,
    is_closing: bool,
}

/// Somebody who waits until everything up to some positions is committed.
struct Commit {
    positions: Vec<(PartitionKey, wire::Offset)>,
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
            errors: Vec::new(),
            failure: None,
            commits: Vec::new(),
            is_closing: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Notify::new(), arrived: Notify::new() });
        let (acknowledge, close_within) = (options.acknowledge, client.options().operation_timeout);
        let driver = tokio::spawn(Driver::new(Arc::clone(&shared), client, options).run());
        Self { shared, acknowledge, close_within, driver: Some(driver) }
    }

    /// The next record, of whichever partition; waits until there is one. Cancelling the wait loses nothing.
    ///
    /// With [`Acknowledge::OnNext`], the records that it gave before are done, unless they were failed.
    ///
    /// # Errors
    /// The group cannot be joined, or a partition cannot go on by itself (its data is damaged, its position is gone): the error names
    /// it, and the others go on with the next call.
    pub async fn next(&self) -> Result<GroupRecord> {
        self.acknowledge_in_hand();
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(record) = self.take()? {
                return Ok(record);
            }
            arrived.await;
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

    fn take(&self) -> Result<Option<GroupRecord>> {
        let mut state = self.shared.state();
        if let Some(error) = state.errors.pop() {
            return Err(error);
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let Some(delivery) = state.core.next() else { return Ok(None) };
        if self.acknowledge == Acknowledge::OnNext {
            state.in_hand.push((delivery.assignment, delivery.offset));
        }
        drop(state);
        // There may be more for another caller, and room for more to be fetched.
        self.shared.arrived.notify_one();
        self.shared.wake.notify_one();
        Ok(Some(GroupRecord::new(delivery)))
    }

    fn acknowledge_in_hand(&self) {
        let mut state = self.shared.state();
        for (assignment, offset) in std::mem::take(&mut state.in_hand) {
            state.core.done(assignment, offset);
        }
    }

    /// A record was handled: the group's position may pass it, and the next of its key is delivered.
    pub fn done(&self, record: &GroupRecord) {
        let (assignment, offset) = record.place();
        let mut state = self.shared.state();
        state.in_hand.retain(|in_hand| *in_hand != (assignment, offset));
        state.core.done(assignment, offset);
        drop(state);
        self.shared.arrived.notify_one();
        self.shared.wake.notify_one();
    }

    /// A record could not be handled, for this reason. It is delivered again, or given up, as the group's policy says; until then later ones
    /// of its key wait.
    pub fn fail(&self, record: &GroupRecord, reason: &str) {
        let (assignment, offset) = record.place();
        let mut state = self.shared.state();
        state.in_hand.retain(|in_hand| *in_hand != (assignment, offset));
        state.core.fail(assignment, offset, reason);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Waits until everything done and failed so far is committed.
    ///
    /// # Errors
    /// A partition went to another member before that: what was done of it may be delivered there again.
    pub async fn commit(&self) -> Result<()> {
        let (done, committed) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let keys: Vec<_> = state.core.partitions().collect();
            let positions = keys.iter().filter_map(|key| Some((*key, state.core.position(*key)?))).collect();
            state.commits.push(Commit { positions, done });
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
    /// # Errors
    /// What was done could not all be committed within the client's `operation_timeout`: it may be delivered again.
    pub async fn close(mut self) -> Result<()> {
        self.acknowledge_in_hand();
        let committed = tokio::time::timeout(self.close_within, self.commit()).await;
        let committed = committed.unwrap_or_else(|_| {
            let cause = "the coordinator did not take the last commit in time";
            Err(ClientError::new(crate::error::ErrorKind::TimedOut, "close", "", cause))
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
        let core = &self.core;
        let assigned: BTreeSet<PartitionKey> = core.partitions().collect();
        for commit in std::mem::take(&mut self.commits) {
            let lost = commit.positions.iter().find(|(key, _)| !assigned.contains(key));
            let is_open = commit.positions.iter().any(|(key, position)| core.committed(*key) < Some(*position));
            if lost.is_some() {
                let cause = "a partition went to another member before it was committed";
                let error =
                    ClientError::new(crate::error::ErrorKind::Broker(wire::ErrorCode::UnknownMember), "commit", "", cause);
                // Who waited may be gone.
                let _gone = commit.done.send(Err(error));
            } else if is_open {
                self.commits.push(commit);
            } else {
                let _gone = commit.done.send(Ok(()));
            }
        }
    }
}
