//! Stored state that was damaged, and still passes as records: it is refused, or it is a state like any other.

use consumer_groups::{Coordinator, Event, Outcome, StateError};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::client::Client;
use crate::operations::{operation, run};
use crate::world::{Fate, World, everything, options};

/// A group that has been through something.
fn lived(runner: &mut TestRunner) -> World {
    let mut world = World::new();
    world.create_or_grow("t0", 4);
    world.clients.push(Client::new(0, vec!["t0".to_owned()], Some("i0".to_owned()), 0));
    world.beat(0, Fate::Arrives);
    for _ in 0..60 {
        let operation = operation().new_tree(runner).unwrap().current();
        run(&mut world, operation);
    }
    world
}

#[test]
fn damaged_state_is_refused_or_works() {
    let mut runner = TestRunner::deterministic();
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..60 {
        let mut world = lived(&mut runner);
        let records = everything(&world.coordinator);
        let damage = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..=255_u8);
        for _ in 0..30 {
            let (which, place, bits) = damage.new_tree(&mut runner).unwrap().current();
            let mut damaged = records.clone();
            let Some(value) = damaged[which.index(records.len())].value.as_mut() else { continue };
            let place = place.index(value.len());
            value[place] ^= bits;
            match replay(&world, &damaged) {
                Err(_) => refused += 1,
                Ok(coordinator) => {
                    taken += 1;
                    world.coordinator = coordinator;
                    let mut outcome = Outcome::default();
                    world.coordinator.handle(world.now, &world.catalog, Event::Loaded, &mut outcome);
                    let mut later = world.now;
                    later.steady_ms += 100_000;
                    world.coordinator.handle(later, &world.catalog, Event::Tick { is_wall_trusted: true }, &mut outcome);
                    everything(&world.coordinator);
                }
            }
        }
    }
    assert!(refused > 100 && taken > 100, "both happen: {refused} refused, {taken} taken");
}

fn replay(world: &World, records: &[consumer_groups::StateRecord]) -> Result<Coordinator, StateError> {
    let mut coordinator = Coordinator::new(options());
    for record in records {
        coordinator.replay(&record.key, record.value.as_deref())?;
    }
    coordinator.finish_replay(world.now)?;
    Ok(coordinator)
}
