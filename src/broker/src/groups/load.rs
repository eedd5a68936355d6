//! Reads the state of a coordinator back from its partition.

use super::Coordinator;
use crate::shard::Shard;
use commit_log::ReadError;
use consumer_groups::StateError;
use shards::{buffer::Shared, executor};
use wire::{BatchError, BatchHeader, BatchView, Offset};

/// Read at a time.
const STEP_BYTES: usize = 1 << 20;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the batch at {offset} cannot be read: {error}")]
    Batch { offset: Offset, error: BatchError },
    #[error("the record at {offset} is no state of a group: {error}")]
    Record { offset: Offset, error: StateError },
    #[error(transparent)]
    Whole(#[from] StateError),
    #[error("the broker stops")]
    Stopping,
}

/// Gives every record of the partition to the core. Half of them are no state to act on: whoever does not get to the end gets an error.
pub(super) async fn load(coordinator: &Coordinator, shard: &Shard) -> Result<(), LoadError> {
    let log = &coordinator.partition().log;
    let marks = log.watermarks();
    let mut from = marks.log_start;
    while from < marks.high_watermark {
        if shard.is_stopping() {
            return Err(LoadError::Stopping);
        }
        for slice in log.read(from, STEP_BYTES, marks.high_watermark).await? {
            from = replay(coordinator, slice, from)?;
        }
        executor::yield_if_needed().await;
    }
    assert_eq!(from, marks.high_watermark, "all of the log is replayed, and nothing else");
    coordinator.core().borrow_mut().finish_replay(super::coordinator::now())?;
    coordinator.written_bytes.set(log.size_bytes());
    Ok(())
}

/// The batches of one slice; gives the offset after them.
fn replay(coordinator: &Coordinator, mut rest: Shared, mut from: Offset) -> Result<Offset, LoadError> {
    while !rest.is_empty() {
        let failed = |error| LoadError::Batch { offset: from, error };
        let header = BatchHeader::decode(&rest).map_err(failed)?;
        let batch = rest.slice(..header.total_length());
        rest = rest.slice(header.total_length()..);
        let view = BatchView::new(&batch).map_err(failed)?;
        let mut core = coordinator.core().borrow_mut();
        for record in view.records().filter(|record| record.offset >= from) {
            let key = record.key.unwrap_or_default();
            core.replay(key, record.value).map_err(|error| LoadError::Record { offset: record.offset, error })?;
        }
        from = header.next_offset();
    }
    Ok(from)
}
