//! Starts the shards, and ends the process when one of them fails.

mod cpu_list;
mod plan;

use std::fmt::Display;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

pub use cpu_list::{CpuListError, parse_cpu_list, render_cpu_list};
pub use plan::{Core, CorePlan, CorePlanError, CoreSpec, CoreSpecError};

use crate::machine::{self, Machine};
use crate::mesh::{Mesh, Remote};
use crate::{IO_MEMORY_BYTES_DEFAULT, PREEMPT_DEFAULT, START_DEADLINE_DEFAULT, ShardId, real};

/// Exit status of a process that ends because a shard failed.
pub const EXIT_SHARD_FAILED: i32 = 70;

/// How the machine is set up.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Which cores.
    pub plan: CorePlan,
    /// Registered I/O memory per shard, at least 1 MiB. The kernel counts it three times against the locked memory.
    pub io_memory_bytes: usize,
    /// How long an idle shard spins before it sleeps. Pays only on cores that nothing else uses.
    pub spin: Duration,
    /// How long tasks run before the shard looks at sockets and timers again.
    pub preempt: Duration,
    /// Directories whose files will be opened. Each gets a small probe file that every shard opens first.
    pub data_directories: Vec<PathBuf>,
    /// A shard that is not up by then ends the process.
    pub start_deadline: Duration,
    /// The guards against sleeping shards; off only in the test that proves that they are needed.
    #[doc(hidden)]
    pub guards: bool,
}

impl RunOptions {
    /// The usual setup on the cores of `plan`.
    pub fn new(plan: CorePlan) -> RunOptions {
        RunOptions {
            plan,
            io_memory_bytes: IO_MEMORY_BYTES_DEFAULT,
            spin: Duration::ZERO,
            preempt: PREEMPT_DEFAULT,
            data_directories: Vec::new(),
            start_deadline: START_DEADLINE_DEFAULT,
            guards: true,
        }
    }
}

/// What a shard starts with.
#[derive(Debug)]
pub struct ShardContext<M> {
    /// This shard.
    pub shard: ShardId,
    /// Shards of the process.
    pub shard_count: u16,
    /// Its end of the mesh.
    pub mesh: Mesh<M>,
}

/// The machine could not start, or a shard failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// An operating system thread or an executor could not be made.
    #[error("cannot start {shard}: {why}")]
    Start {
        /// The shard that did not start.
        shard: ShardId,
        /// The cause and its remedy.
        why: String,
    },
    /// The main future of a shard returned an error.
    #[error("{shard} failed: {error}")]
    Shard {
        /// The shard that failed.
        shard: ShardId,
        /// Its error.
        error: E,
    },
}

/// Runs `main` on every shard of the plan, each on its own pinned thread, and returns at once.
///
/// A shard whose `main` returns an error has failed: [`Running::join`] reports it, and the process ends soon after if it has
/// not ended by then. A panic on a shard ends the process at once.
pub fn run<M, F, Fut, E>(options: RunOptions, main: F) -> Result<Running<M, E>, RunError<E>>
where
    M: Send + 'static,
    F: Fn(ShardContext<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + 'static,
    E: Display + Send + 'static,
{
    real::run::start(options, main).map(|inner| Running { inner })
}

/// The running shards.
pub struct Running<M, E> {
    inner: real::run::Running<M, E>,
}

impl<M, E: Display> Running<M, E> {
    /// One handle per shard, by which ordinary threads post messages.
    pub fn remotes(&self) -> &[Remote<M>] {
        self.inner.remotes()
    }

    /// Times that a shard was found asleep and was woken from outside.
    pub fn stalls(&self) -> u64 {
        self.inner.stalls()
    }

    /// Waits until every shard has ended: their files and sockets are closed then. Returns the first failure. When a shard has
    /// failed, the others have to be told to end: the process ends soon after the failure if they have not.
    pub fn join(self) -> Result<(), RunError<E>> {
        self.inner.join()
    }
}

impl<M, E> std::fmt::Debug for Running<M, E> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Running")
    }
}

/// Ends the process: something happened that must not. In a simulation it panics, so that the run reports its seed.
pub(crate) fn fatal(message: &str) -> ! {
    if machine::with(|machine| matches!(machine, Machine::Simulated(_))) {
        panic!("{message}");
    }
    tracing::error!("{message}");
    eprintln!("fatal: {message}");
    std::process::exit(EXIT_SHARD_FAILED)
}
