//! Tells those who wait for something to take that it is there.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Callers wait in line, and one at a time is woken. Streams are all woken each time: one that nobody polls any more must not keep the news from
/// those who do wait.
#[derive(Default)]
pub(crate) struct Arrived {
    callers: Notify,
    streams: Mutex<Vec<Weak<AtomicWaker>>>,
}

impl Arrived {
    /// There may be something to take.
    pub(crate) fn notify(&self) {
        self.callers.notify_one();
        self.wake_streams();
    }

    /// Nothing will come any more: everybody is to look.
    pub(crate) fn notify_all(&self) {
        self.callers.notify_waiters();
        self.notify();
    }

    /// A caller's place in line.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.callers.notified()
    }

    /// A stream's waker, woken as long as it is held.
    pub(crate) fn subscribe(&self) -> Arc<AtomicWaker> {
        let waker = Arc::new(AtomicWaker::new());
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&waker));
        waker
    }

    fn wake_streams(&self) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.upgrade().inspect(|waker| waker.wake()).is_some());
    }
}
