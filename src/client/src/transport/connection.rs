//! One connection to one shard: frames out in order, replies matched by correlation id.
//!
//! ```text
//!  call ──► queue ──► writer task ──► socket        (one vectored write for what has gathered)
//!    ▲                                  │
//!    └── oneshot ◄── pending ◄── reader task
//! ```
//!
//! The first failure, of whichever side, ends the connection: everything unanswered gets that failure, and the next call opens
//! a new connection.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use wire::limits::{ATTACHMENT_BYTES_MAX, FRAME_HEADER_BYTES};
use wire::{AlignedVec, ApiRange, FrameHeader, HelloReply, Request};

use super::frame::{Frame, FramePool};
use crate::error::{ClientError, ErrorKind, Result};
use crate::limits::{CONNECTION_REQUESTS_MAX, READ_BUFFER_BYTES, WRITE_FRAMES_MAX, WRITE_SLICES_MAX};

/// An open connection. Dropping it closes the socket.
pub(crate) struct Connection {
    place: Arc<str>,
    queue: mpsc::Sender<Outgoing>,
    replies: Arc<Replies>,
    correlation: AtomicU64,
    apis: Vec<ApiRange>,
    frame_bytes_max: u32,
    tasks: [AbortHandle; 2],
}

struct Outgoing {
    /// Header and body.
    frame: AlignedVec,
    attachments: Vec<Bytes>,
}

impl Connection {
    /// Takes an open socket into use. Nothing is known yet of what the peer speaks: see [`Connection::greeted`].
    pub(crate) fn new(stream: TcpStream, place: Arc<str>, frame_bytes_max: u32) -> Self {
        let (read, write) = stream.into_split();
        let (queue, queued) = mpsc::channel(CONNECTION_REQUESTS_MAX);
        let replies = Arc::new(Replies { place: Arc::clone(&place), state: Mutex::default() });
        let writer = tokio::spawn(write_frames(write, queued, Arc::clone(&replies))).abort_handle();
        let reader = tokio::spawn(read_frames(read, Arc::clone(&replies), frame_bytes_max)).abort_handle();
        let tasks = [writer, reader];
        Self { place, queue, replies, correlation: AtomicU64::new(1), apis: Vec::new(), frame_bytes_max, tasks }
    }

    /// The connection after the greeting: from now on, calls are checked against what the broker said it speaks.
    pub(crate) fn greeted(mut self, reply: &HelloReply) -> Self {
        self.apis.clone_from(&reply.apis);
        self.frame_bytes_max = self.frame_bytes_max.min(reply.frame_bytes_max);
        self
    }

    /// The largest frame both sides accept.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max as usize
    }

    /// Whether a call can still be made.
    pub(crate) fn usable(&self) -> bool {
        self.replies.lock().failure.is_none()
    }

    /// Queues a request now, in the order of the calls to this function, and returns what waits for its reply.
    ///
    /// `attachments` are written from where they are. When no reply comes within `timeout` the connection ends, because what
    /// was asked on it is no longer known to be answered in any order.
    pub(crate) fn call<R: Request>(
        &self,
        operation: &'static str,
        request: &R,
        attachments: Vec<Bytes>,
        timeout: Duration,
    ) -> Result<impl Future<Output = Result<(R::Reply, Frame)>> + Send + 'static> {
        if !self.apis.is_empty() && ApiRange::common(R::API, &self.apis).is_none() {
            let cause = format!("the broker speaks no version of {} that this client does", R::API);
            return Err(ClientError::new(ErrorKind::Protocol, operation, &*self.place, cause));
        }
        let correlation = self.correlation.fetch_add(1, Ordering::Relaxed);
        let attachment_bytes: usize = attachments.iter().map(Bytes::len).sum();
        if attachment_bytes > ATTACHMENT_BYTES_MAX as usize {
            let cause = format!("a request with {attachment_bytes} bytes of batches; a frame holds {ATTACHMENT_BYTES_MAX}");
            return Err(ClientError::new(ErrorKind::TooLarge, operation, &*self.place, cause));
        }
        let frame = wire::encode_request(correlation, request, attachment_bytes);
        let frame_bytes = frame.len() + attachment_bytes;
        if frame_bytes > self.frame_bytes_max() {
            let cause = format!("a request of {frame_bytes} bytes; the broker takes at most {}", self.frame_bytes_max);
            return Err(ClientError::new(ErrorKind::TooLarge, operation, &*self.place, cause));
        }
        let (sender, receiver) = oneshot::channel();
        self.replies.expect(correlation, sender).map_err(|error| error.during(operation))?;
        if let Err(error) = self.queue.try_send(Outgoing { frame, attachments }) {
            self.replies.forget(correlation);
            let cause = match error {
                mpsc::error::TrySendError::Full(_) => "too many requests wait on this connection",
                mpsc::error::TrySendError::Closed(_) => "connection closed",
            };
            return Err(ClientError::new(ErrorKind::Disconnected, operation, &*self.place, cause));
        }
        let replies = Arc::clone(&self.replies);
        Ok(async move {
            let received = tokio::time::timeout(timeout, receiver).await;
            let Ok(received) = received else {
                let cause = format!("no reply within {} ms", timeout.as_millis());
                let error = ClientError::new(ErrorKind::TimedOut, operation, &*replies.place, cause);
                replies.fail(&error);
                return Err(error);
            };
            let frame = received.map_err(|_| replies.closed_error())?.map_err(|error| error.during(operation))?;
            let protocol = |cause: String| {
                let error = ClientError::new(ErrorKind::Protocol, operation, &*replies.place, cause);
                replies.fail(&error);
                error
            };
            if frame.header().api != R::API.code() || !frame.header().is_reply() {
                return Err(protocol(format!("asked for {}, got a frame of api {}", R::API, frame.header().api)));
            }
            let reply = wire::decode_body::<R::Reply>(frame.body()).map_err(|error| protocol(error.to_string()))?;
            Ok((reply, frame))
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.replies.fail(&ClientError::new(ErrorKind::Disconnected, "request", &*self.place, "connection closed"));
    }
}

/// Who waits for which reply.
struct Replies {
    place: Arc<str>,
    state: Mutex<ReplyState>,
}

#[derive(Default)]
struct ReplyState {
    pending: HashMap<u64, oneshot::Sender<Result<Frame>>>,
    /// Why the connection ended. Set once.
    failure: Option<ClientError>,
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, ReplyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, correlation: u64, sender: oneshot::Sender<Result<Frame>>) -> Result<()> {
        let mut state = self.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => {
                let before = state.pending.insert(correlation, sender);
                assert!(before.is_none(), "correlation ids are not reused");
                Ok(())
            }
        }
    }

    fn forget(&self, correlation: u64) {
        self.lock().pending.remove(&correlation);
    }

    fn closed_error(&self) -> ClientError {
        let closed = || ClientError::new(ErrorKind::Disconnected, "request", &*self.place, "connection closed");
        self.lock().failure.clone().unwrap_or_else(closed)
    }

    /// Ends the connection: what waits fails, what comes later fails at once.
    fn fail(&self, error: &ClientError) {
        let pending = {
            let mut state = self.lock();
            state.failure.get_or_insert_with(|| error.clone());
            std::mem::take(&mut state.pending)
        };
        for (_, sender) in pending {
            // A caller that stopped waiting needs no answer.
            let _ = sender.send(Err(error.clone()));
        }
    }

    fn deliver(&self, frame: Frame) -> Result<()> {
        let correlation = frame.header().correlation_id;
        let sender = self.lock().pending.remove(&correlation);
        match sender {
            Some(sender) => {
                let _ = sender.send(Ok(frame));
                Ok(())
            }
            None => {
                let cause = format!("a reply with correlation id {correlation}, which nothing waits for");
                Err(ClientError::new(ErrorKind::Protocol, "read reply", &*self.place, cause))
            }
        }
    }
}

async fn write_frames(mut socket: OwnedWriteHalf, mut queued: mpsc::Receiver<Outgoing>, replies: Arc<Replies>) {
    let mut batch = Vec::with_capacity(WRITE_FRAMES_MAX);
    while queued.recv_many(&mut batch, WRITE_FRAMES_MAX).await > 0 {
        if let Err(error) = write_batch(&mut socket, &batch).await {
            replies.fail(&ClientError::new(ErrorKind::Disconnected, "write request", &*replies.place, error));
            return;
        }
        batch.clear();
    }
}

/// Writes frames and attachments from where they are, in as few system calls as the socket takes.
async fn write_batch(socket: &mut OwnedWriteHalf, batch: &[Outgoing]) -> io::Result<()> {
    let mut pieces = Vec::with_capacity(batch.iter().map(|outgoing| 1 + outgoing.attachments.len()).sum());
    for outgoing in batch {
        pieces.push(IoSlice::new(&outgoing.frame));
        pieces.extend(outgoing.attachments.iter().map(|attachment| IoSlice::new(attachment)));
    }
    let mut rest = pieces.as_mut_slice();
    while !rest.is_empty() {
        let first = rest.len().min(WRITE_SLICES_MAX);
        let written = socket.write_vectored(&rest[..first]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

async fn read_frames(socket: OwnedReadHalf, replies: Arc<Replies>, frame_bytes_max: u32) {
    let mut socket = BufReader::with_capacity(READ_BUFFER_BYTES, socket);
    let mut pool = FramePool::default();
    loop {
        let delivered = match read_frame(&mut socket, &mut pool, frame_bytes_max).await {
            Ok(frame) => replies.deliver(frame),
            Err(error) => Err(error.at(&replies.place)),
        };
        if let Err(error) = delivered {
            tracing::debug!(%error, "connection ended");
            replies.fail(&error);
            return;
        }
    }
}

async fn read_frame(socket: &mut BufReader<OwnedReadHalf>, pool: &mut FramePool, frame_bytes_max: u32) -> Result<Frame> {
    let ended = |error: io::Error| {
        let cause = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the broker closed the connection".to_owned(),
            _ => error.to_string(),
        };
        ClientError::new(ErrorKind::Disconnected, "read reply", "", cause)
    };
    let protocol = |cause: String| ClientError::new(ErrorKind::Protocol, "read reply", "", cause);
    let mut bytes = [0; FRAME_HEADER_BYTES];
    socket.read_exact(&mut bytes).await.map_err(ended)?;
    let header = FrameHeader::decode(&bytes).map_err(|error| protocol(error.to_string()))?;
    if header.total_length > frame_bytes_max {
        return Err(protocol(format!("a frame of {} bytes; at most {frame_bytes_max} are taken", header.total_length)));
    }
    let mut buffer = pool.take(header.total_length as usize);
    let frame = &mut Arc::get_mut(&mut buffer).expect("the pool gives buffers nothing refers to")[..header.total_length as usize];
    let (head, rest) = frame.split_at_mut(FRAME_HEADER_BYTES);
    head.copy_from_slice(&bytes);
    socket.read_exact(rest).await.map_err(ended)?;
    pool.remember(&buffer);
    Ok(Frame::new(header, buffer))
}
