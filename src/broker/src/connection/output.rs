//! Replies on their way out: queued in order of completion, gathered into few writes, bounded in time.

use super::{Connection, Pace, ReplyHold, RequestHolds};
use crate::{fetch, shard::Shard};
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
use wire::{AlignedVec, Body, FetchReply, FetchRequest, FrameHeader, encode_reply};

/// A client must take so much within `limits.write_timeout`, which is also the slowest client served. One write takes no more.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// The kernel's limit on one gathering write is 1024.
const WRITE_SLICES_MAX: usize = 512;

/// A reply with what it holds until it is written.
#[derive(Debug)]
pub(crate) struct Reply {
    /// What is to be written, in order. What is written has gone.
    frame: Option<AlignedVec>,
    attachments: VecDeque<Shared>,
    /// Of the first of these, written already.
    begun_bytes: usize,
    /// Of all of them, not yet written.
    left_bytes: usize,
    holds: Option<RequestHolds>,
    memory: Option<ReplyHold>,
    /// A fetch can be done again.
    again: Option<(FrameHeader, FetchRequest)>,
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
    /// Since when something is being written, without a pause.
    writing_since: Cell<Option<Monotonic>>,
    deadline: Cell<Option<Monotonic>>,
    pace: Pace,
    emptied: Notify,
}

impl Reply {
    /// A reply that holds nothing.
    pub(super) fn bare(frame: AlignedVec) -> Self {
        Reply::new(frame, Vec::new())
    }

    fn new(frame: AlignedVec, attachments: Vec<Shared>) -> Self {
        let left_bytes = frame.len() + attachments.iter().map(Shared::len).sum::<usize>();
        let attachments = attachments.into();
        Reply { frame: Some(frame), attachments, begun_bytes: 0, left_bytes, holds: None, memory: None, again: None }
    }

    /// The bytes not yet written.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.frame.iter().map(|frame| &frame[..]).chain(self.attachments.iter().map(|part| &part[..]));
        let begun = std::iter::once(self.begun_bytes).chain(std::iter::repeat(0));
        parts.zip(begun).map(|(part, begun)| &part[begun..])
    }

    fn first_part_bytes(&self) -> Option<usize> {
        self.parts().next().map(<[u8]>::len)
    }

    /// Forgets up to `bytes` that were written, and gives back their memory; says how many of `bytes` belong to others.
    fn written(&mut self, bytes: usize) -> usize {
        let others = bytes.saturating_sub(self.left_bytes);
        let mut bytes = bytes - others;
        self.left_bytes -= bytes;
        while let Some(left) = self.first_part_bytes() {
            if bytes < left {
                self.begun_bytes += bytes;
                break;
            }
            bytes -= left;
            self.begun_bytes = 0;
            if self.frame.take().is_none() {
                self.attachments.pop_front();
            }
        }
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(self.left_bytes);
        }
        others
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
        self.push(body, Vec::new(), None, None);
    }

    /// Queues a reply that holds memory until it is written.
    pub(crate) fn send_holding<T: Body>(self, body: &T, memory: ReplyHold) {
        self.push(body, Vec::new(), Some(memory), None);
    }

    /// Queues the reply to a fetch, with its batches. It may be dropped and `request` done again while it only waits.
    pub(crate) fn send_fetched(self, reply: &FetchReply, batches: Vec<Shared>, memory: ReplyHold, request: FetchRequest) {
        self.push(reply, batches, Some(memory), Some(request));
    }

    fn push<T: Body>(self, body: &T, attachments: Vec<Shared>, memory: Option<ReplyHold>, request: Option<FetchRequest>) {
        if self.connection.is_closed() {
            return;
        }
        let attachment_bytes = attachments.iter().map(Shared::len).sum();
        let again = request.map(|request| (self.header, request));
        let reply = Reply::new(encode_reply(&self.header, body, attachment_bytes), attachments);
        let reply = Reply { holds: Some(self.holds), memory, again, ..reply };
        push(&self.shard, &self.connection, reply);
    }
}

impl Output {
    /// The client must take what is being written until then.
    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.deadline.get()
    }

    /// Since when something is being written, without a pause.
    pub(super) fn writing_since(&self) -> Option<Monotonic> {
        self.writing_since.get()
    }

    /// How fast the client takes its replies.
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Drops what waits.
    pub(super) fn clear(&self) {
        // Dropped outside the borrow: what replies hold may wake others.
        drop(self.queue.take());
        self.emptied.notify_waiters();
    }

    /// Waits until everything queued has been written.
    pub(crate) async fn drained(&self) {
        while self.writing_since.get().is_some() {
            self.emptied.notified().await;
        }
    }

    /// Moves replies to `writing`, in order, until there is enough for a write.
    fn take(&self, writing: &mut VecDeque<Reply>) {
        let mut queue = self.queue.borrow_mut();
        let mut bytes: usize = writing.iter().map(|reply| reply.left_bytes).sum();
        while bytes < WRITE_BYTES_MAX {
            let Some(reply) = queue.pop_front() else { break };
            bytes += reply.left_bytes;
            writing.push_back(reply);
        }
        if queue.is_empty() && queue.capacity() > 16 {
            *queue = VecDeque::new();
        }
    }
}

/// Queues a reply. The writer starts after the present task gives way, so that what is queued until then leaves together.
pub(super) fn push(shard: &Rc<Shard>, connection: &Rc<Connection>, reply: Reply) {
    if connection.is_closed() {
        return;
    }
    let output = &connection.output;
    output.queue.borrow_mut().push_back(reply);
    if output.writing_since.get().is_none() {
        output.writing_since.set(Some(clock::monotonic_coarse()));
        executor::spawn(write_all(Rc::clone(shard), Rc::clone(connection))).detach();
    }
}

/// Drops the replies to fetches of which no byte is on its way, and begins these fetches again: they wait until the client goes on taking. False
/// when there is none.
pub(super) fn put_back(shard: &Rc<Shard>, connection: &Rc<Connection>) -> bool {
    let waiting = connection.output.queue.take();
    let (again, kept): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(|reply| reply.again.is_some());
    connection.output.queue.replace(kept);
    if again.is_empty() {
        return false;
    }
    connection.replies.park();
    tracing::debug!(client = %connection.client_id.borrow(), "{} prepared replies are dropped and read again later", again.len());
    for reply in again {
        let (Some((header, request)), Some(holds)) = (reply.again, reply.holds) else { unreachable!("it answers a fetch") };
        let reply_to = ReplyTo::new(shard, connection, header, holds);
        executor::spawn(fetch::fetch(Rc::clone(shard), request, reply_to)).detach();
    }
    true
}

async fn write_all(shard: Rc<Shard>, connection: Rc<Connection>) {
    let output = &connection.output;
    let mut writing = VecDeque::new();
    loop {
        output.take(&mut writing);
        if writing.is_empty() {
            break;
        }
        if let Err(error) = write(&shard, &connection, &mut writing).await {
            if !error.is_disconnect() && !connection.is_closed() {
                tracing::debug!("writing to a client failed: {error}");
            }
            writing.clear();
            connection.close();
        }
    }
    output.deadline.set(None);
    output.writing_since.set(None);
    output.emptied.notify_waiters();
}

/// Writes the first [`WRITE_BYTES_MAX`] of the replies, or as much as one write gathers, with one deadline.
async fn write(shard: &Shard, connection: &Connection, replies: &mut VecDeque<Reply>) -> Result<(), shards::net::NetError> {
    let now = clock::monotonic_coarse();
    connection.output.deadline.set(Some(now + shard.config.limits.write_timeout.0));
    let mut left = usize::MAX;
    while left > 0 {
        let (slices, gathered) = gather(replies, left.min(WRITE_BYTES_MAX));
        let written = connection.stream.write_vectored(&slices).await?;
        drop(slices);
        left = left.min(gathered) - written;
        shard.counters.sent_bytes.set(shard.counters.sent_bytes.get() + written as u64);
        connection.output.pace.moved(written, clock::monotonic_coarse());
        forget(replies, written);
        connection.replies.moves_on();
    }
    Ok(())
}

/// The first `bytes_max` that are to be written, and how many they are.
fn gather(replies: &VecDeque<Reply>, bytes_max: usize) -> (Vec<IoSlice<'_>>, usize) {
    let mut slices = Vec::new();
    let mut bytes = 0;
    for part in replies.iter().flat_map(Reply::parts).filter(|part| !part.is_empty()) {
        let taken = part.len().min(bytes_max - bytes);
        slices.push(IoSlice::new(&part[..taken]));
        bytes += taken;
        if bytes == bytes_max || slices.len() == WRITE_SLICES_MAX {
            break;
        }
    }
    (slices, bytes)
}

/// Forgets `bytes` that were written.
fn forget(replies: &mut VecDeque<Reply>, mut bytes: usize) {
    while let Some(reply) = replies.front_mut() {
        bytes = reply.written(bytes);
        if reply.left_bytes > 0 {
            break;
        }
        replies.pop_front();
    }
    assert_eq!(bytes, 0, "what was written was there");
}
