use std::sync::Arc;

use super::lane::{End, Wires};
use crate::ShardId;

/// Posts messages to a shard from ordinary threads; they arrive through [`super::Mesh::recv`], from [`ShardId::OUTSIDE`].
pub struct Remote<M> {
    wires: Arc<Wires<M>>,
    target: ShardId,
}

/// A message could not be posted. Holds it.
#[derive(Debug, thiserror::Error)]
pub enum PostError<M> {
    /// Too many wait already: try again later.
    #[error("too many messages wait for the shard")]
    Full(M),
    /// The shard has ended.
    #[error("the shard has ended")]
    Gone(M),
}

impl<M> Remote<M> {
    pub(crate) fn new(wires: Arc<Wires<M>>, target: ShardId) -> Remote<M> {
        assert!(target.0 < wires.shard_count());
        Remote { wires, target }
    }

    /// The shard that receives.
    pub fn target(&self) -> ShardId {
        self.target
    }

    /// Posts a message and wakes the shard. Never blocks for longer than another such call.
    pub fn post(&self, message: M) -> Result<(), PostError<M>> {
        let inbox = self.wires.inbox(self.target);
        match inbox.lane(self.wires.outside_lane()).push_posted(message) {
            Ok(()) => {
                inbox.signal();
                Ok(())
            }
            Err((message, End::Open)) => Err(PostError::Full(message)),
            Err((message, _)) => Err(PostError::Gone(message)),
        }
    }
}

impl<M> Clone for Remote<M> {
    fn clone(&self) -> Remote<M> {
        Remote { wires: Arc::clone(&self.wires), target: self.target }
    }
}

impl<M> std::fmt::Debug for Remote<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Remote").field("target", &self.target).finish()
    }
}
