//! The end of every event: news for those who wait, what is to be stored, and when to look again.

use super::Coordinator;
use super::heartbeat::refused;
use super::take_retries::taken;
use crate::group::Group;
use crate::ids::{GroupId, MemberId};
use crate::limits::{EXPIRED_LOOK_MS, WALL_SLEEP_MS_MAX};
use crate::membership::{Changes, Presence};
use crate::now::Now;
use crate::outcome::{Outcome, Reply, Token};
use crate::topics::Topics;

impl Coordinator {
    /// Finishes what an event changed in a group.
    pub(super) fn finish(&mut self, now: Now, topics: &dyn Topics, id: &GroupId, outcome: &mut Outcome) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let mut changes = group.membership.take_changes();
        self.rebalances += u64::from(changes.epoch);
        for (token, code) in std::mem::take(&mut changes.dismissed) {
            self.waiting.remove(&token);
            outcome.replies.push((token, Reply::Heartbeat(refused(code.into()))));
        }
        if changes.epoch || !changes.freed.is_empty() {
            for member in group.membership.reconcile_waiting(now.steady_ms) {
                self.answer_waiting(topics, id, &member, outcome);
            }
        }
        self.follow_ownership(now, id, &changes);
        self.store(now, id, changes, outcome);
    }

    /// What members were given to try again goes on with their partitions; what can be given now is.
    fn follow_ownership(&mut self, now: Now, id: &GroupId, changes: &Changes) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Group { membership, retries, retried, .. } = group;
        changes.freed.iter().for_each(|(partition, _)| retries.release_partition(*partition));
        let is_gone = |id: &&MemberId| !membership.members().get(*id).is_some_and(|member| member.presence == Presence::Here);
        changes.members.iter().filter(is_gone).for_each(|member| retries.release_member(member, retried));
        retries.answer_polls(now, |member, partition| membership.is_owner(member, partition), retried);
    }

    fn store(&mut self, now: Now, id: &GroupId, mut changes: Changes, outcome: &mut Outcome) {
        let group = self.groups.get_mut(id).expect("nothing in an event removes the group before its end");
        if group.is_nothing() && !group.is_stored {
            // A request asked for a new group, and was refused.
            self.forget(id);
            return;
        }
        changes.members.append(&mut group.membership.take_changes().members);
        group.note_emptiness(now);
        let is_quiet = changes.members.is_empty() && !group.is_changed && group.wake_at_ms.is_some();
        outcome.retry_actions.append(&mut group.retried.actions);
        let answers = std::mem::take(&mut group.retried.answers);
        outcome
            .replies
            .extend(answers.into_iter().map(|answer| (Token(answer.request), Reply::TakeRetries(taken(answer.records)))));
        group.write_changes(id, &changes, outcome);
        // A heartbeat that changed nothing only puts off what was due: the timer may go off too early, and is set anew then.
        let retries_at_ms = group.next_retry_ms();
        match retries_at_ms {
            _ if !is_quiet => self.set_timer(now, id),
            Some(at_ms) => self.wake_by(id, at_ms),
            None => {}
        }
    }

    /// Looks at the group by then.
    pub(super) fn wake_by(&mut self, id: &GroupId, at_ms: u64) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.wake_at_ms.is_some_and(|before_ms| before_ms <= at_ms) {
            return;
        }
        if let Some(before_ms) = group.wake_at_ms.replace(at_ms) {
            self.timers.remove(&(before_ms, id.clone()));
        }
        self.timers.insert((at_ms, id.clone()));
    }

    /// Looks at the group when something of it is due next.
    pub(super) fn set_timer(&mut self, now: Now, id: &GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if let Some(before_ms) = group.wake_at_ms.take() {
            self.timers.remove(&(before_ms, id.clone()));
        }
        let expiry = group.expires_at(self.options.offsets_retention_ms, self.loaded_at);
        let until_expiry_ms = expiry.map(|at| match at.0.saturating_sub(now.wall.0) {
            until_ms @ 1.. => until_ms.unsigned_abs(),
            _ => EXPIRED_LOOK_MS,
        });
        let by_wall_ms = now.steady_ms + until_expiry_ms.map_or(WALL_SLEEP_MS_MAX, |ms| ms.min(WALL_SLEEP_MS_MAX));
        let deadlines = [group.membership.next_deadline_ms(), group.next_retry_ms()].into_iter().flatten();
        let at_ms = deadlines.fold(by_wall_ms, u64::min);
        self.wake_by(id, at_ms);
    }

    /// Takes the group out of memory.
    pub(super) fn forget(&mut self, id: &GroupId) {
        if let Some(at_ms) = self.groups.remove(id).and_then(|group| group.wake_at_ms) {
            self.timers.remove(&(at_ms, id.clone()));
        }
    }
}
