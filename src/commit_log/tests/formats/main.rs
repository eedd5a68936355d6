//! The bytes on the disk and the decisions on them, without a disk.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod damage;
mod golden;
mod index;
mod lost_blocks;
mod producers;
mod records;
mod replay;
mod samples;
mod segment_scan;
mod verdict;
