//! One connection to one shard of the broker. Blocking while it is set up, non-blocking under load.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use wire::limits::FRAME_HEADER_BYTES;
use wire::{
    AlignedVec, Api, FrameDecoder, FrameHeader, FrameStep, HelloReply, HelloRequest, Request, access_body, decode_body,
    encode_request,
};

use super::DriverError;

/// Room for replies to start with; a larger frame makes it grow.
const INPUT_BYTES_START: usize = 256 * 1024;
/// Buffers handed to one writev: the kernel's limit is 1024, the gain ends far below.
const SLICES_MAX: usize = 64;
/// How long a request during set-up may take. Creating thousands of partitions takes seconds on a slow disk.
const SETUP_TIMEOUT: Duration = Duration::from_secs(120);

/// How far a connection has sent what was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// All of it.
    All,
    /// A portion; the socket may take more.
    Portion,
    /// As much as the socket takes now.
    Full,
}

/// Bytes to send: ours alone, or a batch that is sent again and again.
#[derive(Debug)]
pub enum Piece {
    /// Sent once; comes back to its owner with [`Link::take_sent`].
    Own(AlignedVec),
    /// Shared.
    Shared(Rc<AlignedVec>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    stream: TcpStream,
    output: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    output_start: usize,
    /// Bytes queued and not yet sent.
    output_bytes: usize,
    input: AlignedVec,
    /// `input[input_start..input_end]` arrived and is not consumed.
    input_start: usize,
    input_end: usize,
    decoder: FrameDecoder,
    next_correlation: u64,
    sent: Vec<AlignedVec>,
}

impl Link {
    /// Connects, and says hello to the shard wanted.
    ///
    /// # Errors
    /// When the broker is not there or refuses.
    pub fn connect(address: SocketAddr, client_id: &str, shard_wanted: Option<u16>) -> Result<(Link, HelloReply), DriverError> {
        let io = |operation| move |source| DriverError::Io { address: address.to_string(), operation, source };
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).map_err(io("connect"))?;
        stream.set_nodelay(true).map_err(io("set TCP_NODELAY"))?;
        stream.set_read_timeout(Some(SETUP_TIMEOUT)).map_err(io("set a timeout"))?;
        stream.set_write_timeout(Some(SETUP_TIMEOUT)).map_err(io("set a timeout"))?;
        let mut input = AlignedVec::with_capacity(INPUT_BYTES_START);
        input.resize(INPUT_BYTES_START, 0);
        let mut link = Link {
            address,
            stream,
            output: VecDeque::new(),
            output_start: 0,
            output_bytes: 0,
            input,
            input_start: 0,
            input_end: 0,
            decoder: FrameDecoder::default(),
            next_correlation: 1,
            sent: Vec::new(),
        };
        let hello = HelloRequest { client_id: client_id.to_owned(), versions: Api::ranges(), shard_wanted };
        let reply = link.call(&hello)?;
        if !reply.error.is_none() {
            return Err(DriverError::Refused { operation: "hello".to_owned(), code: reply.error, message: reply.message });
        }
        Ok((link, reply))
    }

    /// Sends a request and waits for its reply. Only before [`Link::start`].
    ///
    /// # Errors
    /// When the connection breaks or the reply is not one.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Reply, DriverError> {
        let correlation = self.correlation();
        self.call_raw(&encode_request(correlation, request, 0), &[])?;
        let (header, frame) = self.wait_frame()?;
        if header.correlation_id != correlation || header.api != R::API.code() {
            return Err(self.protocol(format!("{} answered by api {}", R::API, header.api)));
        }
        let reply = decode_body::<R::Reply>(&frame[header.body_range()]);
        reply.map_err(|error| self.protocol(error.to_string()))
    }

    /// Sends a frame and its attachments, blocking. Only before [`Link::start`].
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn call_raw(&mut self, frame: &[u8], attachments: &[u8]) -> Result<(), DriverError> {
        let sent = self.stream.write_all(frame).and_then(|()| self.stream.write_all(attachments));
        sent.map_err(|source| self.io("send", source))
    }

    /// Waits for the next frame; blocking, only before [`Link::start`].
    ///
    /// # Errors
    /// When the connection breaks or the bytes are not a frame.
    pub fn wait_frame(&mut self) -> Result<(FrameHeader, AlignedVec), DriverError> {
        loop {
            if let Some((header, frame)) = self.next_frame()? {
                let mut copy = AlignedVec::with_capacity(frame.len());
                copy.extend_from_slice(frame);
                return Ok((header, copy));
            }
            if self.read_some()? == 0 {
                return Err(self.io("receive", ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Goes over to non-blocking use.
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn start(&mut self) -> Result<(), DriverError> {
        self.stream.set_nonblocking(true).map_err(|source| self.io("set non-blocking", source))
    }

    /// The socket, to wait for.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// A correlation id not used before on this connection.
    pub fn correlation(&mut self) -> u64 {
        self.next_correlation += 1;
        self.next_correlation
    }

    /// Queues bytes to be sent.
    pub fn queue(&mut self, piece: Piece) {
        self.output_bytes += piece.bytes().len();
        self.output.push_back(piece);
    }

    /// Bytes queued and not sent.
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Buffers whose bytes are sent, to be used again.
    pub fn take_sent(&mut self) -> std::vec::Drain<'_, AlignedVec> {
        self.sent.drain(..)
    }

    /// Sends a portion of what is queued, at most `bytes_max`, by one system call.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn flush(&mut self, bytes_max: usize) -> Result<Flushed, DriverError> {
        assert!(bytes_max > 0, "a portion has a size");
        if self.output.is_empty() {
            return Ok(Flushed::All);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut bytes) = (0, 0);
        for piece in self.output.iter().take(SLICES_MAX) {
            let start = if count == 0 { self.output_start } else { 0 };
            let rest = &piece.bytes()[start..];
            let rest = &rest[..rest.len().min(bytes_max - bytes)];
            slices[count] = IoSlice::new(rest);
            count += 1;
            bytes += rest.len();
            if bytes == bytes_max {
                break;
            }
        }
        match self.stream.write_vectored(&slices[..count]) {
            Ok(0) => Err(self.io("send", ErrorKind::WriteZero.into())),
            Ok(written) => {
                self.wrote(written);
                Ok(if self.output.is_empty() { Flushed::All } else { Flushed::Portion })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Flushed::Full),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Flushed::Portion),
            Err(error) => Err(self.io("send", error)),
        }
    }

    fn wrote(&mut self, written: usize) {
        self.output_bytes -= written;
        let mut end = self.output_start + written;
        while let Some(first) = self.output.front() {
            let length = first.bytes().len();
            if end < length {
                break;
            }
            end -= length;
            if let Some(Piece::Own(bytes)) = self.output.pop_front() {
                self.sent.push(bytes);
            }
        }
        self.output_start = end;
    }

    /// Reads what has arrived, once. Returns whether the socket may hold more.
    ///
    /// # Errors
    /// When the connection broke or was closed.
    pub fn fill(&mut self) -> Result<bool, DriverError> {
        match self.read_some() {
            Ok(0) => Err(self.io("receive", ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(self.input_end == self.input.len()),
            Err(DriverError::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read_some(&mut self) -> Result<usize, DriverError> {
        loop {
            match self.stream.read(&mut self.input[self.input_end..]) {
                Ok(read) => {
                    self.input_end += read;
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io("receive", error)),
            }
        }
    }

    /// The next whole frame that has arrived, aligned. Makes room for the rest of one that has not.
    ///
    /// # Errors
    /// When the bytes are not a frame.
    pub fn next_frame(&mut self) -> Result<Option<(FrameHeader, &[u8])>, DriverError> {
        let step = self.decoder.step(&self.input[self.input_start..self.input_end]);
        match step.map_err(|error| self.protocol(error.to_string()))? {
            FrameStep::Complete { header } => {
                let start = self.input_start;
                self.input_start += header.total_length as usize;
                let frame = &self.input[start..self.input_start];
                Ok(Some((header, frame)))
            }
            FrameStep::Header { .. } => {
                self.make_room(FRAME_HEADER_BYTES);
                Ok(None)
            }
            FrameStep::Rest { header, .. } => {
                self.make_room(header.total_length as usize);
                Ok(None)
            }
        }
    }

    /// Moves the unconsumed bytes to the front when the frame they begin would not fit behind them.
    fn make_room(&mut self, frame_bytes: usize) {
        if self.input_start == self.input_end {
            (self.input_start, self.input_end) = (0, 0);
        }
        if self.input_start + frame_bytes > self.input.len() || self.input_end == self.input.len() {
            self.input.copy_within(self.input_start..self.input_end, 0);
            (self.input_start, self.input_end) = (0, self.input_end - self.input_start);
        }
        if frame_bytes > self.input.len() {
            self.input.resize(frame_bytes.next_power_of_two(), 0);
        }
    }

    /// Reads a reply's body in place.
    ///
    /// # Errors
    /// When the frame does not hold one.
    pub fn access<'a, R: Request>(
        address: SocketAddr,
        header: &FrameHeader,
        frame: &'a [u8],
    ) -> Result<&'a <R::Reply as wire::Body>::Archived, DriverError> {
        if header.api != R::API.code() {
            return Err(DriverError::protocol(address, format!("{} answered by api {}", R::API, header.api)));
        }
        access_body::<R::Reply>(&frame[header.body_range()]).map_err(|error| DriverError::protocol(address, error.to_string()))
    }

    /// Whom this connection talks to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn io(&self, operation: &'static str, source: std::io::Error) -> DriverError {
        DriverError::Io { address: self.address.to_string(), operation, source }
    }

    pub(crate) fn protocol(&self, reason: impl Into<String>) -> DriverError {
        DriverError::protocol(self.address, reason)
    }
}
