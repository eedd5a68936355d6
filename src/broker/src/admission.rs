//! Bounds on memory: whoever wants bytes holds them first, and gives them back by dropping what it holds.
//!
//! ```text
//!  request of n bytes ─► connection gate ─► shard gate ─► read into memory ─► … ─► reply written ─► given back
//!                          full: the socket is not read; TCP pushes back on the client
//!                          still full after `admission_wait`: answered "overloaded"
//! ```
//!
//! The bound of the process is the sum of the shards' gates: each has an equal part, so that no shard looks at another's counter.

use futures_util::future::{Either, select};
use shards::{clock, sync::Semaphore};
use std::{future::Future, pin::pin, time::Duration};

/// So many bytes (or requests) may be held at once. Served in the order of asking.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    semaphore: Semaphore,
    limit: usize,
}

/// What is held of a [`Gate`].
#[derive(Debug)]
#[must_use = "what is held goes back when this is dropped"]
pub(crate) struct Held {
    semaphore: Semaphore,
    count: usize,
    /// Of the gate.
    limit: usize,
}

impl Gate {
    /// A gate for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Gate { semaphore: Semaphore::new(limit), limit }
    }

    /// Waits for `count`, or for everything when `count` is more than the gate has.
    pub(crate) async fn acquire(&self, count: usize) -> Held {
        let count = count.min(self.limit);
        self.semaphore.acquire(count).await.forget();
        Held { semaphore: self.semaphore.clone(), count, limit: self.limit }
    }

    /// As [`Gate::acquire`], if nobody has to be waited for.
    pub(crate) fn try_acquire(&self, count: usize) -> Option<Held> {
        let count = count.min(self.limit);
        self.semaphore.try_acquire(count)?.forget();
        Some(Held { semaphore: self.semaphore.clone(), count, limit: self.limit })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.semaphore.waiting()
    }

    /// What there is in all.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// How much is held now.
    pub(crate) fn used(&self) -> usize {
        self.limit - self.semaphore.available().min(self.limit)
    }
}

impl Held {
    /// How much is held.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether `count` is held; takes what is missing if nobody has to be waited for. More than the gate has counts as all of it.
    pub(crate) fn grow_to(&mut self, count: usize) -> bool {
        let count = count.min(self.limit);
        if count > self.count {
            let Some(permit) = self.semaphore.try_acquire(count - self.count) else { return false };
            permit.forget();
            self.count = count;
        }
        true
    }

    /// Gives back all but `count`.
    pub(crate) fn shrink_to(&mut self, count: usize) {
        if count < self.count {
            self.semaphore.add(self.count - count);
            self.count = count;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.semaphore.add(self.count);
    }
}

/// The output of `future`, unless `wait` passes first.
pub(crate) async fn within<T>(wait: Duration, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(clock::sleep(wait))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_full_gate_lets_the_next_in_when_something_is_given_back() {
        let gate = Gate::new(100);
        let Poll::Ready(mut first) = poll(&mut Box::pin(gate.acquire(80))) else { panic!("there was room") };
        let mut second = Box::pin(gate.acquire(50));
        assert!(poll(&mut second).is_pending());
        first.shrink_to(60);
        assert!(poll(&mut second).is_pending());
        drop(first);
        let Poll::Ready(second) = poll(&mut second) else { panic!("there is room") };
        assert_eq!(gate.used(), 50);
        drop(second);
        assert_eq!(gate.used(), 0);
    }

    #[test]
    fn more_than_the_gate_has_is_let_in_alone() {
        let gate = Gate::new(100);
        let Poll::Ready(held) = poll(&mut Box::pin(gate.acquire(1000))) else { panic!("it is alone") };
        assert_eq!(gate.used(), 100);
        assert!(poll(&mut Box::pin(gate.acquire(1))).is_pending());
        drop(held);
    }

    #[test]
    fn what_is_held_grows_into_what_is_free_and_past_nobody() {
        let gate = Gate::new(100);
        let mut held = gate.try_acquire(40).unwrap();
        assert!(held.grow_to(90));
        assert!(held.grow_to(1000), "more than the gate has counts as all of it");
        assert_eq!(gate.used(), 100);
        held.shrink_to(50);
        let mut waits = Box::pin(gate.acquire(60));
        assert!(poll(&mut waits).is_pending());
        assert_eq!(gate.waiting(), 1);
        assert!(!held.grow_to(60), "somebody waits");
        assert!(held.grow_to(50));
    }
}
