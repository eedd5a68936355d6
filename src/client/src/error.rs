//! What failed, where, and whether a retry can help.

use std::fmt;

use wire::ErrorCode;

use crate::core::cluster_map::TopicInfo;

/// What a [`ClientError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection could be opened: refused, unreachable, no address for the name.
    Connect,
    /// An open connection ended while a request was unanswered; the request may or may not have been applied.
    Disconnected,
    /// The peer sent bytes that are not the protocol, or a reply that does not fit the request.
    Protocol,
    /// The broker refused, with this code.
    Broker(ErrorCode),
    /// No answer within the time allowed; the request may or may not have been applied.
    TimedOut,
    /// The topic exists, the partition named does not.
    NoSuchPartition,
    /// The caller asked for something that cannot be: a partition to seek that is not assigned, bytes that are no batch.
    InvalidArgument,
    /// A record, or a prebuilt batch, is larger than the limits allow.
    TooLarge,
    /// The buffer of the producer is full (only `try_send` says so; `send` waits).
    BufferFull,
    /// The producer, consumer or client was closed.
    Closed,
    /// A batch arrived whose checksum or layout is wrong.
    Corrupt,
}

/// An operation of the client that failed.
///
/// `Display` gives one line: the operation, the place, the cause.
#[derive(Clone)]
pub struct ClientError(Box<Facts>);

#[derive(Clone, Debug)]
struct Facts {
    kind: ErrorKind,
    operation: &'static str,
    place: String,
    cause: String,
    retryable: bool,
}

/// The result of a client operation.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

impl ClientError {
    /// The class of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done, such as "produce".
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Where: a broker address with shard, or a topic with partition. Empty when the failure has no place.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// Why, in words.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// Whether doing the same again, later, can succeed.
    ///
    /// For a produce that timed out or lost its connection, another `send` may store the record twice: retries of an idempotent producer, which
    /// do not, are over when this is seen.
    pub fn retryable(&self) -> bool {
        self.0.retryable
    }

    /// The code the broker gave, when it was the broker that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self.0.kind {
            ErrorKind::Broker(code) => Some(code),
            _ => None,
        }
    }

    pub(crate) fn new(kind: ErrorKind, operation: &'static str, place: impl Into<String>, cause: impl fmt::Display) -> Self {
        let retryable = match kind {
            ErrorKind::Connect | ErrorKind::Disconnected | ErrorKind::TimedOut | ErrorKind::BufferFull => true,
            ErrorKind::Broker(code) => code.retryable(),
            ErrorKind::Protocol
            | ErrorKind::NoSuchPartition
            | ErrorKind::InvalidArgument
            | ErrorKind::TooLarge
            | ErrorKind::Closed
            | ErrorKind::Corrupt => false,
        };
        Self(Box::new(Facts { kind, operation, place: place.into(), cause: cause.to_string(), retryable }))
    }

    /// The broker's refusal; its own message, when it sent one, says more than the code.
    pub(crate) fn broker(code: ErrorCode, operation: &'static str, place: impl Into<String>, message: Option<&str>) -> Self {
        let cause = match message {
            Some(message) if !message.is_empty() => format!("{code}: {message}"),
            _ => code.to_string(),
        };
        Self::new(ErrorKind::Broker(code), operation, place, cause)
    }

    pub(crate) fn no_such_partition(operation: &'static str, topic: &TopicInfo, partition: u32) -> Self {
        let cause = format!("no partition {partition}: the topic has {}", topic.partition_count());
        Self::new(ErrorKind::NoSuchPartition, operation, &*topic.name, cause)
    }

    pub(crate) fn closed(operation: &'static str) -> Self {
        Self::new(ErrorKind::Closed, operation, "", "closed")
    }

    /// The same failure, told of the operation that ran into it.
    pub(crate) fn during(mut self, operation: &'static str) -> Self {
        self.0.operation = operation;
        self
    }

    /// The same failure, located more precisely.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.place = if self.0.place.is_empty() { place.to_string() } else { format!("{place} ({})", self.0.place) };
        self
    }

    /// The last failure of an operation that was retried until its time was over.
    pub(crate) fn after_retries(mut self, attempts: u32) -> Self {
        self.0.cause = format!("{} (gave up after {attempts} attempts)", self.0.cause);
        self
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.operation)?;
        if !self.0.place.is_empty() {
            write!(f, ": {}", self.0.place)?;
        }
        write!(f, ": {}", self.0.cause)
    }
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_says_what_where_why() {
        let error = ClientError::broker(ErrorCode::NotLeader, "produce", "orders/3", Some("broker 2 leads it"));
        assert_eq!(error.to_string(), format!("produce: orders/3: {}: broker 2 leads it", ErrorCode::NotLeader));
        assert!(error.retryable());
        assert_eq!(error.code(), Some(ErrorCode::NotLeader));
        let error =
            ClientError::new(ErrorKind::Connect, "connect", "10.0.0.1:7311", "refused").during("create topic").at("orders");
        assert_eq!(error.to_string(), "create topic: orders (10.0.0.1:7311): refused");
    }
}
