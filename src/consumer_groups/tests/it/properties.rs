//! What holds whatever happens; see [`crate::world::World::check`].

use proptest::prelude::*;

use crate::operations::{operation, run};
use crate::world::World;

proptest! {
    #[test]
    fn a_group_keeps_its_promises_whatever_is_lost_late_or_dead(operations in prop::collection::vec(operation(), 1..250)) {
        let mut world = World::new();
        for topic in 0..3 {
            world.create_or_grow(&format!("t{topic}"), 4);
        }
        for (number, operation) in operations.into_iter().enumerate() {
            run(&mut world, operation);
            if number % 8 == 0 {
                world.check_replay();
            }
        }
        world.check_replay();
        world.heal();
        world.check_replay();
    }
}
