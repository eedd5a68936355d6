//! The generator against a server of its own: does it notice what it must notice?
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod honesty;
mod verification;
