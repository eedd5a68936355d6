//! Bytes to frames and batches, and back: one batch layout for socket and disk.
//!
//! ```text
//!  connection  | frame | frame | frame ...          frame  = header 32 | body (rkyv) | batches
//!  segment     | batch | batch | padding | batch    batch  = header 80 | payload (rkyv, or Kafka v2 verbatim)
//! ```
//!
//! Invariants:
//! - Whatever the bytes, no decoder panics, reads outside them, or allocates from a length that it has not compared with a named
//!   limit ([`limits`]).
//! - Everything is 16-aligned within its frame or file, so that it is used where it landed.
//! - A batch is checked once, then read by borrowing: no allocation per record.
//! - All numbers are little-endian with stated widths; golden files in `tests/golden` pin every byte of every version.
//!
//! Absent on purpose: I/O, clocks, async, and any knowledge of who sends or stores.

pub mod api;
pub mod batch;
pub mod body;
pub mod checksum;
pub mod compression;
pub mod dead_letter;
pub mod decode;
pub mod error_code;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod messages;
pub mod names;
pub mod parking_key;
pub mod partitioner;
pub mod topic_name;

pub use api::{Api, ApiRange};
pub use batch::{
    BatchBuilder, BatchError, BatchHeader, BatchView, BuilderOptions, PayloadKind, PushError, RecordView, SharedBatch,
    TimestampKind, verify_batch, verify_payload,
};
pub use body::{Body, BodyError, Request};
pub use compression::Compression;
pub use decode::{DecodeError, FromRecordBytes, ToRecordBytes};
pub use error_code::ErrorCode;
pub use frame::{
    FrameDecoder, FrameError, FrameHeader, FrameStep, access_body, decode_body, encode_frame, encode_reply, encode_request,
};
pub use ids::{
    LeaderEpoch, MemberEpoch, Offset, PartitionIndex, PartitionKey, ProducerEpoch, ProducerId, Sequence, TimestampMs, TopicId,
};
pub use messages::*;
pub use names::{check_group_id, check_instance_id, check_member_id, check_producer_name};
pub use parking_key::parking_key;
pub use partitioner::partition_for_key;
pub use topic_name::{TopicNameError, check_topic_name, is_internal_topic};

/// A vector of bytes that starts at a multiple of 16.
pub type AlignedVec = rkyv::util::AlignedVec<16>;
