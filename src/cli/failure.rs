//! Why a command ends without success, and with which exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use corelane_client::{ClientError, ErrorCode, ErrorKind};

/// A failed command. `Display` is what the user reads.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong on the way.
    Failed(String),
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// What is named does not exist.
    NotFound(String),
    /// A configuration or a record that no broker takes.
    NotAllowed(String),
    /// The client's error; its kind decides the exit code.
    Client(ClientError),
    /// Records of `produce` that were not acknowledged; the first error decides the exit code.
    NotAcknowledged {
        /// How many.
        records: u64,
        /// Of how many.
        sent: u64,
        /// Why the first was not.
        first: ClientError,
    },
    /// Standard output was closed by its reader.
    OutputClosed,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::NotFound(_) => 4,
            Failure::NotAllowed(_) => 6,
            Failure::Client(error) | Failure::NotAcknowledged { first: error, .. } => code_of(error),
            Failure::OutputClosed => 0,
        })
    }

    /// Of writing to standard output.
    pub(crate) fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(format!("cannot write the output: {error}")),
        }
    }

    /// Of reading a file.
    pub(crate) fn of_file(path: &Path, error: &io::Error) -> Self {
        let text = format!("cannot read {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => Failure::NotFound(text),
            _ => Failure::Failed(text),
        }
    }
}

fn code_of(error: &ClientError) -> u8 {
    match error.kind() {
        ErrorKind::InvalidArgument => 2,
        ErrorKind::Connect | ErrorKind::Disconnected | ErrorKind::TimedOut => 3,
        ErrorKind::NoSuchPartition => 4,
        ErrorKind::TooLarge => 6,
        ErrorKind::Broker(code) => match code {
            ErrorCode::UnknownTopicOrPartition | ErrorCode::OffsetOutOfRange | ErrorCode::GroupNotFound => 4,
            ErrorCode::TopicExists => 5,
            ErrorCode::InvalidTopicName
            | ErrorCode::InvalidPartitions
            | ErrorCode::InvalidConfig
            | ErrorCode::InvalidReplicationFactor
            | ErrorCode::InvalidRequest
            | ErrorCode::MessageTooLarge
            | ErrorCode::TooManyTopics
            | ErrorCode::InternalTopic
            | ErrorCode::InvalidGroupId
            | ErrorCode::GroupNotEmpty
            | ErrorCode::DeadLettersPending
            | ErrorCode::PartitionOwned
            | ErrorCode::PartitionParked
            | ErrorCode::OffsetMetadataTooLarge => 6,
            _ => 1,
        },
        _ => 1,
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::Client(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text) | Failure::Usage(text) | Failure::NotFound(text) | Failure::NotAllowed(text) => {
                f.write_str(text)
            }
            Failure::Client(error) if error.kind() == ErrorKind::Connect => {
                write!(f, "{error}\nIs a broker running there? --broker or CORELANE_BROKER names another")
            }
            Failure::Client(error) => error.fmt(f),
            Failure::NotAcknowledged { records, sent, .. } => write!(f, "{records} of {sent} records were not acknowledged"),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}
