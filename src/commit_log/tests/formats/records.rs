//! Records go in and out unchanged, and a batch stands where it can be served from.

use commit_log::format::block::{BLOCK_HEADER_BYTES, BlockHeader};
use commit_log::format::record::{ENTRY_BYTES_MAX, Entry, Record, RecordWriter, Records};
use proptest::prelude::*;
use wire::{LeaderEpoch, Offset};

use crate::samples::{batch, entries, key};

#[test]
fn one_of_each_kind_reads_back() {
    let batch = batch(5, 3, 1200, 1_700_000_000_000);
    let block = crate::samples::block();
    let header = BlockHeader::decode(&block, crate::samples::place()).unwrap();
    assert_eq!((header.block_sequence, header.durable_sequence, header.previous_crc), (41, 39, 0xdead_beef));
    let records: Vec<Record<'_>> = Records::new(header.verify_body(&block).unwrap()).map(Result::unwrap).collect();
    let expected: Vec<Record<'_>> = entries(&batch).into_iter().map(|entry| Record { key: key(2), entry }).collect();
    assert_eq!(records, expected);
    assert_eq!(records.len(), header.record_count as usize);
    for record in &records {
        if let Entry::Batch(bytes) = record.entry {
            assert_eq!((bytes.as_ptr() as usize - block.as_ptr() as usize) % 16, 0, "a batch stands on 16");
        } else {
            assert!(record.encoded_bytes() <= ENTRY_BYTES_MAX);
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_reads_back(picks in prop::collection::vec((0usize..12, 0u32..5, any::<u64>()), 0..40)) {
        let sample = batch(0, 2, 100, 3);
        let records: Vec<Record<'_>> = picks
            .iter()
            .map(|(pick, partition, number)| {
                let entry = match entries(&sample)[*pick] {
                    Entry::Truncate(_) => Entry::Truncate(Offset(*number)),
                    Entry::EpochStart { .. } => Entry::EpochStart { epoch: LeaderEpoch(*number as u32), start: Offset(*number) },
                    other => other,
                };
                Record { key: key(*partition), entry }
            })
            .collect();
        let length: usize = records.iter().map(Record::encoded_bytes).sum();
        let mut bytes = vec![0xee; length];
        let mut writer = RecordWriter::new(&mut bytes);
        for record in &records {
            writer.push(record);
        }
        prop_assert_eq!(writer.room(), 0);
        let found: Vec<Record<'_>> = Records::new(&bytes).map(Result::unwrap).collect();
        prop_assert_eq!(found, records);
    }

    /// A block's checksum keeps such bytes away; the decoder does not rely on it.
    #[test]
    fn hostile_bytes_end_with_an_error_at_most(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut records = Records::new(&bytes);
        let mut count = 0;
        while let Some(record) = records.next() {
            count += 1;
            if record.is_err() {
                prop_assert!(records.next().is_none());
            }
        }
        prop_assert!(count <= bytes.len() / 32 + 1);
        let _ = BlockHeader::decode(&bytes, crate::samples::place());
        prop_assert!(bytes.len() < BLOCK_HEADER_BYTES || BlockHeader::decode(&bytes, crate::samples::place()).is_err());
    }
}
