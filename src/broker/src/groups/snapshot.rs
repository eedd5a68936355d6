//! Snapshot, then trim: all state is written anew, and when that is durable the log starts where it began. So the log of a coordinator
//! stays within a multiple of its state, and is read back fast.

use super::{Coordinator, unwritten::Unit};
use shards::sync::oneshot;
use std::rc::Rc;

/// Records are written anew when they have grown by this, or by what the last snapshot had, if that is more.
const GROWTH_BYTES_MIN: u64 = 4 << 20;
/// One slice: requests are handled between two of them.
const SLICE_BYTES: usize = 256 << 10;

/// Runs until the coordinator ends.
pub(super) async fn run(coordinator: Rc<Coordinator>) {
    let mut snapshot_bytes = 0;
    while !coordinator.has_ended() {
        let grown = coordinator.grown.notified();
        if coordinator.written_bytes.get() < snapshot_bytes + GROWTH_BYTES_MIN.max(snapshot_bytes) {
            grown.await;
            continue;
        }
        coordinator.written_bytes.set(0);
        match write(&coordinator).await {
            Some(bytes) => snapshot_bytes = bytes,
            None => return,
        }
    }
}

/// Writes a snapshot and trims the log; gives its bytes. `None` when the coordinator ended meanwhile.
async fn write(coordinator: &Coordinator) -> Option<u64> {
    let log = &coordinator.partition().log;
    // Whatever the core decided before this is appended behind it, or was appended before: the snapshot has it.
    let begin = log.watermarks().appended_end;
    let mut position = None;
    let mut bytes = 0;
    loop {
        let (sender, receiver) = oneshot();
        // The slice is queued in the same step in which it is taken: an event that comes later is written later.
        let slice = coordinator.core().borrow().snapshot(position.as_ref(), SLICE_BYTES);
        let unit = Unit::of(slice.records, Some(sender));
        bytes += unit.bytes() as u64;
        coordinator.write(unit);
        receiver.await.ok()?;
        position = slice.next;
        if position.is_none() {
            break;
        }
    }
    if let Err(failed) = log.set_log_start(begin).await {
        tracing::error!(partition = %coordinator.partition().key, "a snapshot of groups is written, the log before it stays: {failed}");
        return None;
    }
    Some(bytes)
}
