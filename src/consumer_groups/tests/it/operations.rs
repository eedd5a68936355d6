//! Random lives of a group.

use proptest::prelude::*;
use wire::{MemberEpoch, Offset};

use crate::client::Client;
use crate::world::{Fate, World};

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Join { topics: u8, instance: Option<u8>, waits: bool },
    Beat { who: usize, fate: Fate },
    GiveUp { who: usize },
    Kill { who: usize },
    Leave { who: usize, fate: Fate },
    LeaveForAWhile { who: usize, fate: Fate },
    Advance { ms: u64 },
    Commit { who: usize, pick: usize, step: i64, fate: Fate },
    LateCopy { pick: usize },
    Grow { topic: u8, partitions: u32 },
    DeleteTopic { topic: u8 },
    Alter { topic: u8, partition: u32, offset: Option<u64> },
    MakeDurable { batches: usize },
    Crash { cut: usize },
    SnapshotStep { bytes: usize },
}

const TOPICS: u8 = 4;

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Arrives), 1 => Just(Fate::RequestLost), 1 => Just(Fate::ReplyLost), 1 => Just(Fate::Twice)]
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let who = || 0..16_usize;
    prop_oneof![
        3 => (1..1_u8 << TOPICS, prop::option::weighted(0.4, 0..3_u8), any::<bool>())
            .prop_map(|(topics, instance, waits)| Operation::Join { topics, instance, waits }),
        20 => (who(), fate()).prop_map(|(who, fate)| Operation::Beat { who, fate }),
        6 => who().prop_map(|who| Operation::GiveUp { who }),
        1 => who().prop_map(|who| Operation::Kill { who }),
        1 => (who(), fate()).prop_map(|(who, fate)| Operation::Leave { who, fate }),
        1 => (who(), fate()).prop_map(|(who, fate)| Operation::LeaveForAWhile { who, fate }),
        6 => prop_oneof![0..200_u64, 0..4_000_u64, 0..20_000_u64].prop_map(|ms| Operation::Advance { ms }),
        8 => (who(), 0..16_usize, -3..10_i64, fate()).prop_map(|(who, pick, step, fate)| Operation::Commit { who, pick, step, fate }),
        3 => (0..16_usize).prop_map(|pick| Operation::LateCopy { pick }),
        2 => (0..TOPICS, 1..8_u32).prop_map(|(topic, partitions)| Operation::Grow { topic, partitions }),
        1 => (0..TOPICS).prop_map(|topic| Operation::DeleteTopic { topic }),
        1 => (0..TOPICS, 0..8_u32, prop::option::of(0..20_u64))
            .prop_map(|(topic, partition, offset)| Operation::Alter { topic, partition, offset }),
        8 => (1..20_usize).prop_map(|batches| Operation::MakeDurable { batches }),
        1 => (0..50_usize).prop_map(|cut| Operation::Crash { cut }),
        2 => (1..2_000_usize).prop_map(|bytes| Operation::SnapshotStep { bytes }),
    ]
}

fn topic_name(number: u8) -> String {
    format!("t{number}")
}

pub(crate) fn run(world: &mut World, operation: Operation) {
    let count = world.clients.len();
    let with_client = |world: &mut World, who: usize, act: &dyn Fn(&mut World, usize)| {
        if count > 0 {
            act(world, who % count);
        }
    };
    match operation {
        Operation::Join { topics, instance, waits } => {
            if count < 10 {
                let topics = (0..TOPICS).filter(|number| topics >> number & 1 == 1).map(topic_name).collect();
                let instance = instance.map(|number| format!("i{number}"));
                world.clients.push(Client::new(count as u32, topics, instance, if waits { 3_000 } else { 0 }));
                world.beat(count, Fate::Arrives);
            }
        }
        Operation::Beat { who, fate } => with_client(world, who, &|world, who| world.beat(who, fate)),
        Operation::GiveUp { who } => with_client(world, who, &|world, who| world.clients[who].give_up()),
        Operation::Kill { who } => with_client(world, who, &|world, who| world.clients[who].is_alive = false),
        Operation::Leave { who, fate } => with_client(world, who, &|world, who| world.leave(who, MemberEpoch::LEAVE, fate)),
        Operation::LeaveForAWhile { who, fate } => with_client(world, who, &|world, who| {
            if world.clients[who].instance.is_some() {
                world.leave(who, MemberEpoch::LEAVE_STATIC, fate);
            }
        }),
        Operation::Advance { ms } => world.advance(ms),
        Operation::Commit { who, pick, step, fate } => {
            with_client(world, who, &|world, who| world.commit(who, pick, step, fate));
        }
        Operation::LateCopy { pick } => world.late_copy(pick),
        Operation::Grow { topic, partitions } => world.create_or_grow(&topic_name(topic), partitions),
        Operation::DeleteTopic { topic } => world.delete_topic(&topic_name(topic)),
        Operation::Alter { topic, partition, offset } => world.alter(&topic_name(topic), partition, offset.map(Offset)),
        Operation::MakeDurable { batches } => world.make_durable(world.durable + batches),
        Operation::Crash { cut } => world.crash(cut),
        Operation::SnapshotStep { bytes } => world.snapshot_step(bytes),
    }
    world.check();
}
