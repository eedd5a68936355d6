//! What became of records: retries and the commit change together, per partition.

use wire::{CommittedOffset, ErrorCode, PartitionKey, SettlePartition, SettlePartitionReply, SettleReply, SettleRequest};

use super::Coordinator;
use super::commit::renewal_ms;
use crate::group::Group;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::retry::{SettleContext, SettledRecords};
use crate::topics::Topics;

/// What is the same for all partitions of a request.
struct Settling<'a> {
    now: Now,
    topics: &'a dyn Topics,
    request: &'a SettleRequest,
    random: u64,
    renewal_ms: u64,
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
        let retention_ms = self.options.offsets_retention_ms;
        let group = match self.group_to_settle(&id, request) {
            Ok(group) => group,
            Err(refusal) => return SettleReply { error: refusal.code, message: refusal.message, partitions: Vec::new() },
        };
        let renewal_ms = renewal_ms(group.retention_ms(retention_ms));
        let settling = Settling { now, topics, request, random, renewal_ms };
        let partitions = request.partitions.iter().map(|part| settling.settle_partition(group, part)).collect();
        self.finish(now, topics, &id, outcome);
        SettleReply { error: ErrorCode::None, message: None, partitions }
    }

    fn group_to_settle(&mut self, id: &GroupId, request: &SettleRequest) -> Result<&mut Group, Refusal> {
        request.validate()?;
        let group = self.groups.get_mut(id).ok_or(ErrorCode::UnknownMember)?;
        group.membership.authorize(&request.member_id, request.member_epoch)?;
        Ok(group)
    }
}

impl Settling<'_> {
    fn settle_partition(&self, group: &mut Group, part: &SettlePartition) -> SettlePartitionReply {
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
        match self.try_settle(group, partition, part) {
            Ok(settled) => {
                (reply.outcomes, reply.released, reply.full_from) = (settled.outcomes, settled.released, settled.full_from);
            }
            Err(refusal) => (reply.error, reply.message) = (refusal.code, refusal.message),
        }
        reply.committed = group.offsets.get(partition).map(|committed| committed.position.offset);
        reply
    }

    fn try_settle(&self, group: &mut Group, partition: PartitionKey, part: &SettlePartition) -> Result<SettledRecords, Refusal> {
        part.validate()?;
        if !self.topics.has(partition) {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        }
        let topic = self.topics.by_id(partition.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let member = group.membership.authorize(&self.request.member_id, self.request.member_epoch)?;
        member.authorize_partition(self.request.member_epoch, partition)?;
        part.commit.as_ref().map_or(Ok(()), |commit| group.offsets.check(partition, commit))?;
        let context = SettleContext {
            partition,
            topic: topic.name,
            committed: group.offsets.get(partition).map(|committed| committed.position.offset),
            now: self.now,
            random: self.random,
        };
        let settled = group.retries.settle(context, part, &mut group.retried);
        let settled = settled.map_err(|error| Refusal { code: ErrorCode::InvalidRequest, message: Some(error.to_string()) })?;
        if let (Some(offset), Some(asked)) = (settled.commit, &part.commit) {
            let position = CommittedOffset { offset, ..asked.clone() };
            // A refused record below what is committed is one that was handled before: nothing goes back for it.
            if group.offsets.check(partition, &position).is_ok() {
                group.offsets.set(self.now.wall, partition, position, self.renewal_ms);
            }
        }
        Ok(settled)
    }
}
