//! Tasks of this shard.
//!
//! A task never moves to another shard. `spawn` only queues the task: it runs after the current one gives way, so no borrow of
//! the caller is in its way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::machine::{self, Machine};
use crate::{ShardId, real, simulated};

/// A task that was started. Awaiting it gives its output. Dropping it cancels it: [`Task::detach`] or keep it.
#[must_use = "dropping a task cancels it: detach it, keep it or await it"]
pub struct Task<T> {
    inner: Inner<T>,
}

enum Inner<T> {
    Real(real::Task<T>),
    Simulated(simulated::Task<T>),
}

impl<T: 'static> Task<T> {
    /// Lets the task run to its end on its own; its output is dropped.
    pub fn detach(self) {
        match self.inner {
            Inner::Real(task) => task.detach(),
            Inner::Simulated(task) => task.detach(),
        }
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.inner {
            Inner::Real(task) => Pin::new(task).poll(context),
            Inner::Simulated(task) => Pin::new(task).poll(context),
        }
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Task")
    }
}

/// Starts a task on this shard.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    match machine::current() {
        Machine::Real(shard) => Task { inner: Inner::Real(shard.spawn(future)) },
        Machine::Simulated(world) => Task { inner: Inner::Simulated(simulated::spawn(&world, future, false)) },
        Machine::Ordinary => machine::outside("executor::spawn"),
    }
}

/// Starts a task that gets a small share of the core while others have work: retention, rebuilding, scrubbing.
pub fn spawn_background<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    match machine::current() {
        Machine::Real(shard) => Task { inner: Inner::Real(shard.spawn_background(future)) },
        Machine::Simulated(world) => Task { inner: Inner::Simulated(simulated::spawn(&world, future, true)) },
        Machine::Ordinary => machine::outside("executor::spawn_background"),
    }
}

/// Lets the other ready tasks run once.
pub async fn yield_now() {
    YieldNow { yielded: false }.await;
}

/// Gives way when this task has had its time slice. Every loop that may run above about 50 µs calls it.
pub async fn yield_if_needed() {
    let needed = machine::with(|machine| match machine {
        Machine::Real(shard) => shard.need_preempt(),
        Machine::Simulated(world) => world.need_preempt(),
        Machine::Ordinary => false,
    });
    if needed {
        yield_now().await;
    }
}

/// The shard that runs this code.
pub fn current_shard() -> ShardId {
    machine::with(|machine| match machine {
        Machine::Real(shard) => shard.id(),
        Machine::Simulated(world) => world.current_shard(),
        Machine::Ordinary => machine::outside("executor::current_shard"),
    })
}

/// Runs `work` on the blocking thread of this shard (in a simulation: at once). A panic in it comes back as an error, and does
/// not harm the thread.
///
/// Dropping the future does not stop the work.
pub async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, BlockingPanicked> {
    match machine::current() {
        Machine::Real(shard) => shard.blocking(work).await,
        Machine::Simulated(_) | Machine::Ordinary => Ok(work()),
    }
}

/// The closure given to [`blocking`] panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a blocking call panicked: {message}")]
pub struct BlockingPanicked {
    /// What the panic said.
    pub message: String,
}

struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
