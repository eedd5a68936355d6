//! The verdict on a log against an oracle that knows what was acknowledged.

use commit_log::format::BLOCK_BYTES;
use commit_log::format::block::{BLOCK_HEADER_BYTES, BlockChain, BlockHeader, BlockPlace, finish_block};
use commit_log::format::checkpoint::ReplayStart;
use commit_log::format::file_header::{FileHeader, PreviousFile};
use commit_log::wal_scan::{Candidate, ScannedFile, Step, Tail, Verdict, judge, look};
use proptest::prelude::*;

use crate::samples::STORAGE_ID;

const BLOCKS_PER_FILE: u64 = 5;

/// Files as they stand on the disk, and what was acknowledged.
#[derive(Debug, Clone)]
struct Log {
    /// Sequence and bytes.
    files: Vec<(u64, Vec<u8>)>,
    /// File (as index), position and length of each block that was begun, from block 1 on.
    blocks: Vec<(usize, usize)>,
    /// Blocks 1 to this were acknowledged.
    acked: u64,
    /// The greatest durable sequence that a landed block states.
    landed: Vec<bool>,
    durable: Vec<u64>,
}

/// Writes `count` blocks with `in_flight` at a time; the last `in_flight` land by `lands`. Files continue after `previous`.
fn write(first_file: u64, first_block: u64, previous: PreviousFile, count: u64, in_flight: u64, lands: &[bool]) -> Log {
    let mut log = Log { files: Vec::new(), blocks: Vec::new(), acked: 0, landed: Vec::new(), durable: Vec::new() };
    let (mut previous, mut previous_crc) = (previous, 0);
    for number in 0..count {
        let sequence = first_block + number;
        if number % BLOCKS_PER_FILE == 0 {
            let file_sequence = first_file + number / BLOCKS_PER_FILE;
            if number > 0 {
                let end_position = (1 + BLOCKS_PER_FILE) * BLOCK_BYTES as u64;
                previous = PreviousFile { file_sequence: file_sequence - 1, end_position, end_block_sequence: sequence };
            }
            let mut bytes = vec![0; (1 + BLOCKS_PER_FILE as usize) * BLOCK_BYTES];
            let header = FileHeader { storage_id: STORAGE_ID, file_sequence, first_block_sequence: sequence, previous };
            header.encode(&mut bytes[..BLOCK_BYTES]);
            log.files.push((file_sequence, bytes));
        }
        let position = (1 + number % BLOCKS_PER_FILE) * BLOCK_BYTES as u64;
        // Up to `in_flight` blocks are on their way: all before them are known durable.
        let durable_sequence = (sequence.saturating_sub(in_flight)).max(first_block - 1);
        let (file, bytes) = log.files.last_mut().unwrap();
        let place = BlockPlace { storage_id: STORAGE_ID, file_sequence: *file, position };
        let chain = BlockChain { block_sequence: sequence, durable_sequence, previous_crc };
        let mut block = vec![0; BLOCK_BYTES];
        block[BLOCK_HEADER_BYTES..].fill(sequence as u8);
        previous_crc = finish_block(&mut block, 32, 1, place, chain);
        let flying = count - number <= in_flight;
        let landed = !flying || lands[(number % lands.len() as u64) as usize];
        if landed {
            bytes[position as usize..position as usize + BLOCK_BYTES].copy_from_slice(&block);
        }
        log.landed.push(landed);
        log.durable.push(durable_sequence);
        log.blocks.push((log.files.len() - 1, position as usize));
    }
    // A prefix of those in flight that landed may have been acknowledged before the power went; the others were not.
    log.acked = first_block - 1 + count.saturating_sub(in_flight);
    log
}

fn scan(files: &[(u64, Vec<u8>)]) -> Vec<ScannedFile> {
    let scan_one = |(file_sequence, bytes): &(u64, Vec<u8>)| {
        let header = FileHeader::decode(&bytes[..BLOCK_BYTES], STORAGE_ID, *file_sequence).ok();
        let mut candidates = Vec::new();
        let mut position = BLOCK_BYTES as u64;
        while position < bytes.len() as u64 {
            let place = BlockPlace { storage_id: STORAGE_ID, file_sequence: *file_sequence, position };
            let (step, next) = look(&bytes[position as usize..], place, true);
            if let Step::Block(header, records) = step {
                candidates.push(Candidate { header, whole: records.is_some() });
            }
            position = next;
        }
        ScannedFile { file_sequence: *file_sequence, header, candidates }
    };
    files.iter().map(scan_one).collect()
}

fn start(file_sequence: u64, block_sequence: u64) -> ReplayStart {
    ReplayStart { file_sequence, position: BLOCK_BYTES as u64, block_sequence }
}

fn sequences(verdict: &Verdict) -> Vec<u64> {
    verdict.accepted.iter().map(|header: &BlockHeader| header.block_sequence).collect()
}

const NO_FILE: PreviousFile = PreviousFile { file_sequence: 0, end_position: 0, end_block_sequence: 1 };

proptest! {
    #[test]
    fn a_crash_alone_loses_nothing(count in 1u64..30, in_flight in 1u64..=8, lands in prop::collection::vec(any::<bool>(), 8)) {
        let log = write(1, 1, NO_FILE, count, in_flight, &lands);
        let verdict = judge(start(1, 1), &scan(&log.files));
        prop_assert!(verdict.lost.is_empty(), "{:?}", verdict);
        let first_missing = log.landed.iter().position(|landed| !landed).map_or(count + 1, |at| at as u64 + 1);
        prop_assert_eq!(sequences(&verdict), (1..first_missing).collect::<Vec<_>>());
        prop_assert_eq!(verdict.cut, first_missing);
        prop_assert!(verdict.cut > log.acked);
        prop_assert!(verdict.next_block_sequence > count);
        let later = log.landed.iter().skip(first_missing as usize).filter(|landed| **landed).count();
        let tail = if later == 0 { Tail::Torn } else { Tail::Unacknowledged { blocks: later } };
        prop_assert_eq!(verdict.tail, tail);
    }

    /// The only damage that may pass for a torn tail is that of the last blocks, of which no later block says that they were durable.
    #[test]
    fn damage_to_acknowledged_blocks_is_never_silent(
        count in 1u64..30,
        in_flight in 1u64..=8,
        lands in prop::collection::vec(any::<bool>(), 8),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..BLOCK_BYTES), 1..3),
    ) {
        let mut log = write(1, 1, NO_FILE, count, in_flight, &lands);
        let mut damaged = Vec::new();
        for (pick, byte) in picks {
            let at = pick.index(log.blocks.len());
            let (file, position) = log.blocks[at];
            log.files[file].1[position + byte] ^= 1;
            if log.landed[at] {
                damaged.push(at as u64 + 1);
            }
        }
        let verdict = judge(start(1, 1), &scan(&log.files));
        let whole = |block: u64| {
            let hit = damaged.iter().filter(|hit| **hit == block).count();
            log.landed[block as usize - 1] && hit == 0
        };
        let accepted = sequences(&verdict);
        for block in 1..=count {
            if !whole(block) {
                continue;
            }
            // What is whole below the cut is kept.
            prop_assert_eq!(accepted.contains(&block), block < verdict.cut, "block {} of {:?}", block, verdict);
        }
        for block in 1..=log.acked {
            let proven = (block + 1..=count).any(|later| whole(later) && (log.durable[later as usize - 1] >= block || later >= block + 8));
            let reported = verdict.lost.iter().any(|range| range.contains(&block));
            let kept = accepted.contains(&block);
            prop_assert!(kept || reported || !proven, "block {} was acknowledged and is gone without a word: {:?}", block, verdict);
        }
        for range in &verdict.lost {
            prop_assert!(!damaged.is_empty(), "nothing was damaged, but {:?} is said to be lost", range);
        }
    }
}

#[test]
fn a_lost_block_is_reported_and_what_follows_is_kept() {
    let mut log = write(1, 1, NO_FILE, 12, 2, &[true]);
    let (file, position) = log.blocks[3];
    log.files[file].1[position + 2000] ^= 4;
    let verdict = judge(start(1, 1), &scan(&log.files));
    assert_eq!(verdict.lost, vec![4..5]);
    assert_eq!(sequences(&verdict), vec![1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(verdict.tail, Tail::Torn);
}

#[test]
fn a_lost_file_is_reported() {
    let mut log = write(1, 1, NO_FILE, 15, 1, &[true]);
    log.files.remove(1);
    let verdict = judge(start(1, 1), &scan(&log.files));
    assert_eq!(verdict.lost, vec![6..11]);
}

#[test]
fn stale_blocks_of_a_recycled_file_do_not_count() {
    let old = write(1, 1, NO_FILE, 5, 1, &[true]);
    // File 1 becomes file 2 by name; only its header and first block are written anew.
    let previous = PreviousFile { file_sequence: 1, end_position: 1 << 20, end_block_sequence: 6 };
    let new = write(2, 6, previous, 1, 1, &[true]);
    let mut bytes = old.files[0].1.clone();
    bytes[..2 * BLOCK_BYTES].copy_from_slice(&new.files[0].1[..2 * BLOCK_BYTES]);
    let verdict = judge(start(2, 6), &scan(&[(2, bytes)]));
    assert_eq!(sequences(&verdict), vec![6]);
    assert!(verdict.lost.is_empty());
}

/// Rule four: blocks cut by one recovery are not found again by the next, although they are whole.
#[test]
fn a_second_crash_does_not_revive_what_the_first_recovery_cut() {
    // Block 4 did not land, block 5 did: a hole that nobody acknowledged.
    let first = write(1, 1, NO_FILE, 5, 2, &[true, true, true, false, true]);
    let verdict = judge(start(1, 1), &scan(&first.files));
    assert_eq!((verdict.cut, verdict.tail), (4, Tail::Unacknowledged { blocks: 1 }));
    let end_position = 4 * BLOCK_BYTES as u64;
    let previous = PreviousFile { file_sequence: 1, end_position, end_block_sequence: verdict.cut };
    assert!(verdict.next_block_sequence > 5, "a number is used once");
    let second = write(verdict.next_file_sequence, verdict.next_block_sequence, previous, 3, 1, &[true]);
    let files: Vec<(u64, Vec<u8>)> = first.files.into_iter().chain(second.files).collect();
    let again = judge(start(1, 1), &scan(&files));
    assert!(again.lost.is_empty(), "{again:?}");
    let next = verdict.next_block_sequence;
    assert_eq!(sequences(&again), vec![1, 2, 3, next, next + 1, next + 2]);
}
