//! What one partition of a group has parked.

mod settle;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::{DueRecord, Offset, PartitionKey, TimestampMs};

use super::dead_letters::{DeadLetters, Origin, RetryAction, RetryEvent};
use super::entry::{Changes, RetryPart};
use super::limits::{PARKED_KEY_BYTES, RetryLimits};
use super::queue::Queues;
use super::settled::Settled;
use crate::{MemberId, Now};

pub(super) use settle::SettleAt;
pub use settle::{NoPositionError, SettledRecords};

/// A parked key.
#[derive(Debug)]
struct Parked {
    key: Option<Arc<[u8]>>,
    head: Offset,
    attempts: u32,
    first_failure: TimestampMs,
    last_failure: TimestampMs,
    /// `None` when it stopped the partition.
    due: Option<Due>,
    reason: String,
    /// Who handles the head now. Not kept over a restart: then the head is due again, and who still holds it knows that.
    lease: Option<Lease>,
}

/// When a head is delivered again, by both clocks: the one that outlives a restart is stored, the one that never jumps is obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    wall: TimestampMs,
    steady_ms: u64,
}

impl Due {
    fn after(now: Now, delay_ms: u64) -> Due {
        let wall = now.wall.0.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX));
        Due { wall: TimestampMs(wall), steady_ms: now.steady_ms.saturating_add(delay_ms) }
    }
}

/// The answer in which a head was given away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) member: MemberId,
    pub(super) poll: u64,
}

/// Parked keys, queues behind them, what was settled beyond the commit, and dead letters under way.
#[derive(Debug, Default)]
pub(super) struct PartitionRetries {
    parked: BTreeMap<u64, Parked>,
    queues: Queues,
    settled: Settled,
    letters: DeadLetters,
    // What follows is computed from the state above.
    keys: BTreeMap<Arc<[u8]>, u64>,
    alone: BTreeMap<Offset, u64>,
    /// Heads that can be given away, by the steady clock.
    due: BTreeSet<(u64, u64)>,
    parked_bytes: usize,
    /// Heads that stopped the partition.
    stopping: usize,
}

impl PartitionRetries {
    /// Records parked, held back, and on their way to the dead-letter topic: what is bounded.
    fn records(&self) -> usize {
        self.parked.len() + self.queues.records() + self.letters.pending()
    }

    pub(super) fn parked_keys(&self) -> usize {
        self.parked.len()
    }

    pub(super) fn parked_records(&self) -> usize {
        self.parked.len() + self.queues.records()
    }

    pub(super) fn dead_letters_pending(&self) -> usize {
        self.letters.pending()
    }

    pub(super) fn dead_lettered(&self) -> u64 {
        self.letters.dead_lettered()
    }

    pub(super) fn skipped(&self) -> u64 {
        self.letters.skipped()
    }

    /// The first record that stopped the partition, and why.
    pub(super) fn stopped_at(&self) -> Option<(Offset, &str)> {
        if self.stopping == 0 {
            return None;
        }
        let stopping = self.parked.values().filter(|parked| parked.due.is_none());
        stopping.min_by_key(|parked| parked.head).map(|parked| (parked.head, parked.reason.as_str()))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopping > 0
    }

    /// Keys with their heads, for a member that begins with the partition.
    pub(super) fn parked_heads(&self) -> impl Iterator<Item = (&[u8], Offset)> {
        self.keys.iter().map(|(key, number)| (&**key, self.parked[number].head))
    }

    /// Offsets at or after `commit` that nobody is to deliver: they are parked, held back or settled. Ascending.
    pub(super) fn held_from(&self, commit: Offset) -> Vec<Offset> {
        let heads = self.parked.values().map(|parked| parked.head);
        let parked = heads.chain(self.queues.offsets()).filter(|offset| *offset >= commit);
        let mut held: Vec<Offset> = parked.chain(self.settled.from(commit)).collect();
        held.sort_unstable();
        held.dedup();
        held
    }

    /// When the next head can be given away, by the steady clock.
    pub(super) fn next_due_steady_ms(&self) -> Option<u64> {
        if self.is_stopped() {
            return None;
        }
        self.due.first().map(|(due, _)| *due)
    }

    /// When the next head is due, by the time of day; also one that is being handled.
    pub(super) fn next_due(&self) -> Option<TimestampMs> {
        self.parked.values().filter_map(|parked| parked.due).map(|due| due.wall).min()
    }

    /// Gives away up to `max` heads that are due.
    pub(super) fn take(&mut self, origin: PartitionKey, now: Now, lease: &Lease, max: usize, out: &mut Vec<DueRecord>) {
        if self.is_stopped() {
            return;
        }
        for _ in 0..max {
            let Some(&(due, number)) = self.due.first().filter(|(due, _)| *due <= now.steady_ms) else { return };
            self.due.remove(&(due, number));
            let parked = self.parked.get_mut(&number).expect("what is due is parked");
            parked.lease = Some(lease.clone());
            out.push(due_record(origin, parked));
        }
    }

    /// What is given under one of these leases can be given to others, or again.
    pub(super) fn release(&mut self, ends: impl Fn(&Lease) -> bool) {
        for (number, parked) in &mut self.parked {
            if parked.lease.as_ref().is_some_and(&ends) {
                parked.lease = None;
                self.due.extend(parked.due.map(|due| (due.steady_ms, *number)));
            }
        }
    }

    /// The commit was moved without a word about retries.
    pub(super) fn committed(&mut self, commit: Offset, changes: &mut Changes) {
        self.settled.passed(commit, changes);
    }

    /// Lets a stopped partition go on: the records that stopped it are due at once, their attempts counted anew.
    pub(super) fn resume(&mut self, now: Now, changes: &mut Changes) {
        for (number, parked) in &mut self.parked {
            if parked.due.is_none() {
                let due = Due::after(now, 0);
                parked.due = Some(due);
                parked.attempts = 0;
                self.due.insert((due.steady_ms, *number));
                self.stopping -= 1;
                changes.insert(RetryPart::Parked(*number));
            }
        }
        assert_eq!(self.stopping, 0, "each record that stops a partition is without a due time");
    }

    /// Forgets what is parked and settled. Dead letters under way stay: they are decided.
    pub(super) fn clear(&mut self, changes: &mut Changes) {
        for number in std::mem::take(&mut self.parked).into_keys() {
            changes.insert(RetryPart::Parked(number));
            self.queues.clear(number, changes);
        }
        self.settled.clear(changes);
        self.keys.clear();
        self.alone.clear();
        self.due.clear();
        self.parked_bytes = 0;
        self.stopping = 0;
    }

    /// A dead letter has come a step further.
    pub(super) fn dead_letter(&mut self, event: &RetryEvent, changes: &mut Changes, actions: &mut Vec<RetryAction>) {
        let origin = Origin { group: event.group(), partition: event.origin() };
        match event {
            RetryEvent::LaneOpened { topic, producer, .. } => self.letters.opened(origin, topic, *producer, changes, actions),
            RetryEvent::LaneLost { producer, .. } => self.letters.lost(origin, *producer, changes, actions),
            RetryEvent::DeadLetterAppended { producer, number, .. } => {
                self.letters.appended(origin, *producer, *number, changes, actions);
            }
        }
    }

    /// The parked key of a record, whether that is its head or not.
    fn find(&self, key: Option<&[u8]>, offset: Offset) -> Option<u64> {
        match key {
            Some(key) => self.keys.get(key).copied(),
            None => self.alone.get(&offset).copied(),
        }
    }

    /// Whether another record fits that takes so many bytes beside its place.
    fn has_room(&self, limits: RetryLimits, bytes: usize) -> bool {
        self.records() < limits.records_max && self.parked_bytes + bytes <= limits.bytes_max
    }

    /// Parks a key with a head that is due at once.
    fn park(&mut self, key: Option<&[u8]>, head: Offset, now: Now, changes: &mut Changes) -> u64 {
        let number = self.parked.last_key_value().map_or(0, |(last, _)| last + 1);
        let key: Option<Arc<[u8]>> = key.map(Arc::from);
        let due = Due::after(now, 0);
        let parked = Parked {
            key,
            head,
            attempts: 0,
            first_failure: now.wall,
            last_failure: now.wall,
            due: Some(due),
            reason: String::new(),
            lease: None,
        };
        self.index(number, &parked);
        self.parked.insert(number, parked);
        changes.insert(RetryPart::Parked(number));
        number
    }

    /// Enters a key into what is computed from the state.
    fn index(&mut self, number: u64, parked: &Parked) {
        self.parked_bytes += parked_bytes(parked.key.as_deref());
        let before = match &parked.key {
            Some(key) => self.keys.insert(Arc::clone(key), number),
            None => self.alone.insert(parked.head, number),
        };
        assert_eq!(before, None, "a key is parked once");
        match parked.due {
            Some(due) => _ = self.due.insert((due.steady_ms, number)),
            None => self.stopping += 1,
        }
    }

    /// The head of a key is settled: the next of the key is due at once, or the key is no longer parked.
    fn settle_head(&mut self, number: u64, committed: Offset, now: Now, changes: &mut Changes) {
        self.undue(number);
        let parked = self.parked.get_mut(&number).expect("the caller has found it");
        if parked.head >= committed {
            self.settled.insert(parked.head, changes);
        }
        changes.insert(RetryPart::Parked(number));
        let next = self.queues.pop(number, changes);
        if let Some(head) = next {
            self.begin(number, head, now);
            return;
        }
        let parked = self.parked.remove(&number).expect("it was just there");
        self.parked_bytes -= parked_bytes(parked.key.as_deref());
        match &parked.key {
            Some(key) => self.keys.remove(key),
            None => self.alone.remove(&parked.head),
        };
    }

    /// Makes a record the head of its key, due at once.
    fn begin(&mut self, number: u64, head: Offset, now: Now) {
        let due = Due::after(now, 0);
        let parked = self.parked.get_mut(&number).expect("the caller has found it");
        parked.head = head;
        parked.attempts = 0;
        parked.first_failure = now.wall;
        parked.last_failure = now.wall;
        parked.due = Some(due);
        parked.reason.clear();
        parked.lease = None;
        self.due.insert((due.steady_ms, number));
    }

    /// Takes a head out of what is due or stops the partition; its due time is set anew or it is removed.
    fn undue(&mut self, number: u64) {
        let parked = &self.parked[&number];
        match parked.due {
            Some(due) => _ = self.due.remove(&(due.steady_ms, number)),
            None => self.stopping -= 1,
        }
    }
}

/// What a parked key counts against the bound.
fn parked_bytes(key: Option<&[u8]>) -> usize {
    PARKED_KEY_BYTES + key.map_or(0, <[u8]>::len)
}

fn due_record(origin: PartitionKey, parked: &Parked) -> DueRecord {
    DueRecord {
        topic: origin.topic,
        partition: origin.partition,
        offset: parked.head,
        attempt: parked.attempts + 1,
        key: parked.key.as_deref().map(<[u8]>::to_vec),
    }
}
