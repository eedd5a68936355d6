//! Sockets by readiness: a system call that does not wait, then, when there is nothing, a poll on the ring.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;

use futures_io::{AsyncRead, AsyncWrite};
use glommio::net::{TcpListener, TcpStream};
use rustix::io::FdFlags;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::net::{ListenOptions, NetError};

/// Slices that one `sendmsg` takes.
const SLICES_PER_SEND_MAX: usize = 1024;

pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr, options: ListenOptions) -> Result<Listener, NetError> {
        let failed = |error: std::io::Error| NetError::from_io("listen", &error);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
        socket.set_reuse_address(true).map_err(failed)?;
        socket.set_reuse_port(options.reuse_port).map_err(failed)?;
        // Accepted sockets inherit the sizes; set before listening, so that the window scale fits.
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes).map_err(failed)?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes).map_err(failed)?;
        }
        socket.bind(&address.into()).map_err(failed)?;
        socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX)).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?.as_socket().expect("a TCP socket has an internet address");
        // The socket stays blocking: every accept switches it and back, so it must not be shared between shards either.
        // SAFETY: the descriptor is a listening socket that nobody else owns.
        let listener = unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) };
        Ok(Listener { listener, address })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn accept(&self) -> Result<(Stream, SocketAddr), NetError> {
        loop {
            let accepted = self.listener.accept().await;
            let stream = accepted.map_err(|error| NetError::from_io("accept", &std::io::Error::from(error)))?;
            let stream = Stream::new(stream);
            // One of the two ways in which the executor accepts leaves the descriptor open for child processes.
            rustix::io::fcntl_setfd(stream.connection.fd(), FdFlags::CLOEXEC)
                .map_err(|errno| NetError::new("accept", errno.raw_os_error()))?;
            // A peer that is gone already is no error of the listener.
            if let Ok(peer) = stream.peer_address() {
                return Ok((stream, peer));
            }
        }
    }
}

#[derive(Clone)]
pub(crate) struct Stream {
    connection: Rc<Connection>,
}

struct Connection {
    /// Borrowed only inside a poll.
    stream: RefCell<TcpStream>,
    fd: RawFd,
    /// A read or write was tried, so a poll may be pending: too late for a hand-over.
    used: Cell<bool>,
    handed_over: Cell<bool>,
}

/// A connection between two shards: a descriptor that nobody reads.
pub(crate) struct Handover {
    fd: OwnedFd,
}

impl Connection {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `stream` owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn shutdown(&self, directions: Shutdown) {
        // Not connected any more is what is wanted.
        let _ = rustix::net::shutdown(self.fd(), directions);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Closing alone would not end the connection as long as a pending poll holds the socket.
        if !self.handed_over.get() {
            self.shutdown(Shutdown::Both);
        }
    }
}

impl Stream {
    fn new(stream: TcpStream) -> Stream {
        let fd = stream.as_raw_fd();
        let stream = RefCell::new(stream);
        let connection = Connection { stream, fd, used: Cell::new(false), handed_over: Cell::new(false) };
        Stream { connection: Rc::new(connection) }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Result<Stream, NetError> {
        let connected = TcpStream::connect(address).await;
        connected.map(Stream::new).map_err(|error| NetError::from_io("connect", &std::io::Error::from(error)))
    }

    pub(crate) async fn read(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        self.connection.used.set(true);
        poll_fn(|context| Pin::new(&mut *self.connection.stream.borrow_mut()).poll_read(context, bytes))
            .await
            .map_err(|error| NetError::from_io("read", &error))
    }

    #[expect(clippy::await_holding_refcell_ref, reason = "see below: a shared borrow, taken while nobody else uses the stream")]
    pub(crate) async fn peek(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        assert!(!self.connection.used.get(), "a stream is peeked only before its first use");
        // Reading and writing borrow mutably; before the first use nobody does.
        let stream = self.connection.stream.borrow();
        stream.peek(bytes).await.map_err(|error| NetError::from_io("read", &std::io::Error::from(error)))
    }

    pub(crate) async fn write_vectored(&self, slices: &[IoSlice<'_>]) -> Result<usize, NetError> {
        self.connection.used.set(true);
        let batch = &slices[..slices.len().min(SLICES_PER_SEND_MAX)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match rustix::net::sendmsg(self.connection.fd(), batch, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok(sent),
                Err(rustix::io::Errno::AGAIN) => {
                    // Tries the first slice again, and waits for room when there is still none.
                    let first = &slices[0];
                    return poll_fn(|context| Pin::new(&mut *self.connection.stream.borrow_mut()).poll_write(context, first))
                        .await
                        .map_err(|error| NetError::from_io("write", &error));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(NetError::new("write", errno.raw_os_error())),
            }
        }
    }

    pub(crate) fn shutdown(&self) {
        self.connection.shutdown(Shutdown::Both);
    }

    pub(crate) fn shutdown_write(&self) {
        self.connection.shutdown(Shutdown::Write);
    }

    pub(crate) fn peer_address(&self) -> Result<SocketAddr, NetError> {
        let failed = |error: std::io::Error| NetError::from_io("look at a socket", &error);
        let fd = self.connection.fd();
        let peer = SockRef::from(&fd).peer_addr().map_err(failed)?;
        Ok(peer.as_socket().expect("a TCP socket has an internet address"))
    }

    pub(crate) fn into_handover(self) -> Result<Handover, NetError> {
        assert!(!self.connection.used.get(), "a stream is handed over only before its first use");
        assert_eq!(Rc::strong_count(&self.connection), 1, "a stream is handed over only while there is no clone");
        let fd = rustix::io::fcntl_dupfd_cloexec(self.connection.fd(), 0)
            .map_err(|errno| NetError::new("hand over", errno.raw_os_error()))?;
        self.connection.handed_over.set(true);
        Ok(Handover { fd })
    }

    pub(crate) fn from_handover(handover: Handover) -> Result<Stream, NetError> {
        // SAFETY: the descriptor is a connected socket that nobody else owns.
        let stream = unsafe { TcpStream::from_raw_fd(handover.fd.into_raw_fd()) };
        Ok(Stream::new(stream))
    }
}
