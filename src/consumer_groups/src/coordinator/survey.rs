//! How all groups stand, for metrics: read some at a time, in the order of their names.

use std::collections::BTreeMap;
use std::ops::Bound;

use wire::{Offset, PartitionKey};

use super::Coordinator;
use crate::group::Group;
use crate::ids::GroupId;
use crate::retry::RetryCounts;

/// How a group stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    /// The group.
    pub group: GroupId,
    /// Its members.
    pub members: usize,
    /// Times that its members got new targets, since it was made.
    pub rebalances: u64,
    /// What it has parked and given up, over all partitions.
    pub retries: RetryCounts,
    /// Partitions with a commit, or of which something is parked.
    pub partitions: Vec<GroupPartitionStanding>,
}

/// How a group stands in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPartitionStanding {
    /// The partition.
    pub partition: PartitionKey,
    /// Where it begins when it comes back.
    pub committed: Option<Offset>,
    /// Records parked and held back.
    pub parked_records: u64,
}

impl Coordinator {
    /// How groups stand whose names come after `after`: those that together have about `partitions_max` partitions, and at least one group if there
    /// is one. A group counts as a partition of its own.
    pub fn survey(&self, after: Option<&GroupId>, partitions_max: usize) -> Vec<GroupStanding> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let mut partitions = 0;
        let mut standings = Vec::new();
        for (id, group) in self.groups.range::<str, _>((start, Bound::Unbounded)) {
            if partitions >= partitions_max {
                break;
            }
            let standing = standing(id, group);
            partitions += 1 + standing.partitions.len();
            standings.push(standing);
        }
        standings
    }

    /// Times that members of any group got new targets, since this coordinator was made.
    pub fn rebalances(&self) -> u64 {
        self.rebalances
    }
}

fn standing(id: &GroupId, group: &Group) -> GroupStanding {
    let mut partitions: BTreeMap<PartitionKey, (Option<Offset>, u64)> = BTreeMap::new();
    for (partition, committed) in group.offsets.iter() {
        partitions.insert(partition, (Some(committed.position.offset), 0));
    }
    for (partition, records) in group.retries.parked_records() {
        partitions.entry(partition).or_default().1 = records;
    }
    let partitions = partitions.into_iter().map(|(partition, (committed, parked_records))| GroupPartitionStanding {
        partition,
        committed,
        parked_records,
    });
    GroupStanding {
        group: id.clone(),
        members: group.membership.members().len(),
        // The epoch starts at 0 and counts nothing else.
        rebalances: u64::from(group.membership.epoch().0.unsigned_abs()),
        retries: group.retries.counts(),
        partitions: partitions.collect(),
    }
}
