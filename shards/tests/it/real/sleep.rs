//! B1: glommio's loop sleeps although tasks are ready, when its preempt timer fires before the first queue has run. That needs
//! another thread on the same processor that takes time from the shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shards::run::{CorePlan, RunOptions};
use shards::{clock, executor};

/// Set to a number of runs (20) for the long form: runs of 8 seconds, no gap above 250 ms, and as many without the guards, of
/// which one must fail.
const LONG: &str = "SHARDS_TEST_LONG";

/// Takes time from a processor until it is dropped.
struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Hog {
    fn on(cpu: usize) -> Hog {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            assert!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }));
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Hog { stop, thread: Some(thread) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The longest time between two steps of a task that is always ready or about to be woken, over a run.
fn longest_gap(run: Duration, guards: bool) -> Duration {
    let plan = CorePlan::shared(1).unwrap();
    let cpu = plan.shards[0].cpu as usize;
    let mut options = RunOptions::new(plan);
    options.io_memory_bytes = super::IO_MEMORY_BYTES;
    options.preempt = Duration::from_micros(500);
    options.guards = guards;
    let _hog = Hog::on(cpu);
    let (sender, gaps) = std::sync::mpsc::channel();
    let running = shards::run::run::<(), _, _, _>(options, move |_| {
        let sender = sender.clone();
        async move {
            let start = clock::monotonic();
            let mut last = start;
            let mut longest = Duration::ZERO;
            while last.since(start) < run {
                // Bursts of ready work, then a short sleep: both ways into the loop's decision.
                for _ in 0..20 {
                    executor::yield_now().await;
                }
                clock::sleep(Duration::from_micros(300)).await;
                let now = clock::monotonic();
                longest = longest.max(now.since(last));
                last = now;
            }
            sender.send(longest).unwrap();
            Ok::<(), String>(())
        }
    })
    .unwrap();
    // A shard that has gone to sleep for good is seen from here.
    let limit = Instant::now() + run + Duration::from_secs(30);
    loop {
        match gaps.recv_timeout(Duration::from_millis(50)) {
            Ok(gap) => {
                running.join().unwrap();
                return gap;
            }
            Err(_) if Instant::now() > limit => return Duration::MAX,
            Err(_) => {}
        }
    }
}

#[test]
fn b1_a_shard_with_ready_tasks_does_not_sleep() {
    if let Ok(runs) = std::env::var(LONG) {
        let runs: u32 = runs.parse().unwrap();
        for run in 0..runs {
            let gap = longest_gap(Duration::from_secs(8), true);
            eprintln!("run {run}: longest gap {gap:?}");
            assert!(gap < Duration::from_millis(250), "run {run}: {gap:?}");
        }
        let unguarded = (0..runs).map(|_| longest_gap(Duration::from_secs(8), false)).max();
        eprintln!("without the guards: longest gap {unguarded:?}");
        assert!(unguarded > Some(Duration::from_millis(250)), "the guards are not needed: {unguarded:?}");
    } else {
        // Other tests share the processor: only a sleep for good counts.
        for _ in 0..2 {
            assert!(longest_gap(Duration::from_secs(2), true) < Duration::from_secs(10));
        }
    }
}

/// The same before anything of ours has run: no ticker yet, and a first poll that never comes. Without the guards one of the
/// first ten starts hangs.
#[test]
fn b1_a_shard_starts_although_its_first_poll_was_lost() {
    let _hogs: Vec<Hog> = (0..4).map(|_| Hog::on(CorePlan::shared(1).unwrap().shards[0].cpu as usize)).collect();
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..40 {
        let mut options = RunOptions::new(CorePlan::shared(1).unwrap());
        options.io_memory_bytes = super::IO_MEMORY_BYTES;
        options.preempt = Duration::from_micros(20);
        options.data_directories = vec![directory.path().to_owned()];
        let running = shards::run::run::<(), _, _, _>(options, |_| async { Ok::<(), String>(()) });
        running.expect("it is up within the deadline").join().unwrap();
    }
}
