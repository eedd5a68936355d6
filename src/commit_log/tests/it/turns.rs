//! Who waits gets its turn, however busy one partition is.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use commit_log::LogOptions;
use shards::executor;
use wire::LeaderEpoch;

use crate::support::{append, batch, create, on_both, open, small_options};

/// Direct writes of one partition follow each other so closely that it is never without one.
#[test]
fn a_checkpoint_has_its_turn_between_direct_writes_that_never_end() {
    const COMMITS_MAX: u32 = 2_000;
    on_both(|disk| async move {
        let options = LogOptions { tail_cache_bytes_max: 8 << 20, unflushed_bytes_max: 64 << 20, ..small_options() };
        let log = open(&disk, options).await;
        let partition = create(&log, 0);
        append(&partition, 0, 1, 100).await;
        let (header, bytes) = batch(1, 1, 100 << 10, 0);
        let commits = Rc::new(Cell::new(0));
        let busy = Rc::new(RefCell::new(Some(partition.clone())));
        let (counted, going_on) = (commits.clone(), busy.clone());
        let next = bytes.clone();
        // Each that ends makes room for the next.
        log.on_commit(move |_| {
            counted.set(counted.get() + 1);
            if let Some(partition) = going_on.borrow().as_ref().filter(|_| counted.get() < COMMITS_MAX) {
                let _appended = partition.append(header, next.clone(), LeaderEpoch(1), None).unwrap();
            }
        });
        for _ in 0..4 {
            let _appended = partition.append(header, bytes.clone(), LeaderEpoch(1), None).unwrap();
        }
        while commits.get() < 5 {
            executor::yield_now().await;
        }
        let before = log.stats().checkpoints;
        let writer = log.clone();
        executor::spawn_background(async move { writer.checkpoint().await }).await.unwrap();
        assert!(log.stats().checkpoints > before);
        let found = commits.get();
        busy.take();
        assert!(found < COMMITS_MAX / 2, "{found} commits before the checkpoint had its turn");
        log.close().await.unwrap();
    });
}
