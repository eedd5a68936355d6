//! The first request of a connection.

use rkyv::{Archive, Deserialize, Serialize};

use crate::api::ApiRange;
use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::limits::API_VERSIONS_MAX;
use crate::messages::produce::check_count;

/// Says who connects, what it speaks, and which shard it wants. Its layout never changes: versions are negotiated by it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct HelloRequest {
    /// Name of the client in logs and metrics; at most [`crate::limits::CLIENT_ID_BYTES_MAX`].
    pub client_id: String,
    /// What the client speaks.
    pub versions: Vec<ApiRange>,
    /// The shard that owns what this connection will ask for; `None` for any.
    pub shard_wanted: Option<u16>,
}

impl HelloRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("versions in a greeting", self.versions.len(), API_VERSIONS_MAX)
    }
}

/// Says who answers.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct HelloReply {
    /// Whether the connection is welcome.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// This broker.
    pub broker_id: u32,
    /// Its cluster.
    pub cluster_id: [u8; 16],
    /// Shards of this broker.
    pub shard_count: u16,
    /// The shard that serves this connection.
    pub shard: u16,
    /// What the broker speaks.
    pub apis: Vec<ApiRange>,
    /// The largest frame the broker takes.
    pub frame_bytes_max: u32,
    /// Name and version of the broker, for logs.
    pub server: String,
}

bodies! {
    HelloRequest within check = Hello => HelloReply;
}
