//! What a member says of its records becomes state: all of it in one change, and harmless when it is said again.
//!
//! ```text
//!   done, failed heads ──► then, by offset: newly failed and deferred ──► commit, up to the first one refused
//! ```

use thiserror::Error;
use wire::limits::SETTLE_WINDOW_OFFSETS;
use wire::{Exhausted, FailedRecord, Offset, RetryPolicy, SettleOutcome, SettlePartition, TimestampMs};

use super::{Due, PartitionRetries, parked_bytes};
use crate::Now;
use crate::retry::backoff::{delay_ms, mixed};
use crate::retry::dead_letters::{Origin, RetryAction};
use crate::retry::entry::{Changes, DeadLetterValue, RetryPart};
use crate::retry::limits::RetryLimits;

/// Where and when a member settles.
#[derive(Clone, Copy)]
pub(in crate::retry) struct SettleAt<'a> {
    pub(in crate::retry) origin: Origin<'a>,
    pub(in crate::retry) now: Now,
    pub(in crate::retry) random: u64,
    /// Where the commit stands before.
    pub(in crate::retry) committed: Option<Offset>,
    pub(in crate::retry) limits: RetryLimits,
    pub(in crate::retry) policy: &'a RetryPolicy,
    pub(in crate::retry) dead_letter_topic: &'a str,
}

/// What settling led to, as the reply says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledRecords {
    /// What becomes of each failed record.
    pub outcomes: Vec<SettleOutcome>,
    /// Keys named that are not parked.
    pub released: Vec<Vec<u8>>,
    /// The first deferred record that was refused.
    pub full_from: Option<Offset>,
    /// The commit to make with this change of state, never past a record that was refused; `None` when none was asked for.
    pub commit: Option<Offset>,
}

/// Records were to be parked where the group has no committed offset and the request brings none: what it remembers could not be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("records can be parked only where the group has a committed offset, or with one")]
pub struct NoPositionError;

/// A record that is not yet parked.
struct Fresh<'a> {
    offset: Offset,
    key: Option<&'a [u8]>,
    /// Its place among the failed ones; `None` for a deferred one.
    failed: Option<(usize, &'a FailedRecord)>,
}

impl PartitionRetries {
    pub(in crate::retry) fn settle(
        &mut self,
        at: &SettleAt<'_>,
        part: &SettlePartition,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) -> Result<SettledRecords, NoPositionError> {
        let asked = part.commit.as_ref().map(|commit| commit.offset);
        let base = at.committed.max(asked);
        if base.is_none() && !(part.deferred.is_empty() && part.failed.is_empty()) {
            return Err(NoPositionError);
        }
        let window_end = base.unwrap_or_default().plus(SETTLE_WINDOW_OFFSETS);
        self.settle_done(at, part, changes);

        let mut outcomes = vec![SettleOutcome::Full; part.failed.len()];
        let mut fresh: Vec<Fresh<'_>> =
            part.deferred.iter().map(|record| Fresh { offset: record.offset, key: Some(&record.key), failed: None }).collect();
        for (place, record) in part.failed.iter().enumerate() {
            let key = record.key.as_deref();
            match self.find(key, record.offset).filter(|number| self.parked[number].head == record.offset) {
                Some(number) => outcomes[place] = self.fail_head(number, record, at, changes, actions),
                None => fresh.push(Fresh { offset: record.offset, key, failed: Some((place, record)) }),
            }
        }
        // In the order of the log, so that behind one without room nothing is taken that the commit could not pass anyway, and no record
        // gets before an earlier one of its key.
        fresh.sort_by_key(|record| record.offset);
        let mut refused_from = None;
        let mut full_from = None;
        for record in fresh {
            let known = self.known(record.key, record.offset, at.committed);
            let taken = known.or_else(|| {
                let room = refused_from.is_none() && record.offset < window_end;
                if room { self.take_fresh(&record, at, changes, actions) } else { None }
            });
            if taken.is_none() {
                refused_from.get_or_insert(record.offset);
            }
            match (record.failed, taken) {
                (Some((place, _)), Some(outcome)) => outcomes[place] = outcome,
                (None, None) => _ = full_from.get_or_insert(record.offset),
                (Some(_), None) | (None, Some(_)) => {}
            }
        }
        let commit = asked.map(|asked| refused_from.map_or(asked, |refused: Offset| asked.min(refused)));
        if let Some(commit) = commit.max(at.committed) {
            self.settled.passed(commit, changes);
        }
        Ok(SettledRecords { outcomes, released: self.released(part), full_from, commit })
    }

    fn settle_done(&mut self, at: &SettleAt<'_>, part: &SettlePartition, changes: &mut Changes) {
        let committed = at.committed.unwrap_or_default();
        for record in &part.done {
            let Some(number) = self.find(record.key.as_deref(), record.offset) else { continue };
            if self.parked[&number].head == record.offset {
                self.settle_head(number, committed, at.now, changes);
            } else if self.queues.remove(number, record.offset, changes) && record.offset >= committed {
                self.settled.insert(record.offset, changes);
            }
        }
    }

    /// What to answer about a record that is settled, parked or held back already.
    fn known(&self, key: Option<&[u8]>, offset: Offset, committed: Option<Offset>) -> Option<SettleOutcome> {
        if let Some(number) = self.find(key, offset) {
            let parked = &self.parked[&number];
            if parked.head == offset {
                return Some(self.standing(number));
            }
            if self.queues.contains(number, offset) {
                let due = parked.due.map_or(TimestampMs(i64::MAX), |due| due.wall);
                return Some(SettleOutcome::Parked { due_ms: due, attempts: 0 });
            }
        }
        let passed = committed.is_some_and(|committed| offset < committed) || self.settled.contains(offset);
        passed.then_some(SettleOutcome::Settled)
    }

    /// Parks or holds back a record; `None` when there is no room.
    fn take_fresh(
        &mut self,
        record: &Fresh<'_>,
        at: &SettleAt<'_>,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) -> Option<SettleOutcome> {
        let Some(number) = self.find(record.key, record.offset) else {
            if !self.has_room(at.limits, parked_bytes(record.key)) {
                return None;
            }
            let number = self.park(record.key, record.offset, at.now, changes);
            return Some(self.count_fresh(number, record, at, changes, actions));
        };
        if !self.has_room(at.limits, 0) {
            return None;
        }
        let head = self.parked[&number].head;
        if record.offset > head {
            self.queues.insert(number, record.offset, changes);
            return Some(self.standing(number));
        }
        // An earlier record than the head was handled before, or its member did not keep the order: it goes first, and the head is
        // counted anew when its turn comes.
        self.undue(number);
        self.queues.insert(number, head, changes);
        changes.insert(RetryPart::Parked(number));
        self.begin(number, record.offset, at.now);
        Some(self.count_fresh(number, record, at, changes, actions))
    }

    fn count_fresh(
        &mut self,
        number: u64,
        record: &Fresh<'_>,
        at: &SettleAt<'_>,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) -> SettleOutcome {
        match record.failed {
            Some((_, failed)) => self.count_failure(number, &failed.reason, at, changes, actions),
            None => self.standing(number),
        }
    }

    /// A head failed again, or its failure is reported again.
    fn fail_head(
        &mut self,
        number: u64,
        record: &FailedRecord,
        at: &SettleAt<'_>,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) -> SettleOutcome {
        if record.attempt <= self.parked[&number].attempts {
            return self.standing(number);
        }
        self.count_failure(number, &record.reason, at, changes, actions)
    }

    /// How a head stands, as the answer to a repeated report.
    fn standing(&self, number: u64) -> SettleOutcome {
        let parked = &self.parked[&number];
        match parked.due {
            Some(due) => SettleOutcome::Parked { due_ms: due.wall, attempts: parked.attempts },
            None => SettleOutcome::Stopped,
        }
    }

    fn count_failure(
        &mut self,
        number: u64,
        reason: &str,
        at: &SettleAt<'_>,
        changes: &mut Changes,
        actions: &mut Vec<RetryAction>,
    ) -> SettleOutcome {
        self.undue(number);
        changes.insert(RetryPart::Parked(number));
        let parked = self.parked.get_mut(&number).expect("the caller has found it");
        parked.attempts += 1;
        parked.last_failure = at.now.wall;
        if parked.attempts == 1 {
            parked.first_failure = at.now.wall;
        }
        parked.reason.clear();
        parked.reason.push_str(reason);
        parked.lease = None;
        if parked.attempts < at.policy.attempts_max {
            let delay_ms = delay_ms(at.policy, parked.attempts, mixed(at.random, parked.head.0));
            let due = Due::after(at.now, delay_ms);
            parked.due = Some(due);
            self.due.insert((due.steady_ms, number));
            return self.standing(number);
        }
        // Out of what is due; each way out says what it is instead.
        parked.due = None;
        self.stopping += 1;
        match at.policy.exhausted {
            Exhausted::Stop => return SettleOutcome::Stopped,
            Exhausted::Skip => self.letters.skip(changes),
            Exhausted::DeadLetter => {
                let letter = DeadLetterValue {
                    offset: parked.head,
                    attempts: parked.attempts,
                    first_failure: parked.first_failure,
                    last_failure: parked.last_failure,
                    key: parked.key.as_deref().map(<[u8]>::to_vec),
                    reason: parked.reason.clone(),
                };
                self.letters.add(at.origin, at.dead_letter_topic, letter, changes, actions);
            }
        }
        self.settle_head(number, at.committed.unwrap_or_default(), at.now, changes);
        if at.policy.exhausted == Exhausted::Skip { SettleOutcome::Skipped } else { SettleOutcome::DeadLettered }
    }

    /// Of the keys that the request names, those that are not parked.
    fn released(&self, part: &SettlePartition) -> Vec<Vec<u8>> {
        let deferred = part.deferred.iter().map(|record| &record.key);
        let done = part.done.iter().filter_map(|record| record.key.as_ref());
        let failed = part.failed.iter().filter_map(|record| record.key.as_ref());
        let mut released: Vec<&Vec<u8>> =
            deferred.chain(done).chain(failed).filter(|key| !self.keys.contains_key(key.as_slice())).collect();
        released.sort_unstable();
        released.dedup();
        released.into_iter().cloned().collect()
    }
}
