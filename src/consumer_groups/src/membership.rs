//! Who is in a group, and who owns what: reconciliation step by step (after KIP-848).
//!
//! ```text
//!   group epoch 7 ──► members, subscriptions or topics change ──► group epoch 8: every member has a new target
//!
//!   member, at its next heartbeat:
//!      held, not in the target   ──► revoked: it is told, and holds it until it says that it gave it up
//!      in the target, held by none ──► granted: it is told
//!      in both                   ──► stays: it does not notice
//! ```
//!
//! Invariants:
//! - A partition has at most one holder. It is freed only when the holder said so in an epoch in which it knew that it should, left, was
//!   silent for its session, had its rebalance time-out to give it up, or did not show for two sessions that it knows that it should.
//! - A member believes that it owns what the last answer it saw said, until its session ends, counted from the sending of the last
//!   heartbeat that was answered (an answer that comes after that end counts as lost), or until its rebalance time-out ends, counted from
//!   the answer that revoked. It passes over an answer to an earlier heartbeat than that of the last one, and says in each heartbeat what it owns. Each belief ends
//!   before the partition is freed: so no two members believe in one partition, whatever is lost, late or sent twice.
//! - An epoch that was given to this member is accepted from it, older ones included: an answer may have been lost.
//!
//! Absent on purpose: how a reply looks, and what is stored of it when.

mod heartbeat;
mod member;
mod reconcile;
mod targets;

use std::collections::{BTreeMap, BTreeSet};

use wire::{ErrorCode, MemberEpoch, PartitionKey};

pub(crate) use heartbeat::{Beat, Urgency};
pub use member::Client;
pub(crate) use member::{Holding, Member, Presence, Waiting};

use crate::ids::{InstanceId, MemberId};
use crate::outcome::Token;

/// An epoch that a change each second reaches after decades. Beyond it the stored one was not written by this program.
const EPOCH_MAX: i32 = i32::MAX / 2;

/// The members of one group.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    epoch: MemberEpoch,
    members: BTreeMap<MemberId, Member>,
    instances: BTreeMap<InstanceId, MemberId>,
    /// The holder of each partition: the members' holdings the other way round.
    holders: BTreeMap<PartitionKey, MemberId>,
    changes: Changes,
}

/// What has changed since it was last asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The group's epoch.
    pub epoch: bool,
    /// These members, removed ones included.
    pub members: BTreeSet<MemberId>,
    /// Partitions that their holders no longer have.
    pub freed: Vec<(PartitionKey, MemberId)>,
    /// Heartbeats that waited for members that are none any more, and why.
    pub dismissed: Vec<(Token, ErrorCode)>,
}

impl Membership {
    pub(crate) fn epoch(&self) -> MemberEpoch {
        self.epoch
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn members(&self) -> &BTreeMap<MemberId, Member> {
        &self.members
    }

    pub(crate) fn holder(&self, partition: PartitionKey) -> Option<&MemberId> {
        self.holders.get(&partition)
    }

    /// Whether the member holds the partition and is to keep it.
    pub(crate) fn is_owner(&self, member_id: &MemberId, partition: PartitionKey) -> bool {
        let Some(member) = self.members.get(member_id).filter(|member| member.presence == Presence::Here) else { return false };
        member.holdings.get(&partition).is_some_and(|holding| holding.revoked.is_none())
    }

    /// Every partition that somebody holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.holders.keys().copied()
    }

    /// Whether every member has what it is to have.
    pub(crate) fn is_stable(&self) -> bool {
        self.members.values().all(|member| member.epoch == self.epoch && member.has_reached_target())
    }

    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// The member, when it may speak in that epoch.
    ///
    /// # Errors
    /// It is not a member, another has its instance id, or the epoch was never given to it.
    pub(crate) fn authorize(&self, member_id: &str, epoch: MemberEpoch) -> Result<&Member, ErrorCode> {
        let member = self.members.get(member_id).ok_or(ErrorCode::UnknownMember)?;
        match member.presence {
            Presence::Replaced => Err(ErrorCode::FencedInstance),
            Presence::Away => Err(ErrorCode::UnknownMember),
            Presence::Here if epoch < member.joined || epoch > member.epoch => Err(ErrorCode::FencedMemberEpoch),
            Presence::Here => Ok(member),
        }
    }

    /// Whether anybody subscribes to the topic of that name.
    pub(crate) fn is_subscribed(&self, name: &str) -> bool {
        self.members.values().any(|member| member.topics.binary_search_by(|topic| topic.as_str().cmp(name)).is_ok())
    }

    /// Removes a member for good: it owns nothing from now on.
    ///
    /// # Errors
    /// There is no such member.
    pub(crate) fn leave(&mut self, member_id: &str) -> Result<(), ErrorCode> {
        let (member_id, _) = self.members.get_key_value(member_id).ok_or(ErrorCode::UnknownMember)?;
        let member_id = member_id.clone();
        self.remove(&member_id);
        Ok(())
    }

    /// A static member stops, and will be back: it owns nothing from now on, but its partitions are kept for its instance.
    ///
    /// # Errors
    /// There is no such member, or it has no instance id.
    pub(crate) fn leave_for_a_while(&mut self, now_ms: u64, member_id: &str) -> Result<(), ErrorCode> {
        let member = self.members.get_mut(member_id).ok_or(ErrorCode::UnknownMember)?;
        if member.presence == Presence::Replaced {
            return Err(ErrorCode::FencedInstance);
        }
        if member.instance.is_none() {
            return Err(ErrorCode::InvalidRequest);
        }
        if member.presence == Presence::Here {
            member.presence = Presence::Away;
            member.touch(now_ms);
            self.changes.dismissed.extend(member.waiting.take().map(|waiting| (waiting.token, ErrorCode::UnknownMember)));
            let (member_id, _) = self.members.get_key_value(member_id).expect("just found");
            let member_id = member_id.clone();
            self.changes.members.insert(member_id.clone());
            self.free_all(&member_id);
        }
        Ok(())
    }

    /// Removes who has been silent for too long, and frees what was not given up in time. True when there is to be a new epoch: a member is
    /// gone, or what was taken from one must not come back to it in the epoch in which its late commits are still good.
    pub(crate) fn expire(&mut self, now_ms: u64) -> bool {
        let is_over = |member: &Member| member.session_ends_ms <= now_ms;
        let gone: Vec<MemberId> = self.members.iter().filter(|(_, member)| is_over(member)).map(|(id, _)| id.clone()).collect();
        let mut must_retarget = false;
        for member_id in gone {
            must_retarget |= self.members[&member_id].presence != Presence::Replaced;
            self.remove(&member_id);
        }
        let overdue: Vec<(MemberId, PartitionKey)> = self
            .members
            .iter()
            .flat_map(|(id, member)| member.overdue(now_ms).map(move |partition| (id.clone(), partition)))
            .collect();
        must_retarget |= !overdue.is_empty();
        for (member_id, partition) in overdue {
            self.free(&member_id, partition);
        }
        must_retarget
    }

    /// When [`Membership::expire`] has something to do next.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.members.values().filter_map(Member::next_deadline_ms).min()
    }

    /// Starts every session anew, after the state was read back.
    pub(crate) fn start_sessions(&mut self, now_ms: u64) {
        self.members.values_mut().for_each(|member| member.start_session(now_ms));
    }

    /// Puts back what was stored of a member, or forgets it.
    pub(crate) fn restore(&mut self, member_id: MemberId, member: Option<Member>) {
        if let Some(before) = self.members.remove(&member_id) {
            before.holdings.keys().for_each(|&partition| self.forget_holder(partition, &member_id));
            self.forget_instance(&before, &member_id);
        }
        let Some(member) = member else { return };
        self.holders.extend(member.holdings.keys().map(|&partition| (partition, member_id.clone())));
        if let (Some(instance), true) = (&member.instance, member.presence != Presence::Replaced) {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        self.members.insert(member_id, member);
    }

    /// What of the replayed members cannot be.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let holdings = self.members.iter().flat_map(|(id, member)| member.holdings.keys().map(move |&partition| (partition, id)));
        if holdings.clone().count() != self.holders.len() {
            return Some("a partition has two holders");
        }
        if holdings.into_iter().any(|(partition, id)| self.holders.get(&partition) != Some(id)) {
            return Some("a partition is held by somebody else");
        }
        if !(0..EPOCH_MAX).contains(&self.epoch.0) {
            return Some("an epoch that no group reaches");
        }
        let is_known = |epoch: MemberEpoch| epoch.0 >= 0 && epoch <= self.epoch;
        let knows = |member: &Member| member.joined <= member.epoch && is_known(member.joined) && is_known(member.epoch);
        if !self.members.values().all(knows) {
            return Some("a member has an epoch that its group never had");
        }
        let is_named = |(id, member): (&MemberId, &Member)| match &member.instance {
            Some(instance) if member.presence != Presence::Replaced => self.instances.get(instance) == Some(id),
            _ => true,
        };
        (!self.members.iter().all(is_named)).then_some("two members have one instance id")
    }

    /// Puts back the stored epoch.
    pub(crate) fn restore_epoch(&mut self, epoch: MemberEpoch) {
        self.epoch = epoch;
    }

    /// The heartbeat that waits at a member, taken away.
    pub(crate) fn take_waiting(&mut self, member_id: &str) -> Option<Waiting> {
        self.members.get_mut(member_id)?.waiting.take()
    }

    /// Lets a heartbeat wait; the one that waited before it is returned.
    pub(crate) fn set_waiting(&mut self, member_id: &str, waiting: Waiting) -> Option<Waiting> {
        self.members.get_mut(member_id)?.waiting.replace(waiting)
    }

    /// Nobody waits for that answer any more.
    pub(crate) fn cancel_waiting(&mut self, token: Token) {
        let waits = |member: &&mut Member| member.waiting.as_ref().is_some_and(|waiting| waiting.token == token);
        if let Some(member) = self.members.values_mut().find(waits) {
            member.waiting = None;
        }
    }

    fn remove(&mut self, member_id: &MemberId) {
        self.free_all(member_id);
        if let Some(mut member) = self.members.remove(member_id) {
            self.forget_instance(&member, member_id);
            self.changes.dismissed.extend(member.waiting.take().map(|waiting| (waiting.token, ErrorCode::UnknownMember)));
        }
        self.changes.members.insert(member_id.clone());
    }

    fn forget_instance(&mut self, member: &Member, member_id: &MemberId) {
        if let Some(instance) = &member.instance
            && self.instances.get(instance) == Some(member_id)
        {
            self.instances.remove(instance);
        }
    }

    fn forget_holder(&mut self, partition: PartitionKey, member_id: &MemberId) {
        if self.holders.get(&partition) == Some(member_id) {
            self.holders.remove(&partition);
        }
    }

    fn free_all(&mut self, member_id: &MemberId) {
        let held: Vec<PartitionKey> =
            self.members.get(member_id).map_or_else(Vec::new, |member| member.holdings.keys().copied().collect());
        held.into_iter().for_each(|partition| self.free(member_id, partition));
    }

    fn free(&mut self, member_id: &MemberId, partition: PartitionKey) {
        let member = self.members.get_mut(member_id).expect("only members hold");
        assert!(member.drop_holding(partition), "{member_id} frees {partition}, which it does not hold");
        let holder = self.holders.remove(&partition);
        assert_eq!(holder.as_ref(), Some(member_id), "a partition has one holder");
        self.changes.members.insert(member_id.clone());
        self.changes.freed.push((partition, member_id.clone()));
    }

    fn grant(&mut self, member_id: &MemberId, partition: PartitionKey) {
        let before = self.holders.insert(partition, member_id.clone());
        assert_eq!(before, None, "a partition has one holder");
        let epoch = self.epoch;
        let member = self.members.get_mut(member_id).expect("only members hold");
        member.holdings.insert(partition, Holding::new(epoch));
        self.changes.members.insert(member_id.clone());
    }
}
