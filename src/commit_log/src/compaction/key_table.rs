//! The newest offset of each key, within a fixed budget of memory.
//!
//! ```text
//!   slots   │ hash, offset │ free │ hash, offset │ hash, offset │ free │ …      24 bytes each, linear probing, no removal
//! ```
//!
//! It grows by doubling, and the old slots beside the new ones never take more than the budget. When it is full it says so, and whoever fills it
//! stops there: what comes behind is for another pass.

use super::key_hash::KeyHash;

/// One slot. The hash is in halves, so that it takes no padding.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    offset: u64,
}

const FREE: u64 = u64::MAX;

const SLOT_BYTES: usize = 24;

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);

/// Slots to begin with.
const SLOTS_MIN: usize = 64;

/// Full at this many eighths: probes stay short.
const LOAD_EIGHTHS_MAX: usize = 7;

/// There is no room for another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableFull;

/// Hash of a key to the offset of its newest record.
#[derive(Debug)]
pub(crate) struct KeyTable {
    slots: Vec<Slot>,
    count: usize,
    slots_max: usize,
}

impl KeyTable {
    /// A table that takes at most `bytes_max`, but room for some keys in any case.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let within = usize::try_from(bytes_max).unwrap_or(usize::MAX) / SLOT_BYTES;
        // While it grows to the largest size it is there half as large again.
        let most = within / 3 * 2;
        let slots_max = if most < SLOTS_MIN { SLOTS_MIN } else { 1 << most.ilog2() };
        Self { slots: vec![EMPTY; SLOTS_MIN], count: 0, slots_max }
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Notes a record. Records come in the order of their offsets.
    pub(crate) fn put(&mut self, hash: KeyHash, offset: u64) -> Result<(), TableFull> {
        assert_ne!(offset, FREE, "no record has this offset");
        let mut at = self.find(hash);
        if self.slots[at].offset == FREE {
            if (self.count + 1) * 8 > self.slots.len() * LOAD_EIGHTHS_MAX {
                if self.slots.len() == self.slots_max {
                    return Err(TableFull);
                }
                self.grow();
                at = self.find(hash);
            }
            self.count += 1;
        } else {
            assert!(self.slots[at].offset <= offset, "records come in the order of their offsets");
        }
        self.slots[at] = Slot { hash: halves(hash), offset };
        Ok(())
    }

    /// The offset of the newest record of a key; `None` when it has none here.
    pub(crate) fn newest(&self, hash: KeyHash) -> Option<u64> {
        let slot = self.slots[self.find(hash)];
        (slot.offset != FREE).then_some(slot.offset)
    }

    /// The slot of a key, or the free one where it belongs.
    fn find(&self, hash: KeyHash) -> usize {
        let hash = halves(hash);
        let mask = self.slots.len() - 1;
        let mut at = hash[0] as usize & mask;
        while self.slots[at].offset != FREE && self.slots[at].hash != hash {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 2];
        let before = std::mem::replace(&mut self.slots, larger);
        for slot in before.into_iter().filter(|slot| slot.offset != FREE) {
            let at = self.find(u128::from(slot.hash[1]) << 64 | u128::from(slot.hash[0]));
            self.slots[at] = slot;
        }
    }
}

const EMPTY: Slot = Slot { hash: [0; 2], offset: FREE };

fn halves(hash: KeyHash) -> [u64; 2] {
    [hash as u64, (hash >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// With few different low halves, so that probing is put to the test.
        #[test]
        fn it_is_a_map_until_it_is_full(keys in prop::collection::vec((0u64..4, 0u64..60), 0..400), kib in 0u64..8) {
            let mut table = KeyTable::new(kib << 10);
            let mut model = BTreeMap::new();
            let mut is_full = false;
            for (offset, (low, high)) in keys.into_iter().enumerate() {
                let hash = u128::from(high) << 64 | u128::from(low);
                match table.put(hash, offset as u64) {
                    Ok(()) => drop(model.insert(hash, offset as u64)),
                    Err(TableFull) => {
                        is_full = true;
                        prop_assert!(!model.contains_key(&hash), "what is there can be moved on");
                    }
                }
            }
            prop_assert_eq!(table.len(), model.len());
            for low in 0..4 {
                for high in 0..60 {
                    let hash = u128::from(high as u64) << 64 | u128::from(low as u64);
                    prop_assert_eq!(table.newest(hash), model.get(&hash).copied());
                }
            }
            let bytes = table.slots.capacity() * SLOT_BYTES;
            prop_assert!(bytes <= (kib as usize) << 10 || table.slots.len() == SLOTS_MIN);
            prop_assert!(!is_full || model.len() >= SLOTS_MIN / 2);
        }
    }
}
