//! One partition of a member.

mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use wire::limits::{FAILURE_REASON_BYTES_MAX, SETTLE_WINDOW_OFFSETS};
use wire::{
    CommittedOffset, DeferredRecord, DoneRecord, DueRecord, ErrorCode, FailedRecord, FetchedOffset, LeaderEpoch, Offset,
    SettleOutcome, SettlePartition, SettlePartitionReply, parking_key,
};

pub(super) use self::told::Untold;
use super::keys::Keys;
use super::{Assignment, Delivery, FULL_PAUSE, Room};

type Key = Arc<[u8]>;

/// Attempts of a record that does not come back.
const ATTEMPTS_ALL: u32 = u32::MAX;

/// A record of the log that is offered and not settled.
#[derive(Debug)]
struct Offered<T> {
    key: Option<Key>,
    stage: Stage<T>,
}

#[derive(Debug)]
enum Stage<T> {
    /// An earlier one of its key is in the way: it waits, or goes to the coordinator when that one is parked.
    Later(T),
    Ready(T),
    Handling,
    /// To be told to the coordinator.
    Failed(String),
}

/// A record that is due again, leased to this member.
#[derive(Debug)]
struct Retry<T> {
    key: Option<Key>,
    attempt: u32,
    stage: RetryStage<T>,
}

#[derive(Debug)]
enum RetryStage<T> {
    Fetching,
    Ready(T),
    Handling,
    /// To be told to the coordinator.
    Done,
    /// To be told to the coordinator.
    Failed(String),
}

/// What became of a record that came due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryTaken {
    /// It is to be read from the log.
    Fetch,
    /// It is here, or what is to be said of it is.
    InHand,
    /// Something under way speaks of it: it is to be given again.
    NotNow,
}

#[derive(Debug)]
pub(super) struct Assigned<T> {
    pub(super) assignment: Assignment,
    /// Among the partitions with something to deliver.
    pub(super) is_queued: bool,
    start: Offset,
    /// Everything below was offered.
    next: Offset,
    /// As the coordinator knows it.
    committed: Option<Offset>,
    /// From which offset on records were read under which leader, above the commit.
    epochs: VecDeque<(Offset, LeaderEpoch)>,
    records: BTreeMap<Offset, Offered<T>>,
    retries: BTreeMap<Offset, Retry<T>>,
    keys: Keys,
    /// Retries without a key that were settled since the last poll left, and the attempts behind them: its answer may still speak of them.
    settled_alone: BTreeMap<Offset, u32>,
    /// Offsets that the coordinator held or had settled when the assignment began.
    held: BTreeSet<Offset>,
    /// Keys parked at that time: their records below were handled before.
    handled_below: BTreeMap<Key, Offset>,
    ready: VecDeque<Offset>,
    retries_ready: VecDeque<Offset>,
    is_stopped: bool,
    /// It is about to be given up.
    is_ending: bool,
    /// The coordinator has no room for what failed.
    is_full: bool,
    /// The coordinator says that there is no such topic.
    is_unknown: bool,
    /// There is something to tell, from then on.
    settle_at: Option<Instant>,
    /// Something to tell at once.
    has_news: bool,
}

impl<T> Assigned<T> {
    pub(super) fn new(assignment: Assignment, fetched: &FetchedOffset, start: Offset) -> Self {
        let mut keys = Keys::default();
        let mut handled_below = BTreeMap::new();
        for parked in &fetched.parked {
            let key: Key = parked.key.as_slice().into();
            keys.park(&key);
            handled_below.insert(key, parked.head);
        }
        Self {
            assignment,
            is_queued: false,
            start,
            next: start,
            committed: fetched.committed.as_ref().map(|committed| committed.offset),
            epochs: VecDeque::new(),
            records: BTreeMap::new(),
            retries: BTreeMap::new(),
            keys,
            settled_alone: BTreeMap::new(),
            held: fetched.held.iter().copied().filter(|offset| *offset >= start).collect(),
            handled_below,
            ready: VecDeque::new(),
            retries_ready: VecDeque::new(),
            is_stopped: fetched.stopped,
            is_ending: false,
            is_full: false,
            is_unknown: false,
            settle_at: None,
            has_news: false,
        }
    }

    pub(super) fn wants(&self, in_flight_max: usize) -> bool {
        let window_end = self.committed.unwrap_or(self.start).plus(SETTLE_WINDOW_OFFSETS);
        !self.is_stopped && !self.is_ending && !self.is_full && self.records.len() < in_flight_max && self.next < window_end
    }

    pub(super) fn offer(&mut self, offset: Offset, leader_epoch: LeaderEpoch, key: Option<&[u8]>, record: T) {
        if offset < self.next {
            return;
        }
        if self.epochs.back().is_none_or(|(_, epoch)| *epoch != leader_epoch) {
            self.epochs.push_back((offset, leader_epoch));
        }
        let key = key.map(parking_key);
        let key = key.as_deref();
        let handled = key.is_some_and(|key| self.handled_below.get(key).is_some_and(|head| offset < *head));
        let is_held = self.held.contains(&offset);
        self.passed(offset.plus(1));
        if handled || is_held {
            return;
        }
        let key: Option<Key> = key.map(Arc::from);
        let is_ready = key.as_ref().is_none_or(|key| self.keys.enter(key, offset));
        if is_ready {
            self.ready.push_back(offset);
        } else {
            self.has_news |= key.as_deref().is_some_and(|key| self.is_parked(key));
        }
        let stage = if is_ready { Stage::Ready(record) } else { Stage::Later(record) };
        self.records.insert(offset, Offered { key, stage });
    }

    pub(super) fn passed(&mut self, next: Offset) {
        if next <= self.next {
            return;
        }
        self.next = next;
        // What was known at the beginning is of use only until it is passed.
        if !self.held.is_empty() {
            self.held = self.held.split_off(&next);
        }
        if !self.handled_below.is_empty() {
            self.handled_below.retain(|_, head| *head > next);
        }
    }

    pub(super) fn has_next(&self) -> bool {
        !self.is_stopped && !self.is_ending && (!self.retries_ready.is_empty() || (!self.ready.is_empty() && !self.is_full))
    }

    pub(super) fn next(&mut self) -> Option<Delivery<T>> {
        if !self.has_next() {
            return None;
        }
        if let Some(offset) = self.retries_ready.pop_front() {
            let retry = self.retries.get_mut(&offset).expect("what is ready is there");
            let RetryStage::Ready(record) = std::mem::replace(&mut retry.stage, RetryStage::Handling) else {
                unreachable!("a retry enters the queue when it is ready")
            };
            return Some(Delivery { assignment: self.assignment, offset, attempt: retry.attempt, record });
        }
        let offset = self.ready.pop_front()?;
        let offered = self.records.get_mut(&offset).expect("what is ready is there");
        let Stage::Ready(record) = std::mem::replace(&mut offered.stage, Stage::Handling) else {
            unreachable!("a record enters the queue when it is ready")
        };
        Some(Delivery { assignment: self.assignment, offset, attempt: 1, record })
    }

    pub(super) fn done(&mut self, offset: Offset) -> bool {
        if let Some(retry) = self.retries.get_mut(&offset) {
            if !matches!(retry.stage, RetryStage::Handling) {
                return false;
            }
            retry.stage = RetryStage::Done;
            self.has_news = true;
            return true;
        }
        if !self.is_handling(offset) {
            return false;
        }
        let offered = self.records.remove(&offset).expect("it was just there");
        if let Some(key) = offered.key {
            self.advance(&key);
        }
        true
    }

    pub(super) fn fail(&mut self, offset: Offset, reason: &str) -> bool {
        let reason = shortened(reason);
        if let Some(retry) = self.retries.get_mut(&offset) {
            if !matches!(retry.stage, RetryStage::Handling) {
                return false;
            }
            retry.stage = RetryStage::Failed(reason);
            self.has_news = true;
            return true;
        }
        if !self.is_handling(offset) {
            return false;
        }
        let offered = self.records.get_mut(&offset).expect("it was just there");
        offered.stage = Stage::Failed(reason);
        if let Some(key) = &offered.key {
            self.keys.park(key);
        }
        self.has_news = true;
        true
    }

    fn is_handling(&self, offset: Offset) -> bool {
        self.records.get(&offset).is_some_and(|offered| matches!(offered.stage, Stage::Handling))
    }

    fn is_parked(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|held| held.is_parked)
    }

    /// The current record of a key is out of the way.
    fn advance(&mut self, key: &[u8]) {
        let Some(offset) = self.keys.advance(key) else { return };
        let offered = self.records.get_mut(&offset).expect("what waits is there");
        let stage = std::mem::replace(&mut offered.stage, Stage::Handling);
        let Stage::Later(record) = stage else { unreachable!("only later ones wait") };
        offered.stage = Stage::Ready(record);
        self.ready.push_back(offset);
    }

    pub(super) fn position(&self) -> Offset {
        self.records.first_key_value().map_or(self.next, |(offset, _)| *offset)
    }

    pub(super) fn stop(&mut self) {
        self.is_ending = true;
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    pub(super) fn is_settled(&self) -> bool {
        if self.is_ending && self.is_unknown {
            // The topic was deleted: nobody wants to know.
            return true;
        }
        let in_hand = self.records.values().any(|offered| matches!(offered.stage, Stage::Handling | Stage::Failed(_)));
        let retry_in_hand =
            self.retries.values().any(|retry| !matches!(retry.stage, RetryStage::Fetching | RetryStage::Ready(_)));
        !in_hand && !retry_in_hand && !self.has_news && self.committed == Some(self.position())
    }

    pub(super) fn committed(&self) -> Option<Offset> {
        self.committed
    }

    /// The next one to offer.
    #[cfg(test)]
    pub(super) fn next_offset(&self) -> Offset {
        self.next
    }

    pub(super) fn settle_at(&self) -> Option<Instant> {
        self.settle_at
    }

    /// What to tell of this partition, in the room that is left.
    pub(super) fn next_settle(&mut self, now: Instant, with_commits: bool, room: &mut Room) -> Option<SettlePartition> {
        let is_time = match self.settle_at {
            Some(at) => at <= now,
            None => self.has_news || (with_commits && self.committed != Some(self.position())),
        };
        if !is_time {
            return None;
        }
        let mut part = SettlePartition {
            topic: self.assignment.partition.topic,
            partition: self.assignment.partition.partition,
            deferred: Vec::new(),
            done: Vec::new(),
            failed: Vec::new(),
            commit: None,
        };
        self.say_retries(&mut part, room);
        let said_up_to = self.say_records(&mut part, room);
        let target = if with_commits { said_up_to } else { self.start };
        if with_commits || self.committed.is_none() {
            let moves = self.committed.is_none_or(|committed| committed < target);
            part.commit =
                moves.then(|| CommittedOffset { offset: target, leader_epoch: self.epoch_before(target), metadata: None });
        }
        let says_nothing = part.deferred.is_empty() && part.done.is_empty() && part.failed.is_empty() && part.commit.is_none();
        // What found no room is said in the next request.
        self.has_news = room.settled == 0 || room.failed == 0;
        self.settle_at = None;
        (!says_nothing).then_some(part)
    }

    fn say_retries(&mut self, part: &mut SettlePartition, room: &mut Room) {
        for (offset, retry) in &self.retries {
            let key = retry.key.as_deref().map(<[u8]>::to_vec);
            match &retry.stage {
                RetryStage::Done if room.settled > 0 => {
                    room.settled -= 1;
                    part.done.push(DoneRecord { key, offset: *offset });
                }
                RetryStage::Failed(reason) if room.failed > 0 => {
                    room.failed -= 1;
                    part.failed.push(FailedRecord { offset: *offset, key, attempt: retry.attempt, reason: reason.clone() });
                }
                _ => {}
            }
        }
    }

    /// Says which records of the log failed or are to be held; returns up to where the commit may then go.
    fn say_records(&mut self, part: &mut SettlePartition, room: &mut Room) -> Offset {
        let mut stays = None;
        for (offset, offered) in &self.records {
            let is_said = match &offered.stage {
                Stage::Failed(reason) if room.failed > 0 => {
                    room.failed -= 1;
                    let key = offered.key.as_deref().map(<[u8]>::to_vec);
                    part.failed.push(FailedRecord { offset: *offset, key, attempt: 1, reason: reason.clone() });
                    true
                }
                Stage::Later(_) => {
                    let key = offered.key.as_deref().expect("only behind a key does one wait");
                    let is_parked = self.is_parked(key);
                    if is_parked && room.settled > 0 {
                        room.settled -= 1;
                        part.deferred.push(DeferredRecord { key: key.to_vec(), offset: *offset });
                    } else if is_parked {
                        return stays.unwrap_or(*offset);
                    }
                    is_parked
                }
                // One that does not fit must not be passed by later ones of its key.
                Stage::Failed(_) => return stays.unwrap_or(*offset),
                Stage::Ready(_) | Stage::Handling => false,
            };
            if !is_said {
                stays.get_or_insert(*offset);
            }
        }
        stays.unwrap_or(self.next)
    }

    fn epoch_before(&self, position: Offset) -> Option<LeaderEpoch> {
        let before = self.epochs.iter().rev().find(|(from, _)| *from < position);
        before.map(|(_, epoch)| *epoch)
    }

    pub(super) fn settled(&mut self, now: Instant, part: &SettlePartition, reply: &SettlePartitionReply) {
        self.committed = self.committed.max(reply.committed);
        self.is_unknown = reply.error == ErrorCode::UnknownTopicOrPartition;
        if reply.error != ErrorCode::None {
            self.has_news = true;
            self.settle_at = Some(now + FULL_PAUSE);
            return;
        }
        for done in &part.done {
            self.retry_settled(done.offset, ATTEMPTS_ALL);
        }
        let mut is_full = reply.full_from.is_some();
        for (failed, outcome) in part.failed.iter().zip(&reply.outcomes) {
            if *outcome == SettleOutcome::Full {
                is_full = true;
                continue;
            }
            self.is_stopped |= *outcome == SettleOutcome::Stopped;
            let attempts = match outcome {
                SettleOutcome::Parked { attempts, .. } => *attempts,
                // When an operator lets the partition go on, attempts are counted anew.
                SettleOutcome::Stopped => 0,
                _ => ATTEMPTS_ALL,
            };
            if !self.retry_settled(failed.offset, attempts) {
                self.records.remove(&failed.offset);
                if let Some(held) = failed.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
                    held.current = None;
                }
            }
        }
        for deferred in &part.deferred {
            if reply.full_from.is_none_or(|full_from| deferred.offset < full_from) {
                self.records.remove(&deferred.offset);
                self.keys.deferred(&deferred.key, deferred.offset);
            }
        }
        for key in &reply.released {
            self.release(key);
        }
        if let Some(committed) = self.committed {
            while self.epochs.get(1).is_some_and(|(from, _)| *from < committed) {
                self.epochs.pop_front();
            }
        }
        // What was refused may flow again meanwhile, with its key: then nothing is left that waits for room.
        self.is_full = is_full && self.records.values().any(|offered| self.is_to_be_said(offered));
        if self.is_full {
            self.settle_at = Some(now + FULL_PAUSE);
        }
    }

    fn is_to_be_said(&self, offered: &Offered<T>) -> bool {
        match offered.stage {
            Stage::Failed(_) => true,
            Stage::Later(_) => offered.key.as_deref().is_some_and(|key| self.is_parked(key)),
            Stage::Ready(_) | Stage::Handling => false,
        }
    }

    /// A retry is settled, and that many of its attempts are behind it; false when it is none.
    fn retry_settled(&mut self, offset: Offset, attempts: u32) -> bool {
        let Some(retry) = self.retries.remove(&offset) else { return false };
        match &retry.key {
            None => drop(self.settled_alone.insert(offset, attempts)),
            Some(key) => {
                if let Some(held) = self.keys.get_mut(key) {
                    held.last_retry = Some((offset, attempts));
                }
            }
        }
        if self.is_full {
            // It may have made room.
            self.has_news = true;
            self.settle_at = None;
        }
        true
    }

    /// The coordinator holds nothing of a key any more: it flows, unless one of its records failed here and is not yet taken.
    fn release(&mut self, key: &[u8]) {
        let Some(held) = self.keys.get_mut(key) else { return };
        if held.current.is_some() {
            return;
        }
        held.is_parked = false;
        self.advance(key);
    }

    /// A poll leaves: its answer knows what is settled by now.
    pub(super) fn polled(&mut self) {
        self.settled_alone.clear();
    }

    /// Takes a record that is due again.
    pub(super) fn take_retry(&mut self, record: &DueRecord) -> RetryTaken {
        if self.is_ending {
            // Who has the partition next is given it.
            return RetryTaken::InHand;
        }
        if let Some(offered) = self.records.get(&record.offset) {
            if !matches!(offered.stage, Stage::Ready(_)) {
                return RetryTaken::NotNow;
            }
            self.ready_to_retry(record);
            return RetryTaken::InHand;
        }
        if let Some(retry) = self.retries.get(&record.offset) {
            return if retry.attempt == record.attempt { RetryTaken::InHand } else { RetryTaken::NotNow };
        }
        if record.key.is_none() && self.settled_alone.get(&record.offset) >= Some(&record.attempt) {
            return RetryTaken::NotNow;
        }
        let mut stage = RetryStage::Fetching;
        let key: Option<Key> = record.key.as_deref().map(Arc::from);
        if let Some(key) = &key {
            match self.keys.get(key) {
                Some(held) if held.is_parked => {
                    if held.last_retry >= Some((record.offset, record.attempt)) {
                        return RetryTaken::NotNow;
                    }
                }
                // A copy of a request came late and parked what had been handled by then.
                _ if record.offset < self.next => {
                    stage = RetryStage::Done;
                    self.has_news = true;
                }
                Some(_) => return RetryTaken::NotNow,
                None => _ = self.keys.park(key),
            }
        }
        // Nothing is due of a stopped partition: it was resumed.
        self.is_stopped = false;
        if record.offset >= self.next {
            self.held.insert(record.offset);
        }
        let taken = if matches!(stage, RetryStage::Done) { RetryTaken::InHand } else { RetryTaken::Fetch };
        self.retries.insert(record.offset, Retry { key, attempt: record.attempt, stage });
        taken
    }

    /// A copy of a request came late and gave away a record that waits here to be delivered. It is the coordinator's now: where that has no
    /// room nothing else of the log is delivered, and this one may be what makes room.
    fn ready_to_retry(&mut self, record: &DueRecord) {
        let offset = record.offset;
        let offered = self.records.remove(&offset).expect("what is ready is there");
        let Stage::Ready(ready) = offered.stage else { unreachable!("only what is ready becomes a retry") };
        self.ready.retain(|ready| *ready != offset);
        if let Some(key) = &offered.key {
            self.keys.park(key).current = None;
            self.has_news = true;
        }
        self.is_stopped = false;
        let stage = RetryStage::Ready(ready);
        self.retries.insert(offset, Retry { key: offered.key, attempt: record.attempt, stage });
        self.retries_ready.push_back(offset);
    }

    pub(super) fn retry_fetched(&mut self, offset: Offset, record: T) {
        let Some(retry) = self.retries.get_mut(&offset) else { return };
        if matches!(retry.stage, RetryStage::Fetching) {
            retry.stage = RetryStage::Ready(record);
            self.retries_ready.push_back(offset);
        }
    }

    pub(super) fn retry_unreadable(&mut self, offset: Offset, reason: &str) {
        let Some(retry) = self.retries.get_mut(&offset) else { return };
        if matches!(retry.stage, RetryStage::Fetching) {
            retry.stage = RetryStage::Failed(shortened(reason));
            self.has_news = true;
        }
    }
}

/// As much of a reason as a request may carry.
fn shortened(reason: &str) -> String {
    reason[..reason.floor_char_boundary(FAILURE_REASON_BYTES_MAX)].to_owned()
}
