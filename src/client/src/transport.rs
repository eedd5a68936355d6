//! Sockets: frames in and out, connections by shard. Decides nothing about records.

mod connection;
mod frame;
mod pool;

pub(crate) use connection::Connection;
pub(crate) use frame::Frame;
pub(crate) use pool::ConnectionPool;
