//! Records beyond the commit that retries have settled: done, dead-lettered or skipped.

use std::collections::BTreeMap;

use wire::Offset;

use super::entry::{Changes, RetryPart, SettledBits};

/// Offsets in one entry.
const ENTRY_OFFSETS: u64 = 8 * size_of::<SettledBits>() as u64;

/// A set of offsets, one bit each. Offsets below the commit need not be in it any more; they may linger until their whole entry is passed.
#[derive(Debug, Default)]
pub(super) struct Settled {
    entries: BTreeMap<u64, SettledBits>,
}

impl Settled {
    pub(super) fn contains(&self, offset: Offset) -> bool {
        let (entry, word, bit) = place(offset);
        self.entries.get(&entry).is_some_and(|bits| bits[word] & bit != 0)
    }

    pub(super) fn insert(&mut self, offset: Offset, changes: &mut Changes) {
        let (entry, word, bit) = place(offset);
        self.entries.entry(entry).or_default()[word] |= bit;
        changes.insert(RetryPart::Settled(entry));
    }

    /// Forgets what the commit has passed.
    pub(super) fn passed(&mut self, commit: Offset, changes: &mut Changes) {
        while let Some(first) = self.entries.first_entry() {
            if (*first.key() + 1).saturating_mul(ENTRY_OFFSETS) > commit.0 {
                break;
            }
            changes.insert(RetryPart::Settled(*first.key()));
            first.remove();
        }
    }

    pub(super) fn clear(&mut self, changes: &mut Changes) {
        changes.extend(self.entries.keys().map(|entry| RetryPart::Settled(*entry)));
        self.entries.clear();
    }

    /// In ascending order.
    pub(super) fn from(&self, commit: Offset) -> impl Iterator<Item = Offset> + '_ {
        let offsets = self.entries.iter().flat_map(|(entry, bits)| {
            let words = bits.iter().enumerate();
            words.flat_map(move |(word, bits)| {
                let set = (0..64).filter(move |bit| bits & 1 << bit != 0);
                set.map(move |bit| Offset(entry * ENTRY_OFFSETS + word as u64 * 64 + bit))
            })
        });
        offsets.filter(move |offset| *offset >= commit)
    }

    pub(super) fn value(&self, entry: u64) -> Option<SettledBits> {
        self.entries.get(&entry).copied()
    }

    pub(super) fn entry_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.keys().copied()
    }

    pub(super) fn restore(&mut self, entry: u64, bits: Option<SettledBits>) {
        match bits {
            Some(bits) => self.entries.insert(entry, bits),
            None => self.entries.remove(&entry),
        };
    }
}

/// Entry, word and bit of an offset.
fn place(offset: Offset) -> (u64, usize, u64) {
    let within = offset.0 % ENTRY_OFFSETS;
    (offset.0 / ENTRY_OFFSETS, (within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stay_until_the_commit_has_passed_their_entry() {
        let (mut settled, mut changes) = (Settled::default(), Changes::default());
        for offset in [0, 63, 64, 511, 512, 1_000_000] {
            settled.insert(Offset(offset), &mut changes);
            assert!(settled.contains(Offset(offset)));
            assert!(!settled.contains(Offset(offset + 2)));
        }
        assert_eq!(settled.from(Offset(63)).map(|offset| offset.0).collect::<Vec<_>>(), [63, 64, 511, 512, 1_000_000]);
        changes.clear();
        settled.passed(Offset(511), &mut changes);
        assert!(changes.is_empty());
        settled.passed(Offset(512), &mut changes);
        assert_eq!(changes, Changes::from([RetryPart::Settled(0)]));
        settled.clear(&mut changes);
        assert_eq!(changes.len(), 3);
        assert_eq!(settled.entry_numbers().count(), 0);
    }
}
