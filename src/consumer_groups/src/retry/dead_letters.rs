//! Records on their way to the dead-letter topic: neither lost nor there twice, whenever a crash comes.
//!
//! ```text
//!   attempts used up ──► intent, numbered ──(durable)──► append as (producer, sequence) ──► appended ──► intent removed
//!                          │ no producer yet: open a lane first, and make that durable
//! ```
//!
//! A number belongs to one record for ever, and sequence = number - base of the lane. So whatever a crash takes back, the append that is
//! tried again is the same one, and the log knows it as a duplicate.

use std::collections::BTreeMap;

use wire::{PartitionKey, Sequence};

use super::entry::{Changes, DeadLetterProducer, DeadLetterValue, ExhaustedValue, LaneValue, RetryPart};
use super::limits::DEAD_LETTERS_IN_FLIGHT_MAX;
use crate::GroupId;

/// What the driver is to do. It does so only when all state that was changed before is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryAction {
    /// Make the dead-letter topic if there is none, choose one of its partitions, get a producer id, and report
    /// [`RetryEvent::LaneOpened`].
    OpenLane {
        /// Of which group.
        group: GroupId,
        /// Where the records are from.
        origin: PartitionKey,
        /// The dead-letter topic.
        topic: String,
    },
    /// Append a dead letter, and report [`RetryEvent::DeadLetterAppended`] when it is durable, also when the log knows it already;
    /// [`RetryEvent::LaneLost`] when the log knows nothing of the producer, or the partition is gone. Those of one origin are appended in the
    /// order of the actions, and again for as long as it takes.
    AppendDeadLetter(DeadLetter),
}

/// What the driver reports of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryEvent {
    /// [`RetryAction::OpenLane`] is done.
    LaneOpened {
        /// Of which group.
        group: GroupId,
        /// Where the records are from.
        origin: PartitionKey,
        /// The dead-letter topic.
        topic: String,
        /// As whom, and to which partition.
        producer: DeadLetterProducer,
    },
    /// The log that dead letters go to knows nothing of the producer.
    LaneLost {
        /// Of which group.
        group: GroupId,
        /// Where the records are from.
        origin: PartitionKey,
        /// Who is unknown.
        producer: DeadLetterProducer,
    },
    /// A dead letter is durable in its topic, now or since before.
    DeadLetterAppended {
        /// Of which group.
        group: GroupId,
        /// Where the record is from.
        origin: PartitionKey,
        /// As whom it was appended: a report of what was before the group was made anew is not taken for one of now.
        producer: DeadLetterProducer,
        /// See [`DeadLetter::number`].
        number: u64,
    },
}

impl RetryEvent {
    /// The group that it concerns.
    pub fn group(&self) -> &GroupId {
        match self {
            RetryEvent::LaneOpened { group, .. }
            | RetryEvent::LaneLost { group, .. }
            | RetryEvent::DeadLetterAppended { group, .. } => group,
        }
    }

    /// The partition whose records it concerns.
    pub fn origin(&self) -> PartitionKey {
        match *self {
            RetryEvent::LaneOpened { origin, .. }
            | RetryEvent::LaneLost { origin, .. }
            | RetryEvent::DeadLetterAppended { origin, .. } => origin,
        }
    }
}

/// Of which group and partition records are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) group: &'a GroupId,
    pub(super) partition: PartitionKey,
}

/// A dead letter to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Whose consumer failed.
    pub group: GroupId,
    /// Where the record is from.
    pub origin: PartitionKey,
    /// The dead-letter topic.
    pub topic: String,
    /// As whom and to which of its partitions.
    pub producer: DeadLetterProducer,
    /// Sequence of the batch, which holds this record alone.
    pub sequence: Sequence,
    /// Names it in the report.
    pub number: u64,
    /// The record and its failures.
    pub letter: DeadLetterValue,
}

/// The dead letters of one partition of a group.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    exhausted: ExhaustedValue,
    letters: BTreeMap<u64, DeadLetterValue>,
    /// Number of the next one to hand to the driver.
    unsent: u64,
}

impl DeadLetters {
    /// Intents not yet done.
    pub(super) fn pending(&self) -> usize {
        self.letters.len()
    }

    pub(super) fn dead_lettered(&self) -> u64 {
        self.exhausted.dead_lettered
    }

    pub(super) fn skipped(&self) -> u64 {
        self.exhausted.skipped
    }

    pub(super) fn skip(&mut self, changes: &mut Changes) {
        self.exhausted.skipped += 1;
        changes.insert(RetryPart::Exhausted);
    }

    /// Takes a record whose attempts are used up; it goes to `topic`, or where those before it go until they are gone.
    pub(super) fn add(
        &mut self,
        origin: Origin<'_>,
        topic: &str,
        letter: DeadLetterValue,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) {
        let number = self.exhausted.dead_lettered;
        self.exhausted.dead_lettered += 1;
        changes.insert(RetryPart::Exhausted);
        changes.insert(RetryPart::DeadLetter(number));
        let idle = self.letters.is_empty();
        self.letters.insert(number, letter);
        let lane = self.exhausted.lane.as_ref();
        let usable = lane.is_some_and(|lane| !idle || (lane.topic == topic && lane.producer.is_some()));
        if !usable {
            self.exhausted.lane = Some(LaneValue { topic: topic.to_owned(), base: number, producer: None });
            self.unsent = number;
            self.open(origin, actions);
        }
        self.send(origin, actions);
    }

    /// The driver has a producer for the lane. A second answer to one question is not used.
    pub(super) fn opened(
        &mut self,
        origin: Origin<'_>,
        topic: &str,
        producer: DeadLetterProducer,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) {
        let Some(lane) = self.exhausted.lane.as_mut().filter(|lane| lane.topic == topic && lane.producer.is_none()) else {
            return;
        };
        lane.producer = Some(producer);
        changes.insert(RetryPart::Exhausted);
        self.send(origin, actions);
    }

    /// A dead letter is durable where it belongs.
    pub(super) fn appended(
        &mut self,
        origin: Origin<'_>,
        producer: DeadLetterProducer,
        number: u64,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) {
        let is_of_lane = self.exhausted.lane.as_ref().is_some_and(|lane| lane.producer == Some(producer));
        if is_of_lane && self.letters.remove(&number).is_some() {
            changes.insert(RetryPart::DeadLetter(number));
            self.send(origin, actions);
        }
    }

    /// The log knows nothing of `producer` any more: what is pending begins anew as another.
    pub(super) fn lost(
        &mut self,
        origin: Origin<'_>,
        producer: DeadLetterProducer,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) {
        let base = self.first_pending();
        let Some(lane) = self.exhausted.lane.as_mut().filter(|lane| lane.producer == Some(producer)) else { return };
        lane.producer = None;
        lane.base = base;
        self.unsent = base;
        changes.insert(RetryPart::Exhausted);
        self.resume(origin, actions);
    }

    /// After a restart: says again what is to be done.
    pub(super) fn resume(&mut self, origin: Origin<'_>, actions: &mut Vec<RetryAction>) {
        self.unsent = self.first_pending();
        match &self.exhausted.lane {
            Some(lane) if lane.producer.is_some() || self.letters.is_empty() => self.send(origin, actions),
            _ => self.open(origin, actions),
        }
    }

    fn first_pending(&self) -> u64 {
        self.letters.keys().next().copied().unwrap_or(self.exhausted.dead_lettered)
    }

    fn open(&self, origin: Origin<'_>, actions: &mut Vec<RetryAction>) {
        if let Some(lane) = &self.exhausted.lane {
            actions.push(RetryAction::OpenLane {
                group: origin.group.clone(),
                origin: origin.partition,
                topic: lane.topic.clone(),
            });
        }
    }

    /// Hands over what may be under way. The action for a later one leaves with the event that removed an earlier one, so it is done only
    /// when that removal is durable: never more than the window can come back after a crash.
    fn send(&mut self, origin: Origin<'_>, actions: &mut Vec<RetryAction>) {
        let end = self.first_pending().saturating_add(DEAD_LETTERS_IN_FLIGHT_MAX).min(self.exhausted.dead_lettered);
        let Some(lane) = &self.exhausted.lane else { return };
        let Some(producer) = lane.producer else { return };
        while self.unsent < end {
            let number = self.unsent;
            self.unsent += 1;
            // One that was reported out of turn is no longer pending.
            let Some(letter) = self.letters.get(&number) else { continue };
            actions.push(RetryAction::AppendDeadLetter(DeadLetter {
                group: origin.group.clone(),
                origin: origin.partition,
                topic: lane.topic.clone(),
                producer,
                sequence: sequence(lane.base, number),
                number,
                letter: letter.clone(),
            }));
        }
    }

    pub(super) fn exhausted_value(&self) -> Option<ExhaustedValue> {
        (self.exhausted != ExhaustedValue::default()).then(|| self.exhausted.clone())
    }

    pub(super) fn letter_value(&self, number: u64) -> Option<DeadLetterValue> {
        self.letters.get(&number).cloned()
    }

    pub(super) fn letter_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.letters.keys().copied()
    }

    pub(super) fn restore_exhausted(&mut self, value: Option<ExhaustedValue>) {
        self.exhausted = value.unwrap_or_default();
    }

    pub(super) fn restore_letter(&mut self, number: u64, value: Option<DeadLetterValue>) {
        match value {
            Some(letter) => self.letters.insert(number, letter),
            None => self.letters.remove(&number),
        };
    }

    /// Whether what was restored fits together.
    pub(super) fn is_whole(&self) -> bool {
        let below = |number: &u64| *number < self.exhausted.dead_lettered;
        let laned = |number: &u64| self.exhausted.lane.as_ref().is_some_and(|lane| lane.base <= *number);
        self.letters.keys().all(|number| below(number) && laned(number))
    }
}

/// That of a dead letter in a lane: the first one has 0.
fn sequence(base: u64, number: u64) -> Sequence {
    Sequence(i32::try_from((number - base) & i32::MAX as u64).expect("31 bits"))
}

#[cfg(test)]
mod tests {
    use wire::{Offset, PartitionIndex, ProducerEpoch, ProducerId, TimestampMs, TopicId};

    use super::*;

    const PARTITION: PartitionKey = PartitionKey::new(TopicId([1; 16]), PartitionIndex(0));
    const PRODUCER: DeadLetterProducer =
        DeadLetterProducer { id: ProducerId(9), epoch: ProducerEpoch(0), partition: PartitionIndex(0) };

    fn letter(offset: u64) -> DeadLetterValue {
        let at = TimestampMs(1);
        DeadLetterValue {
            offset: Offset(offset),
            attempts: 3,
            first_failure: at,
            last_failure: at,
            key: None,
            reason: String::new(),
        }
    }

    fn sequences(actions: &[RetryAction]) -> Vec<i32> {
        let sequence = |action: &RetryAction| match action {
            RetryAction::AppendDeadLetter(letter) => letter.sequence.0,
            RetryAction::OpenLane { .. } => -1,
        };
        actions.iter().map(sequence).collect()
    }

    #[test]
    fn a_lane_is_opened_once_and_few_are_under_way() {
        let (mut letters, mut changes, mut actions) = (DeadLetters::default(), Changes::new(), Vec::new());
        let group = GroupId::from("g");
        let origin = Origin { group: &group, partition: PARTITION };
        for offset in 0..10 {
            letters.add(origin, "dead", letter(offset), &mut changes, &mut actions);
        }
        assert_eq!(sequences(&actions), [-1]);
        actions.clear();
        letters.opened(origin, "dead", PRODUCER, &mut changes, &mut actions);
        letters.opened(origin, "dead", DeadLetterProducer { id: ProducerId(10), ..PRODUCER }, &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [0, 1, 2, 3]);
        actions.clear();
        letters.appended(origin, PRODUCER, 1, &mut changes, &mut actions);
        assert_eq!(actions, []);
        letters.appended(origin, PRODUCER, 0, &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [4, 5]);
        assert_eq!(letters.pending(), 8);
    }

    #[test]
    fn a_lost_producer_is_replaced_and_sequences_begin_anew() {
        let (mut letters, mut changes, mut actions) = (DeadLetters::default(), Changes::new(), Vec::new());
        let group = GroupId::from("g");
        let origin = Origin { group: &group, partition: PARTITION };
        letters.add(origin, "dead", letter(1), &mut changes, &mut actions);
        letters.opened(origin, "dead", PRODUCER, &mut changes, &mut actions);
        letters.appended(origin, PRODUCER, 0, &mut changes, &mut actions);
        letters.add(origin, "dead", letter(2), &mut changes, &mut actions);
        letters.add(origin, "dead", letter(3), &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [-1, 0, 1, 2]);
        actions.clear();
        letters.lost(origin, PRODUCER, &mut changes, &mut actions);
        letters.lost(origin, PRODUCER, &mut changes, &mut actions);
        let other = DeadLetterProducer { id: ProducerId(10), ..PRODUCER };
        letters.opened(origin, "dead", other, &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [-1, 0, 1]);
        actions.clear();
        letters.appended(origin, other, 1, &mut changes, &mut actions);
        letters.appended(origin, other, 2, &mut changes, &mut actions);
        letters.lost(origin, other, &mut changes, &mut actions);
        assert_eq!(actions, []);
        letters.add(origin, "dead", letter(4), &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [-1]);
    }

    #[test]
    fn another_topic_is_used_when_those_for_the_first_are_gone() {
        let (mut letters, mut changes, mut actions) = (DeadLetters::default(), Changes::new(), Vec::new());
        let group = GroupId::from("g");
        let origin = Origin { group: &group, partition: PARTITION };
        letters.add(origin, "dead", letter(1), &mut changes, &mut actions);
        letters.opened(origin, "dead", PRODUCER, &mut changes, &mut actions);
        letters.add(origin, "other", letter(2), &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [-1, 0, 1]);
        letters.appended(origin, PRODUCER, 0, &mut changes, &mut actions);
        letters.appended(origin, PRODUCER, 1, &mut changes, &mut actions);
        actions.clear();
        letters.add(origin, "other", letter(3), &mut changes, &mut actions);
        assert_eq!(actions, [RetryAction::OpenLane { group: group.clone(), origin: PARTITION, topic: "other".to_owned() }]);
    }

    #[test]
    fn a_late_report_of_a_deleted_group_takes_no_letter_of_the_new_one() {
        let (mut letters, mut changes, mut actions) = (DeadLetters::default(), Changes::new(), Vec::new());
        let group = GroupId::from("g");
        let origin = Origin { group: &group, partition: PARTITION };
        letters.add(origin, "dead", letter(1), &mut changes, &mut actions);
        letters.opened(origin, "dead", PRODUCER, &mut changes, &mut actions);
        let mut letters = DeadLetters::default();
        letters.add(origin, "dead", letter(2), &mut changes, &mut actions);
        letters.appended(origin, PRODUCER, 0, &mut changes, &mut actions);
        assert_eq!(letters.pending(), 1);
        actions.clear();
        let other = DeadLetterProducer { id: ProducerId(10), ..PRODUCER };
        letters.opened(origin, "dead", other, &mut changes, &mut actions);
        assert_eq!(sequences(&actions), [0]);
        letters.appended(origin, PRODUCER, 0, &mut changes, &mut actions);
        assert_eq!(letters.pending(), 1);
        letters.appended(origin, other, 0, &mut changes, &mut actions);
        assert_eq!(letters.pending(), 0);
    }

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(sequence(5, 5 + i32::MAX as u64), Sequence(i32::MAX));
        assert_eq!(sequence(5, 6 + i32::MAX as u64), Sequence::ZERO);
    }
}
