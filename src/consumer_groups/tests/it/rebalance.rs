//! What moves when members come and go, and what does not notice.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wire::{MemberEpoch, PartitionKey};

use crate::client::{Client, SESSION_MS};
use crate::world::{Fate, World};

/// Who owns each partition.
fn owners(world: &World) -> BTreeMap<PartitionKey, u32> {
    let clients = world.clients.iter();
    clients.flat_map(|client| client.belief.keys().map(|&partition| (partition, client.number))).collect()
}

fn join(world: &mut World, topics: &[String], max_wait_ms: u32) {
    let number = world.clients.len();
    world.clients.push(Client::new(number as u32, topics.to_vec(), None, max_wait_ms));
    world.beat(number, Fate::Arrives);
    world.make_all_durable();
}

/// What each client has owned without a break since this was made.
struct Unbroken(Vec<BTreeSet<PartitionKey>>);

impl Unbroken {
    fn new(world: &World) -> Unbroken {
        Unbroken(world.clients.iter().map(|client| client.belief.keys().copied().collect()).collect())
    }

    fn look(&mut self, world: &World) {
        for (unbroken, client) in self.0.iter_mut().zip(&world.clients) {
            // Who is told to give it up has paused it.
            unbroken.retain(|partition| client.belief.get(partition) == Some(&None));
        }
    }

    /// What stayed with its owner was never paused.
    #[track_caller]
    fn check(&self, before: &BTreeMap<PartitionKey, u32>, after: &BTreeMap<PartitionKey, u32>) {
        for (partition, owner) in before {
            if after.get(partition) == Some(owner) {
                assert!(self.0[*owner as usize].contains(partition), "{partition} stayed with {owner}, and was paused");
            }
        }
    }
}

fn moved(before: &BTreeMap<PartitionKey, u32>, after: &BTreeMap<PartitionKey, u32>) -> usize {
    after.iter().filter(|(partition, owner)| before.get(partition) != Some(owner)).count()
}

#[test]
fn one_of_100_members_leaves_1000_partitions_and_the_others_do_not_notice() {
    let mut world = World::new();
    let topics: Vec<String> = (0..10).map(|number| format!("t{number}")).collect();
    topics.iter().for_each(|topic| world.create_or_grow(topic, 100));
    (0..100).for_each(|_| join(&mut world, &topics, 3_000));
    world.heal();
    let before = owners(&world);
    let owned = before.values().filter(|owner| **owner == 0).count();
    assert_eq!((before.len(), owned), (1000, 10));

    // Each has a heartbeat under way, as always.
    (0..100).for_each(|client| world.beat(client, Fate::Arrives));
    world.make_all_durable();
    let mut unbroken = Unbroken::new(&world);
    world.leave(0, MemberEpoch::LEAVE, Fate::Arrives);
    world.make_all_durable();
    unbroken.look(&world);
    // Those who get something hear of it in the heartbeat that waits: nobody had to ask.
    let after = owners(&world);
    assert_eq!(after.len(), 1000, "owned again after one way of the network");
    world.heal();
    unbroken.look(&world);
    let after = owners(&world);
    unbroken.check(&before, &after);
    let counts = after.values().fold(BTreeMap::<u32, usize>::new(), |mut counts, owner| {
        *counts.entry(*owner).or_default() += 1;
        counts
    });
    let imbalance = counts.values().max().unwrap() - counts.values().min().unwrap();
    assert_eq!((moved(&before, &after), imbalance), (owned, 1), "it moves what was owned, and no more");
    println!(
        "one of 100 members over 1,000 partitions leaves: {owned} owned, {} moved, imbalance {imbalance}",
        moved(&before, &after)
    );
}

#[test]
fn who_hears_late_what_it_is_to_give_up_is_the_only_one_that_owns_it_meanwhile() {
    let topics = ["t0".to_owned()];
    for restarts in [false, true] {
        let mut world = World::new();
        world.create_or_grow("t0", 4);
        join(&mut world, &topics, 0);
        world.beat(0, Fate::Arrives);
        join(&mut world, &topics, 0);
        // What tells the first to give up half of it is lost; it hears of it in the answer to its next heartbeat, and has until that is a session old.
        world.beat(0, Fate::ReplyLost);
        world.make_all_durable();
        if restarts {
            world.crash(0);
        }
        world.advance(u64::from(SESSION_MS) - 1_000);
        world.beat(1, Fate::Arrives);
        world.beat(0, Fate::Arrives);
        world.make_all_durable();
        world.advance(1_500);
        world.beat(1, Fate::Arrives);
        world.make_all_durable();
        world.check();
        assert_eq!(owners(&world).values().filter(|owner| **owner == 0).count(), 4, "it still has what it is to give up");

        world.clients[0].give_up();
        world.beat(0, Fate::Arrives);
        world.make_all_durable();
        world.beat(1, Fate::Arrives);
        world.make_all_durable();
        world.check();
        let owners = owners(&world);
        assert_eq!([0, 1].map(|number| owners.values().filter(|owner| **owner == number).count()), [2, 2]);
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Joins,
    Leaves,
    Dies,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![3 => Just(Fate::Arrives), 1 => Just(Fate::RequestLost), 1 => Just(Fate::ReplyLost), 1 => Just(Fate::Twice)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn what_stays_is_not_paused_whatever_is_lost(
        members in 2..12_usize,
        partitions in 1..40_u32,
        change in prop_oneof![Just(Change::Joins), Just(Change::Leaves), Just(Change::Dies)],
        fates in prop::collection::vec(fate(), 1..60),
        waits in any::<bool>(),
    ) {
        let mut world = World::new();
        let topics = vec!["t0".to_owned(), "t1".to_owned()];
        topics.iter().for_each(|topic| world.create_or_grow(topic, partitions));
        let max_wait_ms = if waits { 3_000 } else { 0 };
        (0..members).for_each(|_| join(&mut world, &topics, max_wait_ms));
        world.heal();
        let before = owners(&world);
        let mut unbroken = Unbroken::new(&world);
        match change {
            Change::Joins => join(&mut world, &topics, max_wait_ms),
            Change::Leaves => world.leave(0, MemberEpoch::LEAVE, Fate::Arrives),
            Change::Dies => world.clients[0].is_alive = false,
        }
        let mut fates = fates.into_iter();
        // Beats arrive often enough for no session to end but that of the dead.
        for round in 0..30 {
            for client in 0..world.clients.len() {
                let fate = if round % 4 == 3 { Fate::Arrives } else { fates.next().unwrap_or(Fate::Arrives) };
                world.clients[client].give_up();
                world.beat(client, fate);
                world.make_all_durable();
                unbroken.look(&world);
            }
            world.late_copy(round);
            world.advance(700);
            unbroken.look(&world);
        }
        world.heal();
        let after = owners(&world);
        unbroken.check(&before, &after);
        let had = before.values().filter(|owner| **owner == 0).count();
        let share = 2 * partitions as usize / (members + 1);
        let most = match change {
            Change::Joins => share,
            Change::Leaves | Change::Dies => had,
        };
        prop_assert!(moved(&before, &after) <= most, "{} moved, {most} would do", moved(&before, &after));
    }
}
