use std::io::IoSlice;
use std::net::SocketAddr;

use super::NetError;
use crate::machine::{self, Machine};
use crate::{real, simulated};

/// A connection. Clones share it.
#[derive(Clone)]
pub struct Stream {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Real(real::net::Stream),
    Simulated(simulated::net::Stream),
}

impl Stream {
    pub(super) fn from_real(stream: real::net::Stream) -> Stream {
        Stream { inner: Inner::Real(stream) }
    }

    pub(super) fn from_simulated(stream: simulated::net::Stream) -> Stream {
        Stream { inner: Inner::Simulated(stream) }
    }

    /// Connects to `address`.
    pub async fn connect(address: SocketAddr) -> Result<Stream, NetError> {
        match machine::current() {
            Machine::Real(_) => Ok(Stream::from_real(real::net::Stream::connect(address).await?)),
            Machine::Simulated(world) => Ok(Stream::from_simulated(simulated::net::Stream::connect(&world, address).await?)),
            Machine::Ordinary => machine::outside("net::Stream::connect"),
        }
    }

    /// Reads what is there, at least one byte, into `bytes`; 0 at the end of the stream. The kernel copies straight into
    /// `bytes`. Dropping the future loses nothing.
    pub async fn read(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        match &self.inner {
            Inner::Real(stream) => stream.read(bytes).await,
            Inner::Simulated(stream) => stream.read(bytes).await,
        }
    }

    /// Like [`Stream::read`], but leaves the bytes in the socket, so that the stream can still be handed over. Returns what
    /// is there now once there is at least one byte; a frame may be incomplete.
    pub async fn peek(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        match &self.inner {
            Inner::Real(stream) => stream.peek(bytes).await,
            Inner::Simulated(stream) => stream.peek(bytes).await,
        }
    }

    /// Writes all of `bytes`. After an error the stream is at an unknown place.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), NetError> {
        self.write_vectored_all(&mut [IoSlice::new(bytes)]).await
    }

    /// Writes all slices, one after the other, gathering as many as the kernel takes in one call.
    pub async fn write_vectored_all(&self, mut slices: &mut [IoSlice<'_>]) -> Result<(), NetError> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let written = self.write_vectored(slices).await?;
            IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }

    /// Writes as much of the slices as the kernel takes at once, and waits until that is at least one byte. The first slice is not
    /// empty.
    pub async fn write_vectored(&self, slices: &[IoSlice<'_>]) -> Result<usize, NetError> {
        assert!(!slices[0].is_empty(), "a write begins with a byte");
        match &self.inner {
            Inner::Real(stream) => stream.write_vectored(slices).await,
            Inner::Simulated(stream) => stream.write_vectored(slices).await,
        }
    }

    /// Ends both directions: the peer sees the end at once, and pending reads here return.
    pub fn shutdown(&self) {
        match &self.inner {
            Inner::Real(stream) => stream.shutdown(),
            Inner::Simulated(stream) => stream.shutdown(),
        }
    }

    /// Ends the direction to the peer: it sees the end behind what was written, and can go on writing to us.
    pub fn shutdown_write(&self) {
        match &self.inner {
            Inner::Real(stream) => stream.shutdown_write(),
            Inner::Simulated(stream) => stream.shutdown_write(),
        }
    }

    /// The address of the peer.
    pub fn peer_address(&self) -> Result<SocketAddr, NetError> {
        match &self.inner {
            Inner::Real(stream) => stream.peer_address(),
            Inner::Simulated(stream) => stream.peer_address(),
        }
    }

    /// Makes it a value that can go to another shard. Only before the first read or write (a peek is fine), and only while
    /// there is no clone.
    pub fn into_handover(self) -> Result<Handover, NetError> {
        match self.inner {
            Inner::Real(stream) => Ok(Handover { inner: HandoverInner::Real(stream.into_handover()?) }),
            Inner::Simulated(stream) => Ok(Handover { inner: HandoverInner::Simulated(stream.into_handover()?) }),
        }
    }

    /// Takes over a connection on this shard.
    pub fn from_handover(handover: Handover) -> Result<Stream, NetError> {
        match handover.inner {
            HandoverInner::Real(handover) => Ok(Stream::from_real(real::net::Stream::from_handover(handover)?)),
            HandoverInner::Simulated(handover) => Ok(Stream::from_simulated(simulated::net::Stream::from_handover(handover))),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Stream")
    }
}

/// A connection on its way to another shard. Dropping it closes the connection.
pub struct Handover {
    inner: HandoverInner,
}

enum HandoverInner {
    Real(real::net::Handover),
    Simulated(simulated::net::Handover),
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Handover")
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Handover>();
};
