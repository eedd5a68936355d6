//! Which keys have a record that is handled or parked, and what waits behind it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::Offset;

/// A key with a record that is ready, handled, failed or parked; all others flow.
#[derive(Debug, Default)]
pub(super) struct HeldKey {
    /// One of its records has failed or is held by the coordinator: later ones go there too.
    pub(super) is_parked: bool,
    /// The record of the log that is ready, handled, or failed and not yet taken by the coordinator.
    pub(super) current: Option<Offset>,
    /// Later ones, in the order of the log.
    pub(super) later: VecDeque<Offset>,
    /// The last retry that was settled, and the attempts behind it: an earlier one comes from an answer that was overtaken.
    pub(super) last_retry: Option<(Offset, u32)>,
}

/// The keys of one partition that do not just flow.
#[derive(Debug, Default)]
pub(super) struct Keys {
    held: BTreeMap<Arc<[u8]>, HeldKey>,
}

impl Keys {
    pub(super) fn get(&self, key: &[u8]) -> Option<&HeldKey> {
        self.held.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut HeldKey> {
        self.held.get_mut(key)
    }

    /// Parks a key, whether anything was known of it or not.
    pub(super) fn park(&mut self, key: &Arc<[u8]>) -> &mut HeldKey {
        let held = self.held.entry(Arc::clone(key)).or_default();
        held.is_parked = true;
        held
    }

    /// Enters a record of the log; whether it can be handled now.
    pub(super) fn enter(&mut self, key: &Arc<[u8]>, offset: Offset) -> bool {
        let held = self.held.entry(Arc::clone(key)).or_default();
        if held.is_parked || held.current.is_some() {
            held.later.push_back(offset);
            return false;
        }
        held.current = Some(offset);
        true
    }

    /// The current record of a key is out of the way: the next one of a key that is not parked, which is current now.
    pub(super) fn advance(&mut self, key: &[u8]) -> Option<Offset> {
        let held = self.held.get_mut(key)?;
        held.current = None;
        if held.is_parked {
            return None;
        }
        held.current = held.later.pop_front();
        if held.current.is_none() {
            self.held.remove(key);
            return None;
        }
        held.current
    }

    /// The coordinator took a record that waited.
    pub(super) fn deferred(&mut self, key: &[u8], offset: Offset) {
        if let Some(held) = self.held.get_mut(key) {
            held.later.retain(|later| *later != offset);
        }
    }
}
