//! The checks on a made-up host, and a short calibration of the real disk.

#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod fake_host;
mod host_checks;
mod iobench;
