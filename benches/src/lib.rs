//! Micro-benchmarks of the hot functions, one a file beside this folder: `cargo bench -p benches`.
//!
//! ```text
//!   checksum.rs   crc32c of a payload, against a copy of the same bytes
//!   batch.rs      build, check and stamp, iterate a batch of 1 KiB records
//! ```
//!
//! Invariant: each bench also runs once, unmeasured, under `cargo test`, so that none rots.
