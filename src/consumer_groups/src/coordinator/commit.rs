//! Commits of members, and of those who need no membership.

use wire::{
    CommitOffsetsReply, CommitOffsetsRequest, CommitPartition, ErrorCode, GroupPartitionReply, MemberEpoch, PartitionKey,
};

use super::Coordinator;
use crate::group::Group;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::refusal::{Refusal, answer};
use crate::topics::Topics;

/// A repeated commit is stored again when it is younger by this share of the retention.
const RENEWALS_PER_RETENTION: u64 = 8;

impl Coordinator {
    pub(super) fn commit_offsets(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        request: CommitOffsetsRequest,
        outcome: &mut Outcome,
    ) -> CommitOffsetsReply {
        let id = GroupId::from(request.group.as_str());
        let retention_ms = self.options.offsets_retention_ms;
        let group = request.validate().map_err(Refusal::from).and_then(|()| self.group_for_commit(&id, &request));
        let group = match group {
            Ok(group) => group,
            Err(refusal) => {
                return CommitOffsetsReply { error: refusal.code, message: refusal.message, partitions: Vec::new() };
            }
        };
        let renewal_ms = group.retention_ms(retention_ms).unwrap_or(u64::MAX) / RENEWALS_PER_RETENTION;
        let member = request.member_id.as_deref().map(|member| (member, request.member_epoch));
        let mut partitions = Vec::with_capacity(request.partitions.len());
        for CommitPartition { topic, partition, commit } in request.partitions {
            let key = PartitionKey::new(topic, partition);
            let result = commit.validate().map_err(Refusal::from).and_then(|()| {
                if !topics.has(key) {
                    return Err(ErrorCode::UnknownTopicOrPartition.into());
                }
                check_commit(group, member, key, &commit)
            });
            let is_allowed = result.is_ok();
            let (error, message) = answer(result);
            partitions.push(GroupPartitionReply { topic, partition, error, message });
            if is_allowed {
                group.offsets.set(now.wall, key, commit, renewal_ms);
            }
        }
        self.finish(now, topics, &id, outcome);
        CommitOffsetsReply { error: ErrorCode::None, message: None, partitions }
    }

    fn group_for_commit(&mut self, id: &GroupId, request: &CommitOffsetsRequest) -> Result<&mut Group, Refusal> {
        let Some(member) = &request.member_id else {
            let group = self.group_or_new(id)?;
            let is_free = group.membership.is_empty();
            return if is_free { Ok(group) } else { Err(ErrorCode::GroupNotEmpty.into()) };
        };
        let group = self.groups.get_mut(id).ok_or(ErrorCode::UnknownMember)?;
        group.membership.authorize(member, request.member_epoch)?;
        Ok(group)
    }
}

/// Whether the commit may be taken; without a member it may.
fn check_commit(
    group: &Group,
    member: Option<(&str, MemberEpoch)>,
    partition: PartitionKey,
    commit: &wire::CommittedOffset,
) -> Result<(), Refusal> {
    let Some((member, epoch)) = member else { return Ok(()) };
    let member = group.membership.authorize(member, epoch)?;
    member.authorize_partition(epoch, partition)?;
    Ok(group.offsets.check(partition, commit)?)
}
