use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A number of permits, given out in the order of asking: a large request is not overtaken by small ones.
#[derive(Clone)]
pub struct Semaphore {
    state: Rc<State>,
}

struct State {
    available: Cell<usize>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

struct Waiter {
    wanted: usize,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Semaphore {
    /// A semaphore that holds `permits`.
    pub fn new(permits: usize) -> Semaphore {
        Semaphore { state: Rc::new(State { available: Cell::new(permits), waiters: RefCell::default() }) }
    }

    /// Permits that nobody holds.
    pub fn available(&self) -> usize {
        self.state.available.get()
    }

    /// How many wait for permits.
    pub fn waiting(&self) -> usize {
        self.state.waiters.borrow().len()
    }

    /// Waits for `count` permits. More than the semaphore ever holds never comes.
    pub fn acquire(&self, count: usize) -> Acquire {
        Acquire { state: Rc::clone(&self.state), wanted: count, waiter: None }
    }

    /// Takes `count` permits if they are free and nobody waits before.
    pub fn try_acquire(&self, count: usize) -> Option<Permit> {
        self.state.take(count).then(|| Permit { state: Rc::clone(&self.state), count })
    }

    /// Adds permits.
    pub fn add(&self, count: usize) {
        self.state.give_back(count);
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}

impl State {
    fn take(&self, count: usize) -> bool {
        let free = self.waiters.borrow().is_empty() && self.available.get() >= count;
        if free {
            self.available.set(self.available.get() - count);
        }
        free
    }

    fn give_back(&self, count: usize) {
        self.available.set(self.available.get() + count);
        self.serve();
    }

    fn serve(&self) {
        loop {
            let next = {
                let mut waiters = self.waiters.borrow_mut();
                match waiters.front() {
                    Some(waiter) if waiter.wanted <= self.available.get() => waiters.pop_front(),
                    _ => None,
                }
            };
            let Some(waiter) = next else { return };
            self.available.set(self.available.get() - waiter.wanted);
            waiter.granted.set(true);
            let waker = waiter.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The wait of [`Semaphore::acquire`].
#[must_use = "a wait does nothing unless it is awaited"]
pub struct Acquire {
    state: Rc<State>,
    wanted: usize,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let granted = match &self.waiter {
            None => self.state.take(self.wanted),
            Some(waiter) => waiter.granted.get(),
        };
        if granted {
            self.waiter = None;
            return Poll::Ready(Permit { state: Rc::clone(&self.state), count: self.wanted });
        }
        let waker = Some(context.waker().clone());
        match &self.waiter {
            Some(waiter) => *waiter.waker.borrow_mut() = waker,
            None => {
                let waiter = Rc::new(Waiter { wanted: self.wanted, granted: Cell::new(false), waker: RefCell::new(waker) });
                self.state.waiters.borrow_mut().push_back(Rc::clone(&waiter));
                self.waiter = Some(waiter);
            }
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.granted.get() {
            self.state.give_back(waiter.wanted);
        } else {
            self.state.waiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, &waiter));
            // It may have stood in the way of smaller requests.
            self.state.serve();
        }
    }
}

impl std::fmt::Debug for Acquire {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Acquire").field("wanted", &self.wanted).finish()
    }
}

/// Permits that are held; they go back when this is dropped.
#[must_use = "the permits go back when this is dropped"]
pub struct Permit {
    state: Rc<State>,
    count: usize,
}

impl Permit {
    /// How many permits are held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the permits for ever: the semaphore has so many fewer.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.state.give_back(self.count);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Permit").field("count", &self.count).finish()
    }
}
