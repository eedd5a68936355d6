//! What happens by the clock: time-outs of produce requests when they are due, the rest once a second. A shard at rest wakes for nothing else.

use super::Shard;
use crate::{calls, metrics};
use futures_util::future::select;
use shards::clock;
use std::{pin::pin, rc::Rc, time::Duration};

/// The precision of connection time-outs, and the age of what /metrics shows.
const SWEEP: Duration = Duration::from_secs(1);

/// Runs until the shard ends.
pub(super) async fn run(shard: Rc<Shard>, mut meter: metrics::Meter) {
    loop {
        clock::sleep(SWEEP).await;
        let now = clock::monotonic();
        calls::forget_watches(&shard);
        // Copied, since closing a connection changes the list.
        let connections = shard.connections.borrow().all();
        connections.iter().for_each(|connection| connection.expire(now));
        meter.publish(&shard);
    }
}

/// Answers produce requests whose time is over, until the shard ends.
pub(super) async fn expire_requests(shard: Rc<Shard>) {
    loop {
        let sooner = shard.deadlines.sooner();
        let Some(next) = shard.deadlines.expire(clock::monotonic()) else {
            sooner.await;
            continue;
        };
        // Why it woke does not matter: it looks again.
        let _why = select(pin!(clock::sleep_until(next)), pin!(sooner)).await;
    }
}
