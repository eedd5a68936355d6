//! One step of a member towards its target.

use wire::PartitionKey;

use super::{Membership, Presence};
use crate::ids::MemberId;

impl Membership {
    /// Revokes what the member holds and is not to have, grants what it is to have and nobody holds, and gives it the group's epoch. True when
    /// it is to hear of it.
    ///
    /// Only when the answer is sent at once: with this the time starts in which it must give up.
    pub(super) fn reconcile(&mut self, now_ms: u64, member_id: &MemberId) -> bool {
        let epoch = self.epoch;
        let Some(member) = self.members.get_mut(member_id).filter(|member| member.presence == Presence::Here) else {
            return false;
        };
        let unwanted: Vec<PartitionKey> = member.assignment().filter(|&partition| !member.is_in_target(partition)).collect();
        for &partition in &unwanted {
            member.revoke(now_ms, partition, epoch);
        }
        let is_behind = member.epoch != epoch;
        member.epoch = epoch;
        let free: Vec<PartitionKey> =
            member.target.iter().copied().filter(|partition| !self.holders.contains_key(partition)).collect();
        for &partition in &free {
            self.grant(member_id, partition);
        }
        let is_news = is_behind || !unwanted.is_empty() || !free.is_empty();
        if is_news {
            self.changes.members.insert(member_id.clone());
            self.members.get_mut(member_id).expect("it is a member").is_confirmed = false;
        }
        is_news
    }

    /// Reconciles those whose heartbeat waits, and names those who have news.
    pub(crate) fn reconcile_waiting(&mut self, now_ms: u64) -> Vec<MemberId> {
        let waiting: Vec<MemberId> =
            self.members.iter().filter(|(_, member)| member.waiting.is_some()).map(|(id, _)| id.clone()).collect();
        waiting.into_iter().filter(|id| self.reconcile(now_ms, id)).collect()
    }

    /// Those whose heartbeat has waited long enough.
    pub(crate) fn due_waiting(&self, now_ms: u64) -> Vec<MemberId> {
        let is_due = |until_ms: Option<u64>| until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        let due = self.members.iter().filter(|(_, member)| is_due(member.waiting.as_ref().map(|waiting| waiting.until_ms)));
        due.map(|(id, _)| id.clone()).collect()
    }
}
