//! The writer of a coordinator: its records into its partition, group after group of units, and the replies after them.

use super::{Coordinator, unwritten::Unit};
use crate::{ack, partition::LEADER_EPOCH, shard::Shard};
use commit_log::AppendError;
use shards::{buffer::Shared, clock};
use std::{rc::Rc, time::Duration};
use wire::{
    BatchHeader, ErrorCode, TimestampMs,
    batch::{BatchBuilder, BuilderOptions, PushError},
    limits::{BATCH_BYTES_MAX, MESSAGE_BYTES_MAX_CEILING},
};

/// Units go into one batch up to this: enough for thousands of heartbeats and commits, little against the log's queue.
const BATCH_BYTES_TARGET: usize = 1 << 20;
/// After a refusal that only space can end.
const AGAIN: Duration = Duration::from_millis(100);

/// Writes until the coordinator ends.
pub(super) async fn run(shard: Rc<Shard>, coordinator: Rc<Coordinator>) {
    loop {
        let work = coordinator.work.notified();
        let mut units = coordinator.take_units(BATCH_BYTES_TARGET);
        if coordinator.has_ended() {
            return;
        }
        if units.is_empty() {
            work.await;
            continue;
        }
        if let Err(code) = append(&shard, &coordinator, &mut units).await {
            return coordinator.end(code);
        }
        let bytes: usize = units.iter().map(Unit::bytes).sum();
        coordinator.written_bytes.set(coordinator.written_bytes.get() + bytes as u64);
        coordinator.grown.notify_waiters();
        units.into_iter().for_each(|unit| coordinator.written(&shard, unit));
    }
}

/// Appends the records of all units and waits until they are on stable storage. While the log takes no more, this waits.
async fn append(shard: &Shard, coordinator: &Coordinator, units: &mut [Unit]) -> Result<(), ErrorCode> {
    let partition = coordinator.partition();
    let batches = build(units);
    if batches.is_empty() {
        return Ok(());
    }
    loop {
        let progressed = shard.log.progressed();
        match partition.log.append_all(&batches, LEADER_EPOCH, None) {
            Ok(appended) => {
                let durable = partition.log.durable(appended.ticket).await.map_err(|_| ErrorCode::StorageFailed)?;
                ack::show(shard, partition, durable.durable_end);
                let bytes = batches.iter().map(|(_, bytes)| bytes.len()).sum();
                let records = batches.iter().map(|(header, _)| u64::from(header.record_count)).sum();
                partition.counters.appended(bytes, batches.len(), records);
                return Ok(());
            }
            Err(AppendError::Full { .. }) => progressed.await,
            Err(AppendError::DiskFull { .. }) => {
                coordinator.disk_full(units);
                clock::sleep(AGAIN).await;
            }
            Err(AppendError::Truncating) => clock::sleep(AGAIN).await,
            Err(AppendError::Deleted) => return Err(ErrorCode::CoordinatorLoading),
            Err(AppendError::Closing) => return Err(ErrorCode::ShuttingDown),
            Err(AppendError::Failed(_)) => return Err(ErrorCode::StorageFailed),
            Err(AppendError::Producer(error)) => unreachable!("these records name no producer: {error}"),
        }
    }
}

/// One batch; more only when the records of one event are more than a batch can hold.
fn build(units: &[Unit]) -> Vec<(BatchHeader, Shared)> {
    let options = BuilderOptions {
        batch_bytes_max: BATCH_BYTES_MAX,
        message_bytes_max: MESSAGE_BYTES_MAX_CEILING,
        ..BuilderOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    let mut batches = Vec::new();
    let now = TimestampMs(clock::wall_ms());
    for record in units.iter().flat_map(|unit| &unit.records) {
        let value = record.value.as_deref();
        let mut pushed = builder.push(now, Some(&record.key), value, &[]);
        if pushed == Err(PushError::Full) {
            batches.push(finish(&mut builder));
            pushed = builder.push(now, Some(&record.key), value, &[]);
        }
        assert_eq!(pushed, Ok(()), "the core's limits keep a record within an empty batch");
    }
    if !builder.is_empty() {
        batches.push(finish(&mut builder));
    }
    batches
}

fn finish(builder: &mut BatchBuilder) -> (BatchHeader, Shared) {
    let bytes = Shared::copy_from_slice(&builder.build());
    let header = BatchHeader::decode(&bytes).expect("what was just built can be read");
    (header, bytes)
}
