//! A heartbeat: joining, staying, and saying what was given up.

use std::collections::BTreeSet;

use wire::{Assignor, ErrorCode, MemberEpoch, PartitionKey};

use super::member::Client;
use super::targets::check_subscription;
use super::{Member, Membership, Presence};
use crate::ids::{InstanceId, MemberId};
use crate::limits::MEMBERS_PER_GROUP_MAX;
use crate::topics::Topics;

/// What a member that joins or stays says.
#[derive(Debug)]
pub(crate) struct Beat {
    pub member: MemberId,
    pub instance: Option<InstanceId>,
    /// [`MemberEpoch::JOIN`], or one it was given.
    pub epoch: MemberEpoch,
    pub session_timeout_ms: u32,
    pub rebalance_timeout_ms: u32,
    pub assignor: Option<Assignor>,
    /// Names of topics, ordered, without repetition; `None` for the same as before.
    pub topics: Option<Vec<String>>,
    /// What it owns; `None` says nothing.
    pub owned: Option<BTreeSet<PartitionKey>>,
    pub client: Client,
}

/// When a heartbeat is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Now: the member does not know what it should.
    Now,
    /// When there is news, or before its next heartbeat is due.
    CanWait,
}

impl Membership {
    /// Takes in a heartbeat and reconciles the member; the answer is its epoch and assignment after that.
    ///
    /// # Errors
    /// The member may not speak, the group is full, or the subscription is not allowed.
    pub(crate) fn heartbeat(&mut self, now_ms: u64, beat: Beat, topics: &dyn Topics) -> Result<Urgency, ErrorCode> {
        if let Some(names) = &beat.topics {
            check_subscription(names, topics)?;
        }
        let is_joining = beat.epoch == MemberEpoch::JOIN;
        let is_known = self.members.get(&beat.member).is_some_and(|member| member.presence == Presence::Here);
        let mut has_changed = false;
        if is_joining && !is_known {
            self.join(now_ms, &beat)?;
            has_changed = true;
        } else if !is_joining {
            self.authorize(beat.member.as_str(), beat.epoch)?;
        }
        has_changed |= self.update(now_ms, &beat);
        if has_changed {
            self.retarget(topics);
        }
        if !is_joining {
            self.take_acknowledgements(now_ms, &beat);
        }
        let is_news = self.reconcile(now_ms, &beat.member);
        let member = &self.members[&beat.member];
        let lacks = beat.owned.as_ref().is_some_and(|owned| member.assignment().any(|partition| !owned.contains(&partition)));
        let must_answer = is_news || lacks || beat.epoch != member.epoch;
        Ok(if must_answer { Urgency::Now } else { Urgency::CanWait })
    }

    /// Adds a member. With an instance id it takes over from the one that had it.
    fn join(&mut self, now_ms: u64, beat: &Beat) -> Result<(), ErrorCode> {
        if self.members.get(&beat.member).is_some_and(|member| member.presence == Presence::Replaced) {
            return Err(ErrorCode::FencedInstance);
        }
        let names = beat.topics.clone().ok_or(ErrorCode::InvalidRequest)?;
        let before = beat.instance.as_ref().and_then(|instance| self.instances.get(instance).cloned());
        let takes_a_place = before.as_ref().or_else(|| self.members.contains_key(&beat.member).then_some(&beat.member)).is_some();
        if !takes_a_place && self.members.len() >= MEMBERS_PER_GROUP_MAX {
            return Err(ErrorCode::GroupFull);
        }
        let target = before.map_or_else(Vec::new, |before| self.replace(now_ms, &before));
        if self.members.contains_key(&beat.member) {
            // It was away under another instance id, or now has none.
            self.remove(&beat.member);
        }
        if let Some(instance) = &beat.instance {
            self.instances.insert(instance.clone(), beat.member.clone());
        }
        let next_epoch = MemberEpoch(self.epoch.0 + 1);
        let member = Member {
            instance: beat.instance.clone(),
            presence: Presence::Here,
            joined: next_epoch,
            epoch: next_epoch,
            topics: names,
            assignor: beat.assignor,
            session_timeout_ms: beat.session_timeout_ms,
            rebalance_timeout_ms: beat.rebalance_timeout_ms,
            client: beat.client.clone(),
            target,
            holdings: Default::default(),
            revoked: 0,
            session_ends_ms: now_ms,
            is_confirmed: false,
            waiting: None,
        };
        self.members.insert(beat.member.clone(), member);
        self.changes.members.insert(beat.member.clone());
        Ok(())
    }

    /// Ends the membership of an instance's former process, and returns what it was to have. One that did not say that it stops may still
    /// believe in what it holds: that is freed when its session ends.
    fn replace(&mut self, now_ms: u64, member_id: &MemberId) -> Vec<PartitionKey> {
        let epoch = MemberEpoch(self.epoch.0 + 1);
        let member = self.members.get_mut(member_id).expect("instances name members");
        let target = std::mem::take(&mut member.target);
        if member.holdings.is_empty() {
            self.remove(member_id);
            return target;
        }
        member.presence = Presence::Replaced;
        self.changes.dismissed.extend(member.waiting.take().map(|waiting| (waiting.token, ErrorCode::FencedInstance)));
        let held: Vec<PartitionKey> = member.assignment().collect();
        held.into_iter().for_each(|partition| member.revoke(now_ms, partition, epoch));
        self.changes.members.insert(member_id.clone());
        target
    }

    /// Takes in what a member says about itself; true when its subscription has changed.
    fn update(&mut self, now_ms: u64, beat: &Beat) -> bool {
        let member = self.members.get_mut(&beat.member).expect("it is a member by now");
        let settings = (member.session_timeout_ms, member.rebalance_timeout_ms);
        (member.session_timeout_ms, member.rebalance_timeout_ms) = (beat.session_timeout_ms, beat.rebalance_timeout_ms);
        member.touch(now_ms);
        let mut is_stored_changed = settings != (member.session_timeout_ms, member.rebalance_timeout_ms);
        if member.client != beat.client {
            member.client.clone_from(&beat.client);
            is_stored_changed = true;
        }
        let mut has_changed = false;
        if let Some(names) = &beat.topics
            && member.topics != *names
        {
            member.topics.clone_from(names);
            has_changed = true;
        }
        if beat.assignor.is_some() && member.assignor != beat.assignor {
            member.assignor = beat.assignor;
            has_changed = true;
        }
        if has_changed || is_stored_changed {
            self.changes.members.insert(beat.member.clone());
        }
        has_changed
    }

    /// Frees what the member says it gave up. It counts only in an epoch in which the member had been told: an older heartbeat that
    /// lacks the partition may have been sent before the member had it.
    fn take_acknowledgements(&mut self, now_ms: u64, beat: &Beat) {
        let member = self.members.get_mut(&beat.member).expect("it is a member by now");
        if member.revoked > 0 {
            member.see_revocations(now_ms, beat.epoch);
        }
        let Some(owned) = &beat.owned else { return };
        member.is_confirmed = beat.epoch == member.epoch && member.assignment().eq(owned.iter().copied());
        let is_told = |revoked: Option<MemberEpoch>| revoked.is_some_and(|revoked| revoked <= beat.epoch);
        let given_up =
            member.holdings.iter().filter(|(partition, holding)| is_told(holding.revoked) && !owned.contains(partition));
        let given_up: Vec<PartitionKey> = given_up.map(|(&partition, _)| partition).collect();
        given_up.into_iter().for_each(|partition| self.free(&beat.member, partition));
    }
}
