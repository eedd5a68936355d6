//! Memory that does not move goes to those who wait for it.
//!
//! A client that takes its replies slowly, or sends a request slowly, holds memory of the shard meanwhile. That is its right while there is
//! enough. While others wait, who is stuck gives way, the one that would hold its memory longest first: replies that are only prepared
//! are dropped, and read again when the client goes on taking; a connection in the middle of a reply or of a request is closed.

use super::Shard;
use crate::connection::{Connection, PACE_PERIOD};
use shards::{
    clock::{self, Monotonic},
    executor,
};
use std::{cell::Cell, rc::Rc, time::Duration};

/// Who has just begun is not stuck: so long it takes until a stop shows in the pace.
const BEGUN_FOR: Duration = Duration::from_secs(2);
const _: () = assert!(BEGUN_FOR.as_millis() >= 2 * PACE_PERIOD.as_millis());
/// While somebody waits and nobody is stuck, this is how often one looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The memory of a connection that was closed is back after this.
const GIVEN_BACK: Duration = Duration::from_millis(10);

/// Whether somebody is at it.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    running: Cell<bool>,
}

/// Which memory is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Requests,
    Replies,
}

/// What a connection holds for bytes on their way to or from its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) held_bytes: usize,
    pub(crate) since: Monotonic,
    pub(crate) bytes_per_second: usize,
    /// The longest that the configuration lets a client be still.
    pub(crate) patience: Duration,
    /// How often the connection itself waits for the same memory.
    pub(crate) waiting: usize,
}

impl Transfer {
    /// How long it would go on holding its memory, if that is too long.
    fn stuck_for(&self, now: Monotonic) -> Option<Duration> {
        if self.held_bytes == 0 || now.since(self.since) < BEGUN_FOR {
            return None;
        }
        let milliseconds = (self.held_bytes as u64).saturating_mul(1000) / (self.bytes_per_second as u64).max(1);
        let left = Duration::from_millis(milliseconds);
        (self.bytes_per_second == 0 || left > self.patience).then_some(left)
    }
}

/// Somebody waits for memory of the shard.
pub(crate) fn wanted(shard: &Rc<Shard>) {
    if !shard.relief.running.replace(true) {
        executor::spawn(run(Rc::clone(shard))).detach();
    }
}

/// Runs while somebody waits.
async fn run(shard: Rc<Shard>) {
    // Who asked is not in line yet.
    executor::yield_now().await;
    loop {
        let replies = relieve(&shard, Memory::Replies);
        let requests = relieve(&shard, Memory::Requests);
        if shard.reply_bytes.waiting() == 0 && shard.in_flight.waiting() == 0 {
            break;
        }
        clock::sleep(if replies || requests { GIVEN_BACK } else { LOOK_AGAIN }).await;
    }
    shard.relief.running.set(false);
}

/// Takes memory back from the connection that is stuck most; false when none is.
fn relieve(shard: &Rc<Shard>, memory: Memory) -> bool {
    let waiting = match memory {
        Memory::Requests => shard.in_flight.waiting(),
        Memory::Replies => shard.reply_bytes.waiting(),
    };
    let found = most_stuck(shard, memory, waiting);
    if let Some(connection) = &found {
        connection.give_way(shard, memory);
    }
    found.is_some()
}

/// The connection that would hold its memory longest, if others than those who are stuck are among the `waiting`.
fn most_stuck(shard: &Shard, memory: Memory, waiting: usize) -> Option<Rc<Connection>> {
    let now = clock::monotonic();
    let mut others = waiting;
    let mut most: Option<(Duration, &Rc<Connection>)> = None;
    let connections = shard.connections.borrow();
    for connection in connections.iter() {
        let Some(transfer) = connection.transfer(shard, memory, now) else { continue };
        let Some(stuck_for) = transfer.stuck_for(now) else { continue };
        others = others.saturating_sub(transfer.waiting);
        if most.is_none_or(|(longest, _)| longest < stuck_for) {
            most = Some((stuck_for, connection));
        }
    }
    let (_, connection) = most?;
    (others > 0).then(|| Rc::clone(connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_is_who_would_hold_memory_for_longer_than_a_client_may_be_still() {
        let now = Monotonic(100_000_000_000);
        let ago = |seconds: u64| Monotonic(now.0 - seconds * 1_000_000_000);
        let check = |held_bytes, since, bytes_per_second| {
            let patience = Duration::from_secs(30);
            Transfer { held_bytes, since, bytes_per_second, patience, waiting: 0 }.stuck_for(now).is_some()
        };
        assert!(!check(0, ago(60), 0), "it holds nothing");
        assert!(!check(64 << 20, ago(1), 0), "it has just begun");
        assert!(check(16, ago(2), 0));
        assert!(check(16 << 20, ago(10), 500_000));
        assert!(!check(16 << 20, ago(10), 1_000_000), "a slow link");
        assert!(!check(1 << 20, ago(10), 100_000));
    }
}
