//! What happens by the clock: time-outs, messages whose outbox was full, snapshots for the metrics.

use super::Shard;
use crate::{calls, metrics};
use shards::clock::{self, Monotonic};
use std::{rc::Rc, time::Duration};

/// The precision of produce time-outs, and how long a message may wait for its outbox once there is room.
const SWEEP: Duration = Duration::from_millis(20);
/// The precision of connection time-outs, and the age of what /metrics shows.
const SLOW_SWEEP: Duration = Duration::from_secs(1);

/// Runs until the shard ends.
pub(super) async fn run(shard: Rc<Shard>) {
    let mut meter = metrics::Meter::new();
    let mut slow = Monotonic(0);
    loop {
        clock::sleep(SWEEP).await;
        let now = clock::monotonic();
        calls::send_unsent(&shard);
        shard.deadlines.expire(now);
        if now.since(slow) >= SLOW_SWEEP {
            slow = now;
            calls::forget_watches(&shard);
            // Copied, since closing a connection changes the list.
            let connections = shard.connections.borrow().all();
            connections.iter().for_each(|connection| connection.expire(now));
            meter.publish(&shard);
        }
    }
}
