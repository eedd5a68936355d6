//! The real machine: what its surface promises, and one test for each defect or hazard of glommio that it guards against.

mod disk;
mod executor;
mod mesh;
mod net;
mod process;
mod sleep;
mod start;
mod throughput;

use std::fmt::Debug;
use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use shards::run::{CorePlan, RunOptions, ShardContext};

/// Something hangs: far above what the slowest host needs.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// I/O memory that many tests at once can have.
pub(crate) const IO_MEMORY_BYTES: usize = 4 << 20;

pub(crate) fn options(shard_count: u16) -> RunOptions {
    let mut options = RunOptions::new(CorePlan::shared(shard_count).unwrap());
    options.io_memory_bytes = IO_MEMORY_BYTES;
    options
}

/// Runs `main` on so many shards and gives what shard 0 returned.
pub(crate) fn on_shards<M, T, F, Fut>(shard_count: u16, main: F) -> T
where
    M: Send + 'static,
    T: Send + 'static + Debug,
    F: Fn(ShardContext<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = T> + 'static,
{
    on_shards_with(options(shard_count), main)
}

pub(crate) fn on_shards_with<M, T, F, Fut>(options: RunOptions, main: F) -> T
where
    M: Send + 'static,
    T: Send + 'static + Debug,
    F: Fn(ShardContext<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (sender, results) = mpsc::channel();
    let running = shards::run::run(options, move |context| {
        let shard = context.shard;
        let sender = sender.clone();
        let main = main(context);
        async move {
            let result = main.await;
            if shard.0 == 0 {
                sender.send(result).unwrap();
            }
            Ok::<(), String>(())
        }
    })
    .unwrap();
    let result = results.recv_timeout(HANG).expect("shard 0 hangs");
    running.join().unwrap();
    result
}

/// Runs `main` on one shard.
pub(crate) fn on_shard<T, F, Fut>(main: F) -> T
where
    T: Send + 'static + Debug,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = T> + 'static,
{
    on_shards::<(), T, _, _>(1, move |_| main())
}
