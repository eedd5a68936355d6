use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use shards::{ShardId, clock, executor, random};

use super::{on_shard, on_shards};

#[test]
fn a_task_runs_after_its_spawner_gives_way() {
    let order = on_shard(|| async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let task = {
            let mut held = order.borrow_mut();
            let seen = Rc::clone(&order);
            let task = executor::spawn(async move { seen.borrow_mut().push("task") });
            held.push("spawner");
            task
        };
        task.await;
        order.take()
    });
    assert_eq!(order, ["spawner", "task"]);
}

#[test]
fn dropping_a_task_cancels_it_and_detaching_does_not() {
    let (cancelled, detached) = on_shard(|| async {
        let (cancelled, detached) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (mark_cancelled, mark_detached) = (Rc::clone(&cancelled), Rc::clone(&detached));
        drop(executor::spawn(async move { mark_cancelled.set(true) }));
        executor::spawn(async move { mark_detached.set(true) }).detach();
        clock::sleep(Duration::from_millis(20)).await;
        (cancelled.get(), detached.get())
    });
    assert!(!cancelled);
    assert!(detached);
}

#[test]
fn background_tasks_run_while_others_have_work() {
    on_shard(|| async {
        let done = Rc::new(Cell::new(false));
        let mark = Rc::clone(&done);
        let background = executor::spawn_background(async move {
            executor::yield_now().await;
            mark.set(true);
        });
        while !done.get() {
            executor::yield_now().await;
        }
        background.await;
    });
}

/// glommio waits for ever for a blocking closure that panics, and the next one panics the shard.
#[test]
fn a_panicking_blocking_call_is_an_error_and_the_next_one_works() {
    let (first, second, third) = on_shard(|| async {
        let first = executor::blocking(|| panic!("on purpose")).await.map(|()| 0);
        let second = executor::blocking(|| 7).await;
        let third = executor::blocking(|| -> i32 { panic!("{} again", "on purpose") }).await;
        (first, second, third)
    });
    assert_eq!(first.unwrap_err().message, "on purpose");
    assert_eq!(second.unwrap(), 7);
    assert_eq!(third.unwrap_err().message, "on purpose again");
}

#[test]
fn time_passes_and_never_goes_back() {
    on_shard(|| async {
        let start = clock::monotonic();
        clock::sleep(Duration::from_millis(15)).await;
        assert!(start.elapsed() >= Duration::from_millis(15));
        assert!(clock::monotonic_coarse() > start);
        assert!(clock::wall_ms() > 1_700_000_000_000);
    });
    assert!(clock::monotonic() <= clock::monotonic());
}

#[test]
fn each_shard_knows_its_number() {
    let shard = on_shards::<(), _, _, _>(3, |context| async move {
        assert_eq!(executor::current_shard(), context.shard);
        assert_eq!(context.shard_count, 3);
        executor::current_shard()
    });
    assert_eq!(shard, ShardId(0));
}

#[test]
fn random_numbers_stay_below_their_limit_and_differ() {
    assert_ne!(random::u64(), random::u64());
    for limit in [1, 2, 3, 1000, u64::MAX] {
        for _ in 0..100 {
            assert!(random::below(limit) < limit);
        }
    }
    let mut bytes = [0; 100];
    random::fill(&mut bytes);
    assert!(bytes.iter().any(|byte| *byte != 0));
}

/// A panic here would end the process.
#[test]
fn a_task_that_nobody_awaits_may_use_the_machine_until_its_executor_is_gone() {
    for _ in 0..5 {
        on_shard(|| async {
            for _ in 0..50 {
                executor::spawn_background(async {
                    loop {
                        clock::sleep(Duration::from_micros(50)).await;
                        executor::yield_now().await;
                    }
                })
                .detach();
            }
            clock::sleep(Duration::from_millis(5)).await;
        });
    }
}
