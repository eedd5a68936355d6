//! A shard's storage fails once and for good.

use std::cell::RefCell;
use std::sync::Arc;

use shards::sync::Notify;

/// Stable storage of the shard failed: nothing more is acknowledged, and nothing was retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log of this shard failed: {cause}")]
pub struct LogFailed {
    /// What failed first.
    pub cause: Arc<str>,
}

/// The one latch of a shard. Set by the first failed write and never cleared: a retry after a failed sync could report as durable what the
/// kernel has already dropped.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    cause: RefCell<Option<Arc<str>>>,
    changed: Notify,
}

impl Failure {
    pub(crate) fn set(&self, cause: &dyn std::fmt::Display) -> LogFailed {
        let mut slot = self.cause.borrow_mut();
        let cause = slot.get_or_insert_with(|| Arc::from(cause.to_string())).clone();
        drop(slot);
        self.changed.notify_waiters();
        LogFailed { cause }
    }

    pub(crate) fn get(&self) -> Option<LogFailed> {
        self.cause.borrow().clone().map(|cause| LogFailed { cause })
    }

    pub(crate) fn check(&self) -> Result<(), LogFailed> {
        self.get().map_or(Ok(()), Err)
    }

    /// Resolves when the shard has failed.
    pub(crate) async fn wait(&self) -> LogFailed {
        loop {
            if let Some(failed) = self.get() {
                return failed;
            }
            self.changed.notified().await;
        }
    }
}
