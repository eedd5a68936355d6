//! Sockets between the shards of one simulation: connections that keep order, arrive in pieces, and take a random time.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::world::{Sleep, World};
use crate::machine::{self, Machine};
use crate::net::{ListenOptions, NetError};

/// Bytes on their way or unread, per direction: what the two socket buffers of a real connection hold.
const PIPE_BYTES_MAX: usize = 256 << 10;
/// The largest piece that arrives at once.
const PIECE_BYTES_MAX: u64 = 64 << 10;
const DELAY_NS: (u64, u64) = (10_000, 300_000);
const FIRST_EPHEMERAL_PORT: u16 = 40_000;

/// The sockets of a simulation.
#[derive(Default)]
pub(super) struct Network {
    listeners: BTreeMap<SocketAddr, Vec<Rc<Waiting>>>,
    next_port: u16,
    handovers: BTreeMap<u64, Stream>,
    next_handover: u64,
}

/// Connections made and not yet accepted.
#[derive(Default)]
struct Waiting {
    connections: RefCell<VecDeque<(Stream, SocketAddr)>>,
    acceptor: RefCell<Option<Waker>>,
    backlog: usize,
}

pub(crate) struct Listener {
    world: Rc<World>,
    address: SocketAddr,
    waiting: Rc<Waiting>,
}

impl Listener {
    pub(crate) fn bind(world: &Rc<World>, mut address: SocketAddr, options: ListenOptions) -> Result<Self, NetError> {
        let mut network = world.network().borrow_mut();
        if address.port() == 0 {
            address.set_port(network.take_port());
        }
        let waiting = Rc::new(Waiting { backlog: options.backlog as usize, ..Waiting::default() });
        let listeners = network.listeners.entry(address).or_default();
        if !listeners.is_empty() && !options.reuse_port {
            return Err(NetError::new("bind", libc::EADDRINUSE));
        }
        listeners.push(waiting.clone());
        Ok(Self { world: world.clone(), address, waiting })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn accept(&self) -> Result<(Stream, SocketAddr), NetError> {
        let accepted = poll_fn(|context| match self.waiting.connections.borrow_mut().pop_front() {
            Some(connection) => Poll::Ready(connection),
            None => {
                *self.waiting.acceptor.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        });
        Ok(accepted.await)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut network = self.world.network().borrow_mut();
        if let Some(listeners) = network.listeners.get_mut(&self.address) {
            listeners.retain(|waiting| !Rc::ptr_eq(waiting, &self.waiting));
            if listeners.is_empty() {
                network.listeners.remove(&self.address);
            }
        }
    }
}

impl Network {
    fn take_port(&mut self) -> u16 {
        let port = self.next_port.max(FIRST_EPHEMERAL_PORT);
        self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
        port
    }

    pub(super) fn close(&mut self) -> impl Sized + use<> {
        (std::mem::take(&mut self.listeners), std::mem::take(&mut self.handovers))
    }
}

/// One end of a connection. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub(crate) struct Stream {
    end: Rc<End>,
}

struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    world: std::rc::Weak<World>,
    peer: SocketAddr,
}

#[derive(Default)]
struct Pipe {
    on_the_way: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<u8>,
    bytes: usize,
    last_arrival_ns: u64,
    /// The writing end said that nothing follows what is on the way.
    ended: bool,
    /// The reading end is gone or reads no more.
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Stream {
    pub(crate) async fn connect(world: &Rc<World>, address: SocketAddr) -> Result<Self, NetError> {
        let delay_ns = DELAY_NS.0 + world.schedule_below(DELAY_NS.1);
        Sleep::new(world, Duration::from_nanos(delay_ns)).await;
        let mut network = world.network().borrow_mut();
        let own = SocketAddr::new(address.ip(), network.take_port());
        let refused = || NetError::new("connect", libc::ECONNREFUSED);
        let listeners = network.listeners.get(&address).ok_or_else(refused)?;
        let index = usize::try_from(world.schedule_below(listeners.len() as u64)).expect("an index into a Vec");
        let waiting = listeners[index].clone();
        drop(network);
        if waiting.connections.borrow().len() >= waiting.backlog {
            return Err(refused());
        }
        let (there, back) = (Rc::<RefCell<Pipe>>::default(), Rc::<RefCell<Pipe>>::default());
        let end = |incoming: &Rc<RefCell<Pipe>>, outgoing: &Rc<RefCell<Pipe>>, peer| Stream {
            end: Rc::new(End { incoming: incoming.clone(), outgoing: outgoing.clone(), world: Rc::downgrade(world), peer }),
        };
        waiting.connections.borrow_mut().push_back((end(&there, &back, own), own));
        if let Some(acceptor) = waiting.acceptor.borrow_mut().take() {
            acceptor.wake();
        }
        Ok(end(&back, &there, address))
    }

    pub(crate) async fn read(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        let count = self.readable(bytes.len()).await;
        let mut pipe = self.end.incoming.borrow_mut();
        for (place, byte) in bytes.iter_mut().zip(pipe.arrived.drain(..count)) {
            *place = byte;
        }
        pipe.bytes -= count;
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Ok(count)
    }

    pub(crate) async fn peek(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        let count = self.readable(bytes.len()).await;
        let pipe = self.end.incoming.borrow();
        for (place, byte) in bytes.iter_mut().zip(pipe.arrived.range(..count)) {
            *place = *byte;
        }
        Ok(count)
    }

    /// Waits for bytes or the end, and says how many of `wanted` are there.
    async fn readable(&self, wanted: usize) -> usize {
        poll_fn(|context| {
            let mut pipe = self.end.incoming.borrow_mut();
            if pipe.unread {
                return Poll::Ready(0);
            }
            if !pipe.arrived.is_empty() || (pipe.ended && pipe.on_the_way.is_empty()) {
                return Poll::Ready(pipe.arrived.len().min(wanted));
            }
            pipe.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub(crate) async fn write_vectored(&self, slices: &[IoSlice<'_>]) -> Result<usize, NetError> {
        let mut room = self.writable().await?;
        let mut written = 0;
        for slice in slices {
            let count = room.min(slice.len());
            self.send(&slice[..count]);
            room -= count;
            written += count;
        }
        Ok(written)
    }

    async fn writable(&self) -> Result<usize, NetError> {
        poll_fn(|context| {
            let mut pipe = self.end.outgoing.borrow_mut();
            if pipe.ended || pipe.unread {
                return Poll::Ready(Err(NetError::new("write", libc::EPIPE)));
            }
            if pipe.bytes < PIPE_BYTES_MAX {
                return Poll::Ready(Ok(PIPE_BYTES_MAX - pipe.bytes));
            }
            pipe.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn send(&self, bytes: &[u8]) {
        let Some(world) = self.end.world.upgrade() else { return };
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rest.len().min(usize::try_from(1 + world.schedule_below(PIECE_BYTES_MAX)).expect("a small number"));
            let delay_ns = DELAY_NS.0 + world.schedule_below(DELAY_NS.1);
            let mut pipe = self.end.outgoing.borrow_mut();
            let arrival_ns = pipe.last_arrival_ns.max(world.monotonic_ns() + delay_ns);
            pipe.last_arrival_ns = arrival_ns;
            pipe.bytes += count;
            pipe.on_the_way.push_back((arrival_ns, rest[..count].to_vec()));
            drop(pipe);
            let outgoing = self.end.outgoing.clone();
            let weak = self.end.world.clone();
            world.call_after(arrival_ns - world.monotonic_ns(), move || {
                let Some(world) = weak.upgrade() else { return };
                let mut pipe = outgoing.borrow_mut();
                while let Some((arrival_ns, piece)) = pipe.on_the_way.pop_front() {
                    if arrival_ns > world.monotonic_ns() {
                        pipe.on_the_way.push_front((arrival_ns, piece));
                        break;
                    }
                    pipe.arrived.extend(piece);
                }
                if let Some(reader) = pipe.reader.take() {
                    reader.wake();
                }
            });
            rest = &rest[count..];
        }
    }

    pub(crate) fn shutdown(&self) {
        self.end.close();
    }

    pub(crate) fn shutdown_write(&self) {
        self.end.end_outgoing();
    }

    pub(crate) fn peer_address(&self) -> Result<SocketAddr, NetError> {
        Ok(self.end.peer)
    }

    pub(crate) fn into_handover(self) -> Result<Handover, NetError> {
        let world = self.end.world.upgrade().ok_or_else(|| NetError::new("hand over", libc::ENOTCONN))?;
        let mut network = world.network().borrow_mut();
        let id = network.next_handover;
        network.next_handover += 1;
        network.handovers.insert(id, self);
        Ok(Handover { id })
    }

    pub(crate) fn from_handover(handover: Handover) -> Self {
        let stream = take_handover(handover.id);
        std::mem::forget(handover);
        stream.expect("a handover is taken once, in the simulation that made it")
    }
}

impl End {
    fn end_outgoing(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.ended = true;
        outgoing.wake();
    }

    fn close(&self) {
        self.end_outgoing();
        let mut incoming = self.incoming.borrow_mut();
        incoming.unread = true;
        incoming.wake();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}

/// A connection between two shards: its number in the simulation, since the connection itself cannot leave the thread.
pub(crate) struct Handover {
    id: u64,
}

impl Drop for Handover {
    fn drop(&mut self) {
        drop(take_handover(self.id));
    }
}

fn take_handover(id: u64) -> Option<Stream> {
    match machine::current() {
        Machine::Simulated(world) => world.network().borrow_mut().handovers.remove(&id),
        Machine::Real(_) | Machine::Ordinary => None,
    }
}
