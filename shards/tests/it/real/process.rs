//! What ends the process. Each scenario runs in a child: this test binary again, told by the environment what to do.

use std::process::{Command, Output};
use std::time::Duration;

use shards::run::{EXIT_SHARD_FAILED, RunError};
use shards::{ShardId, clock, executor};

use super::{HANG, options};

const SCENARIO: &str = "SHARDS_TEST_SCENARIO";

/// Runs the scenario in a child and gives what became of it.
fn child(scenario: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "real::process::in_a_child", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, scenario)
        .output()
        .unwrap()
}

fn check(scenario: &str, words: &[&str]) -> Output {
    let output = child(scenario);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{scenario}: {errors}");
    for word in words {
        assert!(errors.contains(word), "{scenario}: {errors}");
    }
    output
}

/// The body of the children; nothing when it is run as a test.
#[test]
fn in_a_child() {
    match std::env::var(SCENARIO).as_deref() {
        Ok("task panic") => run(|shard| async move {
            if shard == ShardId(0) {
                executor::spawn(async { panic!("on purpose") }).detach();
            }
            clock::sleep(HANG).await;
            Ok(())
        }),
        Ok("background panic") => run(|shard| async move {
            if shard == ShardId(1) {
                executor::spawn_background(async { panic!("on purpose") }).detach();
            }
            clock::sleep(HANG).await;
            Ok(())
        }),
        Ok("failed shard") => run(|shard| async move {
            if shard == ShardId(1) {
                return Err("no disk".to_owned());
            }
            clock::sleep(HANG).await;
            Ok(())
        }),
        Ok("left mesh") => left_mesh(),
        Ok("low limit") => low_limit(),
        _ => {}
    }
}

/// Starts two shards, and does not look at how they end.
fn run<Fut: Future<Output = Result<(), String>> + 'static>(main: impl Fn(ShardId) -> Fut + Send + Sync + 'static) {
    let running = shards::run::run::<(), _, _, _>(options(2), move |context| {
        let main = main(context.shard);
        async move {
            // The mesh stays in use while the shard runs.
            let _mesh = context.mesh;
            main.await
        }
    })
    .unwrap();
    std::thread::sleep(HANG);
    drop(running);
}

/// A shard ends its executor, and with it its end of the mesh, without closing it: what a cancelled or forgotten shard would do.
fn left_mesh() {
    let running = shards::run::run::<u64, _, _, _>(options(2), |context| async move {
        if context.shard == ShardId(1) {
            return Ok(());
        }
        // Shard 1 has closed its end in order: it takes no more messages.
        let end = clock::monotonic() + HANG;
        while clock::monotonic() < end {
            // Full, once nobody receives.
            let _ = context.mesh.send(ShardId(1), 1);
            clock::sleep(Duration::from_millis(1)).await;
        }
        Ok::<(), String>(())
    })
    .unwrap();
    std::thread::sleep(HANG);
    drop(running);
}

/// Gives up the right to lock memory, and lowers the limit below what the shards need.
fn low_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    sets.inheritable.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    setrlimit(Resource::Memlock, Rlimit { current: Some(1 << 20), maximum: Some(4 << 20) }).unwrap();
    let started = shards::run::run::<(), _, _, _>(options(2), |_| async { Ok::<(), String>(()) });
    match started {
        Err(RunError::Start { why, .. }) => {
            eprintln!("refused: {why}");
            std::process::exit(3);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panic_in_a_task_ends_the_process() {
    check("task panic", &["on purpose"]);
    check("background panic", &["on purpose"]);
}

/// Also when nobody waits for the shards to end.
#[test]
fn a_failed_shard_ends_the_process() {
    let output = check("failed shard", &["shard 1 failed: no disk"]);
    assert_eq!(output.status.code(), Some(EXIT_SHARD_FAILED));
}

/// Where the program tells the others to end, it goes on: nothing of the shards is left then.
#[test]
fn a_failed_shard_and_the_others_end_in_order_when_told() {
    let running = shards::run::run::<(), _, _, _>(options(2), |context| async move {
        if context.shard == ShardId(1) {
            // Sends on after the failure, as tasks do that have not heard of it.
            let mesh = context.mesh.clone();
            executor::spawn(async move {
                loop {
                    let _ = mesh.send(ShardId(0), ());
                    clock::sleep(Duration::from_millis(1)).await;
                }
            })
            .detach();
            return Err("no disk".to_owned());
        }
        // Told: by the message from outside, not by those of the failed shard.
        while !matches!(context.mesh.recv().await, Some((ShardId::OUTSIDE, ()))) {}
        context.mesh.close();
        while context.mesh.recv().await.is_some() {}
        Ok(())
    })
    .unwrap();
    running.remotes()[0].post(()).unwrap();
    let error = running.join().unwrap_err();
    assert_eq!(error.to_string(), "shard 1 failed: no disk");
}

/// glommio's channels hang when the receiver leaves while they are full.
#[test]
fn b5_a_shard_that_leaves_while_it_is_sent_messages_ends_the_process() {
    let output = check("left mesh", &["shard 0: shard 1 has left the mesh"]);
    assert_eq!(output.status.code(), Some(EXIT_SHARD_FAILED));
}

/// glommio only warns when the kernel does not register its memory, and goes on without.
#[test]
fn too_little_locked_memory_is_refused_with_both_numbers() {
    let needed = 2 * super::IO_MEMORY_BYTES * 3 + (1 << 20);
    let output = check("low limit", &["refused: locked memory", &needed.to_string(), &(1 << 20).to_string()]);
    assert_eq!(output.status.code(), Some(3));
}
