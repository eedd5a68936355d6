//! One connection: frames in, replies out in the order in which they are complete.
//!
//! ```text
//!            ┌ reader (one task) ──────────────────────────────┐
//!  socket ──►│ frame found ─► admitted ─► read ─► dispatch     │── produce: as far as the log, in order
//!            └─────────────────────────────────────────────────┘── fetch and the rest: a task of their own
//!  socket ◄── writer (a task while there is something to write): all replies that wait, gathered into one write
//! ```
//!
//! An idle connection holds no buffer: half a KiB until its next frame begins. Requests not yet answered, their bytes, and the bytes
//! of replies not yet taken are bounded; at a bound the socket is not read. How much memory its replies get follows what its client
//! takes (reply_memory.rs), and who holds memory without moving gives way to who waits for it (shard/relief.rs).

mod attachments;
mod dispatch;
mod hello;
mod output;
mod overload;
mod pace;
mod reader;
mod reply_memory;

pub(crate) use attachments::Attachments;
pub(crate) use hello::SERVER;
pub(crate) use output::{Reply, ReplyTo};
pub(crate) use pace::PERIOD as PACE_PERIOD;
pub(crate) use reply_memory::{ReplyHold, reply_memory};

use crate::{
    admission::{Gate, Held, within},
    shard::{
        Shard,
        relief::{Memory, Transfer},
    },
};
use output::Output;
use pace::Pace;
use reader::FrameReader;
use reply_memory::ReplyWindow;
use shards::{
    clock::Monotonic,
    net::{NetError, Stream},
    sync::Notify,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use wire::{Api, Body, ErrorCode, FrameError, FrameHeader};

/// How long the last reply may take to leave when a connection is closed for an error.
const GOODBYE_WITHIN: Duration = Duration::from_secs(2);
/// How long what the client still sends is then thrown away, while it already sees the end. A socket closed with bytes unread resets the
/// connection, and the error could be lost on its way.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_READ_BYTES: usize = 64 << 10;

/// A connection of this shard.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Requests not yet answered.
    turns: Gate,
    /// Their bytes.
    in_flight: Gate,
    /// Bytes of replies not yet taken by the client.
    replies: ReplyWindow,
    pub(crate) output: Output,
    /// How fast the client sends.
    input_pace: Pace,
    /// A request that was admitted and is not there as a whole: its bytes, and when it was let in.
    arriving: Cell<Option<(usize, Monotonic)>>,
    closed: Cell<bool>,
    /// Told when the connection closes.
    pub(crate) closing: Notify,
    /// The bytes of a request that has begun must go on arriving until then.
    read_deadline: Cell<Option<Monotonic>>,
    client_id: RefCell<String>,
    _counted: Counted,
}

/// One of the connections of the process.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicU32>);

impl Counted {
    /// Counts one more, unless there are `limit`.
    pub(crate) fn new(counter: &Arc<AtomicU32>, limit: u32) -> Option<Counted> {
        let counted = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < limit).then_some(count + 1));
        counted.ok().map(|_| Counted(Arc::clone(counter)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request in memory.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) header: FrameHeader,
    body: shards::buffer::Shared,
    attachments: Attachments,
    reply_to: ReplyTo,
}

/// Why a connection is told one error and closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Refused { code, message: message.into() }
    }

    fn no_hello() -> Self {
        Refused::new(ErrorCode::InvalidRequest, "the first request is not Hello")
    }
}

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Self {
        Refused { code: error.code(), message: error.to_string() }
    }
}

/// How reading ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed, between two frames.
    Closed,
    /// The client is told what was wrong; the correlation id is 0 when it is not known.
    Refused(u64, Refused),
    /// The socket failed.
    Net(NetError),
}

impl Incoming {
    /// The body, checked.
    pub(crate) fn decode<T: Body>(&self) -> Result<T, Refused> {
        Ok(wire::decode_body(&self.body)?)
    }

    /// Takes the batches behind the body.
    pub(crate) fn take_attachments(&mut self) -> Attachments {
        std::mem::take(&mut self.attachments)
    }

    /// Gives up the bytes (batches that were sliced off stay alive) and keeps the way back.
    pub(crate) fn into_reply_to(self) -> ReplyTo {
        self.reply_to
    }

    /// The connection it came over.
    pub(crate) fn connection(&self) -> &Rc<Connection> {
        self.reply_to.connection()
    }
}

impl Connection {
    fn new(shard: &Shard, stream: Stream, counted: Counted, hello_deadline: Monotonic) -> Rc<Self> {
        let memory = &shard.config.memory;
        Rc::new(Connection {
            stream,
            turns: Gate::new(shard.config.limits.requests_in_flight_max as usize),
            in_flight: Gate::new(memory.connection_in_flight_bytes_max.as_usize()),
            replies: ReplyWindow::new(memory.connection_reply_bytes_max.as_usize(), shard.reply_bytes.limit()),
            output: Output::default(),
            input_pace: Pace::default(),
            arriving: Cell::new(None),
            closed: Cell::new(false),
            closing: Notify::new(),
            read_deadline: Cell::new(Some(hello_deadline)),
            client_id: RefCell::default(),
            _counted: counted,
        })
    }

    /// What the client calls itself.
    pub(crate) fn client_id(&self) -> String {
        self.client_id.borrow().clone()
    }

    /// Whether it is closed: replies go nowhere, waiting is in vain.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Ends both directions at once. What was not written is dropped.
    pub(crate) fn close(&self) {
        if !self.closed.replace(true) {
            self.stream.shutdown();
            self.output.clear();
            self.replies.moves_on();
            self.closing.notify_waiters();
        }
    }

    /// What the connection holds of `memory` for bytes that are on their way.
    pub(crate) fn transfer(&self, shard: &Shard, memory: Memory, now: Monotonic) -> Option<Transfer> {
        let limits = &shard.config.limits;
        if self.is_closed() {
            return None;
        }
        let (held_bytes, since, pace, patience, waiting) = match memory {
            Memory::Requests => {
                let (bytes, since) = self.arriving.get()?;
                (bytes, since, &self.input_pace, limits.read_timeout.0, 0)
            }
            Memory::Replies => {
                let (replies, since) = (&self.replies, self.output.writing_since()?);
                (replies.held_bytes(), since, self.output.pace(), limits.write_timeout.0, replies.waiting())
            }
        };
        Some(Transfer { held_bytes, since, bytes_per_second: pace.bytes_per_second(now), patience, waiting })
    }

    /// Gives back memory that others wait for. Called for a connection that is stuck.
    pub(crate) fn give_way(self: &Rc<Self>, shard: &Rc<Shard>, memory: Memory) {
        if memory == Memory::Replies && output::put_back(shard, self) {
            return;
        }
        let what = match memory {
            Memory::Requests => "sends its request too slowly",
            Memory::Replies => "takes its replies too slowly",
        };
        tracing::warn!(client = %self.client_id.borrow(), "a client {what} while others wait for memory: disconnected");
        shard.counters.gave_way.set(shard.counters.gave_way.get() + 1);
        self.close();
    }

    /// Closes the connection when its client is stuck. Called by the sweeper.
    pub(crate) fn expire(&self, now: Monotonic) {
        let late = |deadline: Option<Monotonic>| deadline.is_some_and(|deadline| deadline < now);
        let (read, write) = (late(self.read_deadline.get()), late(self.output.deadline()));
        if !self.is_closed() && (read || write) {
            let what =
                if write { "takes none of its replies" } else { "stopped in the middle of a request, or never said Hello" };
            tracing::warn!(client = %self.client_id.borrow(), "a client {what}: disconnected");
            self.close();
        }
    }
}

/// Serves a connection that this shard accepted: it stays here, or goes to the shard it wants.
pub(crate) async fn accepted(shard: Rc<Shard>, stream: Stream) {
    let Some(counted) = Counted::new(&shard.process.connections, shard.config.limits.connections_max) else {
        return turn_away(&stream).await;
    };
    let deadline = shards::clock::monotonic_coarse() + shard.config.limits.hello_timeout.0;
    match hello::shard_wanted(&stream, deadline).await {
        Some(wanted) if wanted != shard.id.0 && wanted < shard.count => match stream.into_handover() {
            Ok(handover) => {
                shard.counters.handed_over.set(shard.counters.handed_over.get() + 1);
                let mail = crate::mail::Mail::Connection { handover, counted };
                crate::calls::send_now(&shard, shards::ShardId(wanted), mail);
            }
            Err(error) => tracing::warn!("a connection could not be handed to shard {wanted}: {error}"),
        },
        _ => serve(shard, stream, counted, deadline).await,
    }
}

/// Serves a connection that another shard accepted: its Hello is there.
pub(crate) async fn handed_over(shard: Rc<Shard>, stream: Stream, counted: Counted) {
    let deadline = shards::clock::monotonic_coarse() + shard.config.limits.hello_timeout.0;
    serve(shard, stream, counted, deadline).await;
}

/// Serves a connection until it ends.
async fn serve(shard: Rc<Shard>, stream: Stream, counted: Counted, hello_deadline: Monotonic) {
    let connection = Connection::new(&shard, stream, counted, hello_deadline);
    let number = shard.connections.borrow_mut().add(&connection);
    let end = read_requests(&shard, &connection).await;
    match end {
        End::Closed => {}
        End::Net(error) if error.is_disconnect() || connection.is_closed() => {}
        End::Net(error) => tracing::debug!(client = %connection.client_id.borrow(), "connection lost: {error}"),
        End::Refused(correlation_id, refused) => {
            tracing::info!(client = %connection.client_id.borrow(), "connection refused: {}", refused.message);
            shard.counters.refused.set(shard.counters.refused.get() + 1);
            connection.read_deadline.set(None);
            output::push(&shard, &connection, Reply::bare(hello::error_frame(correlation_id, &refused)));
            // A client that does not take it is not waited for.
            let _left = within(GOODBYE_WITHIN, connection.output.drained()).await;
            say_goodbye(&connection.stream).await;
        }
    }
    connection.close();
    shard.connections.borrow_mut().remove(number);
}

async fn read_requests(shard: &Rc<Shard>, connection: &Rc<Connection>) -> End {
    let mut reader = FrameReader::new(shard, connection);
    let mut greeted = false;
    loop {
        let incoming = match reader.next().await {
            Ok(incoming) => incoming,
            Err(end) => return end,
        };
        let correlation_id = incoming.header.correlation_id;
        if !greeted && incoming.header.api != Api::Hello.code() {
            return End::Refused(correlation_id, Refused::no_hello());
        }
        greeted = true;
        if let Err(refused) = dispatch::dispatch(shard, connection, incoming).await {
            return End::Refused(correlation_id, refused);
        }
    }
}

/// Tells a client that there are too many, without giving it anything else.
async fn turn_away(stream: &Stream) {
    let refused = Refused::new(ErrorCode::TooManyConnections, "the broker has limits.connections_max connections");
    let _written = within(GOODBYE_WITHIN, stream.write_all(&hello::error_frame(0, &refused))).await;
    say_goodbye(stream).await;
    stream.shutdown();
}

/// Lets the client see the end behind what was written, then reads and forgets until it closes or has had its time.
async fn say_goodbye(stream: &Stream) {
    stream.shutdown_write();
    let mut bytes = shards::buffer::allocate_plain(LINGER_READ_BYTES);
    let discard = async { while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {} };
    // A client that goes on sending is cut off.
    let _closed = within(LINGER, discard).await;
}

/// What a request in memory holds, given back when its reply has been written.
#[derive(Debug)]
struct RequestHolds {
    _turn: Held,
    _connection_bytes: Held,
    /// Missing for a request that was not admitted.
    shard_bytes: Option<Held>,
    _open: crate::shard::OpenRequest,
}
