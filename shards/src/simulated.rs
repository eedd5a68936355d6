//! The simulated machine: one thread, one seed, a clock that moves only as events happen.
//!
//! ```text
//!   ready tasks ──picked at random by the seed──► poll ──► spawn, sleep, disk operation
//!        ▲                                                      │
//!        └── wake ◄── event heap (virtual time, tie-break) ◄────┘
//!                            │
//!                            └── crash point: virtual time or I/O count ──► the disk loses power
//! ```
//!
//! - The same seed and program give the same run: [`Report::trace_hash`] covers every poll, event, disk operation and written byte.
//! - A [`Disk`] outlives the simulation: mount it in the next one, and the program sees what the crash left.
//! - Several shards share one simulation ([`Simulation::run_shards`]); they run interleaved on one thread.
//!
//! ```
//! use shards::simulated::{Disk, DiskOptions, Outcome, SimOptions, Simulation};
//!
//! let disk = Disk::new(DiskOptions::default());
//! let report = Simulation::new(7, SimOptions::default()).mount("/data", &disk).run(async {
//!     shards::disk::create_dir_all("/data/a".as_ref()).await
//! });
//! assert!(matches!(report.outcome, Outcome::Finished(Ok(()))));
//! ```

pub(crate) mod disk;
pub(crate) mod net;
mod random;
mod task;
mod world;

use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use disk::{CrashCounts, CrashMode, Disk, DiskOptions, DiskStatistics, Fault, FaultCounts, FaultKind, Latency, Target};
pub use random::{Concern, Random};
pub(crate) use task::Task;
pub(crate) use world::{Sleep, World};

use crate::ShardId;
use crate::machine::{self, Machine};
use crate::mesh::{Mesh, Wires};
use crate::run::ShardContext;
use world::Stop;

/// When the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// At this time of the virtual clock, which starts at one second.
    Time(Duration),
    /// When this many disk operations were submitted or completed, each counted twice.
    IoCount(u64),
}

/// Settings of a simulation.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// When the machine goes down; None: it does not.
    pub crash: Option<CrashPoint>,
    /// How it goes down.
    pub crash_mode: CrashMode,
    /// A program that has not ended after this much virtual time is stuck, even if some timer of it still ticks.
    pub time_max: Duration,
    /// The wall clock at the start, in milliseconds since 1970.
    pub wall_start_ms: i64,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            crash: None,
            crash_mode: CrashMode::PowerCut,
            time_max: Duration::from_secs(24 * 3600),
            wall_start_ms: 1_767_225_600_000,
        }
    }
}

/// How a simulation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The program ended. What was in flight on the disks has completed; nothing was synced.
    Finished(T),
    /// The crash point was reached, and the mounted disks have lost what they had to lose.
    Crashed,
    /// Every task waits for something that can never happen, or [`SimOptions::time_max`] has passed. The disks are as after [`CrashMode::Kill`].
    Stuck,
}

/// What a simulation did.
#[derive(Debug)]
pub struct Report<T> {
    /// How it ended.
    pub outcome: Outcome<T>,
    /// The same for every run of one program with one seed on the same disks.
    pub trace_hash: u64,
    /// Disk operations submitted and completed, each counted.
    pub io_count: u64,
    /// The virtual clock at the end.
    pub ended_at: Duration,
}

impl<T> Report<T> {
    fn map<U>(self, convert: impl FnOnce(T) -> U) -> Report<U> {
        let outcome = match self.outcome {
            Outcome::Finished(output) => Outcome::Finished(convert(output)),
            Outcome::Crashed => Outcome::Crashed,
            Outcome::Stuck => Outcome::Stuck,
        };
        Report { outcome, trace_hash: self.trace_hash, io_count: self.io_count, ended_at: self.ended_at }
    }
}

/// One start of the simulated machine.
pub struct Simulation {
    seed: u64,
    options: SimOptions,
    mounts: Vec<(PathBuf, Disk)>,
}

impl Simulation {
    /// A machine that has not started.
    pub fn new(seed: u64, options: SimOptions) -> Self {
        Self { seed, options, mounts: Vec::new() }
    }

    /// Makes `disk` hold all paths below `path`, which must be absolute.
    #[must_use]
    pub fn mount(mut self, path: impl Into<PathBuf>, disk: &Disk) -> Self {
        let path = path.into();
        assert!(path.is_absolute(), "a mount is an absolute path, not {}", path.display());
        self.mounts.push((path, disk.clone()));
        self
    }

    /// Runs `program` as shard 0 until it ends, the crash point is reached, or nothing can happen any more.
    ///
    /// # Panics
    ///
    /// When the program panics.
    pub fn run<T: 'static>(self, program: impl Future<Output = T> + 'static) -> Report<T> {
        let report = self.run_tasks(|world| vec![world.spawn_on(ShardId(0), program)]);
        report.map(|mut outputs| outputs.pop().expect("one task has one output"))
    }

    /// Runs one program per shard, interleaved and connected by a mesh, until all have ended. What each returned is in their order.
    ///
    /// # Panics
    ///
    /// When a program panics, or leaves the mesh without closing it while others still use it.
    pub fn run_shards<M: Send + 'static, T: 'static, F: Future<Output = T> + 'static>(
        self,
        shard_count: u16,
        start: impl Fn(ShardContext<M>) -> F + 'static,
    ) -> Report<Vec<T>> {
        let wires = Arc::new(Wires::new(shard_count));
        let start = Rc::new(start);
        self.run_tasks(|world| {
            let shards = (0..shard_count).map(ShardId);
            let roots = shards.map(|shard| {
                let (wires, start) = (wires.clone(), start.clone());
                world.spawn_on(shard, async move {
                    let mesh = Mesh::connect(wires, shard);
                    start(ShardContext { shard, shard_count, mesh }).await
                })
            });
            roots.collect()
        })
    }

    fn run_tasks<T: 'static>(self, start: impl FnOnce(&World) -> Vec<Task<T>>) -> Report<Vec<T>> {
        let world = World::new(self.seed, &self.options, self.mounts.clone());
        let entered = machine::enter(Machine::Simulated(world.clone()));
        let stopper = Stopper { world: world.clone() };
        let roots = start(&world);
        let stop = world.run_until(&|| roots.iter().all(Task::is_finished));
        let trace_hash = world.trace_hash();
        let io_count = world.io_count();
        let ended_at = Duration::from_nanos(world.monotonic_ns());
        drop(stopper);
        let mut random = Random::new(self.seed, Concern::Crash);
        let outcome = match stop {
            Stop::RootFinished => {
                self.disks().for_each(Disk::settle);
                Outcome::Finished(roots.iter().map(|root| root.take_output().expect("a finished task has its output")).collect())
            }
            Stop::Crash => {
                self.disks().for_each(|disk| disk.crash_with(self.options.crash_mode, &mut random));
                Outcome::Crashed
            }
            Stop::Stuck => {
                self.disks().for_each(|disk| disk.crash_with(CrashMode::Kill, &mut random));
                Outcome::Stuck
            }
        };
        drop(entered);
        Report { outcome, trace_hash, io_count, ended_at }
    }

    fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.mounts.iter().map(|(_, disk)| disk)
    }
}

/// Drops the tasks also when the program panics, while the machine is still there for their destructors.
struct Stopper {
    world: Rc<World>,
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.world.stop();
    }
}

/// Stops the machine at this moment, as a power cut does: for a program that knows where it wants to die. Never resolves.
///
/// # Panics
///
/// Outside a simulation.
pub async fn crash_now() {
    match machine::current() {
        Machine::Simulated(world) => world.request_crash(),
        Machine::Real(_) | Machine::Ordinary => machine::outside("simulated::crash_now"),
    }
    std::future::pending::<()>().await;
}

pub(crate) fn spawn<T: 'static>(world: &Rc<World>, future: impl Future<Output = T> + 'static, _background: bool) -> Task<T> {
    // Shares only matter under load; here every ready task is as likely as any other.
    world.spawn(future)
}

#[cfg(test)]
mod tests;
