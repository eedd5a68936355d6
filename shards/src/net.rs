//! TCP.
//!
//! A stream has one reader and one writer at a time; both may be different tasks (clone it). Closing is [`Stream::shutdown`],
//! then dropping every clone.

mod error;
mod listener;
mod stream;

pub use error::NetError;
pub use listener::{ListenOptions, Listener};
pub use stream::{Handover, Stream};
