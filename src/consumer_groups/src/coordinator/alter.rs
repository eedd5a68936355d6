//! What an operator changes: offsets and settings.

use wire::{
    AlterGroupReply, AlterGroupRequest, AlterOffsetsReply, AlterOffsetsRequest, AlterPartition, Change, CommittedOffset,
    ErrorCode, GroupPartitionReply, PartitionKey,
};

use super::Coordinator;
use crate::group::Group;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::refusal::{Refusal, answer};
use crate::state::RetentionValue;
use crate::topics::Topics;

impl Coordinator {
    pub(super) fn alter_offsets(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        request: AlterOffsetsRequest,
        outcome: &mut Outcome,
    ) -> AlterOffsetsReply {
        let id = GroupId::from(request.group.as_str());
        let group = request.validate().map_err(Refusal::from).and_then(|()| Ok(self.group_or_new(&id)?));
        let group = match group {
            Ok(group) => group,
            Err(refusal) => {
                return AlterOffsetsReply { error: refusal.code, message: refusal.message, partitions: Vec::new() };
            }
        };
        let mut partitions = Vec::with_capacity(request.partitions.len());
        for altered in &request.partitions {
            let (error, message) = answer(alter_partition(now, topics, group, altered));
            partitions.push(GroupPartitionReply { topic: altered.topic, partition: altered.partition, error, message });
        }
        self.finish(now, topics, &id, outcome);
        AlterOffsetsReply { error: ErrorCode::None, message: None, partitions }
    }

    pub(super) fn alter_group(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        request: &AlterGroupRequest,
        outcome: &mut Outcome,
    ) -> AlterGroupReply {
        let id = GroupId::from(request.group.as_str());
        let result = self.try_alter_group(&id, request);
        self.finish(now, topics, &id, outcome);
        let (error, message) = answer(result);
        let default_ms = self.options.offsets_retention_ms;
        let offsets_retention_ms = self.groups.get(&id).map_or(Some(default_ms), |group| group.retention_ms(default_ms));
        AlterGroupReply { error, message, retry: Default::default(), offsets_retention_ms }
    }

    fn try_alter_group(&mut self, id: &GroupId, request: &AlterGroupRequest) -> Result<(), Refusal> {
        request.validate()?;
        let group = self.group_or_new(id)?;
        let retention = match request.offsets_retention_ms {
            Change::Keep => group.offsets_retention,
            Change::Unset => RetentionValue::Forever,
            Change::Set(retention_ms) => RetentionValue::Ms(retention_ms),
        };
        if retention != group.offsets_retention {
            group.offsets_retention = retention;
            group.is_changed = true;
        }
        Ok(())
    }
}

fn alter_partition(now: Now, topics: &dyn Topics, group: &mut Group, altered: &AlterPartition) -> Result<(), Refusal> {
    let partition = PartitionKey::new(altered.topic, altered.partition);
    if !topics.has(partition) {
        return Err(ErrorCode::UnknownTopicOrPartition.into());
    }
    if group.membership.holder(partition).is_some() {
        return Err(ErrorCode::PartitionOwned.into());
    }
    match altered.offset {
        None => _ = group.offsets.remove(partition),
        Some(offset) => {
            let position = CommittedOffset { offset, leader_epoch: None, metadata: None };
            position.validate()?;
            group.offsets.set(now.wall, partition, position, 0);
        }
    }
    Ok(())
}
