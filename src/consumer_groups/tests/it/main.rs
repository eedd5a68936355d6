//! The coordinator from outside: clients that lose requests and replies, time, and crashes.

#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod client;
mod hostile_bytes;
mod operations;
mod properties;
mod rebalance;
mod requests;
mod survey;
mod world;
