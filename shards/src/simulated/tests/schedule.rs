use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::{finish_on, new_disk, pages, run_on};
use crate::disk::{File, OpenOptions};
use crate::run::ShardContext;
use crate::simulated::{CrashPoint, Outcome, SimOptions, Simulation};
use crate::{ShardId, clock, executor};

/// Ten tasks that sleep, write and note when they end.
async fn busy() -> Vec<u64> {
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..10u64)
        .map(|number| {
            let order = order.clone();
            executor::spawn(async move {
                let path = format!("/file-{number}");
                let file = File::open(path.as_ref(), OpenOptions::creating_new()).await.unwrap();
                file.write_at(0, pages(number as u8, 1)).await.unwrap();
                clock::sleep(Duration::from_micros(crate::random::below(100))).await;
                order.borrow_mut().push(number);
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    order.take()
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| run_on(&new_disk(), seed, busy());
    let (first, second, other) = (run(3), run(3), run(4));
    assert_eq!(first.trace_hash, second.trace_hash);
    assert_eq!(first.outcome, second.outcome);
    assert_eq!(first.ended_at, second.ended_at);
    assert_ne!(first.trace_hash, other.trace_hash);
}

#[test]
fn seeds_find_different_orders() {
    let orders: std::collections::BTreeSet<_> = (0..20).map(|seed| finish_on(&new_disk(), seed, busy())).collect();
    assert!(orders.len() > 10, "{} orders from 20 seeds", orders.len());
}

#[test]
fn time_is_virtual_and_sleeps_end_in_order() {
    let ended = finish_on(&new_disk(), 1, async {
        let order = Rc::new(RefCell::new(Vec::new()));
        for hours in [5u64, 1, 3] {
            let order = order.clone();
            executor::spawn(async move {
                clock::sleep(Duration::from_secs(hours * 3600)).await;
                order.borrow_mut().push(hours);
            })
            .detach();
        }
        let start = clock::monotonic();
        clock::sleep(Duration::from_secs(6 * 3600)).await;
        assert!(start.elapsed() >= Duration::from_secs(6 * 3600));
        order.take()
    });
    assert_eq!(ended, [1, 3, 5]);
}

#[test]
fn a_dropped_task_stops_and_a_detached_one_goes_on() {
    let runs = finish_on(&new_disk(), 1, async {
        let ran = Rc::new(RefCell::new(Vec::new()));
        let start = |name| {
            let ran = ran.clone();
            executor::spawn(async move {
                clock::sleep(Duration::from_millis(1)).await;
                ran.borrow_mut().push(name);
            })
        };
        start("detached").detach();
        drop(start("dropped"));
        clock::sleep(Duration::from_millis(10)).await;
        ran.take()
    });
    assert_eq!(runs, ["detached"]);
}

#[test]
fn a_program_that_waits_for_nothing_is_stuck() {
    assert_eq!(run_on(&new_disk(), 1, std::future::pending::<()>()).outcome, Outcome::Stuck);
}

#[test]
fn a_crash_comes_at_its_time() {
    let options = SimOptions { crash: Some(CrashPoint::Time(Duration::from_secs(3))), ..SimOptions::default() };
    let report = Simulation::new(1, options).run(async { clock::sleep(Duration::from_secs(100)).await });
    assert_eq!(report.outcome, Outcome::Crashed);
    assert_eq!(report.ended_at, Duration::from_secs(3));
}

#[test]
fn shards_know_who_they_are_and_talk_through_the_mesh() {
    for seed in 0..20 {
        let report = Simulation::new(seed, SimOptions::default()).run_shards(3, |context: ShardContext<u16>| async move {
            assert_eq!(executor::spawn(async { executor::current_shard() }).await, context.shard);
            for target in 0..context.shard_count {
                context.mesh.send(ShardId(target), target + 10 * context.shard.0).unwrap();
            }
            context.mesh.close();
            let mut received = Vec::new();
            while let Some((source, message)) = context.mesh.recv().await {
                assert_eq!(message, context.shard.0 + 10 * source.0);
                received.push(source);
            }
            received.sort();
            received
        });
        let all = vec![ShardId(0), ShardId(1), ShardId(2)];
        assert_eq!(report.outcome, Outcome::Finished(vec![all.clone(), all.clone(), all]));
    }
}
