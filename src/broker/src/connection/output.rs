//! Replies on their way out: queued in order of completion, gathered into few writes, bounded in time.

use super::{Connection, RequestHolds};
use crate::{admission::Held, shard::Shard};
use shards::{
    buffer::Shared,
    clock::{self, Monotonic},
    executor,
    sync::Notify,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::IoSlice,
    rc::Rc,
};
use wire::{AlignedVec, Body, FrameHeader, encode_reply};

/// One write takes at most this: a client must take so much within `limits.write_timeout`, which is also the slowest client served.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// The kernel's limit on one gathering write is 1024.
const WRITE_SLICES_MAX: usize = 512;

/// A reply with what it holds until it is written.
#[derive(Debug)]
pub(crate) struct Reply {
    frame: AlignedVec,
    attachments: Vec<Shared>,
    _holds: Option<RequestHolds>,
    _bytes: Vec<Held>,
}

/// The way back to the client that asked.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: FrameHeader,
    holds: RequestHolds,
}

/// What waits to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    queue: RefCell<VecDeque<Reply>>,
    writing: Cell<bool>,
    deadline: Cell<Option<Monotonic>>,
    emptied: Notify,
}

impl Reply {
    /// A reply that holds nothing.
    pub(super) fn bare(frame: AlignedVec) -> Self {
        Reply { frame, attachments: Vec::new(), _holds: None, _bytes: Vec::new() }
    }
}

impl ReplyTo {
    pub(super) fn new(shard: &Rc<Shard>, connection: &Rc<Connection>, header: FrameHeader, holds: RequestHolds) -> Self {
        ReplyTo { shard: Rc::clone(shard), connection: Rc::clone(connection), header, holds }
    }

    /// The connection.
    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Queues the reply.
    pub(crate) fn send<T: Body>(self, body: &T) {
        self.send_with(body, Vec::new(), Vec::new());
    }

    /// Queues the reply with batches behind it; `bytes` is held until it is written.
    pub(crate) fn send_with<T: Body>(self, body: &T, attachments: Vec<Shared>, bytes: Vec<Held>) {
        if self.connection.is_closed() {
            return;
        }
        let attachment_bytes = attachments.iter().map(Shared::len).sum();
        let frame = encode_reply(&self.header, body, attachment_bytes);
        let reply = Reply { frame, attachments, _holds: Some(self.holds), _bytes: bytes };
        push(&self.shard, &self.connection, reply);
    }
}

impl Output {
    /// The client must take what is being written until then.
    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.deadline.get()
    }

    /// Drops what waits.
    pub(super) fn clear(&self) {
        // Dropped outside the borrow: what replies hold may wake others.
        drop(self.queue.take());
        self.emptied.notify_waiters();
    }

    /// Waits until everything queued has been written.
    pub(crate) async fn drained(&self) {
        while self.writing.get() {
            self.emptied.notified().await;
        }
    }

    /// Takes replies up to a write, in order.
    fn take(&self) -> Vec<Reply> {
        let mut queue = self.queue.borrow_mut();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < WRITE_BYTES_MAX {
            let Some(reply) = queue.pop_front() else { break };
            bytes += reply.frame.len() + reply.attachments.iter().map(Shared::len).sum::<usize>();
            taken.push(reply);
        }
        if queue.is_empty() && queue.capacity() > 16 {
            *queue = VecDeque::new();
        }
        taken
    }
}

/// Queues a reply. The writer starts after the present task gives way, so that what is queued until then leaves together.
pub(super) fn push(shard: &Rc<Shard>, connection: &Rc<Connection>, reply: Reply) {
    if connection.is_closed() {
        return;
    }
    connection.output.queue.borrow_mut().push_back(reply);
    if !connection.output.writing.replace(true) {
        executor::spawn(write_all(Rc::clone(shard), Rc::clone(connection))).detach();
    }
}

async fn write_all(shard: Rc<Shard>, connection: Rc<Connection>) {
    let output = &connection.output;
    loop {
        let replies = output.take();
        if replies.is_empty() {
            break;
        }
        if let Err(error) = write(&shard, &connection, &replies).await {
            if !error.is_disconnect() && !connection.is_closed() {
                tracing::debug!("writing to a client failed: {error}");
            }
            connection.close();
        }
    }
    output.deadline.set(None);
    output.writing.set(false);
    output.emptied.notify_waiters();
}

/// Writes the replies in gathered pieces of at most [`WRITE_BYTES_MAX`], each with its own deadline.
async fn write(shard: &Shard, connection: &Connection, replies: &[Reply]) -> Result<(), shards::net::NetError> {
    let parts =
        replies.iter().flat_map(|reply| std::iter::once(&reply.frame[..]).chain(reply.attachments.iter().map(|part| &part[..])));
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    let mut bytes = 0;
    for mut part in parts {
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(WRITE_BYTES_MAX - bytes));
            slices.push(IoSlice::new(now));
            bytes += now.len();
            part = later;
            if bytes == WRITE_BYTES_MAX || slices.len() == WRITE_SLICES_MAX {
                write_piece(shard, connection, &mut slices, bytes).await?;
                slices.clear();
                bytes = 0;
            }
        }
    }
    if bytes > 0 {
        write_piece(shard, connection, &mut slices, bytes).await?;
    }
    Ok(())
}

async fn write_piece(
    shard: &Shard,
    connection: &Connection,
    slices: &mut [IoSlice<'_>],
    bytes: usize,
) -> Result<(), shards::net::NetError> {
    connection.output.deadline.set(Some(clock::monotonic_coarse() + shard.config.limits.write_timeout.0));
    connection.stream.write_vectored_all(slices).await?;
    shard.counters.sent_bytes.set(shard.counters.sent_bytes.get() + bytes as u64);
    Ok(())
}
