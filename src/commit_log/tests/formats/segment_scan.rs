//! Scanning a segment's tail: what was written is found up to the first damage, and behind damage only what was acknowledged.

use std::ops::ControlFlow;

use commit_log::format::BLOCK_BYTES;
use commit_log::format::segment::{ScanStop, SegmentIndex, SegmentScan, SegmentTail};
use proptest::prelude::*;
use wire::batch::{HEADER_BYTES, write_padding};
use wire::{LeaderEpoch, Offset};

use crate::samples::batch;

/// A segment file: header block, then flushes of batches, each padded to whole blocks. Returns the batches as (base, end, position, end position).
struct Segment {
    bytes: Vec<u8>,
    batches: Vec<(u64, u64, u64, u64)>,
    index: SegmentIndex,
    /// Position and offset after each flush.
    flushes: Vec<(u64, u64)>,
}

fn segment(flushes: &[Vec<(u32, usize)>]) -> Segment {
    let mut made =
        Segment { bytes: vec![0; BLOCK_BYTES], batches: Vec::new(), index: SegmentIndex::new(Offset(100)), flushes: Vec::new() };
    let mut next = 100;
    for (number, flush) in flushes.iter().enumerate() {
        for (count, value_bytes) in flush {
            let timestamp_ms = 1000 - number as i64;
            let bytes = batch(next, *count, *value_bytes, timestamp_ms);
            let position = made.bytes.len() as u64;
            made.index.add(Offset(next), position, timestamp_ms);
            made.bytes.extend_from_slice(&bytes);
            made.batches.push((next, next + u64::from(*count), position, made.bytes.len() as u64));
            next += u64::from(*count);
        }
        let length = made.bytes.len();
        let mut padded = length.next_multiple_of(BLOCK_BYTES);
        if padded != length && padded - length < HEADER_BYTES {
            padded += BLOCK_BYTES;
        }
        made.bytes.resize(padded, 0);
        if padded > length {
            write_padding(&mut made.bytes[length..], Offset(next), LeaderEpoch(1));
        }
        made.flushes.push((padded as u64, next));
    }
    made
}

fn scan(bytes: &[u8], mut scan: SegmentScan, piece: usize) -> (SegmentTail, Option<SegmentIndex>) {
    let mut wanted = piece;
    loop {
        let start = (scan.position() as usize).min(bytes.len());
        let end = bytes.len().min(start + wanted);
        match scan.feed(&bytes[start..end], end == bytes.len()) {
            ControlFlow::Break(()) => return scan.finish(),
            ControlFlow::Continue(needed) => wanted = needed.max(piece),
        }
    }
}

fn whole(committed: u64) -> SegmentScan {
    SegmentScan::new(BLOCK_BYTES as u64, Offset(100), Offset(u64::MAX), committed).with_index(SegmentIndex::new(Offset(100)))
}

fn flushes() -> impl Strategy<Value = Vec<Vec<(u32, usize)>>> {
    prop::collection::vec(prop::collection::vec((1u32..4, 1usize..3000), 1..4), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_written_is_found_and_the_index_is_the_same(flushes in flushes(), piece in 1usize..20_000, zeros in 0usize..3) {
        let mut segment = segment(&flushes);
        let (end_position, end) = *segment.flushes.last().unwrap();
        segment.bytes.resize(segment.bytes.len() + zeros * BLOCK_BYTES, 0);
        let (tail, index) = scan(&segment.bytes, whole(0), piece);
        prop_assert_eq!(tail.runs.len(), 1);
        prop_assert_eq!((tail.runs[0].start, tail.end_offset(), tail.end_position()), (Offset(100), Some(Offset(end)), end_position));
        prop_assert_eq!(tail.stop, ScanStop::End);
        prop_assert_eq!(index.unwrap(), segment.index, "rebuilt equals written");
    }

    #[test]
    fn a_torn_flush_ends_the_tail(flushes in flushes(), at in any::<prop::sample::Index>(), piece in 1usize..20_000) {
        let mut segment = segment(&flushes);
        let torn = segment.batches[at.index(segment.batches.len())];
        let byte = torn.2 as usize + at.index((torn.3 - torn.2) as usize);
        segment.bytes[byte] ^= 0x10;
        let (tail, _) = scan(&segment.bytes, whole(0), piece);
        let expected = if torn.0 == 100 { None } else { Some(Offset(torn.0)) };
        prop_assert_eq!(tail.end_offset(), expected);
        prop_assert!(tail.end_position().is_multiple_of(BLOCK_BYTES as u64));
    }

    #[test]
    fn behind_damage_what_was_acknowledged_is_kept(flushes in flushes(), at in any::<prop::sample::Index>(), piece in 1usize..20_000) {
        let mut segment = segment(&flushes);
        let (end_position, end) = *segment.flushes.last().unwrap();
        let torn = segment.batches[at.index(segment.batches.len())];
        segment.bytes[torn.2 as usize + 20] ^= 0x10;
        let (tail, _) = scan(&segment.bytes, whole(end_position), piece);
        // The rest of its flush is gone with it, unless a batch of it happens to start on a block.
        let flush_end = segment.flushes.iter().find(|(position, _)| *position > torn.2).unwrap();
        if flush_end.1 < end {
            prop_assert_eq!(tail.end_offset(), Some(Offset(end)));
            let found: u64 = tail.runs.iter().map(|run| run.end.0 - run.start.0).sum();
            prop_assert!(found < end - 100);
        } else {
            let bad = matches!(tail.stop, ScanStop::Bad { .. });
            prop_assert!(bad || tail.end_offset() == Some(Offset(end)));
        }
    }

    #[test]
    fn nothing_past_a_cut_is_taken(flushes in flushes(), at in any::<prop::sample::Index>()) {
        let segment = segment(&flushes);
        let cut = segment.batches[at.index(segment.batches.len())].0;
        let bounded = SegmentScan::new(BLOCK_BYTES as u64, Offset(100), Offset(cut), 0);
        let (tail, _) = scan(&segment.bytes, bounded, 5000);
        prop_assert_eq!(tail.end_offset().unwrap_or(Offset(100)), Offset(cut));
        prop_assert_eq!(tail.stop, ScanStop::Bound);
    }
}

#[test]
fn a_leftover_of_another_life_does_not_follow() {
    let mut made = segment(&[vec![(3, 500)]]);
    let leftover = batch(200, 2, 100, 1);
    made.bytes.extend_from_slice(&leftover);
    let (tail, _) = scan(&made.bytes, whole(0), 4096);
    assert_eq!(tail.end_offset(), Some(Offset(103)));
    assert!(matches!(tail.stop, ScanStop::Bad { .. }));
}
