//! The result of a batch, and the futures of its records that wait for it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use wire::Offset;

use crate::error::Result;
use crate::record::Delivery;

/// One result for all records of a batch: one allocation a batch, none a record until something waits for it.
#[derive(Default)]
pub(crate) struct BatchOutcome {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the first record of the batch got.
    result: Option<Result<Delivery>>,
    wakers: HashMap<u32, Waker>,
}

impl BatchOutcome {
    /// Sets the result once; wakes everyone who waits.
    pub(crate) fn set(&self, result: Result<Delivery>) {
        let wakers = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(state.result.is_none(), "a batch has one outcome");
            state.result = Some(result);
            std::mem::take(&mut state.wakers)
        };
        for (_, waker) in wakers {
            waker.wake();
        }
    }
}

/// Resolves when the record is acknowledged, or cannot be delivered any more.
///
/// Dropping it does not take the record back.
#[must_use = "a delivery that nobody looks at may have failed"]
pub struct DeliveryFuture {
    outcome: Arc<BatchOutcome>,
    index: u32,
}

impl DeliveryFuture {
    /// Of the record at `index` in its batch.
    pub(crate) fn new(outcome: Arc<BatchOutcome>, index: u32) -> Self {
        Self { outcome, index }
    }

    /// The result, if it is known already.
    pub fn try_get(&self) -> Option<Result<Delivery>> {
        let state = self.outcome.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.result.as_ref().map(|result| of_record(result, self.index))
    }
}

impl Future for DeliveryFuture {
    type Output = Result<Delivery>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.outcome.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = &state.result {
            return Poll::Ready(of_record(result, self.index));
        }
        match state.wakers.get_mut(&self.index) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                state.wakers.insert(self.index, context.waker().clone());
            }
        }
        Poll::Pending
    }
}

fn of_record(result: &Result<Delivery>, index: u32) -> Result<Delivery> {
    match result {
        Ok(first) => Ok(Delivery { offset: Offset(first.offset.0 + u64::from(index)), ..*first }),
        Err(error) => Err(error.clone()),
    }
}
