//! Handles of simulated tasks.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use super::world::World;

/// A spawned task. Awaiting it gives its output; dropping it cancels it, unless detached.
pub(crate) struct Task<T> {
    world: Weak<World>,
    id: u64,
    state: Rc<RefCell<JoinState<T>>>,
    detached: bool,
}

pub(super) struct JoinState<T> {
    output: Option<T>,
    finished: bool,
    waiter: Option<Waker>,
}

impl<T> Default for JoinState<T> {
    fn default() -> Self {
        Self { output: None, finished: false, waiter: None }
    }
}

impl<T> JoinState<T> {
    pub(super) fn finish(state: &RefCell<Self>, output: T) {
        let waiter = {
            let mut state = state.borrow_mut();
            state.output = Some(output);
            state.finished = true;
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T> Task<T> {
    pub(super) fn new(world: Weak<World>, id: u64, state: Rc<RefCell<JoinState<T>>>) -> Self {
        Self { world, id, state, detached: false }
    }

    /// Lets the task run to its end on its own.
    pub(crate) fn detach(mut self) {
        self.detached = true;
    }

    /// The output, when the task has ended and nobody has taken it.
    pub(super) fn take_output(&self) -> Option<T> {
        self.state.borrow_mut().output.take()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.borrow().finished
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.borrow_mut();
        match state.output.take() {
            Some(output) => Poll::Ready(output),
            None => {
                state.waiter = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if !self.detached
            && !self.is_finished()
            && let Some(world) = self.world.upgrade()
        {
            world.cancel(self.id);
        }
    }
}
