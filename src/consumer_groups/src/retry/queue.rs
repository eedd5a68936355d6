//! Records held back behind parked keys, in the order of their offsets.

use std::collections::BTreeMap;

use wire::Offset;

use super::entry::{Changes, RetryPart};
use super::limits::QUEUE_ENTRY_OFFSETS_MAX;

/// The queues of one partition, each cut into entries of the state.
#[derive(Debug, Default)]
pub(super) struct Queues {
    entries: BTreeMap<(u64, u32), Vec<Offset>>,
    /// Of all queues.
    records: usize,
}

impl Queues {
    /// Records held back.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn contains(&self, parked: u64, offset: Offset) -> bool {
        self.of(parked).any(|(_, offsets)| offsets.binary_search(&offset).is_ok())
    }

    /// Adds a record that is not in the queue.
    pub(super) fn insert(&mut self, parked: u64, offset: Offset, changes: &mut Changes) {
        self.records += 1;
        let last = self.entries.range_mut(of(parked)).next_back();
        match last {
            None => self.put(parked, 0, vec![offset], changes),
            Some((&(_, number), offsets)) if offsets.last() < Some(&offset) => {
                if offsets.len() < QUEUE_ENTRY_OFFSETS_MAX {
                    offsets.push(offset);
                    changes.insert(RetryPart::Queue(parked, number));
                } else {
                    let number = number.checked_add(1).expect("a queue begins again at 0 long before");
                    self.put(parked, number, vec![offset], changes);
                }
            }
            Some(_) => self.insert_between(parked, offset, changes),
        }
    }

    /// Writes the whole queue anew: only a member that was given the partition anew and does not know what was handled before adds an
    /// earlier record.
    fn insert_between(&mut self, parked: u64, offset: Offset, changes: &mut Changes) {
        let mut offsets: Vec<Offset> = self.of(parked).flat_map(|(_, offsets)| offsets).copied().collect();
        let at = offsets.partition_point(|queued| *queued < offset);
        offsets.insert(at, offset);
        self.remove_entries(parked, changes);
        for (number, chunk) in (0..).zip(offsets.chunks(QUEUE_ENTRY_OFFSETS_MAX)) {
            self.put(parked, number, chunk.to_vec(), changes);
        }
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self, parked: u64, changes: &mut Changes) -> Option<Offset> {
        let (&(_, number), offsets) = self.entries.range(of(parked)).next()?;
        let first = offsets[0];
        self.remove_from(parked, number, first, changes);
        Some(first)
    }

    /// Removes a record; whether it was there.
    pub(super) fn remove(&mut self, parked: u64, offset: Offset, changes: &mut Changes) -> bool {
        let found = self.of(parked).find(|(_, offsets)| offsets.binary_search(&offset).is_ok());
        let Some((number, _)) = found else { return false };
        self.remove_from(parked, number, offset, changes);
        true
    }

    fn remove_from(&mut self, parked: u64, number: u32, offset: Offset, changes: &mut Changes) {
        let offsets = self.entries.get_mut(&(parked, number)).expect("the caller has found it");
        offsets.retain(|queued| *queued != offset);
        self.records -= 1;
        changes.insert(RetryPart::Queue(parked, number));
        if offsets.is_empty() {
            self.entries.remove(&(parked, number));
        }
    }

    /// Removes a whole queue.
    pub(super) fn clear(&mut self, parked: u64, changes: &mut Changes) {
        self.records -= self.of(parked).map(|(_, offsets)| offsets.len()).sum::<usize>();
        self.remove_entries(parked, changes);
    }

    /// All records held back.
    pub(super) fn offsets(&self) -> impl Iterator<Item = Offset> + '_ {
        self.entries.values().flatten().copied()
    }

    fn of(&self, parked: u64) -> impl Iterator<Item = (u32, &Vec<Offset>)> {
        self.entries.range(of(parked)).map(|((_, number), offsets)| (*number, offsets))
    }

    fn put(&mut self, parked: u64, number: u32, offsets: Vec<Offset>, changes: &mut Changes) {
        self.entries.insert((parked, number), offsets);
        changes.insert(RetryPart::Queue(parked, number));
    }

    fn remove_entries(&mut self, parked: u64, changes: &mut Changes) {
        let numbers: Vec<u32> = self.of(parked).map(|(number, _)| number).collect();
        for number in numbers {
            self.entries.remove(&(parked, number));
            changes.insert(RetryPart::Queue(parked, number));
        }
    }

    pub(super) fn value(&self, parked: u64, number: u32) -> Option<Vec<Offset>> {
        self.entries.get(&(parked, number)).cloned()
    }

    pub(super) fn entry_numbers(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.entries.keys().copied()
    }

    pub(super) fn restore(&mut self, parked: u64, number: u32, offsets: Option<Vec<Offset>>) {
        self.records += offsets.as_ref().map_or(0, Vec::len);
        let before = match offsets {
            Some(offsets) => self.entries.insert((parked, number), offsets),
            None => self.entries.remove(&(parked, number)),
        };
        self.records -= before.map_or(0, |offsets| offsets.len());
    }

    /// Whether what was restored fits together: each queue belongs to a key that `is_parked`, begins after its head, and ascends.
    pub(super) fn is_whole(&self, head_of: impl Fn(u64) -> Option<Offset>) -> bool {
        let mut before: Option<(u64, Offset)> = None;
        for (&(parked, _), offsets) in &self.entries {
            let Some(head) = head_of(parked) else { return false };
            let mut last = before.filter(|(of, _)| *of == parked).map_or(head, |(_, last)| last);
            for offset in offsets {
                if *offset <= last {
                    return false;
                }
                last = *offset;
            }
            before = Some((parked, last));
        }
        true
    }
}

/// The entries of one queue.
fn of(parked: u64) -> std::ops::RangeInclusive<(u64, u32)> {
    (parked, 0)..=(parked, u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queues: &Queues, parked: u64) -> Vec<u64> {
        queues.of(parked).flat_map(|(_, offsets)| offsets).map(|offset| offset.0).collect()
    }

    #[test]
    fn a_long_queue_is_taken_in_order_and_each_step_changes_one_entry() {
        let mut queues = Queues::default();
        for offset in 1..=200 {
            let mut changes = Changes::new();
            queues.insert(7, Offset(offset), &mut changes);
            assert_eq!(changes.len(), 1);
        }
        assert_eq!(queues.entry_numbers().count(), 4);
        assert!(queues.contains(7, Offset(100)));
        for offset in 1..=200 {
            let mut changes = Changes::new();
            assert_eq!(queues.pop(7, &mut changes), Some(Offset(offset)));
            assert_eq!(changes.len(), 1);
        }
        assert_eq!(queues.pop(7, &mut Changes::new()), None);
        assert_eq!((queues.records(), queues.entry_numbers().count()), (0, 0));
    }

    #[test]
    fn an_earlier_record_goes_to_its_place_and_queues_do_not_mix() {
        let (mut queues, mut changes) = (Queues::default(), Changes::new());
        for offset in (2..=200).step_by(2) {
            queues.insert(1, Offset(offset), &mut changes);
        }
        queues.insert(2, Offset(5), &mut changes);
        queues.insert(1, Offset(101), &mut changes);
        queues.insert(1, Offset(1), &mut changes);
        let mut expected: Vec<u64> = (2..=200).step_by(2).chain([1, 101]).collect();
        expected.sort_unstable();
        assert_eq!(queue(&queues, 1), expected);
        assert!(queues.is_whole(|_| Some(Offset(0))));
        assert!(!queues.is_whole(|_| Some(Offset(1))));
        assert!(!queues.is_whole(|parked| (parked == 1).then_some(Offset(0))));
        assert!(queues.remove(1, Offset(101), &mut changes));
        assert!(!queues.remove(1, Offset(101), &mut changes));
        queues.clear(1, &mut changes);
        assert_eq!((queues.records(), queue(&queues, 2)), (1, vec![5]));
    }
}
