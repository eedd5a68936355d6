//! What a group received, and what became of it.
//!
//! ```text
//!   acknowledged  [0 ................................ 900)
//!   done          [0 ......... 500)   [501 ......... 900)       its member said so
//!   dead                        [500)                           found in the dead-letter topic, after its last attempt
//!   lost = acknowledged, in neither      duplicated = delivered again without having failed, in both, or dead twice
//! ```

use crate::message::Stamp;
use crate::verify::{Arrival, Counts, Delivered, Messages};

/// The books of one group.
#[derive(Debug, Default)]
pub struct Book {
    delivered: Delivered,
    done: Messages,
    dead: Messages,
    dead_again: u64,
    /// Messages with which the group is through: done, or failed for the last time.
    pub messages: u64,
    /// Deliveries that failed.
    pub failed: u64,
    /// Messages that failed for the last time: they belong into the dead-letter topic.
    pub exhausted: u64,
}

/// What a member makes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// It is to come again.
    Failed,
    /// It failed, and had no attempt left.
    Exhausted,
}

impl Book {
    /// A record was delivered, for the `attempt`-th time.
    pub(super) fn receive(&mut self, partition: u32, key: Option<&[u8]>, message: &[u8], attempt: u32) -> Arrival {
        if attempt > 1 {
            self.delivered.receive_failed(partition, key, message)
        } else {
            self.delivered.receive_of_key(partition, key, message)
        }
    }

    /// What became of it; `None` stands for one that was damaged.
    pub(super) fn settle(&mut self, stamp: Option<Stamp>, fate: Fate) {
        match (fate, stamp) {
            // One that is done twice came twice, which is counted there.
            (Fate::Done, Some(Stamp { producer, sequence, partition, .. })) => {
                self.messages += self.done.add(partition, producer, sequence..sequence + 1);
            }
            (Fate::Done, None) => self.messages += 1,
            (Fate::Failed, _) => self.failed += 1,
            (Fate::Exhausted, _) => {
                self.failed += 1;
                self.exhausted += 1;
                self.messages += 1;
            }
        }
    }

    /// A record was found in the dead-letter topic.
    pub(super) fn bury(&mut self, message: &[u8]) {
        match Stamp::read(message) {
            Some(Stamp { producer, sequence, partition, .. }) => {
                self.dead_again += 1 - self.dead.add(partition, producer, sequence..sequence + 1);
            }
            None => self.delivered.damaged(),
        }
    }

    /// How many different messages are in the dead-letter topic.
    pub fn dead(&self) -> u64 {
        self.dead.count()
    }

    /// The judgement over everything, against what was acknowledged.
    pub fn judge(&self, acknowledged: &Messages) -> Counts {
        let mut through = self.done.clone();
        through.merge(self.dead.clone());
        let seen = self.delivered.judge(acknowledged, 0..u32::MAX);
        Counts {
            lost: acknowledged.count() - acknowledged.common(&through),
            duplicated: seen.duplicated + self.dead_again + self.done.common(&self.dead),
            ..seen
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::checksum::crc32c;

    use super::*;
    use crate::message::HEAD_BYTES;

    const KEY: Option<&[u8]> = Some(b"00000007");

    fn message(sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        Stamp { producer: 1, sequence, intended_ns: 0, partition: 3 }.write(bytes.first_chunk_mut().unwrap(), crc32c(b""));
        bytes
    }

    /// Three acknowledged messages of one key; each delivery as (sequence, attempt, fate).
    fn check(deliveries: &[(u64, u32, Fate)], dead: &[u64], wanted: Counts) -> Book {
        let mut acknowledged = Messages::default();
        acknowledged.add(3, 1, 0..3);
        let mut book = Book::default();
        for &(sequence, attempt, fate) in deliveries {
            match book.receive(3, KEY, &message(sequence), attempt) {
                Arrival::Whole(stamp) | Arrival::Again(stamp) => book.settle(Some(stamp), fate),
                Arrival::Damaged => book.settle(None, fate),
            }
        }
        dead.iter().for_each(|&sequence| book.bury(&message(sequence)));
        assert_eq!(book.judge(&acknowledged), wanted, "{deliveries:?} {dead:?}");
        book
    }

    #[test]
    fn each_message_is_done_or_dead_and_not_both() {
        use Fate::{Done, Exhausted, Failed};
        let poisoned = [(0, 1, Done), (1, 1, Failed), (1, 2, Exhausted), (2, 1, Failed), (2, 2, Done)];
        let book = check(&poisoned, &[1], Counts::default());
        assert_eq!((book.messages, book.failed, book.exhausted, book.dead()), (3, 3, 1, 1));
        check(&poisoned, &[], Counts { lost: 1, ..Counts::default() });
        check(&poisoned, &[1, 1], Counts { duplicated: 1, ..Counts::default() });
        check(&poisoned, &[1, 2], Counts { duplicated: 1, ..Counts::default() });
        check(&poisoned[..3], &[1], Counts { lost: 1, ..Counts::default() });
    }

    #[test]
    fn a_later_message_of_a_key_that_failed_must_wait() {
        use Fate::{Done, Failed};
        let overtaken = [(0, 1, Failed), (1, 1, Done), (0, 2, Done), (2, 1, Done)];
        check(&overtaken, &[], Counts { reordered: 1, ..Counts::default() });
    }

    #[test]
    fn a_message_delivered_again_without_having_failed_is_a_duplicate() {
        use Fate::Done;
        let book =
            check(&[(0, 1, Done), (1, 1, Done), (1, 1, Done), (2, 1, Done)], &[], Counts { duplicated: 1, ..Counts::default() });
        assert_eq!(book.messages, 3);
    }
}
