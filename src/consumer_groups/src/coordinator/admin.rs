//! Groups by name, one group in full, and the end of a group.

use std::collections::BTreeMap;
use std::ops::Bound;

use wire::{
    DeleteGroupReply, DeleteGroupRequest, DescribeGroupReply, DescribeGroupRequest, ErrorCode, GroupListing,
    GroupPartitionDescription, ListGroupsReply, ListGroupsRequest, MemberDescription, Offset, PartitionIndex, PartitionKey,
    RetryPolicy, StoppedAt, TopicId, TopicPartitions, TopicRetryPolicy,
};

use super::Coordinator;
use crate::group::Group;
use crate::ids::{GroupId, MemberId};
use crate::limits::REPLY_BYTES_MAX;
use crate::membership::Member;
use crate::outcome::Outcome;
use crate::refusal::{Refusal, answer};
use crate::topics::Topics;

impl Coordinator {
    pub(super) fn list_groups(&self, request: &ListGroupsRequest) -> ListGroupsReply {
        let mut reply = ListGroupsReply { error: ErrorCode::None, message: None, groups: Vec::new(), more: false };
        let start = request.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let limit = if request.limit == 0 { usize::MAX } else { request.limit as usize };
        let mut bytes = 0;
        for (id, group) in self.groups.range::<str, _>((start, Bound::Unbounded)) {
            let state = group.state();
            if !id.as_str().starts_with(&request.prefix) || request.state.is_some_and(|wanted| wanted != state) {
                continue;
            }
            if reply.groups.len() >= limit || bytes >= REPLY_BYTES_MAX {
                reply.more = true;
                break;
            }
            let listing = GroupListing {
                group: id.as_str().to_owned(),
                state,
                members: group.membership.members().len() as u32,
                partitions: group.partitions().len() as u32,
                parked_keys: parked_keys(group),
            };
            bytes += size_of::<GroupListing>() + listing.group.len();
            reply.groups.push(listing);
        }
        reply
    }

    pub(super) fn describe_group(&self, topics: &dyn Topics, request: &DescribeGroupRequest) -> DescribeGroupReply {
        let group = self.groups.get(request.group.as_str()).ok_or(Refusal::from(ErrorCode::GroupNotFound));
        let group = request.validate().map_err(Refusal::from).and(group);
        let empty = Group::new(GroupId::from(request.group.as_str()), self.options.retry);
        let (group, (error, message)) = match group {
            Ok(group) => (group, (ErrorCode::None, None)),
            Err(refusal) => (&empty, answer(Err(refusal))),
        };
        let mut reply = DescribeGroupReply {
            error,
            message,
            state: group.state(),
            epoch: group.membership.epoch(),
            assignor: group.membership.assignor(),
            shard: 0,
            retry: group.retries.group_policy().clone(),
            topic_retries: group.retries.topic_policies().map(topic_policy).collect(),
            offsets_retention_ms: group.retention_ms(self.options.offsets_retention_ms),
            members: Vec::new(),
            partitions: Vec::new(),
            more: false,
        };
        if request.after.is_none() {
            reply.members = group.membership.members().iter().map(describe_member).collect();
        }
        let mut bytes = 0;
        for partition in group.partitions().into_iter().filter(|&partition| request.after.is_none_or(|after| partition > after)) {
            if bytes >= REPLY_BYTES_MAX {
                reply.more = true;
                break;
            }
            let described = describe_partition(group, topics, partition);
            let metadata = described.committed.as_ref().and_then(|committed| committed.metadata.as_ref()).map_or(0, String::len);
            bytes += size_of::<GroupPartitionDescription>() + described.name.len() + metadata;
            reply.partitions.push(described);
        }
        reply
    }

    pub(super) fn delete_group(&mut self, request: &DeleteGroupRequest, outcome: &mut Outcome) -> DeleteGroupReply {
        let (error, message) = answer(self.try_delete_group(request, outcome));
        DeleteGroupReply { error, message }
    }

    fn try_delete_group(&mut self, request: &DeleteGroupRequest, outcome: &mut Outcome) -> Result<(), Refusal> {
        request.validate()?;
        let id = GroupId::from(request.group.as_str());
        let group = self.groups.get(&id).ok_or(ErrorCode::GroupNotFound)?;
        if !group.membership.is_empty() {
            return Err(ErrorCode::GroupNotEmpty.into());
        }
        // They are decided, and what they are of is committed: nobody else would see those records again.
        if group.retries.counts().dead_letters_pending > 0 {
            return Err(ErrorCode::DeadLettersPending.into());
        }
        self.delete(&id, outcome);
        Ok(())
    }

    /// Forgets a group without members, and leaves a tombstone of each of its records.
    pub(super) fn delete(&mut self, id: &GroupId, outcome: &mut Outcome) {
        let Some(group) = self.groups.get(id) else { return };
        outcome.records.extend(group.tombstones(id));
        outcome.memberships.push(id.clone());
        self.forget(id);
    }
}

fn describe_member((id, member): (&MemberId, &Member)) -> MemberDescription {
    MemberDescription {
        member_id: id.as_str().to_owned(),
        instance_id: member.instance.as_ref().map(|instance| instance.as_str().to_owned()),
        client_id: member.client.id.clone(),
        host: member.client.host.clone(),
        member_epoch: member.epoch,
        topics: member.topics.clone(),
        owned: by_topic(member.holdings.keys().copied()),
        assigned: by_topic(member.target.iter().copied()),
    }
}

fn by_topic(partitions: impl Iterator<Item = PartitionKey>) -> Vec<TopicPartitions> {
    let mut topics: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
    partitions.for_each(|partition| topics.entry(partition.topic).or_default().push(partition.partition));
    topics.into_iter().map(|(topic, partitions)| TopicPartitions { topic, partitions }).collect()
}

fn describe_partition(group: &Group, topics: &dyn Topics, partition: PartitionKey) -> GroupPartitionDescription {
    let retries = group.retries.describe(partition);
    GroupPartitionDescription {
        topic: partition.topic,
        name: topics.by_id(partition.topic).map(|topic| topic.name.to_owned()).unwrap_or_default(),
        partition: partition.partition,
        member_id: group.membership.holder(partition).map(|member| member.as_str().to_owned()),
        committed: group.offsets.get(partition).map(|committed| committed.position.clone()),
        log_start: Offset::ZERO,
        high_watermark: Offset::ZERO,
        parked_keys: retries.parked_keys as u32,
        parked_records: retries.parked_records as u32,
        next_due_ms: retries.next_due,
        dead_lettered: retries.dead_lettered,
        dead_letters_pending: retries.dead_letters_pending as u64,
        skipped: retries.skipped,
        stopped: retries.stopped.map(|(offset, reason)| StoppedAt { offset, reason }),
    }
}

fn parked_keys(group: &Group) -> u32 {
    group.retries.partitions().map(|partition| group.retries.describe(partition).parked_keys as u32).sum()
}

fn topic_policy((topic, retry): (&str, &RetryPolicy)) -> TopicRetryPolicy {
    TopicRetryPolicy { topic: topic.to_owned(), retry: retry.clone() }
}
