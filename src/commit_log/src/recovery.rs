//! First phase of a start: a shard directory, as a crash left it, becomes partitions with all their batches in segments and nothing to replay.

mod copies;
mod log;
mod tails;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::disk::{self, DiskError};
use wire::PartitionKey;
use wire::batch::BatchError;

use crate::ShardDirectory;
use crate::directory::segment_path;
use crate::format::checkpoint::{self, Checkpoint, ReplayStart};
use crate::format::record::Records;
use crate::format::{BLOCK_BYTES, FormatError};
use crate::partition_state::PartitionState;
use crate::replay::{Plan, RecordAt, Replay};
use crate::segment_files;
use crate::start::{self, StartError};
use crate::wal_scan::{Verdict, judge};
use log::Log;
use writer::Writer;

/// Files looked for at the same time: each is a system call that may wait for the disk.
const LOOKS_AT_ONCE: usize = 32;

const UNREADABLE_CHECKPOINT: &str =
    "the newest checkpoint cannot be read, and the one before it does not know what came after it";

/// What recovery found in one directory.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The partitions named by it. The same partition may be named by another directory too: see [`newest`].
    pub partitions: Vec<PartitionState>,
    /// Highest boot number in it: the next start has to be above those of all directories.
    pub boot_max: u64,
    /// What was done.
    pub report: RecoveryReport,
}

/// What a recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Blocks of the write-ahead log that were replayed.
    pub replayed_blocks: u64,
    /// Bytes of them.
    pub replayed_bytes: u64,
    /// Batches that were in the log only.
    pub replayed_batches: u64,
    /// Bytes found in segments, written there without passing through the log.
    pub direct_bytes: u64,
    /// Blocks that were acknowledged and are gone.
    pub lost_blocks: u64,
    /// Partitions that may have lost acknowledged data, with the reason.
    pub lossy: Vec<(PartitionKey, String)>,
}

/// Why a directory cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The files of the folder cannot be understood.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file of the log cannot be read by this program.
    #[error("{path}: {error}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        error: FormatError,
    },
    /// A batch in a whole block does not hold: the program that wrote it was wrong.
    #[error("{path}: {error}")]
    Batch {
        /// The folder.
        path: String,
        /// What is wrong.
        error: BatchError,
    },
}

impl RecoverError {
    fn format(path: &Path, error: FormatError) -> Self {
        Self::Format { path: path.display().to_string(), error }
    }

    fn batch(path: &Path, error: BatchError) -> Self {
        Self::Batch { path: path.display().to_string(), error }
    }
}

/// Keeps, for each partition, the entry of the highest boot: an older directory may still name a partition that has moved since.
pub fn newest(states: impl IntoIterator<Item = PartitionState>) -> Vec<PartitionState> {
    let mut kept: BTreeMap<PartitionKey, PartitionState> = BTreeMap::new();
    for state in states {
        match kept.get(&state.key) {
            Some(other) if other.boot >= state.boot => {}
            _ => {
                kept.insert(state.key, state);
            }
        }
    }
    kept.into_values().collect()
}

/// Recovers one shard directory; an absent one recovers to nothing. Everything it returns is on stable storage, and nothing is left to replay.
///
/// ```text
///   sync ─► find blocks ─► verdict ─► fold records ─► scan noted segments ─► plan
///        ─► copy what was never told durable ─► write survivors ─► syncfs ─► checkpoint ─► files of deleted partitions go
/// ```
///
/// A crash at any point leaves the log and the old checkpoint as they were: the next recovery comes to the same end.
///
/// # Errors
/// A failed read or write, or files that cannot be understood. Damage to batches is no error: it is reported, and marked in the partitions.
pub async fn recover(directory: &ShardDirectory) -> Result<Recovered, RecoverError> {
    let found = start::look(directory).await?;
    let Some(superblock) = found.superblock else { return Ok(Recovered::default()) };
    let disk: Arc<Path> = Arc::from(directory.disk());
    let folder = directory.path();
    let has_checkpoint = found.checkpoint.is_some();
    let (mut partitions, replay_from, boot) = match found.checkpoint {
        Some(checkpoint) => (checkpoint.partitions, checkpoint.replay_from, checkpoint.boot),
        None => (Vec::new(), ReplayStart { file_sequence: 1, position: BLOCK_BYTES as u64, block_sequence: 1 }, 0),
    };
    let boot_max = superblock.boot.max(boot);
    let mut report = RecoveryReport::default();
    let files: Vec<u64> = found.files.into_iter().filter(|sequence| *sequence >= replay_from.file_sequence).collect();
    if files.is_empty() {
        for state in partitions.iter_mut().filter(|_| found.newer_unreadable) {
            state.lossy = true;
            report.lossy.push((state.key, UNREADABLE_CHECKPOINT.to_owned()));
        }
        return Ok(Recovered { partitions, boot_max, report });
    }

    let log = Log::open(&folder, superblock.storage_id, &files).await?;
    let files = log.scan().await?;
    if !has_checkpoint && files.iter().any(|file| !file.candidates.is_empty()) {
        // The first is written before the first block.
        return Err(start::incomplete(&folder, "checkpoints").into());
    }
    let verdict = judge(replay_from, &files);
    let mut replay = Replay::new(disk.clone(), superblock.boot, partitions);
    fold(&log, &verdict, &mut replay, &folder, &mut report).await?;
    if found.newer_unreadable {
        replay.distrust_all();
    }
    for (segment, tail) in tails::scan_all(superblock.storage_id, replay.scans()).await? {
        report.direct_bytes += tail.as_ref().map_or(0, |tail| tail.end_position() - tail.from_position);
        replay.scanned(segment.key, segment.base, tail);
    }
    let mut plan = replay.finish();
    leave_out_missing(&mut plan).await?;
    copies::make_all(superblock.storage_id, &plan).await?;
    // No file made by the log before bears it, nor will one of the log that goes on.
    let incarnation = verdict.next_block_sequence - 1;
    let mut writer = Writer::new(superblock.storage_id, incarnation, plan);
    let mut blocks = log.blocks(&verdict.accepted);
    while let Some(next) = blocks.next().await? {
        for (block, records) in next {
            writer.block(block.block_sequence, &records, &folder).await?;
        }
    }
    drop(blocks);
    let finished = writer.finish().await?;
    sync_disks(&disk, &finished.states).await?;
    log.close().await?;

    let next = ReplayStart {
        file_sequence: verdict.next_file_sequence,
        position: BLOCK_BYTES as u64,
        block_sequence: verdict.next_block_sequence,
    };
    let number = found.checkpoint_number + 1;
    let checkpoint = Checkpoint {
        storage_id: superblock.storage_id,
        sequence: number,
        boot: boot_max,
        replay_from: next,
        partitions: finished.states.into_iter().map(|state| PartitionState { as_of_block: 0, ..state }).collect(),
    };
    disk::write_file_atomically(&folder.join(checkpoint::file_name(number)), &checkpoint.encode(&disk)).await?;
    // Not before: should a crash take the record of a deletion with it, the partition is there as it was.
    segment_files::remove_all(&disk, &finished.deleted.iter().copied().collect()).await?;

    if let Some(old) = number.checked_sub(2) {
        segment_files::remove(&folder.join(checkpoint::file_name(old))).await?;
    }

    report.replayed_batches = finished.batches;
    report.lossy =
        finished.suspects.iter().map(|key| (*key, reason(&checkpoint, *key, &verdict, found.newer_unreadable))).collect();
    for (key, reason) in &report.lossy {
        tracing::error!(partition = %key, reason, "acknowledged data of a partition may be lost");
    }
    Ok(Recovered { partitions: checkpoint.partitions, boot_max, report })
}

/// Applies the records of the accepted blocks in their order.
async fn fold(
    log: &Log,
    verdict: &Verdict,
    replay: &mut Replay,
    folder: &Path,
    report: &mut RecoveryReport,
) -> Result<(), RecoverError> {
    let mut lost = verdict.lost.iter().peekable();
    let mut blocks = log.blocks(&verdict.accepted);
    while let Some(next) = blocks.next().await? {
        for (block, records) in next {
            while lost.next_if(|range| range.start < block.block_sequence).is_some() {
                replay.hole();
            }
            for (index, record) in Records::new(&records).enumerate() {
                let record = record.map_err(|error| RecoverError::format(folder, error))?;
                let at = RecordAt { block: block.block_sequence, index: index as u32 };
                replay.apply(at, &record).map_err(|error| RecoverError::batch(folder, error))?;
            }
            report.replayed_blocks += 1;
            report.replayed_bytes += u64::from(block.length_bytes);
        }
    }
    for range in lost {
        assert!(range.start < range.end, "a lost range has blocks");
        replay.hole();
    }
    report.lost_blocks = verdict.lost.iter().map(|range| range.end - range.start).sum();
    Ok(())
}

fn reason(checkpoint: &Checkpoint, key: PartitionKey, verdict: &Verdict, is_distrusted: bool) -> String {
    let at = checkpoint.partitions.binary_search_by_key(&key, |state| state.key);
    let lost = at.map_or(&[][..], |at| &checkpoint.partitions[at].lost);
    match (lost, verdict.lost.as_slice()) {
        ([], []) if is_distrusted => UNREADABLE_CHECKPOINT.to_owned(),
        ([], []) => "the log does not hold all that was acknowledged of it".to_owned(),
        ([], blocks) => format!("log blocks {blocks:?} are damaged and may have held batches of it"),
        (ranges, _) => {
            let text: Vec<String> = ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
            format!("offsets {} are gone", text.join(", "))
        }
    }
}

/// Segments that were to be continued and whose file is gone.
async fn leave_out_missing(plan: &mut Plan) -> Result<(), DiskError> {
    let continued = plan.partitions.iter().filter_map(|(key, partition)| Some((*key, partition.continued()?)));
    let looks = continued.map(|(key, segment)| {
        let (path, base) = (segment_path(&segment.disk, key, segment.base.0, segment.generation), segment.base);
        async move { Ok::<_, DiskError>((!disk::exists(&path).await?).then_some((key, base))) }
    });
    let missing: Vec<_> = stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(LOOKS_AT_ONCE).try_collect().await?;
    for (key, base) in missing.into_iter().flatten() {
        plan.partitions.get_mut(&key).expect("it was looked at").without_file(base);
    }
    Ok(())
}

/// One sync for each file system that was written to.
async fn sync_disks(own: &Arc<Path>, states: &[PartitionState]) -> Result<(), DiskError> {
    let mut disks: BTreeSet<&Path> = states.iter().flat_map(|state| &state.segments).map(|segment| &*segment.disk).collect();
    disks.insert(own);
    for path in disks {
        disk::syncfs(path).await?;
    }
    Ok(())
}
