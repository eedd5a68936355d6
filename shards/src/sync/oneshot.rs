use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A pair that carries one value from one task to another of the same shard.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let state = Rc::new(RefCell::new(State { value: None, waker: None, sender_gone: false, receiver_gone: false }));
    (OneshotSender { state: Rc::clone(&state) }, OneshotReceiver { state })
}

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// The sender was dropped without sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender is gone")]
pub struct Closed;

/// The sending end.
pub struct OneshotSender<T> {
    state: Rc<RefCell<State<T>>>,
}

impl<T> OneshotSender<T> {
    /// Sends the value; gives it back when the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        let waker = {
            let mut state = self.state.borrow_mut();
            if state.receiver_gone {
                return Err(value);
            }
            state.value = Some(value);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Nobody waits for the value any more.
    pub fn is_closed(&self) -> bool {
        self.state.borrow().receiver_gone
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.state.borrow_mut();
            state.sender_gone = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> std::fmt::Debug for OneshotSender<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OneshotSender")
    }
}

/// The receiving end: a future of the value.
#[must_use = "a wait does nothing unless it is awaited"]
pub struct OneshotReceiver<T> {
    state: Rc<RefCell<State<T>>>,
}

impl<T> OneshotReceiver<T> {
    /// The value, if it is here.
    pub fn try_take(&mut self) -> Option<T> {
        self.state.borrow_mut().value.take()
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        let mut state = self.state.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if state.sender_gone {
            return Poll::Ready(Err(Closed));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        let value = {
            let mut state = self.state.borrow_mut();
            state.receiver_gone = true;
            state.value.take()
        };
        drop(value);
    }
}

impl<T> std::fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OneshotReceiver")
    }
}
