//! As even as subscriptions allow, and as few partitions move as can be.
//!
//! ```text
//!   1. everybody keeps what he has and still wants
//!   2. what nobody has goes to the member with the least, of those who want it
//!   3. while a member with n can hand on to one with n-2 or less: along the shortest way, through others if it must
//!
//!        a:4 ──orders──► b:3 ──bills──► c:2        a wants orders only, c wants bills only: a gives b one of orders,
//!                                                  b gives c one of bills
//! ```
//!
//! When no such way is left, no spread is more even: a cheaper one would contain one (cost-reducing paths of a semi-matching, Harvey et al.
//! 2006). With equal subscriptions every way is one step, and only what exceeds an even share moves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::{PartitionKey, TopicId};

use super::Demand;

pub(super) fn assign(demand: &Demand) -> Vec<Vec<PartitionKey>> {
    let mut spread = Spread::keep(demand);
    spread.give_out();
    while spread.level() {}
    spread.held.into_iter().map(|held| held.into_values().flat_map(|held| [held.kept, held.fresh].concat()).collect()).collect()
}

/// Who has what, while it is being worked out.
struct Spread<'a> {
    demand: &'a Demand,
    /// Each member's partitions by topic; without topics of which it has none.
    held: Vec<BTreeMap<TopicId, Held>>,
    /// How many each has.
    loads: Vec<usize>,
    /// The members by load.
    by_load: BTreeSet<(usize, usize)>,
    /// What nobody has.
    free: Vec<PartitionKey>,
    /// Who wants each topic.
    takers: BTreeMap<TopicId, Vec<usize>>,
}

/// Partitions of one topic at one member.
#[derive(Clone, Default)]
struct Held {
    /// It had them before.
    kept: Vec<PartitionKey>,
    /// They are new to it: to hand them on costs nothing.
    fresh: Vec<PartitionKey>,
}

impl<'a> Spread<'a> {
    fn keep(demand: &'a Demand) -> Spread<'a> {
        let count = demand.members.len();
        let mut spread = Spread {
            demand,
            held: vec![BTreeMap::new(); count],
            loads: vec![0; count],
            by_load: (0..count).map(|member| (0, member)).collect(),
            free: Vec::new(),
            takers: BTreeMap::new(),
        };
        for (index, member) in demand.members.iter().enumerate() {
            for &topic in &member.topics {
                spread.takers.entry(topic).or_default().push(index);
            }
        }
        let mut taken = BTreeSet::new();
        for (index, member) in demand.members.iter().enumerate() {
            for &partition in &member.current {
                if member.wants(partition.topic) && demand.has(partition) && taken.insert(partition) {
                    spread.add(index, partition);
                }
            }
        }
        spread.free = demand.partitions().filter(|partition| !taken.contains(partition)).collect();
        spread
    }

    fn add(&mut self, member: usize, partition: PartitionKey) {
        let had_it = self.demand.members[member].current.binary_search(&partition).is_ok();
        let held = self.held[member].entry(partition.topic).or_default();
        if had_it { &mut held.kept } else { &mut held.fresh }.push(partition);
        self.set_load(member, self.loads[member] + 1);
    }

    fn remove_one(&mut self, member: usize, topic: TopicId) -> PartitionKey {
        let held = self.held[member].get_mut(&topic).expect("the way leads along what is held");
        let partition = held.fresh.pop().or_else(|| held.kept.pop()).expect("a topic without partitions is not held");
        if held.fresh.is_empty() && held.kept.is_empty() {
            self.held[member].remove(&topic);
        }
        self.set_load(member, self.loads[member] - 1);
        partition
    }

    fn set_load(&mut self, member: usize, load: usize) {
        self.by_load.remove(&(self.loads[member], member));
        self.by_load.insert((load, member));
        self.loads[member] = load;
    }

    fn give_out(&mut self) {
        for partition in std::mem::take(&mut self.free) {
            let demand = self.demand;
            let taker =
                self.by_load.iter().map(|&(_, member)| member).find(|&member| demand.members[member].wants(partition.topic));
            if let Some(member) = taker {
                self.add(member, partition);
            }
        }
    }

    /// One step towards even; false when it is as even as can be.
    fn level(&mut self) -> bool {
        let Some(&(least, _)) = self.by_load.first() else { return false };
        let heavy: Vec<(usize, usize)> = self.by_load.iter().rev().take_while(|&&(load, _)| load >= least + 2).copied().collect();
        // Where a heavier member found no way down, a lighter one finds none either: what was looked at is not looked at again.
        let mut seen_topics = BTreeSet::new();
        for (load, member) in heavy {
            if let Some(way) = self.way_down(member, load, &mut seen_topics) {
                for (giver, topic, taker) in way {
                    let partition = self.remove_one(giver, topic);
                    self.add(taker, partition);
                }
                return true;
            }
        }
        false
    }

    /// The shortest way from `source` to a member with at least two fewer; of equally short ones to the one with the fewest.
    fn way_down(&self, source: usize, load: usize, seen_topics: &mut BTreeSet<TopicId>) -> Option<Vec<(usize, TopicId, usize)>> {
        let mut came_from: BTreeMap<usize, (usize, TopicId)> = BTreeMap::new();
        let mut ring = VecDeque::from([source]);
        while !ring.is_empty() {
            let mut next = VecDeque::new();
            for giver in ring {
                for &topic in self.held[giver].keys() {
                    // Who wants the topic was reached when it was first seen, at this distance or a shorter one.
                    if !seen_topics.insert(topic) {
                        continue;
                    }
                    for &taker in &self.takers[&topic] {
                        if taker != source && !came_from.contains_key(&taker) {
                            came_from.insert(taker, (giver, topic));
                            next.push_back(taker);
                        }
                    }
                }
            }
            let lightest = next.iter().copied().filter(|&member| self.loads[member] + 2 <= load);
            if let Some(target) = lightest.min_by_key(|&member| (self.loads[member], member)) {
                return Some(trace(&came_from, source, target));
            }
            ring = next;
        }
        None
    }
}

fn trace(came_from: &BTreeMap<usize, (usize, TopicId)>, source: usize, target: usize) -> Vec<(usize, TopicId, usize)> {
    let mut way = Vec::new();
    let mut taker = target;
    while taker != source {
        let (giver, topic) = came_from[&taker];
        way.push((giver, topic, taker));
        taker = giver;
    }
    way
}
