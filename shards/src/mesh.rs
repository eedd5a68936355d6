//! Messages between the shards of a process.
//!
//! ```text
//!   shard a                                        shard b
//!   send(b, m) ─► outbox for b ─ flush ─► lane a→b ─ gather ─► recv() = (a, m)
//!                 bounded, local          one swap of          in the order of sending
//!                 full: MeshFull          a whole batch
//! ```
//!
//! - Sending is a push into a local list. One flush per round of the executor moves each list as a whole: one lock, taken by
//!   two threads only, and at most one wake-up for all messages of the round.
//! - A lane is bounded, too: when the receiver is behind, the outbox fills, then [`Mesh::send`] says so.
//! - [`Mesh::close`] on every shard ends it: `recv` gives what is left, then `None`. A mesh that is dropped without closing
//!   ends the process: its shard has failed.
//! - Ordinary threads post through [`Remote`].
//!
//! The same code runs on both machines: it needs nothing but wakers.

mod lane;
mod local;
mod remote;

use std::future::poll_fn;
use std::rc::Rc;

pub(crate) use lane::{WakerSlot, Wires};
use local::Local;
pub use remote::{PostError, Remote};

use crate::{ShardId, executor};

/// This shard's end of the mesh. Clones are the same end.
pub struct Mesh<M> {
    local: Rc<Local<M>>,
}

/// The outbox for that peer is full: the peer is behind. Push back on the source and try later. Holds the message.
#[derive(Debug, thiserror::Error)]
#[error("the outbox for a shard is full")]
pub struct MeshFull<M>(pub M);

impl<M: Send + 'static> Mesh<M> {
    /// The end of `shard`. Called on that shard, once.
    pub(crate) fn connect(wires: std::sync::Arc<Wires<M>>, shard: ShardId) -> Mesh<M> {
        let local = Rc::new(Local::new(wires, shard));
        let flusher = Rc::downgrade(&local);
        executor::spawn(poll_fn(move |context| match flusher.upgrade() {
            Some(local) => local.poll_flush(context),
            None => std::task::Poll::Ready(()),
        }))
        .detach();
        Mesh { local }
    }

    /// The shard of this end.
    pub fn shard(&self) -> ShardId {
        self.local.shard()
    }

    /// Shards of the process.
    pub fn shard_count(&self) -> u16 {
        self.local.shard_count()
    }

    /// Sends a message to a shard (also to this one). Messages to the same shard arrive in order. Not after [`Mesh::close`].
    pub fn send(&self, target: ShardId, message: M) -> Result<(), MeshFull<M>> {
        self.local.send(target, message)
    }

    /// The next message and its sender ([`ShardId::OUTSIDE`] when posted by an ordinary thread); `None` once every shard has
    /// closed its end and everything was received. One task receives.
    pub async fn recv(&self) -> Option<(ShardId, M)> {
        poll_fn(|context| self.local.poll_recv(context)).await
    }

    /// A message, if one is here.
    pub fn try_recv(&self) -> Option<(ShardId, M)> {
        self.local.try_recv()
    }

    /// Ends sending from this shard: what is in the outboxes still goes out.
    pub fn close(&self) {
        self.local.close();
    }

    /// Closes the end of a shard that has failed, and takes in what the others still send until they close theirs.
    pub(crate) async fn fail(&self) {
        self.local.fail();
        while self.recv().await.is_some() {}
    }

    /// Completes once everything sent before [`Mesh::close`] has gone out.
    pub async fn closed(&self) {
        poll_fn(|context| self.local.poll_closed(context)).await;
    }

    /// Messages that wait in the outbox for `target`.
    pub fn outbox_messages(&self, target: ShardId) -> usize {
        self.local.outbox_messages(target)
    }

    /// A handle by which ordinary threads post to `target`.
    pub fn remote(&self, target: ShardId) -> Remote<M> {
        Remote::new(self.local.wires(), target)
    }
}

impl<M> Clone for Mesh<M> {
    fn clone(&self) -> Mesh<M> {
        Mesh { local: Rc::clone(&self.local) }
    }
}

impl<M> std::fmt::Debug for Mesh<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Mesh")
    }
}
