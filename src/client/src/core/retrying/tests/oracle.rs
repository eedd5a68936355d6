//! What was promised, and what has happened.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Exhausted, Offset, PartitionKey, RetryPolicy};

use crate::core::random::Random;

/// A record: where it is, by partition and offset.
pub(super) type Place = (PartitionKey, Offset);

/// What the program makes of a record. It depends on the record and the attempt alone, so that a record that was handled once never fails
/// for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    Good,
    /// Handled from that attempt on.
    Flaky(u32),
    /// Never handled.
    Poison,
}

/// The log, and what has become of its records.
pub(super) struct Oracle {
    /// Records with their keys; offsets without one are gaps.
    pub(super) log: BTreeMap<Place, Option<u8>>,
    pub(super) ends: BTreeMap<PartitionKey, Offset>,
    seed: u64,
    attempts_max: u32,
    pub(super) handled: BTreeSet<Place>,
    /// Given up by the coordinator, durably.
    pub(super) given_up: BTreeSet<Place>,
    pub(super) dead_letters: BTreeSet<Place>,
    /// Attempts that the coordinator knows of, as a member was promised: `u32::MAX` for a retry that was handled.
    told: BTreeMap<Place, u32>,
    /// An operator may let attempts be counted anew.
    attempts_restart: bool,
}

impl Oracle {
    pub(super) fn new(random: &mut Random, partitions: &[PartitionKey], records: u64, policy: &RetryPolicy) -> Oracle {
        let keys = 1 + random.below(6);
        let gaps = if random.percent(30) { 20 } else { 0 };
        let mut log = BTreeMap::new();
        for partition in partitions {
            for offset in 0..records {
                if !random.percent(gaps) {
                    let key = (!random.percent(15)).then(|| random.below(keys) as u8);
                    log.insert((*partition, Offset(offset)), key);
                }
            }
        }
        let ends = partitions.iter().map(|partition| (*partition, Offset(records))).collect();
        Oracle {
            log,
            ends,
            seed: random.next(),
            attempts_max: policy.attempts_max,
            handled: BTreeSet::new(),
            given_up: BTreeSet::new(),
            dead_letters: BTreeSet::new(),
            told: BTreeMap::new(),
            attempts_restart: policy.exhausted == Exhausted::Stop,
        }
    }

    pub(super) fn nature(&self, (partition, offset): Place) -> Nature {
        let mut draw = Random(self.seed ^ offset.0 << 8 ^ u64::from(partition.partition.0));
        match draw.below(10) {
            0 => Nature::Poison,
            1 | 2 if self.attempts_max > 1 => Nature::Flaky(2 + draw.below(self.attempts_max as usize - 1) as u32),
            _ => Nature::Good,
        }
    }

    /// The program works on a record; whether it succeeds. Of its key every earlier record must be out of the way.
    pub(super) fn work(&mut self, place: Place, attempt: u32) -> bool {
        let told = self.told.get(&place).copied().unwrap_or(0);
        assert!(attempt > told || self.attempts_restart, "{place:?} comes in attempt {attempt}, and {told} is told");
        let succeeds = match self.nature(place) {
            Nature::Good => true,
            Nature::Flaky(from) => attempt >= from,
            Nature::Poison => false,
        };
        if succeeds {
            let key = self.log[&place];
            let earlier = self.log.range((place.0, Offset(0))..place).filter(|(_, other)| key.is_some() && **other == key);
            for (earlier, _) in earlier {
                let is_out = self.handled.contains(earlier) || self.given_up.contains(earlier);
                assert!(is_out, "{place:?} is handled before {earlier:?} of the same key");
            }
            self.handled.insert(place);
        }
        succeeds
    }

    /// A member was promised that the coordinator knows of this attempt.
    pub(super) fn tell(&mut self, place: Place, attempt: u32) {
        let told = self.told.entry(place).or_default();
        *told = attempt.max(*told);
    }

    pub(super) fn dead_letter(&mut self, place: Place, attempts: u32) {
        assert_eq!(attempts, self.attempts_max);
        assert!(self.given_up.contains(&place), "a dead letter is appended only after it is decided durably");
        assert!(self.dead_letters.insert(place), "{place:?} is there twice");
    }

    /// A commit passes only what was handled, given up, or is held by the coordinator.
    pub(super) fn check_commit(&self, partition: PartitionKey, commit: Offset, given_up: &BTreeSet<Place>, held: &[Offset]) {
        for (place, _) in self.log.range((partition, Offset(0))..(partition, commit)) {
            let is_held = held.binary_search(&place.1).is_ok();
            let is_out = self.handled.contains(place) || given_up.contains(place);
            assert!(is_held || is_out, "the commit {commit} passed {place:?}");
        }
    }

    /// Everything was handled or given up, and nothing both.
    pub(super) fn check_end(&self, to_dead_letters: bool) {
        for place in self.log.keys() {
            let handled = self.handled.contains(place);
            let given_up = self.given_up.contains(place);
            assert!(handled != given_up, "{place:?}: handled {handled}, given up {given_up}");
            assert_eq!(given_up, self.nature(*place) == Nature::Poison);
            assert_eq!(self.dead_letters.contains(place), given_up && to_dead_letters);
        }
    }
}
