//! What of a write-ahead log holds: recovery's rules on torn tails, holes and loss. Pure: blocks found in, verdict out.
//!
//! ```text
//!   block      … 41   42   43   (44)  45   46              s = 44 is the first bad one
//!   says durable      39   40   41     41   42              (durable_sequence in each header)
//!
//!   nothing valid after s                                   torn tail: never acknowledged, cut at s
//!   valid ones after s, all below s + window,
//!     and none says that s was durable                      a write that completed before an earlier one: cut at s
//!   otherwise                                               block s was acknowledged and is lost: go on behind it, and say so
//! ```
//!
//! The one case that cannot be told: an acknowledged last block, damaged before any later block was written, looks like a torn tail. The
//! trailer that a shard writes when it is quiet closes it within milliseconds.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::format::FormatError;
use crate::format::block::{BLOCK_HEADER_BYTES, BlockHeader, BlockPlace};
use crate::format::checkpoint::ReplayStart;
use crate::format::file_header::FileHeader;
use crate::format::{BLOCK_BYTES, is_zero};
use crate::limits::WAL_GROUPS_IN_FLIGHT_MAX;

/// A block whose header holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its header.
    pub header: BlockHeader,
    /// Whether its body holds too.
    pub whole: bool,
}

/// What was found in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedFile {
    /// Sequence in the file's name.
    pub file_sequence: u64,
    /// Its header; `None` if it is damaged or was never written under this name.
    pub header: Option<FileHeader>,
    /// Blocks in the order of their positions.
    pub candidates: Vec<Candidate>,
}

/// How the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// After the last block nothing valid follows.
    Torn,
    /// Later blocks are there, and all may have been in flight together with the missing one: none was acknowledged.
    Unacknowledged {
        /// How many valid blocks were cut.
        blocks: usize,
    },
}

/// The verdict on a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Blocks to replay, in this order.
    pub accepted: Vec<BlockHeader>,
    /// Numbers of blocks that were acknowledged and are gone, ascending.
    pub lost: Vec<Range<u64>>,
    /// How it ends.
    pub tail: Tail,
    /// The first block that does not count any more.
    pub cut: u64,
    /// Number for the next block: above every number that the log ever used, so that none is used twice.
    pub next_block_sequence: u64,
    /// Sequence for the next file: above every name in the folder.
    pub next_file_sequence: u64,
}

/// Judges the log from `start` on. `files` ascend by sequence and hold every file of the folder.
pub fn judge(start: ReplayStart, files: &[ScannedFile]) -> Verdict {
    assert!(files.is_sorted_by(|a, b| a.file_sequence < b.file_sequence), "files ascend");
    let blocks = usable(start, files);
    let jumps: HashMap<u64, u64> = files
        .iter()
        .filter(|file| file.file_sequence >= start.file_sequence)
        .filter_map(|file| file.header)
        .filter(|header| header.first_block_sequence > header.previous.end_block_sequence)
        .map(|header| (header.previous.end_block_sequence, header.first_block_sequence))
        .collect();
    let mut accepted: Vec<BlockHeader> = Vec::new();
    let mut lost: Vec<Range<u64>> = Vec::new();
    let mut previous_crc = None;
    let mut expected = start.block_sequence;
    let tail = loop {
        if let Some(found) = acceptable(&blocks, expected, previous_crc) {
            previous_crc = Some(found.header_crc);
            accepted.push(found);
            expected += 1;
            continue;
        }
        if let Some(first) = jumps.get(&expected) {
            expected = *first;
            previous_crc = None;
            continue;
        }
        let bad = expected;
        let later = blocks.range(bad + 1..).flat_map(|(_, same)| same);
        let (mut count, mut durable_max, mut sequence_max) = (0, 0, 0);
        for candidate in later {
            count += 1;
            durable_max = durable_max.max(candidate.header.durable_sequence);
            sequence_max = sequence_max.max(candidate.header.block_sequence);
        }
        if count == 0 {
            break Tail::Torn;
        }
        let within_window = sequence_max < bad + WAL_GROUPS_IN_FLIGHT_MAX;
        if durable_max < bad && within_window {
            break Tail::Unacknowledged { blocks: count };
        }
        let next = blocks.range(bad + 1..).find(|(_, same)| same.iter().any(|candidate| candidate.whole));
        let next = next.map_or(sequence_max + 1, |(sequence, _)| *sequence);
        lost.push(bad..next);
        previous_crc = None;
        expected = next;
    };
    let seen = files.iter().flat_map(|file| &file.candidates).map(|candidate| candidate.header.block_sequence).max();
    let highest = seen.unwrap_or(0).max(expected);
    let names = files.last().map_or(0, |file| file.file_sequence + 1);
    Verdict {
        accepted,
        lost,
        tail,
        cut: expected,
        next_block_sequence: highest + WAL_GROUPS_IN_FLIGHT_MAX + 1,
        next_file_sequence: start.file_sequence.max(names),
    }
}

/// The blocks that count, by number: at or after the start, and before the end that the next file names.
fn usable(start: ReplayStart, files: &[ScannedFile]) -> BTreeMap<u64, Vec<Candidate>> {
    let ends: HashMap<u64, u64> = files
        .iter()
        .filter_map(|file| file.header)
        .map(|header| (header.previous.file_sequence, header.previous.end_position))
        .collect();
    let mut blocks: BTreeMap<u64, Vec<Candidate>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.file_sequence >= start.file_sequence) {
        let end = ends.get(&file.file_sequence).copied().unwrap_or(u64::MAX);
        for candidate in &file.candidates {
            let header = &candidate.header;
            assert_eq!(header.place.file_sequence, file.file_sequence, "a block that names another file is no candidate");
            if header.block_sequence >= start.block_sequence && header.place.position < end {
                blocks.entry(header.block_sequence).or_default().push(*candidate);
            }
        }
    }
    blocks
}

/// The whole block of this number that follows the block before it.
fn acceptable(blocks: &BTreeMap<u64, Vec<Candidate>>, sequence: u64, previous_crc: Option<u32>) -> Option<BlockHeader> {
    let same = blocks.get(&sequence)?;
    let follows = |header: &BlockHeader| previous_crc.is_none_or(|crc| crc == header.previous_crc);
    same.iter().find(|candidate| candidate.whole && follows(&candidate.header)).map(|candidate| candidate.header)
}

/// One step of looking through a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A block whose header holds; its records, if its body does.
    Block(BlockHeader, Option<&'a [u8]>),
    /// Nothing of this file stands here. Go on at the position.
    Nothing,
    /// A block of this many bytes begins here: give them all.
    Need(usize),
}

/// Looks for a block at `place`, of which `bytes` is what follows in the file (`last`: up to its end). With [`Step::Need`] give more. Returns the
/// step and the position where to look next.
pub fn look(bytes: &[u8], place: BlockPlace, last: bool) -> (Step<'_>, u64) {
    let next = place.position + BLOCK_BYTES as u64;
    if bytes.len() < BLOCK_HEADER_BYTES {
        return (Step::Nothing, next);
    }
    let header = match BlockHeader::decode(bytes, place) {
        Ok(header) => header,
        Err(_) => return (Step::Nothing, next),
    };
    let length = header.length_bytes as usize;
    if bytes.len() < length && !last {
        return (Step::Need(length), place.position);
    }
    let records: Result<&[u8], FormatError> = header.verify_body(bytes);
    (Step::Block(header, records.ok()), place.position + u64::from(header.length_bytes))
}

/// How many bytes at the start of `bytes` (whole blocks) are zero blocks: they are passed over at once.
pub fn zero_prefix(bytes: &[u8]) -> usize {
    bytes.chunks_exact(BLOCK_BYTES).take_while(|block| is_zero(block)).count() * BLOCK_BYTES
}
