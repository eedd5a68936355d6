//! Bytes to requests, each admitted before it is read into memory.
//!
//! ```text
//!  idle:  512 bytes inline            small frames: one buffer, frames copied out      large frame: its own aligned buffer,
//!         (no buffer is held)   ──►   (1 MiB when much waits, else 64 KiB)       ──►   what is there copied, the rest read into it
//! ```
//!
//! The attachments of a large produce request land where the log can write them from: `append.rs` says how they are to be cut.

use super::{Attachments, Connection, End, Incoming, Refused, RequestHolds, output::ReplyTo, overload};
use crate::{
    admission::within,
    append,
    shard::{OpenRequest, Shard, relief},
};
use shards::{
    buffer::{BufferMut, Shared, allocate_plain},
    clock::{self, Monotonic},
};
use std::{rc::Rc, time::Duration};
use wire::{
    Api, FrameError, FrameHeader,
    limits::{FRAME_HEADER_BYTES, HELLO_BYTES_MAX},
};

/// The read of an idle connection. Holds the usual fetch request whole.
const SNIFF_BYTES: usize = 512;
/// The buffer when one frame has begun.
const BUFFER_BYTES: usize = 64 << 10;
/// The buffer when the first read came back full: many small frames in one read.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Larger frames get a buffer of their own: copying them would cost more than its allocation.
const COPIED_FRAME_BYTES_MAX: usize = 32 << 10;

/// A client must send a request at this pace, or in `limits.read_timeout` when it is small: a modem's line, on which 16 MiB take nine
/// minutes. Without it a byte now and then would keep a request, and its memory, for ever.
const REQUEST_BYTES_PER_SECOND_MIN: usize = 32 << 10;

const _: () = assert!(COPIED_FRAME_BYTES_MAX <= BUFFER_BYTES && SNIFF_BYTES <= BUFFER_BYTES);

pub(super) struct FrameReader<'a> {
    shard: &'a Rc<Shard>,
    connection: &'a Rc<Connection>,
    sniffed: Box<[u8; SNIFF_BYTES]>,
    buffer: Option<BufferMut>,
    /// `buffer[start..end]` has arrived and is not yet part of a request.
    start: usize,
    end: usize,
    /// The last read filled what it was given: more is likely to wait.
    more_waits: bool,
    /// A whole request has arrived once.
    greeted: bool,
    /// Until then it must have.
    hello_deadline: Option<Monotonic>,
    /// When the request that arrives now began, and its bytes as far as they are known.
    begun: Option<Monotonic>,
    frame_bytes: usize,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(shard: &'a Rc<Shard>, connection: &'a Rc<Connection>) -> Self {
        let sniffed = Box::new([0; SNIFF_BYTES]);
        let hello_deadline = connection.read_deadline.get();
        FrameReader {
            shard,
            connection,
            sniffed,
            buffer: None,
            start: 0,
            end: 0,
            more_waits: false,
            greeted: false,
            hello_deadline,
            begun: None,
            frame_bytes: FRAME_HEADER_BYTES,
        }
    }

    /// The next request.
    pub(super) async fn next(&mut self) -> Result<Incoming, End> {
        loop {
            let header = self.header().await?;
            let holds = self.admit(&header).await;
            if holds.shard_bytes.is_none() {
                self.turn_away(header, holds).await?;
                continue;
            }
            let is_large = header.total_length as usize > COPIED_FRAME_BYTES_MAX;
            let (body, attachments) = if is_large { self.landed(&header).await? } else { self.copied(&header).await? };
            self.arrived_whole();
            // Nothing was read beyond a large frame: whether more waits is not known, and an idle connection holds no buffer.
            if self.start == self.end && (is_large || !self.more_waits) {
                self.buffer = None;
            }
            let reply_to = ReplyTo::new(self.shard, self.connection, header, holds);
            return Ok(Incoming { header, body, attachments, reply_to });
        }
    }

    /// Answers a request for which there is no memory: its body is read, since it says what the answer has to name, and its batches are
    /// thrown away. One body for each connection is all that is held.
    async fn turn_away(&mut self, header: FrameHeader, holds: RequestHolds) -> Result<(), End> {
        let body = self.body(&header).await?;
        self.skip(header.attachment_bytes()).await?;
        self.arrived_whole();
        let reply_to = ReplyTo::new(self.shard, self.connection, header, holds);
        let incoming = Incoming { header, body, attachments: Attachments::default(), reply_to };
        overload::answer(self.shard, incoming).map_err(|refused| End::Refused(header.correlation_id, refused))
    }

    async fn header(&mut self) -> Result<FrameHeader, End> {
        self.fill(FRAME_HEADER_BYTES).await?;
        self.begun.get_or_insert_with(clock::monotonic_coarse);
        let header = FrameHeader::decode(self.arrived()).map_err(|error| End::Refused(0, error.into()))?;
        let refuse = |error: FrameError| Err(End::Refused(header.correlation_id, error.into()));
        let limit_bytes = u32::try_from(self.shard.config.limits.frame_bytes_max.0).unwrap_or(u32::MAX);
        if header.total_length > limit_bytes {
            return refuse(FrameError::TooLarge { found_bytes: header.total_length, limit_bytes });
        }
        if !self.greeted && header.total_length > HELLO_BYTES_MAX {
            if header.api == Api::Hello.code() {
                return refuse(FrameError::TooLarge { found_bytes: header.total_length, limit_bytes: HELLO_BYTES_MAX });
            }
            return Err(End::Refused(header.correlation_id, Refused::no_hello()));
        }
        if header.is_reply() {
            let rule = "a request has no flag";
            return refuse(FrameError::Field { position: 12, field: "flags", found: u64::from(header.flags), rule });
        }
        self.frame_bytes = header.total_length as usize;
        Ok(header)
    }

    /// Waits for memory: the socket is not read meanwhile. What the shard has no room for within the bound is not admitted, and holds none.
    async fn admit(&mut self, header: &FrameHeader) -> RequestHolds {
        let bytes = header.total_length as usize;
        let asked = clock::monotonic_coarse();
        self.connection.read_deadline.set(None);
        // Own replies that the client does not take hold turns: the write time-out ends that wait, not this one.
        let turn = self.connection.turns.acquire(1).await;
        let connection_bytes = self.connection.in_flight.acquire(bytes).await;
        let shard_bytes = match self.shard.in_flight.try_acquire(bytes) {
            Some(held) => Some(held),
            None => {
                relief::wanted(self.shard);
                within(self.shard.config.memory.admission_wait.0, self.shard.in_flight.acquire(bytes)).await
            }
        };
        let now = clock::monotonic_coarse();
        self.begun = self.begun.map(|begun| begun + now.since(asked));
        self.connection.arriving.set(shard_bytes.as_ref().map(|held| (held.count(), now)));
        self.going_on();
        let open = OpenRequest::new(self.shard);
        RequestHolds { _turn: turn, _connection_bytes: connection_bytes, shard_bytes, _open: open }
    }

    /// Throws away what comes next.
    async fn skip(&mut self, mut bytes: usize) -> Result<(), End> {
        let there = bytes.min(self.end - self.start);
        self.start += there;
        bytes -= there;
        if bytes == 0 {
            return Ok(());
        }
        let mut thrown = allocate_plain(bytes.min(BUFFER_BYTES));
        while bytes > 0 {
            self.going_on();
            let wanted = bytes.min(thrown.len());
            bytes -= self.read_into(FRAME_HEADER_BYTES, &mut thrown[..wanted]).await?;
        }
        Ok(())
    }

    fn arrived_whole(&mut self) {
        self.connection.read_deadline.set(None);
        self.connection.arriving.set(None);
        (self.begun, self.frame_bytes) = (None, FRAME_HEADER_BYTES);
        self.greeted = true;
    }

    /// A small frame, copied out so that it does not keep the buffer alive.
    async fn copied(&mut self, header: &FrameHeader) -> Result<(Shared, Attachments), End> {
        let total = header.total_length as usize;
        self.fill(total).await?;
        let frame = Shared::copy_from_slice(&self.arrived()[..total]);
        self.start += total;
        Ok((frame.slice(header.body_range()), Attachments::from(frame.slice(header.attachment_range()))))
    }

    /// A large frame, its attachments read straight to where they stay.
    async fn landed(&mut self, header: &FrameHeader) -> Result<(Shared, Attachments), End> {
        let body = self.body(header).await?;
        let mut attachments = Attachments::default();
        for landing in append::landings(self.shard, header, &body) {
            attachments.push(self.land(landing.allocate(), landing.bytes).await?);
        }
        Ok((body, attachments))
    }

    /// The body; what comes next are the attachments.
    async fn body(&mut self, header: &FrameHeader) -> Result<Shared, End> {
        let head_bytes = header.attachment_range().start;
        if head_bytes > COPIED_FRAME_BYTES_MAX {
            let head = self.land(allocate_plain(head_bytes), head_bytes).await?;
            return Ok(head.slice(header.body_range()));
        }
        self.fill(head_bytes).await?;
        let body = Shared::copy_from_slice(&self.arrived()[header.body_range()]);
        self.start += head_bytes;
        Ok(body)
    }

    /// Fills the first `bytes` of `block`.
    async fn land(&mut self, mut block: BufferMut, bytes: usize) -> Result<Shared, End> {
        let mut filled = bytes.min(self.end - self.start);
        block[..filled].copy_from_slice(&self.arrived()[..filled]);
        self.start += filled;
        while filled < bytes {
            self.going_on();
            filled += self.read_into(FRAME_HEADER_BYTES + filled, &mut block[filled..bytes]).await?;
        }
        Ok(block.freeze().slice(..bytes))
    }

    fn arrived(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.start..self.end])
    }

    /// Reads until `wanted` bytes have arrived. `wanted` is at most [`COPIED_FRAME_BYTES_MAX`].
    async fn fill(&mut self, wanted: usize) -> Result<(), End> {
        while self.end - self.start < wanted {
            if self.end > self.start {
                self.going_on();
            }
            let Some(mut buffer) = self.buffer.take() else {
                self.sniff().await?;
                continue;
            };
            if buffer.len() - self.start < wanted.max(SNIFF_BYTES) {
                buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let end = self.end;
            let read = self.read_into(end - self.start, &mut buffer[end..]).await;
            let room = buffer.len() - end;
            self.buffer = Some(buffer);
            let read = read?;
            self.end += read;
            self.more_waits = read == room;
        }
        Ok(())
    }

    /// The read of an idle connection: a buffer is taken once something has arrived.
    async fn sniff(&mut self) -> Result<(), End> {
        let read = match self.connection.stream.read(&mut self.sniffed[..]).await {
            Ok(0) => return Err(End::Closed),
            Ok(read) => read,
            Err(error) => return Err(End::Net(error)),
        };
        self.more_waits = read == SNIFF_BYTES;
        let mut buffer = allocate_plain(buffer_bytes(&self.sniffed[..read]));
        buffer[..read].copy_from_slice(&self.sniffed[..read]);
        (self.buffer, self.start, self.end) = (Some(buffer), 0, read);
        Ok(())
    }

    /// Reads more of a frame of which `found_bytes` have arrived.
    async fn read_into(&self, found_bytes: usize, bytes: &mut [u8]) -> Result<usize, End> {
        match self.connection.stream.read(bytes).await {
            Ok(0) if found_bytes == 0 => Err(End::Closed),
            Ok(0) => Err(End::Refused(0, FrameError::Truncated { needed_bytes: found_bytes + 1, found_bytes }.into())),
            Ok(read) => {
                self.connection.input_pace.moved(read, clock::monotonic_coarse());
                Ok(read)
            }
            Err(error) => Err(End::Net(error)),
        }
    }

    /// A request has begun: its bytes must go on arriving, and all of them in their time. For Hello the deadline set when the connection began
    /// stands.
    fn going_on(&mut self) {
        let now = clock::monotonic_coarse();
        let begun = *self.begun.get_or_insert(now);
        let next = now + self.shard.config.limits.read_timeout.0;
        let whole = begun + request_time(self.frame_bytes, self.shard.config.limits.read_timeout.0);
        self.connection.read_deadline.set(if self.greeted { Some(next.min(whole)) } else { self.hello_deadline });
    }
}

/// How long a request of `bytes` may take to arrive.
fn request_time(bytes: usize, read_timeout: Duration) -> Duration {
    read_timeout + Duration::from_millis(bytes as u64 * 1000 / REQUEST_BYTES_PER_SECOND_MIN as u64)
}

/// The buffer after a first read that brought `sniffed`.
fn buffer_bytes(sniffed: &[u8]) -> usize {
    if sniffed.len() < SNIFF_BYTES {
        return BUFFER_BYTES;
    }
    match FrameHeader::decode(sniffed) {
        // Its attachments get blocks of their own: this one only brings what stands before them.
        Ok(header) if header.total_length as usize > COPIED_FRAME_BYTES_MAX => {
            header.attachment_range().start.clamp(SNIFF_BYTES, COPIED_FRAME_BYTES_MAX)
        }
        Ok(_) | Err(_) => BUFFER_BYTES_MAX,
    }
}
