use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wire::{Assignor, PartitionIndex, PartitionKey, TopicId};

use super::{Demand, Subscriber, assign};

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn key(of: u8, partition: u32) -> PartitionKey {
    PartitionKey::new(topic(of), PartitionIndex(partition))
}

/// Topics by number with their partitions; members by the numbers of their topics.
fn demand(topics: &[(u8, u32)], members: &[&[u8]]) -> Demand {
    Demand {
        topics: topics.iter().map(|&(number, count)| (topic(number), count)).collect(),
        members: members
            .iter()
            .map(|wanted| Subscriber { topics: wanted.iter().map(|&number| topic(number)).collect(), current: Vec::new() })
            .collect(),
    }
}

fn counts(assigned: &[Vec<PartitionKey>]) -> Vec<usize> {
    assigned.iter().map(Vec::len).collect()
}

fn moved(before: &[Vec<PartitionKey>], after: &[Vec<PartitionKey>]) -> usize {
    let owner = |lists: &[Vec<PartitionKey>]| -> BTreeMap<PartitionKey, usize> {
        lists.iter().enumerate().flat_map(|(member, list)| list.iter().map(move |&partition| (partition, member))).collect()
    };
    let (before, after) = (owner(before), owner(after));
    after.iter().filter(|(partition, member)| before.get(partition) != Some(member)).count()
}

fn with_current(mut demand: Demand, current: &[Vec<PartitionKey>]) -> Demand {
    for (member, current) in demand.members.iter_mut().zip(current) {
        member.current.clone_from(current);
    }
    demand
}

#[test]
fn range_gives_the_same_numbers_of_several_topics_to_one_member() {
    let assigned = assign(Assignor::Range, &demand(&[(1, 5), (2, 5)], &[&[1, 2], &[1, 2]]));
    assert_eq!(assigned[0], [key(1, 0), key(1, 1), key(1, 2), key(2, 0), key(2, 1), key(2, 2)]);
    assert_eq!(assigned[1], [key(1, 3), key(1, 4), key(2, 3), key(2, 4)]);
}

#[test]
fn round_robin_goes_on_with_the_next_member_at_the_next_topic() {
    let assigned = assign(Assignor::RoundRobin, &demand(&[(1, 3), (2, 3)], &[&[1, 2], &[1, 2]]));
    assert_eq!(counts(&assigned), [3, 3]);
    assert_eq!(assigned[0], [key(1, 0), key(1, 2), key(2, 1)]);
    let uneven = assign(Assignor::RoundRobin, &demand(&[(1, 3), (2, 3)], &[&[1], &[1, 2]]));
    assert_eq!(uneven[0], [key(1, 0), key(1, 2)]);
}

#[test]
fn one_of_100_members_leaves_and_only_its_partitions_move() {
    let topics: Vec<(u8, u32)> = (1..=10).map(|number| (number, 100)).collect();
    let wanted: Vec<u8> = (1..=10).collect();
    let members = vec![wanted.as_slice(); 100];
    let before = assign(Assignor::Sticky, &demand(&topics, &members));
    assert!(counts(&before).iter().all(|&count| count == 10));
    let rest = &before[1..];
    let after = assign(Assignor::Sticky, &with_current(demand(&topics, &members[1..]), rest));
    assert_eq!(moved(rest, &after), 10, "what it had, and nothing else");
    assert!(counts(&after).iter().all(|count| (10..=11).contains(count)));
}

#[test]
fn one_joins_100_members_and_gets_a_share_from_as_many() {
    let topics: Vec<(u8, u32)> = (1..=10).map(|number| (number, 100)).collect();
    let wanted: Vec<u8> = (1..=10).collect();
    let members = vec![wanted.as_slice(); 101];
    let mut before = assign(Assignor::Sticky, &demand(&topics, &members[..100]));
    before.push(Vec::new());
    let after = assign(Assignor::Sticky, &with_current(demand(&topics, &members), &before));
    assert_eq!(moved(&before, &after), 9, "1000 / 101");
    assert_eq!(counts(&after)[100], 9);
}

#[test]
fn what_only_others_can_take_goes_through_them() {
    // a wants 1 and has four of it; b wants both and has two of 2; c wants 2 and has none.
    let start = [(0..4).map(|n| key(1, n)).collect(), (0..2).map(|n| key(2, n)).collect(), Vec::new()];
    let after = assign(Assignor::Sticky, &with_current(demand(&[(1, 4), (2, 2)], &[&[1], &[1, 2], &[2]]), &start));
    assert_eq!(counts(&after), [2, 2, 2]);
    assert_eq!(moved(&start, &after), 4);
}

/// Topics, subscriptions, and what members say they have: anything, claims of the same partition included.
fn demands() -> impl Strategy<Value = Demand> {
    let topics = prop::collection::vec(1..12_u32, 1..5);
    let members = prop::collection::vec((any::<u8>(), prop::collection::vec((0..5_u8, 0..14_u32), 0..12)), 0..8);
    (topics, members).prop_map(|(counts, members)| {
        let count = counts.len() as u8;
        let members: Vec<Subscriber> = members
            .into_iter()
            .map(|(wanted, current)| Subscriber {
                topics: (0..count).filter(|number| wanted >> number & 1 == 1).map(topic).collect(),
                current: current.into_iter().map(|(of, n)| key(of, n)).collect::<BTreeSet<_>>().into_iter().collect(),
            })
            .collect();
        let wanted: BTreeSet<TopicId> = members.iter().flat_map(|member| member.topics.iter().copied()).collect();
        let topics = counts.into_iter().enumerate().map(|(number, count)| (topic(number as u8), count));
        Demand { topics: topics.filter(|(topic, _)| wanted.contains(topic)).collect(), members }
    })
}

/// The least that the sum of squares of the loads can be, by trying every step between two members until none helps and no longer way does.
fn is_even(demand: &Demand, assigned: &[Vec<PartitionKey>]) -> bool {
    // reach[a][b]: b can get something from a, perhaps through others.
    let count = assigned.len();
    let mut reach = vec![vec![false; count]; count];
    for (a, held) in assigned.iter().enumerate() {
        for (b, member) in demand.members.iter().enumerate() {
            reach[a][b] = held.iter().any(|partition| member.wants(partition.topic));
        }
    }
    for through in 0..count {
        for a in 0..count {
            for b in 0..count {
                reach[a][b] |= reach[a][through] && reach[through][b];
            }
        }
    }
    (0..count).all(|a| (0..count).all(|b| !reach[a][b] || assigned[a].len() < assigned[b].len() + 2))
}

proptest! {
    #[test]
    fn every_assignor_gives_each_partition_to_one_who_wants_it_and_stays_with_it(demand in demands()) {
        for assignor in Assignor::ALL {
            let assigned = assign(assignor, &demand);
            let given: Vec<PartitionKey> = assigned.iter().flatten().copied().collect();
            let distinct: BTreeSet<PartitionKey> = given.iter().copied().collect();
            prop_assert_eq!(given.len(), distinct.len());
            prop_assert_eq!(distinct.into_iter().collect::<Vec<_>>(), demand.partitions().collect::<Vec<_>>());
            for (member, partitions) in demand.members.iter().zip(&assigned) {
                prop_assert!(partitions.iter().all(|partition| member.wants(partition.topic)));
                prop_assert!(partitions.is_sorted());
            }
            let again = Demand {
                topics: demand.topics.clone(),
                members: demand.members.iter().zip(&assigned)
                    .map(|(member, current)| Subscriber { topics: member.topics.clone(), current: current.clone() }).collect(),
            };
            prop_assert_eq!(assign(assignor, &again), assigned);
        }
    }

    #[test]
    fn sticky_is_as_even_as_can_be(demand in demands()) {
        let assigned = assign(Assignor::Sticky, &demand);
        prop_assert!(is_even(&demand, &assigned), "{:?}", counts(&assigned));
    }

    /// With equal subscriptions nothing moves but what exceeds an even share.
    #[test]
    fn sticky_moves_no_more_than_it_must(partitions in 1..60_u32, shares in prop::collection::vec(0..60_usize, 1..8)) {
        let members = vec![&[1_u8][..]; shares.len()];
        let mut next = 0;
        let start: Vec<Vec<PartitionKey>> = shares.iter().map(|&share| {
            let end = (next + share as u32).min(partitions);
            let held = (next..end).map(|n| key(1, n)).collect();
            next = end;
            held
        }).collect();
        let after = assign(Assignor::Sticky, &with_current(demand(&[(1, partitions)], &members), &start));
        let (floor, extra) = (partitions as usize / shares.len(), partitions as usize % shares.len());
        let unowned = partitions as usize - start.iter().map(Vec::len).sum::<usize>();
        // The `extra` members with one more are those who have the most already.
        let mut over: Vec<usize> = start.iter().map(|held| held.len().saturating_sub(floor)).collect();
        over.sort_unstable_by(|a, b| b.cmp(a));
        let must_leave: usize = over.iter().enumerate().map(|(n, over)| over.saturating_sub(usize::from(n < extra))).sum();
        prop_assert_eq!(moved(&start, &after), unowned + must_leave);
        prop_assert!(counts(&after).iter().all(|&count| count == floor || count == floor + 1));
    }
}
