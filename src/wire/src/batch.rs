//! The batch: unit of append, replication, storage and fetch.
//!
//! ```text
//!  0        80                                    80 + payload       total, a multiple of 16
//!  +--------+-------------------------------------+------------------+
//!  | header | payload: rkyv archive of the records | zeros (< 16)     |
//!  +--------+-------------------------------------+------------------+
//!             header_crc covers the header, payload_crc the payload as stored (compressed)
//!
//!  payload    key0 value0 (name value)* headers0[]  key1 value1 ...  records[]  root
//!             blobs lie in the order of the records; each record is 32 bytes and points back at its blobs
//! ```
//!
//! The broker reads headers and checksums only. A consumer checks the archive once per batch ([`BatchView::new`]), then borrows.

mod builder;
mod header;
mod padding;
mod record;
mod retain;
mod view;

pub use builder::{BatchBuilder, BuilderOptions, PushError};
pub use header::{BATCH_MAGIC, BATCH_VERSION, BatchError, BatchHeader, PayloadKind, TimestampKind, verify_batch, verify_payload};
pub use padding::write_padding;
pub use record::{HeaderView, Headers, RecordView, Records};
pub use retain::{EMPTY_BATCH_BYTES, empty_batch};
pub use view::{BatchView, SharedBatch};

pub use crate::limits::BATCH_HEADER_BYTES as HEADER_BYTES;
