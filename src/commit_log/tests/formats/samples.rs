//! Small instances of every format.

use std::path::Path;
use std::sync::Arc;

use commit_log::format::BLOCK_BYTES;
use commit_log::format::block::{BLOCK_HEADER_BYTES, BlockChain, BlockPlace, finish_block};
use commit_log::format::checkpoint::{Checkpoint, ReplayStart};
use commit_log::format::file_header::{FileHeader, PreviousFile};
use commit_log::format::record::{CompactedSegment, Entry, Record, RecordWriter, SegmentEnd};
use commit_log::format::segment::{SegmentHeader, SegmentIndex};
use commit_log::format::superblock::Superblock;
use commit_log::{Durability, EpochStart, Epochs, OffsetRange, PartitionOptions, PartitionState, SegmentState};
use wire::batch::{BatchBuilder, BatchHeader, BuilderOptions, HEADER_BYTES};
use wire::{LeaderEpoch, Offset, PartitionIndex, PartitionKey, TimestampMs, TopicId};

pub(crate) const STORAGE_ID: u64 = 0x5707_a6e1_d000_0001;

pub(crate) fn key(partition: u32) -> PartitionKey {
    PartitionKey { topic: TopicId([0xa1; 16]), partition: PartitionIndex(partition) }
}

/// A stamped batch of `count` records.
pub(crate) fn batch(base: u64, count: u32, value_bytes: usize, timestamp_ms: i64) -> Vec<u8> {
    batch_of(base, count, value_bytes, timestamp_ms, 1)
}

pub(crate) fn batch_of(base: u64, count: u32, value_bytes: usize, timestamp_ms: i64, epoch: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    for index in 0..count {
        let value = vec![b'a' + (index % 26) as u8; value_bytes];
        builder.push(TimestampMs(timestamp_ms), None, Some(&value), &[]).unwrap();
    }
    let built = builder.build();
    let mut bytes = built.to_vec();
    let mut header = BatchHeader::decode(&bytes).unwrap();
    header.stamp(Offset(base), LeaderEpoch(epoch), None);
    let mut first = [0; HEADER_BYTES];
    header.encode(&mut first);
    bytes[..HEADER_BYTES].copy_from_slice(&first);
    bytes
}

pub(crate) fn options() -> PartitionOptions {
    PartitionOptions { segment_bytes: 1 << 28, segment_ms: 3_600_000, durability: Durability::Relaxed }
}

/// One record of each kind.
pub(crate) fn entries(batch: &[u8]) -> Vec<Entry<'_>> {
    let note = SegmentEnd { base: Offset(100), incarnation: 9, position: 8192, offset: Offset(140) };
    let compacted = CompactedSegment {
        base: Offset(5),
        end: Offset(150),
        generation: 3,
        end_position: 12_288,
        max_timestamp_ms: 77,
        tombstones_since_ms: Some(70),
    };
    vec![
        Entry::Created { options: options(), start: Offset(5) },
        Entry::EpochStart { epoch: LeaderEpoch(3), start: Offset(5) },
        Entry::Batch(batch),
        Entry::Truncate(Offset(6)),
        Entry::LogStart(Offset(5)),
        Entry::Options(PartitionOptions { durability: Durability::Stable, ..options() }),
        Entry::HighWatermark(Offset(6)),
        Entry::DirectStart(note),
        Entry::DirectEnd(note),
        Entry::Compacted(compacted),
        Entry::CleanEnd(Offset(150)),
        Entry::Deleted,
    ]
}

pub(crate) fn place() -> BlockPlace {
    BlockPlace { storage_id: STORAGE_ID, file_sequence: 7, position: 3 * BLOCK_BYTES as u64 }
}

/// A block group of two 4 KiB blocks with one record of each kind.
pub(crate) fn block() -> Vec<u8> {
    let batch = batch(5, 3, 1200, 1_700_000_000_000);
    let mut block = vec![0xee; 2 * BLOCK_BYTES];
    let mut writer = RecordWriter::new(&mut block[BLOCK_HEADER_BYTES..]);
    for entry in entries(&batch) {
        writer.push(&Record { key: key(2), entry });
    }
    let (bytes, count) = (writer.bytes(), writer.count());
    let chain = BlockChain { block_sequence: 41, durable_sequence: 39, previous_crc: 0xdead_beef };
    finish_block(&mut block, bytes, count, place(), chain);
    block
}

pub(crate) fn file_header() -> FileHeader {
    let previous = PreviousFile { file_sequence: 6, end_position: 1 << 20, end_block_sequence: 40 };
    FileHeader { storage_id: STORAGE_ID, file_sequence: 7, first_block_sequence: 49, previous }
}

pub(crate) fn file_header_bytes() -> Vec<u8> {
    let mut block = vec![0xee; BLOCK_BYTES];
    file_header().encode(&mut block);
    block
}

pub(crate) fn segment_header() -> SegmentHeader {
    SegmentHeader { partition: key(2), base_offset: Offset(100), storage_id: STORAGE_ID, incarnation: 9 }
}

pub(crate) fn segment_header_bytes() -> Vec<u8> {
    let mut block = vec![0xee; BLOCK_BYTES];
    segment_header().encode(&mut block);
    block
}

pub(crate) fn index() -> SegmentIndex {
    let mut index = SegmentIndex::new(Offset(100));
    index.add(Offset(100), 4096, 50);
    index.add(Offset(130), 200_000, 40);
    index.add(Offset(170), 400_000, 90);
    index
}

pub(crate) fn superblock() -> Superblock {
    Superblock { cluster_id: [9; 16], broker_id: 4, shard: 2, storage_id: STORAGE_ID, boot: 12 }
}

pub(crate) fn disk() -> Arc<Path> {
    Arc::from(Path::new("/data"))
}

pub(crate) fn checkpoint() -> Checkpoint {
    let mut first = PartitionState::new(key(1), 3, options(), Offset(10));
    first.high_watermark = Offset(60);
    let epochs =
        vec![EpochStart { epoch: LeaderEpoch(1), start: Offset(0) }, EpochStart { epoch: LeaderEpoch(4), start: Offset(55) }];
    first.epochs = Epochs::from_entries(epochs).unwrap();
    let segment = SegmentState {
        disk: disk(),
        base: Offset(10),
        end: Offset(50),
        end_position: 65_536,
        max_timestamp_ms: 77,
        created_ms: 5,
        sealed: true,
        generation: 2,
        tombstones_since_ms: Some(66),
    };
    let other = Arc::from(Path::new("/other"));
    let last = SegmentState {
        disk: other,
        base: Offset(55),
        end: Offset(60),
        end_position: 8192,
        sealed: false,
        generation: 0,
        tombstones_since_ms: None,
        ..segment
    };
    first.clean_end = Offset(45);
    first.segments = vec![segment, last];
    first.lost = vec![OffsetRange { start: Offset(50), end: Offset(55) }];
    first.lossy = true;
    let second = PartitionState::new(key(2), 4, options(), Offset(0));
    Checkpoint {
        storage_id: STORAGE_ID,
        sequence: 8,
        boot: 4,
        replay_from: ReplayStart { file_sequence: 7, position: 4096, block_sequence: 49 },
        partitions: vec![first, second],
    }
}
