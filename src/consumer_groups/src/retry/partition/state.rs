//! The state of a partition as entries, and back.

use std::sync::Arc;

use super::{Due, Parked, PartitionRetries};
use crate::Now;
use crate::retry::dead_letters::{Origin, RetryAction};
use crate::retry::entry::{ParkedValue, RetryPart, RetryValue};

impl PartitionRetries {
    /// The present value of an entry; `None` when there is no such entry.
    pub(in crate::retry) fn value(&self, part: RetryPart) -> Option<RetryValue> {
        match part {
            RetryPart::Exhausted => self.letters.exhausted_value().map(RetryValue::Exhausted),
            RetryPart::DeadLetter(number) => self.letters.letter_value(number).map(RetryValue::DeadLetter),
            RetryPart::Parked(number) => self.parked.get(&number).map(|parked| RetryValue::Parked(parked_value(parked))),
            RetryPart::Queue(parked, number) => self.queues.value(parked, number).map(RetryValue::Queue),
            RetryPart::Settled(number) => self.settled.value(number).map(RetryValue::Settled),
        }
    }

    /// Every entry there is, in order.
    pub(in crate::retry) fn parts(&self) -> impl Iterator<Item = RetryPart> + '_ {
        let exhausted = self.letters.exhausted_value().map(|_| RetryPart::Exhausted);
        let letters = self.letters.letter_numbers().map(RetryPart::DeadLetter);
        let parked = self.parked.keys().copied().map(RetryPart::Parked);
        let queues = self.queues.entry_numbers().map(|(parked, number)| RetryPart::Queue(parked, number));
        let settled = self.settled.entry_numbers().map(RetryPart::Settled);
        exhausted.into_iter().chain(letters).chain(parked).chain(queues).chain(settled)
    }

    /// Applies one entry while the log is replayed; nothing else may be asked before [`PartitionRetries::restored`]. False when key and
    /// value do not belong together, or the value is none that this program writes.
    pub(in crate::retry) fn restore(&mut self, part: RetryPart, value: Option<RetryValue>) -> bool {
        if !value.as_ref().is_none_or(RetryValue::is_sound) {
            return false;
        }
        match (part, value) {
            (RetryPart::Exhausted, None) => self.letters.restore_exhausted(None),
            (RetryPart::Exhausted, Some(RetryValue::Exhausted(value))) => self.letters.restore_exhausted(Some(value)),
            (RetryPart::DeadLetter(number), None) => self.letters.restore_letter(number, None),
            (RetryPart::DeadLetter(number), Some(RetryValue::DeadLetter(value))) => {
                self.letters.restore_letter(number, Some(value));
            }
            (RetryPart::Parked(number), None) => _ = self.parked.remove(&number),
            (RetryPart::Parked(number), Some(RetryValue::Parked(value))) => _ = self.parked.insert(number, parked(value)),
            (RetryPart::Queue(parked, number), None) => self.queues.restore(parked, number, None),
            (RetryPart::Queue(parked, number), Some(RetryValue::Queue(offsets))) => {
                self.queues.restore(parked, number, Some(offsets));
            }
            (RetryPart::Settled(number), None) => self.settled.restore(number, None),
            (RetryPart::Settled(number), Some(RetryValue::Settled(bits))) => self.settled.restore(number, Some(bits)),
            _ => return false,
        }
        true
    }

    /// Everything is replayed: computes what is not stored, and says again what is to be done. False when the entries do not fit together.
    pub(in crate::retry) fn restored(
        &mut self,
        origin: Origin<'_>,
        now: Now,
        pause_ms_max: u32,
        actions: &mut Vec<RetryAction>,
    ) -> bool {
        let head_of = |number| self.parked.get(&number).map(|parked: &Parked| parked.head);
        if !self.queues.is_whole(head_of) || !self.letters.is_whole() {
            return false;
        }
        let mut restored = std::mem::take(&mut self.parked);
        for (number, parked) in &mut restored {
            let known = match &parked.key {
                Some(key) => self.keys.contains_key(key),
                None => self.alone.contains_key(&parked.head),
            };
            if known {
                return false;
            }
            if let Some(due) = &mut parked.due {
                // However the time of day has moved meanwhile, nobody waits for longer than the longest pause.
                let delay_ms = due.wall.0.saturating_sub(now.wall.0).clamp(0, i64::from(pause_ms_max));
                due.steady_ms = now.steady_ms.saturating_add(delay_ms.unsigned_abs());
            }
            self.index(*number, parked);
        }
        self.parked = restored;
        self.letters.resume(origin, actions);
        true
    }

    /// Whether there is nothing to keep.
    pub(in crate::retry) fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }
}

fn parked_value(parked: &Parked) -> ParkedValue {
    ParkedValue {
        key: parked.key.as_deref().map(<[u8]>::to_vec),
        head: parked.head,
        attempts: parked.attempts,
        first_failure: parked.first_failure,
        last_failure: parked.last_failure,
        due: parked.due.map(|due| due.wall),
        reason: parked.reason.clone(),
    }
}

fn parked(value: ParkedValue) -> Parked {
    Parked {
        key: value.key.map(Arc::from),
        head: value.head,
        attempts: value.attempts,
        first_failure: value.first_failure,
        last_failure: value.last_failure,
        due: value.due.map(|wall| Due { wall, steady_ms: 0 }),
        reason: value.reason,
        lease: None,
    }
}
