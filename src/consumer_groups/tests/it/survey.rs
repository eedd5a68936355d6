//! What metrics are told.

use std::collections::BTreeSet;

use consumer_groups::{Event, GroupStanding, Request};
use wire::{CommitOffsetsRequest, MemberEpoch, Offset, PartitionIndex, PartitionKey, TopicId};

use crate::client::Client;
use crate::world::{Fate, World, commit_partition};

fn partition(number: u32) -> PartitionKey {
    PartitionKey::new(TopicId([1; 16]), PartitionIndex(number))
}

/// A group without members commits offset 7 in partitions 0 to `partitions`.
fn commit(world: &mut World, group: &str, partitions: u32) {
    let request = Request::CommitOffsets(CommitOffsetsRequest {
        group: group.to_owned(),
        member_id: None,
        member_epoch: MemberEpoch::LEAVE,
        partitions: (0..partitions).map(|number| commit_partition(partition(number), Offset(7))).collect(),
    });
    let token = world.token();
    world.handle(Event::Request { token, request });
}

/// All groups, read so many partitions at a time.
fn survey(world: &World, partitions_max: usize) -> Vec<Vec<GroupStanding>> {
    let mut parts: Vec<Vec<GroupStanding>> = Vec::new();
    loop {
        let after = parts.last().map(|part| part.last().unwrap().group.clone());
        let part = world.coordinator.survey(after.as_ref(), partitions_max);
        if part.is_empty() {
            return parts;
        }
        parts.push(part);
    }
}

#[test]
fn groups_are_read_in_bounded_parts_each_once() {
    let mut world = World::new();
    world.create_or_grow("t0", 40);
    for number in 0..30 {
        commit(&mut world, &format!("g{number:02}"), 1 + number % 4);
    }
    commit(&mut world, "large", 40);
    let whole = survey(&world, usize::MAX).concat();
    assert_eq!(whole.len(), 31);
    assert!(whole.is_sorted_by(|one, next| one.group < next.group));
    for standing in &whole {
        assert!(standing.partitions.iter().all(|part| part.committed == Some(Offset(7)) && part.parked_records == 0));
    }
    assert_eq!(whole[30].partitions.len(), 40);
    assert_eq!(whole[5].partitions.iter().map(|part| part.partition).collect::<Vec<_>>(), [partition(0), partition(1)]);
    for partitions_max in [1, 5, 12] {
        let parts = survey(&world, partitions_max);
        assert_eq!(parts.concat(), whole);
        for part in parts {
            let but_the_last = &part[..part.len() - 1];
            assert!(but_the_last.iter().map(|standing| 1 + standing.partitions.len()).sum::<usize>() < partitions_max);
        }
    }
}

#[test]
fn members_rebalances_and_parked_records_are_counted_and_are_so_after_a_crash() {
    let mut world = World::new();
    world.create_or_grow("t0", 2);
    for number in 0..2 {
        world.clients.push(Client::new(number, vec!["t0".to_owned()], None, 0));
    }
    world.heal();
    // One joined, then the other.
    let standing = survey(&world, 1).concat().remove(0);
    assert_eq!((standing.members, standing.rebalances, world.coordinator.rebalances()), (2, 2, 2));
    let owner = usize::from(!world.clients[0].belief.contains_key(&partition(0)));
    world.commit(owner, 0, 0, Fate::Arrives);
    world.make_all_durable();
    world.check();
    // Of four records the first fails and the second, of the same key, waits.
    world.settle(owner, 0, 0b11_11_00_01, Fate::Arrives);
    world.make_all_durable();
    let standing = survey(&world, 1).concat().remove(0);
    assert_eq!(standing.retries.parked_records, 2, "{standing:?}");
    let parked: BTreeSet<_> = standing.partitions.iter().map(|part| (part.partition, part.parked_records)).collect();
    assert_eq!(parked, BTreeSet::from([(partition(0), 2)]));
    world.crash(0);
    let after = survey(&world, 1).concat().remove(0);
    assert_eq!(after, standing);
}
