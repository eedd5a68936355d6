//! The records of a member, as a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::task::AtomicWaker;

use super::{GroupConsumer, GroupRecord, Taken};
use crate::error::Result;

/// The records of a [`GroupConsumer`], from [`GroupConsumer::records`]: as [`GroupConsumer::next`] gives them, through the combinators of
/// `StreamExt` and `TryStreamExt`.
///
/// **Cancelling.** Dropping a pending `next()`, or the stream itself, loses nothing: a record leaves the consumer only when it is yielded.
/// Combinators that keep records of their own (`buffer_unordered`, `ready_chunks`) lose the sight of those when they are dropped: they stay in
/// hand, and come again when their partition moves to another member or this one begins anew.
///
/// **Errors.** A partition that cannot go on by itself is one `Err`, and the others go on behind it. When the group cannot be gone on with, that
/// is the last item. Nothing else ends the stream: combine it with `take_until`.
#[must_use = "streams do nothing unless polled"]
pub struct RecordStream<'a> {
    consumer: &'a GroupConsumer,
    waker: Arc<AtomicWaker>,
    is_ended: bool,
}

impl<'a> RecordStream<'a> {
    pub(super) fn new(consumer: &'a GroupConsumer) -> Self {
        Self { consumer, waker: consumer.shared.arrived.subscribe(), is_ended: false }
    }
}

impl Stream for RecordStream<'_> {
    type Item = Result<GroupRecord>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_ended {
            return Poll::Ready(None);
        }
        this.consumer.acknowledge_dropped();
        // Before looking: what arrives between the two wakes.
        this.waker.register(context.waker());
        let item = match this.consumer.take() {
            Taken::Nothing => return Poll::Pending,
            Taken::Record(record) => Ok(record),
            Taken::Error(error) => Err(error),
            Taken::End(error) => {
                this.is_ended = true;
                Err(error)
            }
        };
        Poll::Ready(Some(item))
    }
}
