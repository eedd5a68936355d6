//! The connections of a client: one per (broker, shard), opened when first needed, opened again when they ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use wire::{Api, ErrorCode, HelloReply, HelloRequest};

use super::connection::Connection;
use crate::core::cluster_map::Target;
use crate::error::{ClientError, ErrorKind, Result};
use crate::options::ClientOptions;

pub(crate) struct ConnectionPool {
    options: ClientOptions,
    slots: Mutex<HashMap<Target, Arc<Slot>>>,
}

#[derive(Default)]
struct Slot {
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while opening, so that a shard gets one connection however many ask for it at once.
    opening: tokio::sync::Mutex<()>,
}

impl Slot {
    fn usable(&self) -> Option<Arc<Connection>> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.as_ref().is_some_and(|connection| !connection.usable()) {
            *connection = None;
        }
        connection.clone()
    }
}

impl ConnectionPool {
    pub(crate) fn new(options: ClientOptions) -> Self {
        Self { options, slots: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Target, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open connection to `target`, if there is one.
    pub(crate) fn open_connection(&self, target: Target) -> Option<Arc<Connection>> {
        let slot = self.slots().get(&target).cloned()?;
        slot.usable()
    }

    /// Any open connection.
    pub(crate) fn any_connection(&self) -> Option<Arc<Connection>> {
        let slots: Vec<_> = self.slots().values().cloned().collect();
        slots.iter().find_map(|slot| slot.usable())
    }

    /// The connection to `target`, opened at `address` if there is none.
    ///
    /// # Errors
    /// Nothing listens there, it is not the broker expected, or the time for connecting is over.
    pub(crate) async fn connect(&self, target: Target, address: &str) -> Result<Arc<Connection>> {
        let slot = Arc::clone(self.slots().entry(target).or_default());
        let _opening = slot.opening.lock().await;
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        let (connection, reply) = open(&self.options, address, Some(target.shard)).await?;
        if reply.broker_id != target.broker {
            let cause = format!("broker {} answers where broker {} was expected", reply.broker_id, target.broker);
            return Err(ClientError::new(ErrorKind::Connect, "connect", address, cause));
        }
        let connection = Arc::new(connection);
        *slot.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// The first of `addresses` that answers; the connection takes the place of the (broker, shard) it turned out to be.
    ///
    /// # Errors
    /// None answered: the last failure.
    pub(crate) async fn connect_any(&self, addresses: &[String]) -> Result<Arc<Connection>> {
        let mut failure = ClientError::new(ErrorKind::InvalidArgument, "connect", "", "no broker address given");
        for address in addresses {
            match open(&self.options, address, None).await {
                Ok((connection, reply)) => {
                    let target = Target { broker: reply.broker_id, shard: reply.shard };
                    let slot = Arc::clone(self.slots().entry(target).or_default());
                    let _opening = slot.opening.lock().await;
                    if let Some(connection) = slot.usable() {
                        return Ok(connection);
                    }
                    let connection = Arc::new(connection);
                    *slot.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Opens a socket and greets: the first frame names the shard, so that the broker can hand the socket over before its use.
async fn open(options: &ClientOptions, address: &str, shard: Option<u16>) -> Result<(Connection, HelloReply)> {
    let opening = async {
        let stream = TcpStream::connect(address).await.and_then(|stream| configure(options, &stream).map(|()| stream)).map_err(
            |error| {
                // Not `host:port`: no attempt was made, and none can succeed.
                let malformed = error.kind() == std::io::ErrorKind::InvalidInput;
                let kind = if malformed { ErrorKind::InvalidArgument } else { ErrorKind::Connect };
                ClientError::new(kind, "connect", address, error)
            },
        )?;
        let place: Arc<str> = match shard {
            Some(shard) => format!("{address} shard {shard}").into(),
            None => address.into(),
        };
        let connection = Connection::new(stream, place, wire::limits::FRAME_BYTES_MAX);
        let hello = HelloRequest { client_id: options.client_id.clone(), versions: Api::ranges(), shard_wanted: shard };
        let (reply, _) = connection.call("connect", &hello, Vec::new(), options.connect_timeout)?.await?;
        if reply.error != ErrorCode::None {
            return Err(ClientError::broker(reply.error, "connect", address, reply.message.as_deref()));
        }
        Ok((connection.greeted(&reply), reply))
    };
    let timed = tokio::time::timeout(options.connect_timeout, opening).await;
    timed.unwrap_or_else(|_| {
        let cause = format!("no greeting within {} ms", options.connect_timeout.as_millis());
        Err(ClientError::new(ErrorKind::Connect, "connect", address, cause))
    })
}

fn configure(options: &ClientOptions, stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(std::time::Duration::from_secs(30)))?;
    if options.socket_buffer_bytes > 0 {
        socket.set_send_buffer_size(options.socket_buffer_bytes as usize)?;
        socket.set_recv_buffer_size(options.socket_buffer_bytes as usize)?;
    }
    Ok(())
}
