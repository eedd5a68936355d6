//! Commits of members, and of those who need no membership.

use wire::{
    CommitOffsetsReply, CommitOffsetsRequest, CommitPartition, CommittedOffset, ErrorCode, GroupPartitionReply, MemberEpoch,
    PartitionKey,
};

use super::Coordinator;
use crate::group::Group;
use crate::ids::GroupId;
use crate::membership::Member;
use crate::now::Now;
use crate::offsets::Offsets;
use crate::outcome::Outcome;
use crate::refusal::{Refusal, answer};
use crate::topics::Topics;

/// A repeated commit is stored again when it is younger by this share of the retention.
const RENEWALS_PER_RETENTION: u64 = 8;

/// How much younger than what is stored a repeated commit is when it is stored again.
pub(super) fn renewal_ms(retention_ms: Option<u64>) -> u64 {
    retention_ms.unwrap_or(u64::MAX) / RENEWALS_PER_RETENTION
}

impl Coordinator {
    pub(super) fn commit_offsets(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        request: CommitOffsetsRequest,
        outcome: &mut Outcome,
    ) -> CommitOffsetsReply {
        let id = GroupId::from(request.group.as_str());
        match self.commit_partitions(now, topics, &id, request) {
            Ok(partitions) => {
                self.finish(now, topics, &id, outcome);
                CommitOffsetsReply { error: ErrorCode::None, message: None, partitions }
            }
            Err(refusal) => CommitOffsetsReply { error: refusal.code, message: refusal.message, partitions: Vec::new() },
        }
    }

    fn commit_partitions(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        id: &GroupId,
        request: CommitOffsetsRequest,
    ) -> Result<Vec<GroupPartitionReply>, Refusal> {
        request.validate()?;
        let (retention_ms, epoch) = (self.options.offsets_retention_ms, request.member_epoch);
        let group = match &request.member_id {
            None => self.group_or_new(id)?,
            Some(_) => self.groups.get_mut(id).ok_or(ErrorCode::UnknownMember)?,
        };
        let renewal_ms = renewal_ms(group.retention_ms(retention_ms));
        let Group { membership, offsets, retries, retried, .. } = group;
        let member = match &request.member_id {
            None if !membership.is_empty() => return Err(ErrorCode::GroupNotEmpty.into()),
            None => None,
            Some(member) => Some(membership.authorize(member, epoch)?),
        };
        let mut partitions = Vec::with_capacity(request.partitions.len());
        for CommitPartition { topic, partition, commit } in request.partitions {
            let key = PartitionKey::new(topic, partition);
            let result = check_commit(topics, member, epoch, offsets, key, &commit);
            let is_allowed = result.is_ok();
            let (error, message) = answer(result);
            partitions.push(GroupPartitionReply { topic, partition, error, message });
            if is_allowed {
                retries.committed(key, commit.offset, retried);
                offsets.set(now.wall, key, commit, renewal_ms);
            }
        }
        Ok(partitions)
    }
}

/// Whether the commit may be taken; without a member it may go back.
fn check_commit(
    topics: &dyn Topics,
    member: Option<&Member>,
    epoch: MemberEpoch,
    offsets: &Offsets,
    partition: PartitionKey,
    commit: &CommittedOffset,
) -> Result<(), Refusal> {
    commit.validate()?;
    if !topics.has(partition) {
        return Err(ErrorCode::UnknownTopicOrPartition.into());
    }
    let Some(member) = member else { return Ok(()) };
    member.authorize_partition(epoch, partition)?;
    Ok(offsets.check(partition, commit)?)
}
