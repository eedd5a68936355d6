//! Whether every acknowledged message arrived once, whole and in order.
//!
//! Messages of one producer in one partition are numbered without gaps. Their fate is kept as ranges of numbers:
//!
//! ```text
//!   acknowledged  [0 ..................... 900)
//!   delivered     [0 ......... 500)  [510 .......... 950)      lost = acknowledged without delivered = [500, 510)
//!   unknown                                     [900 .. 960)   sent, not acknowledged: may be there or not, at most once
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde::Serialize;

use crate::driver::template::KEY_BYTES;
use crate::message::Stamp;

/// A set of numbers kept as ranges that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds a range; returns how many of its numbers were new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end) = (range.start, range.end);
        let mut had = 0;
        // Every range that touches the new one, from the last that starts at or before its end, backwards.
        while let Some((&old_start, &old_end)) = self.ranges.range(..=end).next_back() {
            if old_end < start {
                break;
            }
            had += old_end.min(range.end).saturating_sub(old_start.max(range.start));
            start = start.min(old_start);
            end = end.max(old_end);
            self.ranges.remove(&old_start);
        }
        self.ranges.insert(start, end);
        (range.end - range.start) - had
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Whether no number is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many numbers of this set are in `other` too.
    pub fn common(&self, other: &RangeSet) -> u64 {
        let overlap = |start: u64, end: u64| -> u64 {
            let from = other.ranges.range(..=start).next_back().map_or(start, |(&start, _)| start);
            let overlapping = other.ranges.range(from..end);
            overlapping.map(|(&other_start, &other_end)| other_end.min(end).saturating_sub(other_start.max(start))).sum()
        };
        self.ranges.iter().map(|(&start, &end)| overlap(start, end)).sum()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

/// One producer in one partition.
pub type Stream = (u32, u32);

/// A set of messages: those that were acknowledged, or handled.
#[derive(Debug, Default, Clone)]
pub struct Messages {
    streams: HashMap<Stream, RangeSet>,
}

impl Messages {
    /// Adds messages `range` of `producer` in `partition`; returns how many of them were new.
    pub fn add(&mut self, partition: u32, producer: u32, range: Range<u64>) -> u64 {
        self.streams.entry((partition, producer)).or_default().insert(range)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.streams.values().map(RangeSet::len).sum()
    }

    /// How many are in `other` too.
    pub fn common(&self, other: &Messages) -> u64 {
        let common = |(stream, ranges): (&Stream, &RangeSet)| other.streams.get(stream).map_or(0, |other| ranges.common(other));
        self.streams.iter().map(common).sum()
    }

    /// Adds what `other` holds.
    pub fn merge(&mut self, other: Messages) {
        for ((partition, producer), ranges) in other.streams {
            for range in ranges.iter() {
                self.add(partition, producer, range);
            }
        }
    }
}

/// What one subscription received.
#[derive(Debug, Default)]
pub struct Delivered {
    messages: Messages,
    /// One past the highest number received of what comes in order.
    next: HashMap<Line, u64>,
    counts: Counts,
}

/// What comes in order: one producer in one partition, or in a group only its messages of one key.
type Line = (Stream, Option<[u8; KEY_BYTES]>);

/// How a message arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// For the first time, as it was sent.
    Whole(Stamp),
    /// As it was sent, but not for the first time.
    Again(Stamp),
    /// Changed on its way.
    Damaged,
}

/// How many messages went wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Acknowledged, never delivered.
    pub lost: u64,
    /// Delivered after a later one of the same producer and partition.
    pub reordered: u64,
    /// Delivered more than once.
    pub duplicated: u64,
    /// Delivered with other bytes than were sent, or in another partition.
    pub damaged: u64,
}

impl Counts {
    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        *self == Counts::default()
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: Counts) {
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.duplicated += other.duplicated;
        self.damaged += other.damaged;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "lost {}, duplicated {}, reordered {}, damaged {}", self.lost, self.duplicated, self.reordered, self.damaged)
    }
}

impl Delivered {
    /// A message arrived from `partition`.
    pub fn receive(&mut self, partition: u32, message: &[u8]) -> Arrival {
        self.receive_of_key(partition, None, message)
    }

    /// A message arrived where only those of one key come in order; without a key, those of the partition.
    pub fn receive_of_key(&mut self, partition: u32, key: Option<&[u8]>, message: &[u8]) -> Arrival {
        let Some((stamp, line)) = self.read(partition, key, message) else { return Arrival::Damaged };
        if self.messages.add(partition, stamp.producer, stamp.sequence..stamp.sequence + 1) == 0 {
            self.counts.duplicated += 1;
            return Arrival::Again(stamp);
        }
        let next = self.next.entry(line).or_default();
        if stamp.sequence >= *next {
            *next = stamp.sequence + 1;
        } else {
            self.counts.reordered += 1;
        }
        Arrival::Whole(stamp)
    }

    /// A message came again because it had failed: nothing of its key may have come after it.
    pub fn receive_failed(&mut self, partition: u32, key: Option<&[u8]>, message: &[u8]) -> Arrival {
        let Some((stamp, line)) = self.read(partition, key, message) else { return Arrival::Damaged };
        if self.next.get(&line) != Some(&(stamp.sequence + 1)) {
            self.counts.reordered += 1;
        }
        Arrival::Again(stamp)
    }

    fn read(&mut self, partition: u32, key: Option<&[u8]>, message: &[u8]) -> Option<(Stamp, Line)> {
        let stamp = Stamp::read(message).filter(|stamp| stamp.partition == partition);
        // A key of another length is none of ours.
        let key = key.map(<[u8; KEY_BYTES]>::try_from).transpose().ok();
        let found = stamp.zip(key).map(|(stamp, key)| (stamp, ((partition, stamp.producer), key)));
        self.counts.damaged += u64::from(found.is_none());
        found
    }

    /// Bytes that should have been a message, and are not.
    pub fn damaged(&mut self) {
        self.counts.damaged += 1;
    }

    /// How many different messages arrived whole.
    pub fn count(&self) -> u64 {
        self.messages.count()
    }

    /// The judgement over everything received, against what was acknowledged in `partitions`.
    pub fn judge(&self, acknowledged: &Messages, partitions: Range<u32>) -> Counts {
        let lost = |(stream, ranges): (&Stream, &RangeSet)| -> u64 {
            ranges.len() - self.messages.streams.get(stream).map_or(0, |received| ranges.common(received))
        };
        let mine = acknowledged.streams.iter().filter(|((partition, _), _)| partitions.contains(partition));
        Counts { lost: mine.map(lost).sum(), ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use wire::checksum::crc32c;

    use super::*;
    use crate::message::HEAD_BYTES;

    fn message(producer: u32, partition: u32, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        let stamp = Stamp { producer, sequence, intended_ns: 0, partition };
        stamp.write(bytes.first_chunk_mut().unwrap(), crc32c(b"body"));
        bytes.extend_from_slice(b"body");
        bytes
    }

    fn check(acknowledged: Range<u64>, sequences: &[u64], lost: u64, reordered: u64, duplicated: u64) {
        let mut acks = Messages::default();
        acks.add(3, 1, acknowledged);
        let mut delivered = Delivered::default();
        for &sequence in sequences {
            delivered.receive(3, &message(1, 3, sequence));
        }
        assert_eq!(delivered.judge(&acks, 0..10), Counts { lost, reordered, duplicated, damaged: 0 }, "{sequences:?}");
    }

    #[test]
    fn each_kind_of_wrong_is_told_apart() {
        check(0..4, &[0, 1, 2, 3], 0, 0, 0);
        check(0..4, &[0, 1, 3], 1, 0, 0);
        check(0..4, &[0, 1], 2, 0, 0);
        check(0..4, &[], 4, 0, 0);
        check(0..4, &[0, 2, 1, 3], 0, 1, 0);
        check(0..4, &[0, 1, 1, 2, 3], 0, 0, 1);
        // Sent and not acknowledged: it may have arrived.
        check(0..2, &[0, 1, 2], 0, 0, 0);
    }

    #[test]
    fn a_damaged_or_misplaced_message_is_counted_and_is_lost_too() {
        let mut acks = Messages::default();
        acks.add(0, 0, 0..2);
        let mut delivered = Delivered::default();
        let mut bytes = message(0, 0, 0);
        bytes[33] ^= 1;
        assert_eq!(delivered.receive(0, &bytes), Arrival::Damaged);
        assert_eq!(delivered.receive(7, &message(0, 0, 1)), Arrival::Damaged);
        assert_eq!(delivered.judge(&acks, 0..10), Counts { lost: 2, damaged: 2, ..Counts::default() });
    }

    #[test]
    fn of_a_key_messages_come_in_order_and_of_others_they_do_not() {
        let mut delivered = Delivered::default();
        let mut receive = |key: &[u8; 8], sequence| delivered.receive_of_key(3, Some(key), &message(1, 3, sequence));
        assert!(matches!(receive(b"00000001", 5), Arrival::Whole(_)));
        assert!(matches!(receive(b"00000002", 2), Arrival::Whole(_)));
        assert!(matches!(receive(b"00000001", 4), Arrival::Whole(_)));
        assert!(matches!(receive(b"00000002", 2), Arrival::Again(_)));
        let mut acks = Messages::default();
        acks.add(3, 1, 4..6);
        assert_eq!(delivered.judge(&acks, 0..10), Counts { reordered: 1, duplicated: 1, ..Counts::default() });
        assert_eq!(delivered.receive_of_key(3, Some(b"short"), &message(1, 3, 9)), Arrival::Damaged);
    }

    #[test]
    fn what_failed_comes_again_before_the_next_of_its_key() {
        let mut delivered = Delivered::default();
        let key = Some(&b"00000001"[..]);
        delivered.receive_of_key(3, key, &message(1, 3, 0));
        assert!(matches!(delivered.receive_failed(3, key, &message(1, 3, 0)), Arrival::Again(_)));
        assert_eq!(delivered.judge(&Messages::default(), 0..10), Counts::default());
        delivered.receive_of_key(3, key, &message(1, 3, 1));
        delivered.receive_failed(3, key, &message(1, 3, 0));
        assert_eq!(delivered.judge(&Messages::default(), 0..10), Counts { reordered: 1, ..Counts::default() });
    }

    proptest! {
        #[test]
        fn a_range_set_is_a_set(ranges in prop::collection::vec((0_u64..60, 0_u64..12), 0..40), others in prop::collection::vec((0_u64..60, 0_u64..12), 0..10)) {
            let mut model = BTreeSet::new();
            let mut set = RangeSet::default();
            for (start, length) in ranges {
                let new = (start..start + length).filter(|&number| model.insert(number)).count() as u64;
                prop_assert_eq!(set.insert(start..start + length), new);
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert_eq!(set.iter().flatten().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            let ranges: Vec<_> = set.iter().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            let mut other = RangeSet::default();
            let mut other_model = BTreeSet::new();
            for (start, length) in others {
                other.insert(start..start + length);
                other_model.extend(start..start + length);
            }
            prop_assert_eq!(set.common(&other), model.intersection(&other_model).count() as u64);
        }
    }
}
