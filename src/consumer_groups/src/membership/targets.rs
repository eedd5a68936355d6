//! What each member is to have.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Assignor, ErrorCode, MemberEpoch, PartitionKey, TopicId};

use super::{Member, Membership, Presence};
use crate::assignment::{Demand, Subscriber, assign};
use crate::ids::MemberId;
use crate::topics::Topics;

impl Membership {
    /// Computes the targets anew, in a new epoch: members or subscriptions have changed.
    pub(crate) fn retarget(&mut self, topics: &dyn Topics) {
        let targets = self.targets(topics);
        self.set_targets(targets);
    }

    /// Computes the targets anew after topics may have changed; when they are as before, so is the epoch.
    pub(crate) fn refresh(&mut self, topics: &dyn Topics) {
        let targets = self.targets(topics);
        if targets.iter().any(|(id, target)| self.members[id].target != *target) {
            self.set_targets(targets);
        }
    }

    /// The assignor that most members name; the default when none does.
    pub(crate) fn assignor(&self) -> Assignor {
        let votes = |assignor: Assignor| self.present().filter(|(_, member)| member.assignor == Some(assignor)).count();
        // Of equally many votes the earlier in the list wins: `max_by_key` takes the last.
        let favourite = Assignor::ALL.into_iter().rev().max_by_key(|&assignor| votes(assignor));
        favourite.filter(|&assignor| votes(assignor) > 0).unwrap_or_default()
    }

    /// Those who are to have something.
    fn present(&self) -> impl Iterator<Item = (&MemberId, &Member)> {
        self.members.iter().filter(|(_, member)| member.presence != Presence::Replaced)
    }

    fn targets(&self, topics: &dyn Topics) -> Vec<(MemberId, Vec<PartitionKey>)> {
        let mut members: Vec<(&MemberId, &Member)> = self.present().collect();
        // A static member keeps its place over restarts.
        members.sort_by_key(|&(id, member)| {
            (member.instance.as_ref().map_or(id.as_str(), |instance| instance.as_str()), id.as_str())
        });
        let names: BTreeSet<&str> = members.iter().flat_map(|(_, member)| member.topics.iter().map(String::as_str)).collect();
        let known: BTreeMap<&str, (TopicId, u32)> =
            names.into_iter().filter_map(|name| topics.by_name(name).map(|topic| (name, (topic.id, topic.partitions)))).collect();
        let subscriber = |member: &Member| {
            let mut ids: Vec<TopicId> =
                member.topics.iter().filter_map(|name| known.get(name.as_str())).map(|&(id, _)| id).collect();
            ids.sort_unstable();
            Subscriber { topics: ids, current: member.target.clone() }
        };
        let demand = Demand {
            topics: known.values().copied().collect(),
            members: members.iter().map(|(_, member)| subscriber(member)).collect(),
        };
        let ids = members.into_iter().map(|(id, _)| id.clone());
        ids.zip(assign(self.assignor(), &demand)).collect()
    }

    fn set_targets(&mut self, targets: Vec<(MemberId, Vec<PartitionKey>)>) {
        self.epoch = MemberEpoch(self.epoch.0.checked_add(1).expect("two billion changes of one group take years"));
        self.changes.epoch = true;
        for (id, target) in targets {
            let member = self.members.get_mut(&id).expect("targets are made for members");
            if member.target != target {
                member.target = target;
                self.changes.members.insert(id);
            }
        }
    }
}

/// Refuses a subscription to more partitions than a group may have.
///
/// # Errors
/// [`ErrorCode::InvalidRequest`].
pub(super) fn check_subscription(names: &[String], topics: &dyn Topics) -> Result<(), ErrorCode> {
    let partitions = names.iter().filter_map(|name| topics.by_name(name)).map(|topic| topic.partitions as usize);
    if partitions.sum::<usize>() > wire::limits::GROUP_PARTITIONS_MAX { Err(ErrorCode::InvalidRequest) } else { Ok(()) }
}
