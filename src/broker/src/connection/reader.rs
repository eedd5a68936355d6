//! Bytes to requests, each admitted before it is read into memory.
//!
//! ```text
//!  idle:  512 bytes inline            small frames: one buffer, frames copied out      large frame: its own aligned buffer,
//!         (no buffer is held)   ──►   (1 MiB when much waits, else 64 KiB)       ──►   what is there copied, the rest read into it
//! ```

use super::{Connection, End, Incoming, RequestHolds, output::ReplyTo, overload};
use crate::shard::{OpenRequest, Shard};
use shards::{
    buffer::{BufferMut, Shared, allocate_plain},
    clock::{self, Monotonic},
};
use std::rc::Rc;
use wire::{FrameError, FrameHeader, limits::FRAME_HEADER_BYTES};

/// The read of an idle connection. Holds the usual fetch request whole.
const SNIFF_BYTES: usize = 512;
/// The buffer when one frame has begun.
const BUFFER_BYTES: usize = 64 << 10;
/// The buffer when the first read came back full: many small frames in one read.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Larger frames get a buffer of their own: copying them would cost more than its allocation.
const COPIED_FRAME_BYTES_MAX: usize = 32 << 10;

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
            let total = header.total_length as usize;
            let is_large = total > COPIED_FRAME_BYTES_MAX;
            let frame = self.taken(total).await?;
            self.arrived_whole();
            // Nothing was read beyond a large frame: whether more waits is not known, and an idle connection holds no buffer.
            if self.start == self.end && (is_large || !self.more_waits) {
                self.buffer = None;
            }
            return Ok(Incoming { header, frame, reply_to: ReplyTo::new(self.shard, self.connection, header, holds) });
        }
    }

    /// Answers a request for which there is no memory: its body is read, since it says what the answer has to name, and its batches are
    /// thrown away. One body for each connection is all that is held.
    async fn turn_away(&mut self, header: FrameHeader, holds: RequestHolds) -> Result<(), End> {
        let body_end = header.body_range().end;
        let frame = self.taken(body_end).await?;
        self.skip(header.total_length as usize - body_end).await?;
        self.arrived_whole();
        let incoming = Incoming { header, frame, reply_to: ReplyTo::new(self.shard, self.connection, header, holds) };
        overload::answer(self.shard, incoming).map_err(|refused| End::Refused(header.correlation_id, refused))
    }

    async fn header(&mut self) -> Result<FrameHeader, End> {
        self.fill(FRAME_HEADER_BYTES).await?;
        let header = FrameHeader::decode(self.arrived()).map_err(|error| End::Refused(0, error.into()))?;
        let refuse = |error: FrameError| Err(End::Refused(header.correlation_id, error.into()));
        let limit_bytes = u32::try_from(self.shard.config.limits.frame_bytes_max.0).unwrap_or(u32::MAX);
        if header.total_length > limit_bytes {
            return refuse(FrameError::TooLarge { found_bytes: header.total_length, limit_bytes });
        }
        if header.is_reply() {
            let rule = "a request has no flag";
            return refuse(FrameError::Field { position: 12, field: "flags", found: u64::from(header.flags), rule });
        }
        Ok(header)
    }

    /// Waits for memory: the socket is not read meanwhile. What the shard has no room for within the bound is not admitted, and holds none.
    async fn admit(&self, header: &FrameHeader) -> RequestHolds {
        let bytes = header.total_length as usize;
        let wait = self.shard.config.memory.admission_wait.0;
        self.connection.read_deadline.set(None);
        // Own replies that the client does not take hold turns: the write time-out ends that wait, not this one.
        let turn = self.connection.turns.acquire(1).await;
        let connection_bytes = self.connection.in_flight.acquire(bytes).await;
        let shard_bytes = self.shard.in_flight.acquire_within(bytes, wait).await;
        self.going_on();
        let open = OpenRequest::new(self.shard);
        RequestHolds { _turn: turn, _connection_bytes: connection_bytes, shard_bytes, _open: open }
    }

    /// The first `length` bytes of a frame.
    async fn taken(&mut self, length: usize) -> Result<Shared, End> {
        if length > COPIED_FRAME_BYTES_MAX { self.landed(length).await } else { self.copied(length).await }
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
        self.greeted = true;
    }

    /// A small frame, copied out so that it does not keep the buffer alive.
    async fn copied(&mut self, total: usize) -> Result<Shared, End> {
        self.fill(total).await?;
        let frame = Shared::copy_from_slice(&self.arrived()[..total]);
        self.start += total;
        Ok(frame)
    }

    /// A large frame, read straight to where it stays.
    async fn landed(&mut self, total: usize) -> Result<Shared, End> {
        let mut frame = allocate_plain(total);
        let mut filled = total.min(self.end - self.start);
        frame[..filled].copy_from_slice(&self.arrived()[..filled]);
        self.start += filled;
        while filled < total {
            self.going_on();
            filled += self.read_into(filled, &mut frame[filled..]).await?;
        }
        Ok(frame.freeze())
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
            Ok(read) => Ok(read),
            Err(error) => Err(End::Net(error)),
        }
    }

    /// A request has begun: its bytes must go on arriving. For Hello the deadline set when the connection began stands.
    fn going_on(&self) {
        let next = || clock::monotonic_coarse() + self.shard.config.limits.read_timeout.0;
        self.connection.read_deadline.set(if self.greeted { Some(next()) } else { self.hello_deadline });
    }
}

/// The buffer after a first read that brought `sniffed`.
fn buffer_bytes(sniffed: &[u8]) -> usize {
    if sniffed.len() < SNIFF_BYTES {
        return BUFFER_BYTES;
    }
    match FrameHeader::decode(sniffed) {
        // It gets a buffer of its own: this one only brings its beginning there.
        Ok(header) if header.total_length as usize > COPIED_FRAME_BYTES_MAX => SNIFF_BYTES,
        Ok(_) | Err(_) => BUFFER_BYTES_MAX,
    }
}
