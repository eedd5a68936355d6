//! The batches of a consumer, as a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::task::AtomicWaker;

use super::{Consumer, FetchedBatch};
use crate::error::Result;

/// The batches of a [`Consumer`], from [`Consumer::batches`]: as [`Consumer::next_batch`] gives them, through the combinators of `StreamExt`
/// and `TryStreamExt`.
///
/// An item is a batch rather than a record, so that records go on being borrowed from the buffer that they came in; a batch is a handle to
/// that buffer, cheap to move and to clone.
///
/// **Cancelling.** Dropping a pending `next()`, or the stream itself, loses nothing: a batch leaves the consumer only when it is yielded.
///
/// **Errors.** A partition that cannot go on by itself is one `Err`, and the others go on behind it. The stream does not end: combine it with
/// `take_until`.
#[must_use = "streams do nothing unless polled"]
pub struct BatchStream<'a> {
    consumer: &'a Consumer,
    waker: Arc<AtomicWaker>,
}

impl<'a> BatchStream<'a> {
    pub(super) fn new(consumer: &'a Consumer) -> Self {
        Self { consumer, waker: consumer.shared.arrived.subscribe() }
    }
}

impl Stream for BatchStream<'_> {
    type Item = Result<FetchedBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Before looking: what arrives between the two wakes.
        self.waker.register(context.waker());
        match self.consumer.try_next_batch().transpose() {
            Some(batch) => Poll::Ready(Some(batch)),
            None => Poll::Pending,
        }
    }
}
