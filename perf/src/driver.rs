//! A lean driver of the native protocol: one thread, one event loop, all producers and consumers of a run.
//!
//! ```text
//!   plan ──due──► lane (partition of a producer) ──batch──► link ══ socket ══► broker
//!                 queue, unbounded: open loop               one per (producer, shard)
//!                 at most one batch in flight
//!                      ▲                                       │
//!                      └── acknowledged: latencies, ledger ◄───┘
//! ```
//!
//! It is not the client crate: that one is made to be used, this one to cost as little as possible beside the broker that it
//! measures, and to keep its own books. Both speak `wire`. Consumer groups alone are read by the client, see [`groups`](crate::groups): what a
//! member does is the client's.

pub mod blast;
pub mod consumer;
pub mod drain;
pub mod engine;
pub mod link;
pub mod poll;
pub mod producer;
pub mod session;
pub mod spread;
pub mod template;

use std::net::SocketAddr;

use corelane_client::ClientError;
use thiserror::Error;
use wire::ErrorCode;

/// Why the driver could not go on.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The broker could not be reached, or the connection broke.
    #[error("{address}: {operation}: {source}")]
    Io {
        /// Whom we talked to.
        address: String,
        /// What we wanted.
        operation: &'static str,
        /// What happened.
        source: std::io::Error,
    },
    /// Bytes that are not the protocol.
    #[error("{address}: a reply breaks the protocol: {reason}")]
    Protocol {
        /// Whom we talked to.
        address: String,
        /// The rule.
        reason: String,
    },
    /// The broker refused.
    #[error("{operation}: {code}{}", message.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// What we wanted.
        operation: String,
        /// The broker's answer.
        code: ErrorCode,
        /// What it said besides.
        message: Option<String>,
    },
    /// The event loop's own calls failed.
    #[error("event loop: {0}")]
    EventLoop(std::io::Error),
    /// A member of a consumer group cannot go on.
    #[error("consumer group: {0}")]
    Group(#[from] ClientError),
    /// The workload cannot be run.
    #[error("workload: {0}")]
    Workload(String),
}

impl DriverError {
    pub(crate) fn protocol(address: SocketAddr, reason: impl Into<String>) -> DriverError {
        DriverError::Protocol { address: address.to_string(), reason: reason.into() }
    }

    /// Whether the connection is gone, as when the broker was killed.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, DriverError::Io { .. })
    }
}
