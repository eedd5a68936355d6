use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Tells tasks that something changed. It carries no value: a waiter looks at the state itself, then waits again.
#[derive(Default)]
pub struct Notify {
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    /// Grows with every `notify_waiters`: a waiter that has seen it move is done, in whatever order it is polled.
    generation: Cell<u64>,
    /// One stored permit of `notify_one` when nobody waits.
    permit: Cell<bool>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Default)]
struct Waiter {
    notified: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Notify {
    /// A fresh one.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes everybody who waits now. Who starts to wait later is not woken.
    pub fn notify_waiters(&self) {
        self.state.generation.set(self.state.generation.get().wrapping_add(1));
        let waiters = std::mem::take(&mut *self.state.waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Wakes the one who has waited longest; when nobody waits, the next one who waits does not have to.
    pub fn notify_one(&self) {
        let waiter = self.state.waiters.borrow_mut().pop_front();
        match waiter {
            Some(waiter) => waiter.wake(),
            None => self.state.permit.set(true),
        }
    }

    /// Completes with the next notification after this call (not after the first poll).
    pub fn notified(&self) -> Notified {
        Notified { generation: self.state.generation.get(), state: Rc::clone(&self.state), waiter: None }
    }
}

impl std::fmt::Debug for Notify {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Notify").field("waiters", &self.state.waiters.borrow().len()).finish()
    }
}

impl Waiter {
    fn wake(&self) {
        self.notified.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The wait of [`Notify::notified`].
#[must_use = "a wait does nothing unless it is awaited"]
pub struct Notified {
    state: Rc<State>,
    generation: u64,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(waiter) = &self.waiter {
            if waiter.notified.get() {
                self.waiter = None;
                return Poll::Ready(());
            }
            waiter.waker.borrow_mut().clone_from(&Some(context.waker().clone()));
            return Poll::Pending;
        }
        if self.generation != self.state.generation.get() || self.state.permit.replace(false) {
            return Poll::Ready(());
        }
        let waiter = Rc::new(Waiter { notified: Cell::new(false), waker: RefCell::new(Some(context.waker().clone())) });
        self.state.waiters.borrow_mut().push_back(Rc::clone(&waiter));
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let before = self.state.waiters.borrow().len();
        self.state.waiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, &waiter));
        let was_waiting = self.state.waiters.borrow().len() < before;
        let by_one = self.generation == self.state.generation.get();
        if !was_waiting && waiter.notified.get() && by_one {
            // A `notify_one` was given to this wait, which is dropped without having used it: pass it on.
            Notify { state: Rc::clone(&self.state) }.notify_one();
        }
    }
}

impl std::fmt::Debug for Notified {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Notified")
    }
}
