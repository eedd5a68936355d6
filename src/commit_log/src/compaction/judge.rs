//! Which records stay. Pure.
//!
//! ```text
//!   log start            clean end                    judged end              high watermark
//!      │ at most one a key   │ any number a key            │ another pass, or too new │
//!      │                     │◄── in the table of keys ───►│                          │
//!      │◄────────────── judged ───────────────────────────►│◄────── stays ───────────►│
//! ```
//!
//! A record goes when a later one of its key is in the table. So of each key the newest record below the judged end stays, and after it the clean
//! end is there.
//!
//! A *tombstone* is a record with a key and without a value: it says that its key has none. It stays, for readers that saw an earlier value, until
//! it has been clean for the topic's time, and then goes too. By then all earlier values are gone: they went when it became clean.

use super::key_hash::KeyHasher;
use super::key_table::{KeyTable, TableFull};

/// What the judge looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looked<'a> {
    pub(crate) offset: u64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) is_tombstone: bool,
}

/// The keys of a part of the log, and so the verdict on each record.
#[derive(Debug)]
pub(crate) struct Judge {
    hasher: KeyHasher,
    table: KeyTable,
    /// Records from here on are not judged.
    judged_end: u64,
    is_full: bool,
}

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// A tombstone whose earlier values are gone.
    StaysAsTombstone,
    Goes,
}

impl Judge {
    /// Of a pass that begins at the clean end, with its own secret, in at most `table_bytes_max`.
    pub(crate) fn new(clean_end: u64, secret: [u64; 2], table_bytes_max: u64) -> Self {
        Self { hasher: KeyHasher::new(secret), table: KeyTable::new(table_bytes_max), judged_end: clean_end, is_full: false }
    }

    /// Learns of the next record. False when the table is full: this record and all behind it are for another pass.
    pub(crate) fn learn(&mut self, record: Looked<'_>) -> bool {
        if self.is_full {
            return false;
        }
        assert!(record.offset >= self.judged_end, "records come in the order of their offsets, from the clean end on");
        if let Some(key) = record.key
            && self.table.put(self.hasher.hash(key), record.offset) == Err(TableFull)
        {
            self.is_full = true;
            return false;
        }
        self.judged_end = record.offset + 1;
        true
    }

    /// Up to here there is nothing more to learn.
    pub(crate) fn learnt_to(&mut self, end: u64) {
        if !self.is_full {
            assert!(end >= self.judged_end, "what was learnt was below the end");
            self.judged_end = end;
        }
    }

    /// Records below are judged, those from here on stay.
    pub(crate) fn judged_end(&self) -> u64 {
        self.judged_end
    }

    /// The table had no room for all of the log.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Keys in the table.
    pub(crate) fn keys(&self) -> usize {
        self.table.len()
    }

    /// The verdict. Tombstones below `expired_below` have been clean for long enough.
    pub(crate) fn fate(&self, record: Looked<'_>, expired_below: u64) -> Fate {
        let Some(key) = record.key else { return Fate::Stays };
        if record.offset >= self.judged_end {
            return Fate::Stays;
        }
        if self.table.newest(self.hasher.hash(key)).is_some_and(|newest| newest > record.offset) {
            return Fate::Goes;
        }
        match record.is_tombstone {
            true if record.offset < expired_below => Fate::Goes,
            true => Fate::StaysAsTombstone,
            false => Fate::Stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A record: key, and a value unless it is a tombstone.
    type Written = (Option<u8>, Option<u32>);

    #[derive(Debug, Clone)]
    enum Step {
        Append(Vec<Written>),
        /// A pass over what was appended `later` records before the end, with room for this many keys and some.
        Pass {
            later: usize,
            table_bytes: u64,
            drops_tombstones: bool,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = prop::option::weighted(0.95, 0u8..200);
        let record = (key, prop::option::weighted(0.8, any::<u32>()));
        let step = prop_oneof![
            3 => prop::collection::vec(record, 1..300).prop_map(Step::Append),
            2 => (0usize..100, 0u64..8_000, any::<bool>())
                .prop_map(|(later, table_bytes, drops_tombstones)| Step::Pass { later, table_bytes, drops_tombstones }),
        ];
        prop::collection::vec(step, 1..12)
    }

    fn looked(offset: u64, record: &Written, key: &mut [u8; 1]) -> (u64, bool, bool) {
        key[0] = record.0.unwrap_or(0);
        (offset, record.0.is_some(), record.1.is_none())
    }

    fn view<'a>(offset: u64, record: &Written, key: &'a mut [u8; 1]) -> Looked<'a> {
        let (offset, has_key, is_null) = looked(offset, record, key);
        Looked { offset, key: has_key.then_some(&key[..]), is_tombstone: has_key && is_null }
    }

    /// What a reader of the whole log ends up with.
    fn latest(log: &BTreeMap<u64, Written>) -> BTreeMap<u8, u32> {
        let mut latest = BTreeMap::new();
        for (key, value) in log.values() {
            match (key, value) {
                (Some(key), Some(value)) => drop(latest.insert(*key, *value)),
                (Some(key), None) => drop(latest.remove(key)),
                (None, _) => {}
            }
        }
        latest
    }

    proptest! {
        #[test]
        fn a_reader_of_all_ends_up_the_same_and_each_key_has_one_record_below_the_clean_end(steps in steps()) {
            let mut whole = BTreeMap::new();
            let mut log: BTreeMap<u64, Written> = BTreeMap::new();
            let mut clean_end = 0;
            let mut next = 0;
            // Tombstones that a pass before has seen as the newest of their key: only they may go.
            let mut clean_tombstones = 0;
            for step in steps {
                match step {
                    Step::Append(records) => {
                        for record in records {
                            log.insert(next, record);
                            whole.insert(next, record);
                            next += 1;
                        }
                    }
                    Step::Pass { later, table_bytes, drops_tombstones } => {
                        let end = next.saturating_sub(later as u64).max(clean_end);
                        let mut judge = Judge::new(clean_end, [1, 2], table_bytes);
                        let mut key = [0];
                        for (offset, record) in log.range(clean_end..end) {
                            if !judge.learn(view(*offset, record, &mut key)) {
                                break;
                            }
                        }
                        judge.learnt_to(end);
                        let judged_end = judge.judged_end();
                        prop_assert!(judged_end == end || (judge.is_full() && judged_end > clean_end), "a pass gets on");
                        let expired_below = if drops_tombstones { clean_tombstones } else { 0 };
                        let before = log.clone();
                        log.retain(|offset, record| judge.fate(view(*offset, record, &mut [0]), expired_below) != Fate::Goes);
                        for (offset, record) in &before {
                            let is_newest = !before.range(offset + 1..).any(|(_, other)| other.0 == record.0);
                            let must_stay = *offset >= judged_end || record.0.is_none() || (is_newest && record.1.is_some());
                            prop_assert!(!must_stay || log.contains_key(offset), "{offset}: {record:?}");
                        }
                        let mut seen = BTreeMap::new();
                        for (offset, (key, _)) in log.range(..judged_end) {
                            if let Some(key) = key {
                                prop_assert_eq!(seen.insert(*key, *offset), None, "two records of key {}", key);
                            }
                        }
                        (clean_end, clean_tombstones) = (judged_end, judged_end);
                    }
                }
                prop_assert_eq!(latest(&log), latest(&whole));
            }
        }
    }
}
