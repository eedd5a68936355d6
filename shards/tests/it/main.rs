//! The machine from outside.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod disk_contract;
mod real;
