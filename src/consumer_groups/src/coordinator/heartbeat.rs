//! Heartbeats: answered at once when there is news, else held until there is.

use std::collections::{BTreeMap, BTreeSet};

use wire::{
    AssignedTopic, ErrorCode, GroupHeartbeatReply, GroupHeartbeatRequest, MemberEpoch, PartitionIndex, PartitionKey, TopicId,
};

use super::Coordinator;
use crate::ids::{GroupId, InstanceId, MemberId};
use crate::limits::HEARTBEATS_PER_SESSION_MIN;
use crate::membership::{Beat, Client, Member, Urgency, Waiting};
use crate::now::Now;
use crate::outcome::{Outcome, Reply, Token};
use crate::refusal::Refusal;
use crate::topics::Topics;

impl Coordinator {
    /// The reply, or `None` when it comes later.
    pub(super) fn heartbeat(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        token: Token,
        request: GroupHeartbeatRequest,
        client: Client,
        outcome: &mut Outcome,
    ) -> Option<GroupHeartbeatReply> {
        if let Err(error) = request.validate() {
            return Some(refused(error.into()));
        }
        let id = GroupId::from(request.group.as_str());
        let reply = match request.member_epoch {
            MemberEpoch::LEAVE | MemberEpoch::LEAVE_STATIC => Some(self.leave(now, topics, &id, &request)),
            _ => self.stay(now, topics, token, &id, request, client, outcome),
        };
        self.finish(now, topics, &id, outcome);
        reply
    }

    fn leave(&mut self, now: Now, topics: &dyn Topics, id: &GroupId, request: &GroupHeartbeatRequest) -> GroupHeartbeatReply {
        let result = match self.groups.get_mut(id) {
            None => Err(ErrorCode::UnknownMember),
            Some(group) if request.member_epoch == MemberEpoch::LEAVE_STATIC => {
                group.membership.leave_for_a_while(now.steady_ms, &request.member_id)
            }
            Some(group) => {
                let left = group.membership.leave(&request.member_id);
                left.inspect(|()| group.membership.retarget(topics))
            }
        };
        match result {
            // Whoever is no member has left: the answer to the first such heartbeat may have been lost.
            Ok(()) | Err(ErrorCode::UnknownMember) => {
                GroupHeartbeatReply { member_epoch: request.member_epoch, ..refused(ErrorCode::None.into()) }
            }
            Err(code) => refused(code.into()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a request in its parts, and what every handler has")]
    fn stay(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        token: Token,
        id: &GroupId,
        request: GroupHeartbeatRequest,
        client: Client,
        outcome: &mut Outcome,
    ) -> Option<GroupHeartbeatReply> {
        let interval_ms = self.options.heartbeat_interval_ms.min(request.session_timeout_ms / HEARTBEATS_PER_SESSION_MIN);
        let member_id = MemberId::from(request.member_id.as_str());
        let wait_ms = u64::from(request.max_wait_ms.min(interval_ms));
        let is_joining = request.member_epoch == MemberEpoch::JOIN;
        let group = match self.groups.get_mut(id) {
            None if !is_joining => return Some(refused(ErrorCode::UnknownMember.into())),
            _ => self.group_or_new(id),
        };
        let group = match group {
            Ok(group) => group,
            Err(code) => return Some(refused(code.into())),
        };
        let urgency = match group.membership.heartbeat(now.steady_ms, beat(member_id.clone(), request, client), topics) {
            Ok(urgency) => urgency,
            Err(code) => return Some(refused(code.into())),
        };
        let until_ms = now.steady_ms + wait_ms;
        let before = match urgency {
            Urgency::CanWait if wait_ms > 0 => group.membership.set_waiting(member_id.as_str(), Waiting { token, until_ms }),
            _ => group.membership.take_waiting(member_id.as_str()),
        };
        let member = &group.membership.members()[&member_id];
        let is_held = member.waiting.is_some();
        let reply = reply(member, interval_ms, topics);
        // Its sender has sent another, and so waits for it no longer.
        if let Some(before) = before {
            self.waiting.remove(&before.token);
            outcome.replies.push((before.token, Reply::Heartbeat(reply.clone())));
        }
        if is_held {
            self.waiting.insert(token, id.clone());
            self.wake_by(id, until_ms);
        }
        (!is_held).then_some(reply)
    }

    /// Answers a heartbeat that waits.
    pub(super) fn answer_waiting(&mut self, topics: &dyn Topics, id: &GroupId, member_id: &MemberId, outcome: &mut Outcome) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(waiting) = group.membership.take_waiting(member_id.as_str()) else { return };
        self.waiting.remove(&waiting.token);
        let member = &group.membership.members()[member_id];
        let interval_ms = self.options.heartbeat_interval_ms.min(member.session_timeout_ms / HEARTBEATS_PER_SESSION_MIN);
        outcome.replies.push((waiting.token, Reply::Heartbeat(reply(member, interval_ms, topics))));
    }
}

fn beat(member: MemberId, request: GroupHeartbeatRequest, client: Client) -> Beat {
    let distinct = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let partitions = |owned: Vec<wire::TopicPartitions>| -> BTreeSet<PartitionKey> {
        owned.iter().flat_map(|of| of.partitions.iter().map(|&partition| PartitionKey::new(of.topic, partition))).collect()
    };
    Beat {
        member,
        instance: request.instance_id.as_deref().map(InstanceId::from),
        epoch: request.member_epoch,
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        assignor: request.assignor,
        topics: request.topics.map(distinct),
        owned: request.owned.map(partitions),
        client,
    }
}

/// What the member is told: its whole assignment until it has confirmed that.
fn reply(member: &Member, heartbeat_interval_ms: u32, topics: &dyn Topics) -> GroupHeartbeatReply {
    let assignment = (!member.is_confirmed).then(|| {
        let mut by_topic: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
        member.assignment().for_each(|partition| by_topic.entry(partition.topic).or_default().push(partition.partition));
        let name = |id: TopicId| topics.by_id(id).map(|topic| topic.name.to_owned()).unwrap_or_default();
        let assigned = |(topic, partitions)| AssignedTopic { topic, name: name(topic), partitions };
        by_topic.into_iter().map(assigned).collect()
    });
    GroupHeartbeatReply { error: ErrorCode::None, message: None, member_epoch: member.epoch, heartbeat_interval_ms, assignment }
}

pub(super) fn refused(refusal: Refusal) -> GroupHeartbeatReply {
    GroupHeartbeatReply {
        error: refusal.code,
        message: refusal.message,
        member_epoch: MemberEpoch::LEAVE,
        heartbeat_interval_ms: 0,
        assignment: None,
    }
}
