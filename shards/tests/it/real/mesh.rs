use std::sync::mpsc;
use std::time::Duration;

use shards::mesh::PostError;
use shards::run::RunError;
use shards::{MESH_LANE_MESSAGES_MAX, MESH_OUTBOX_MESSAGES_MAX, REMOTE_MESSAGES_MAX, ShardId, clock, executor};

use super::{HANG, on_shards, options};

#[test]
fn messages_arrive_once_and_in_order_from_every_shard() {
    const MESSAGES: u64 = 20_000;
    on_shards::<u64, _, _, _>(3, |context| async move {
        let mesh = context.mesh.clone();
        let sender = executor::spawn(async move {
            for number in 0..MESSAGES {
                for target in (0..context.shard_count).map(ShardId) {
                    while mesh.send(target, number).is_err() {
                        clock::sleep(shards::TICK).await;
                    }
                }
                executor::yield_if_needed().await;
            }
            mesh.close();
        });
        let mut next = vec![0; 3];
        while let Some((source, number)) = context.mesh.recv().await {
            assert_eq!(number, next[source.index()]);
            next[source.index()] += 1;
        }
        sender.await;
        assert_eq!(next, [MESSAGES; 3]);
    });
}

#[test]
fn a_receiver_that_is_behind_fills_the_outbox_and_then_everything_arrives() {
    on_shards::<usize, _, _, _>(2, |context| async move {
        let mesh = context.mesh;
        if context.shard == ShardId(1) {
            // Shard 0 says so when its outbox is full.
            let mut received = 0;
            let full = loop {
                match mesh.recv().await.unwrap() {
                    (_, usize::MAX) => break received,
                    (_, number) => {
                        assert_eq!(number, received);
                        received += 1;
                    }
                }
            };
            assert!(full >= MESH_OUTBOX_MESSAGES_MAX);
            mesh.close();
            assert!(mesh.recv().await.is_none());
            return;
        }
        let mut sent = 0;
        // No await: nothing is flushed, so the outbox alone has to hold it.
        while mesh.send(ShardId(1), sent).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, MESH_OUTBOX_MESSAGES_MAX);
        while mesh.send(ShardId(1), usize::MAX).is_err() {
            clock::sleep(shards::TICK).await;
        }
        mesh.close();
        assert!(mesh.recv().await.is_none());
    });
}

#[test]
fn more_than_a_lane_holds_goes_through_as_the_receiver_drains() {
    const MESSAGES: usize = 4 * (MESH_LANE_MESSAGES_MAX + MESH_OUTBOX_MESSAGES_MAX);
    on_shards::<usize, _, _, _>(2, |context| async move {
        let mesh = context.mesh;
        if context.shard == ShardId(0) {
            for number in 0..MESSAGES {
                while mesh.send(ShardId(1), number).is_err() {
                    executor::yield_now().await;
                }
            }
        }
        mesh.close();
        let mut received = 0;
        while let Some((_, number)) = mesh.recv().await {
            assert_eq!(number, received);
            received += 1;
        }
        assert_eq!(received, if context.shard == ShardId(1) { MESSAGES } else { 0 });
    });
}

#[test]
fn ordinary_threads_post_to_a_sleeping_shard() {
    let (sender, received) = mpsc::channel();
    let running = shards::run::run(options(2), move |context| {
        let sender = sender.clone();
        async move {
            while let Some((source, number)) = context.mesh.recv().await {
                assert_eq!(source, ShardId::OUTSIDE);
                if number == 0u32 {
                    context.mesh.close();
                } else {
                    sender.send((context.shard, number)).unwrap();
                }
            }
            Ok::<(), String>(())
        }
    })
    .unwrap();
    let remotes = running.remotes().to_vec();
    for number in 1..50 {
        for remote in &remotes {
            remote.post(number).unwrap();
            assert_eq!(received.recv_timeout(HANG).unwrap(), (remote.target(), number));
        }
    }
    for remote in &remotes {
        remote.post(0).unwrap();
    }
    running.join().unwrap();
    assert!(matches!(remotes[0].post(1), Err(PostError::Gone(1))));
}

#[test]
fn posting_is_bounded() {
    let (sender, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let running = shards::run::run(options(1), move |context| {
        // The shard stands still until the test has filled its lane.
        held.lock().unwrap().recv_timeout(HANG).unwrap();
        async move {
            for number in 0..REMOTE_MESSAGES_MAX {
                assert_eq!(context.mesh.recv().await.unwrap().1, number);
            }
            Ok::<(), String>(())
        }
    })
    .unwrap();
    let remote = running.remotes()[0].clone();
    for number in 0..REMOTE_MESSAGES_MAX {
        remote.post(number).unwrap();
    }
    assert!(matches!(remote.post(0), Err(PostError::Full(0))));
    sender.send(()).unwrap();
    running.join().unwrap();
}

#[test]
fn a_failed_shard_is_reported_at_once() {
    let running = shards::run::run::<(), _, _, _>(options(2), |context| async move {
        if context.shard == ShardId(1) {
            return Err("no disk".to_owned());
        }
        // Within the grace; the program is to end by itself.
        clock::sleep(Duration::from_millis(100)).await;
        Err("the other one failed".to_owned())
    })
    .unwrap();
    match running.join() {
        Err(RunError::Shard { shard: ShardId(1), error }) => assert_eq!(error, "no disk"),
        other => panic!("{other:?}"),
    }
}
