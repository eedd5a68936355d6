//! The native client.
