use std::net::SocketAddr;

use super::{NetError, Stream};
use crate::machine::{self, Machine};
use crate::{real, simulated};

/// How a listening socket is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Several sockets (one per shard) may listen at the address, and the kernel spreads the connections. Hold a lock for the
    /// port first: another process of the same user could listen as well.
    pub reuse_port: bool,
    /// Receive buffer of accepted connections; the kernel chooses when not given.
    pub receive_buffer_bytes: Option<usize>,
    /// Send buffer of accepted connections; the kernel chooses when not given.
    pub send_buffer_bytes: Option<usize>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 1024, reuse_port: false, receive_buffer_bytes: None, send_buffer_bytes: None }
    }
}

/// A listening socket of this shard.
pub struct Listener {
    inner: Inner,
}

enum Inner {
    Real(real::net::Listener),
    Simulated(simulated::net::Listener),
}

impl Listener {
    /// Listens at `address`; port 0 picks a free one.
    pub fn bind(address: SocketAddr, options: ListenOptions) -> Result<Listener, NetError> {
        let inner = match machine::current() {
            Machine::Real(_) => Inner::Real(real::net::Listener::bind(address, options)?),
            Machine::Simulated(world) => Inner::Simulated(simulated::net::Listener::bind(&world, address, options)?),
            Machine::Ordinary => machine::outside("net::Listener::bind"),
        };
        Ok(Listener { inner })
    }

    /// The address it listens at.
    pub fn local_address(&self) -> SocketAddr {
        match &self.inner {
            Inner::Real(listener) => listener.local_address(),
            Inner::Simulated(listener) => listener.local_address(),
        }
    }

    /// The next connection. One call at a time. Do not drop a pending accept and go on: it may take a connection with it;
    /// drop the listener with it.
    pub async fn accept(&self) -> Result<(Stream, SocketAddr), NetError> {
        match &self.inner {
            Inner::Real(listener) => listener.accept().await.map(|(stream, peer)| (Stream::from_real(stream), peer)),
            Inner::Simulated(listener) => listener.accept().await.map(|(stream, peer)| (Stream::from_simulated(stream), peer)),
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Listener").field("address", &self.local_address()).finish()
    }
}
