//! A member: takes one record after the other, says when it had it in hand, and fails those that are to fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_client::{Acknowledge, GroupConsumer, GroupOptions, GroupRecord, OnRebalance, Rebalance};
use tokio::sync::watch;
use tokio::task::coop::consume_budget;

use super::Shared;
use super::book::Fate;
use crate::driver::DriverError;
use crate::driver::spread::key_bytes;
use crate::message::Stamp;
use crate::verify::Arrival;
use crate::workload::Failing;

/// A member of a group.
#[derive(Debug)]
pub(super) struct Member {
    group: usize,
    /// Among the members of all groups.
    number: usize,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
}

impl Member {
    pub(super) fn new(group: usize, number: usize, shared: Arc<Shared>, stopped: watch::Receiver<bool>) -> Member {
        Member { group, number, shared, stopped }
    }

    /// Reads until it is told to stop, then commits and leaves.
    pub(super) async fn read(mut self) -> Result<(), DriverError> {
        let client = self.shared.connect(format!("perf-member-{}", self.number)).await?;
        let options = GroupOptions {
            on_rebalance: Some(self.on_rebalance()),
            acknowledge: Acknowledge::Explicit,
            ..GroupOptions::new(&self.shared.names[self.group], self.shared.starts.keys())
        };
        let consumer = client.group_consumer(options);
        loop {
            tokio::select! {
                record = consumer.next() => self.take(&consumer, &record?),
                _ = self.stopped.changed() => break,
            }
            // What is there already is given without a wait: the other members are to have their turn.
            consume_budget().await;
        }
        consumer.close().await?;
        Ok(())
    }

    fn take(&self, consumer: &GroupConsumer, record: &GroupRecord) {
        let now_ns = self.shared.zero.get().map_or(0, |zero| zero.elapsed().as_nanos() as u64);
        if self.check(record, now_ns) == Fate::Done {
            consumer.done(record);
        } else {
            consumer.fail(record, "to fail is what this run wants of it");
        }
    }

    /// Enters a record into the books; returns what is to be said of it.
    fn check(&self, record: &GroupRecord, now_ns: u64) -> Fate {
        let shared = &*self.shared;
        let mut inbox = shared.inbox();
        let book = &mut inbox.books[self.group];
        if !shared.verify {
            book.messages += 1;
            return Fate::Done;
        }
        let partition = shared.starts[record.topic()] + record.partition();
        let (key, message) = (record.record().key, record.record().value.unwrap_or_default());
        let arrival = book.receive(partition, key, message, record.attempt());
        let stamp = match arrival {
            Arrival::Whole(stamp) | Arrival::Again(stamp) => Some(stamp),
            Arrival::Damaged => None,
        };
        let fails = stamp.is_some_and(|stamp| self.fails(stamp, key, record.attempt()));
        let fate = match (fails, record.attempt() >= shared.retry.attempts) {
            (false, _) => Fate::Done,
            (true, false) => Fate::Failed,
            (true, true) => Fate::Exhausted,
        };
        book.settle(stamp, fate);
        if let Arrival::Whole(stamp) = arrival
            && inbox.measured.contains(&stamp.intended_ns)
            && !matches!(shared.failing, Failing::Key(failing) if key == Some(&key_bytes(failing)))
        {
            inbox.end_to_end.saturating_record(now_ns.saturating_sub(stamp.intended_ns));
        }
        fate
    }

    fn fails(&self, stamp: Stamp, key: Option<&[u8]>, attempt: u32) -> bool {
        match self.shared.failing {
            Failing::Nothing => false,
            Failing::Key(failing) => key == Some(&key_bytes(failing)) && !self.shared.relents.load(Ordering::Relaxed),
            Failing::Share(share) => is_poison(stamp, share, attempt),
        }
    }

    fn on_rebalance(&self) -> OnRebalance {
        let (shared, number) = (Arc::clone(&self.shared), self.number);
        Arc::new(move |rebalance| {
            let change = match rebalance {
                Rebalance::Given(partitions) => partitions.len() as i64,
                Rebalance::Revoked(partitions) | Rebalance::Lost(partitions) => -(partitions.len() as i64),
            };
            shared.held[number].fetch_add(change, Ordering::Relaxed);
        })
    }
}

/// Whether a message is one of the share that fails: by a number drawn from the message, so that every member thinks the same of it. The
/// number's lowest bit says whether it fails for good.
fn is_poison(stamp: Stamp, share: f64, attempt: u32) -> bool {
    // splitmix64 (Steele, Lea, Flood 2014).
    let mut number = stamp.sequence ^ u64::from(stamp.producer) << 48 ^ u64::from(stamp.partition) << 24;
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^= number >> 31;
    let is_chosen = (number >> 11) as f64 / ((1_u64 << 53) as f64) < share;
    is_chosen && (attempt == 1 || number & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_fails_and_half_of_it_for_good() {
        let stamp = |sequence| Stamp { producer: 2, sequence, intended_ns: 0, partition: 5 };
        let count = |attempt| (0..100_000).filter(|&sequence| is_poison(stamp(sequence), 0.01, attempt)).count();
        assert!((900..1100).contains(&count(1)), "{}", count(1));
        assert!((400..600).contains(&count(2)), "{}", count(2));
        assert_eq!(count(2), count(3));
        assert_eq!((0..1000).filter(|&sequence| is_poison(stamp(sequence), 0.0, 1)).count(), 0);
    }
}
