//! What an operator changes: offsets and settings.

use wire::{
    AlterGroupReply, AlterGroupRequest, AlterOffsetsReply, AlterOffsetsRequest, AlterPartition, Change, CommittedOffset,
    ErrorCode, GroupPartitionReply, OffsetsRetention, PartitionKey, RetryPolicy,
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
            let (error, message) = answer(alter_partition(now, topics, group, altered, request.clear_parked));
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
        let result = self.try_alter_group(now, topics, &id, request);
        self.finish(now, topics, &id, outcome);
        let (error, message) = answer(result);
        let default_ms = self.options.offsets_retention_ms;
        let unknown = Group::new(id.clone(), self.options.retry);
        let group = self.groups.get(&id).unwrap_or(&unknown);
        let retry = policy(group, request.topic.as_deref()).clone();
        AlterGroupReply { error, message, retry, offsets_retention_ms: group.retention_ms(default_ms) }
    }

    fn try_alter_group(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        id: &GroupId,
        request: &AlterGroupRequest,
    ) -> Result<(), Refusal> {
        request.validate()?;
        let group = self.group_or_new(id)?;
        let topic = request.topic.as_deref();
        let changed = match &request.retry {
            Change::Keep => None,
            Change::Unset => Some(None),
            Change::Set(changes) => Some(Some(changes.apply(policy(group, topic))?)),
        };
        if let Some(changed) = changed {
            let set = group.retries.set_policy(topic, changed, &mut group.retried);
            set.map_err(|error| Refusal { code: ErrorCode::InvalidConfig, message: Some(error.to_string()) })?;
        }
        if request.resume {
            resume(now, topics, group, topic);
        }
        let retention = match request.offsets_retention {
            Change::Keep => group.offsets_retention,
            Change::Unset => RetentionValue::Default,
            Change::Set(OffsetsRetention::Forever) => RetentionValue::Forever,
            Change::Set(OffsetsRetention::Ms(retention_ms)) => RetentionValue::Ms(retention_ms),
        };
        if retention != group.offsets_retention {
            group.offsets_retention = retention;
            group.is_changed = true;
        }
        Ok(())
    }
}

/// The policy that a change of it starts from.
fn policy<'a>(group: &'a Group, topic: Option<&str>) -> &'a RetryPolicy {
    topic.map_or_else(|| group.retries.group_policy(), |topic| group.retries.policy(topic))
}

/// Lets what was stopped go on, of one topic or all.
fn resume(now: Now, topics: &dyn Topics, group: &mut Group, topic: Option<&str>) {
    let id = topic.map(|name| topics.by_name(name).map(|topic| topic.id));
    let named: Vec<PartitionKey> =
        group.retries.partitions().filter(|partition| id.is_none_or(|id| id == Some(partition.topic))).collect();
    named.into_iter().for_each(|partition| _ = group.retries.resume(partition, now, &mut group.retried));
}

fn alter_partition(
    now: Now,
    topics: &dyn Topics,
    group: &mut Group,
    altered: &AlterPartition,
    clear_parked: bool,
) -> Result<(), Refusal> {
    let partition = PartitionKey::new(altered.topic, altered.partition);
    if !topics.has(partition) {
        return Err(ErrorCode::UnknownTopicOrPartition.into());
    }
    if group.membership.holder(partition).is_some() {
        return Err(ErrorCode::PartitionOwned.into());
    }
    if group.retries.has_parked(partition) && !clear_parked {
        return Err(ErrorCode::PartitionParked.into());
    }
    let position = altered.offset.map(|offset| CommittedOffset { offset, leader_epoch: None, metadata: None });
    position.as_ref().map_or(Ok(()), CommittedOffset::validate)?;
    group.retries.clear(partition, &mut group.retried);
    match position {
        None => _ = group.offsets.remove(partition),
        Some(position) => group.offsets.set(now.wall, partition, position, 0),
    }
    Ok(())
}
