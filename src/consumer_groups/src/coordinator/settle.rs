//! What became of records: retries and the commit change together, per partition.

use wire::{
    CommittedOffset, ErrorCode, MemberEpoch, PartitionKey, SettlePartition, SettlePartitionReply, SettleReply, SettleRequest,
};

use super::Coordinator;
use super::commit::renewal_ms;
use crate::group::Group;
use crate::ids::GroupId;
use crate::membership::Member;
use crate::now::Now;
use crate::offsets::Offsets;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::retry::{GroupRetries, RetryOutcome, SettleContext, SettledRecords};
use crate::topics::Topics;

/// A request of a member, and what of its group it changes.
struct Settling<'a> {
    now: Now,
    topics: &'a dyn Topics,
    member: &'a Member,
    member_epoch: MemberEpoch,
    random: u64,
    renewal_ms: u64,
    offsets: &'a mut Offsets,
    retries: &'a mut GroupRetries,
    retried: &'a mut RetryOutcome,
}

impl Coordinator {
    pub(super) fn settle(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        request: &SettleRequest,
        random: u64,
        outcome: &mut Outcome,
    ) -> SettleReply {
        let id = GroupId::from(request.group.as_str());
        match self.settle_partitions(now, topics, &id, request, random) {
            Ok(partitions) => {
                self.finish(now, topics, &id, outcome);
                SettleReply { error: ErrorCode::None, message: None, partitions }
            }
            Err(refusal) => SettleReply { error: refusal.code, message: refusal.message, partitions: Vec::new() },
        }
    }

    fn settle_partitions(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        id: &GroupId,
        request: &SettleRequest,
        random: u64,
    ) -> Result<Vec<SettlePartitionReply>, Refusal> {
        request.validate()?;
        let group = self.groups.get_mut(id).ok_or(ErrorCode::UnknownMember)?;
        let renewal_ms = renewal_ms(group.retention_ms(self.options.offsets_retention_ms));
        let Group { membership, offsets, retries, retried, .. } = group;
        let member_epoch = request.member_epoch;
        let member = membership.authorize(&request.member_id, member_epoch)?;
        let mut settling = Settling { now, topics, member, member_epoch, random, renewal_ms, offsets, retries, retried };
        Ok(request.partitions.iter().map(|part| settling.settle_partition(part)).collect())
    }
}

impl Settling<'_> {
    fn settle_partition(&mut self, part: &SettlePartition) -> SettlePartitionReply {
        let partition = PartitionKey::new(part.topic, part.partition);
        let mut reply = SettlePartitionReply {
            topic: part.topic,
            partition: part.partition,
            error: ErrorCode::None,
            message: None,
            outcomes: Vec::new(),
            released: Vec::new(),
            full_from: None,
            committed: None,
        };
        match self.try_settle(partition, part) {
            Ok(settled) => {
                (reply.outcomes, reply.released, reply.full_from) = (settled.outcomes, settled.released, settled.full_from);
            }
            Err(refusal) => (reply.error, reply.message) = (refusal.code, refusal.message),
        }
        reply.committed = self.offsets.get(partition).map(|committed| committed.position.offset);
        reply
    }

    fn try_settle(&mut self, partition: PartitionKey, part: &SettlePartition) -> Result<SettledRecords, Refusal> {
        part.validate()?;
        if !self.topics.has(partition) {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        }
        let topic = self.topics.by_id(partition.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        self.member.authorize_partition(self.member_epoch, partition)?;
        part.commit.as_ref().map_or(Ok(()), |commit| self.offsets.check(partition, commit))?;
        let context = SettleContext {
            partition,
            topic: topic.name,
            committed: self.offsets.get(partition).map(|committed| committed.position.offset),
            now: self.now,
            random: self.random,
        };
        let settled = self.retries.settle(context, part, self.retried);
        let settled = settled.map_err(|error| Refusal { code: ErrorCode::InvalidRequest, message: Some(error.to_string()) })?;
        if let (Some(offset), Some(asked)) = (settled.commit, &part.commit) {
            let position = CommittedOffset { offset, ..asked.clone() };
            // A refused record below what is committed is one that was handled before: nothing goes back for it.
            if self.offsets.check(partition, &position).is_ok() {
                self.offsets.set(self.now.wall, partition, position, self.renewal_ms);
            }
        }
        Ok(settled)
    }
}
