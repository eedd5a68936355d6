//! The sparse index finds what a scan of all batches finds.

use commit_log::format::segment::{SegmentIndex, SegmentTrailer};
use proptest::prelude::*;
use wire::Offset;

use crate::samples::key;

#[derive(Debug, Clone, Copy)]
struct Batch {
    base: u64,
    end: u64,
    position: u64,
    max_timestamp_ms: i64,
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    prop::collection::vec((1u64..20, 16u64..90_000, -5i64..50), 0..60).prop_map(|parts| {
        let (mut base, mut position) = (1000, 4096);
        let place = |(count, bytes, max_timestamp_ms): (u64, u64, i64)| {
            let batch = Batch { base, end: base + count, position, max_timestamp_ms };
            (base, position) = (base + count, position + bytes);
            batch
        };
        parts.into_iter().map(place).collect()
    })
}

proptest! {
    #[test]
    fn lookups_equal_a_full_scan(batches in batches(), timestamp_ms in -10i64..60, start in 0u64..1200) {
        let mut index = SegmentIndex::new(Offset(1000));
        for batch in &batches {
            index.add(Offset(batch.base), batch.position, batch.max_timestamp_ms);
        }
        for batch in &batches {
            for offset in [batch.base, batch.end - 1] {
                let from = index.position_of(Offset(offset));
                prop_assert!(from <= batch.position);
                prop_assert!(batch.position - from < 128 << 10 || batches.iter().all(|other| other.position <= from || other.position >= batch.position));
                prop_assert!(batches.iter().any(|other| other.position == from));
            }
        }
        for from in [1000, 1000 + start] {
            // As a lookup does: stretch by stretch, from the batch that holds `from` on.
            let late = |batch: &&Batch| batch.end > from && batch.max_timestamp_ms >= timestamp_ms;
            let (mut next, mut found, mut read) = (from, None, 0);
            while found.is_none() && next < u64::MAX {
                let Some(stretch) = index.stretch(Offset(next), timestamp_ms) else { break };
                let end = stretch.end.map_or(u64::MAX, |end| end.0);
                prop_assert!(end > next);
                found = batches.iter().filter(|batch| batch.base >= stretch.start.0 && batch.base < end).find(late);
                (next, read) = (end, read + 1);
            }
            prop_assert_eq!(found.map(|batch| batch.base), batches.iter().find(late).map(|batch| batch.base), "although timestamps fall");
            prop_assert!(read <= if from == 1000 { 1 } else { 2 }, "one stretch, and one more when the log starts inside");
        }
        let end = batches.last().map_or(1000, |batch| batch.end);
        let position = batches.last().map_or(4096, |batch| (batch.position + 90_000).next_multiple_of(4096));
        let bytes = index.encode(key(1), position, Offset(end));
        let file_bytes = position + bytes.len() as u64;
        let trailer = SegmentTrailer::decode(&bytes, key(1), Offset(1000), file_bytes).unwrap();
        prop_assert_eq!(trailer.end_offset, Offset(end));
        prop_assert_eq!(SegmentIndex::decode(&bytes, &trailer).unwrap(), index);
    }
}
