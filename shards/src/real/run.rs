use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use glommio::{CpuSet, LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement};

use super::ticker::{self, MonitorStop, Pulse};
use super::{Shard, affinity, memory, probe};
use crate::disk::DiskError;
use crate::machine::{self, Entered, Machine};
use crate::mesh::{Mesh, Remote, WakerSlot, Wires};
use crate::run::{RunError, RunOptions, ShardContext, fatal};
use crate::{IO_MEMORY_BYTES_MIN, RING_DEPTH, ShardId, TICK, clock};

/// Once a shard has failed, the program has this long to say so and end in its own way.
const FAILURE_GRACE: Duration = Duration::from_secs(3);

/// Threads for a shard's blocking calls. A syncfs takes hundreds of milliseconds under load, and the open of the next segment must not wait for it;
/// and a recovery opens thousands of files.
const BLOCKING_THREADS: usize = 4;

pub(crate) struct Running<M, E> {
    remotes: Vec<Remote<M>>,
    threads: Vec<JoinHandle<()>>,
    results: Receiver<(ShardId, Result<(), E>)>,
    supervision: Supervision,
}

/// The monitor thread and what it shares.
struct Supervision {
    stalls: Arc<AtomicU64>,
    stop: Arc<MonitorStop>,
    thread: Option<JoinHandle<()>>,
}

/// What one shard thread starts with.
struct Seed<M, F, E> {
    shard: ShardId,
    options: Arc<RunOptions>,
    wires: Arc<Wires<M>>,
    main: Arc<F>,
    pulse: Arc<Pulse>,
    gate: Arc<Gate>,
    started: Sender<(ShardId, Result<(), String>)>,
    results: Sender<(ShardId, Result<(), E>)>,
    failure: Arc<Failure>,
}

/// Holds the shards until all are up, or sends them away when one is not.
struct Gate {
    open: OnceLock<bool>,
    /// One per shard.
    waiting: Box<[WakerSlot]>,
}

impl Gate {
    fn new(shard_count: u16) -> Gate {
        Gate { open: OnceLock::new(), waiting: (0..shard_count).map(|_| WakerSlot::default()).collect() }
    }

    /// The first decision counts.
    fn decide(&self, open: bool) {
        self.open.get_or_init(|| open);
        self.waiting.iter().for_each(WakerSlot::wake);
    }

    async fn wait(&self, shard: ShardId) -> bool {
        let waiting = &self.waiting[shard.index()];
        let open = poll_fn(|context| {
            waiting.set(context.waker());
            self.open.get().map_or(Poll::Pending, |open| Poll::Ready(*open))
        })
        .await;
        // The waker must be dropped on this thread.
        waiting.clear();
        open
    }
}

/// The first failure of a shard.
#[derive(Default)]
struct Failure {
    first: Mutex<Option<(Instant, String)>>,
}

impl Failure {
    fn note(&self, message: String) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| (Instant::now(), message));
    }

    /// Ends the process when it has outlived a failure for too long.
    fn enforce(&self) {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, message)) = &*first
            && since.elapsed() > FAILURE_GRACE
        {
            fatal(message);
        }
    }
}

pub(crate) fn start<M, F, Fut, E>(options: RunOptions, main: F) -> Result<Running<M, E>, RunError<E>>
where
    M: Send + 'static,
    F: Fn(ShardContext<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + 'static,
    E: Display + Send + 'static,
{
    let shard_count = options.plan.shard_count();
    assert!(shard_count > 0);
    assert!(options.io_memory_bytes >= IO_MEMORY_BYTES_MIN);
    let failed_start = |shard, why: String| RunError::Start { shard, why };
    let io_memory_bytes_total = options.io_memory_bytes as u64 * u64::from(shard_count);
    probe::locked_memory(io_memory_bytes_total).map_err(|error| failed_start(ShardId(0), error.to_string()))?;

    let options = Arc::new(options);
    let wires = Arc::new(Wires::new(shard_count));
    let main = Arc::new(main);
    let gate = Arc::new(Gate::new(shard_count));
    let failure = Arc::new(Failure::default());
    let pulses: Vec<Arc<Pulse>> = (0..shard_count).map(|_| Arc::default()).collect();
    let mut supervision =
        Supervision::start(pulses.clone(), Arc::clone(&failure), options.guards, options.plan.housekeeping.clone())
            .map_err(|error| failed_start(ShardId(0), format!("cannot start the monitor thread: {error}")))?;
    let (started, starts) = mpsc::channel();
    let (results, outcomes) = mpsc::channel();
    let mut threads = Vec::new();
    let mut up = Ok(());
    for shard in (0..shard_count).map(ShardId) {
        let seed = Seed {
            shard,
            options: Arc::clone(&options),
            wires: Arc::clone(&wires),
            main: Arc::clone(&main),
            pulse: Arc::clone(&pulses[shard.index()]),
            gate: Arc::clone(&gate),
            started: started.clone(),
            results: results.clone(),
            failure: Arc::clone(&failure),
        };
        match thread::Builder::new().name(format!("shard-{}", shard.0)).spawn(move || seed.run_or_abort()) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                up = Err((shard, NotUp::Failed(error.to_string())));
                break;
            }
        }
    }
    let up = up.and_then(|()| wait_until_up(&starts, shard_count, options.start_deadline));
    gate.decide(up.is_ok());
    if let Err((shard, why)) = up {
        // One that hangs cannot be waited for.
        if let NotUp::Failed(_) = why {
            threads.into_iter().for_each(join_shard);
        }
        supervision.end();
        return Err(failed_start(shard, why.to_string()));
    }
    let remotes = (0..shard_count).map(|shard| Remote::new(Arc::clone(&wires), ShardId(shard))).collect();
    Ok(Running { remotes, threads, results: outcomes, supervision })
}

/// Why a shard did not come up.
#[derive(Debug, thiserror::Error)]
enum NotUp {
    #[error("{0}")]
    Failed(String),
    #[error("it is not up after {0:?}")]
    Late(Duration),
}

/// A panic on a shard has ended the process already.
fn join_shard(thread: JoinHandle<()>) {
    let _ = thread.join();
}

fn wait_until_up(
    starts: &Receiver<(ShardId, Result<(), String>)>,
    shard_count: u16,
    deadline: Duration,
) -> Result<(), (ShardId, NotUp)> {
    let begin = Instant::now();
    let mut up = vec![false; usize::from(shard_count)];
    while let Some(late) = up.iter().position(|up| !up) {
        let late = ShardId(u16::try_from(late).expect("there are at most u16::MAX shards"));
        match starts.recv_timeout(deadline.saturating_sub(begin.elapsed())) {
            Ok((shard, Ok(()))) => up[shard.index()] = true,
            Ok((shard, Err(why))) => return Err((shard, NotUp::Failed(why))),
            Err(RecvTimeoutError::Timeout) => return Err((late, NotUp::Late(deadline))),
            Err(RecvTimeoutError::Disconnected) => return Err((late, NotUp::Failed("its thread has ended".to_owned()))),
        }
    }
    Ok(())
}

impl Supervision {
    fn start(
        pulses: Vec<Arc<Pulse>>,
        failure: Arc<Failure>,
        guards: bool,
        housekeeping: Vec<u32>,
    ) -> std::io::Result<Supervision> {
        let stalls = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(MonitorStop::default());
        let (counted, stopped) = (Arc::clone(&stalls), Arc::clone(&stop));
        let watch = move || {
            affinity::pin_to(&housekeeping);
            ticker::monitor(&pulses, guards, &counted, &stopped, || failure.enforce());
        };
        let thread = thread::Builder::new().name("shard-monitor".to_owned()).spawn(watch)?;
        Ok(Supervision { stalls, stop, thread: Some(thread) })
    }

    fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, the shards have ended all the same.
            let _ = thread.join();
        }
    }
}

impl<M, E: Display> Running<M, E> {
    pub(crate) fn remotes(&self) -> &[Remote<M>] {
        &self.remotes
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.supervision.stalls.load(Ordering::Relaxed)
    }

    pub(crate) fn join(mut self) -> Result<(), RunError<E>> {
        let mut outcome = Ok(());
        // Ends once every shard has reported and dropped its sender.
        while let Ok((shard, result)) = self.results.recv() {
            let result = result.map_err(|error| RunError::Shard { shard, error });
            outcome = outcome.and(result);
        }
        self.threads.drain(..).for_each(join_shard);
        self.supervision.end();
        outcome
    }
}

impl<M, F, Fut, E> Seed<M, F, E>
where
    M: Send + 'static,
    F: Fn(ShardContext<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + 'static,
    E: Display + Send + 'static,
{
    /// The body of a shard thread. A panic of any of its tasks arrives here (or aborts on its own).
    fn run_or_abort(self) {
        let shard = self.shard;
        if catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            eprintln!("fatal: {shard} panicked");
            std::process::abort();
        }
    }

    fn run(self) {
        match self.make_executor() {
            Ok(executor) => {
                self.pulse.begin();
                // The executor still polls tasks that nobody awaits after its main future has returned, and drops them at its own end: the
                // machine is theirs until then.
                let entered = executor.run(self.run_in_executor());
                drop(executor);
                drop(entered);
            }
            // The starter may be gone, having seen another failure.
            Err(why) => drop(self.started.send((self.shard, Err(why)))),
        }
    }

    fn make_executor(&self) -> Result<LocalExecutor, String> {
        let options = &self.options;
        let cpu = options.plan.shards[self.shard.index()].cpu as usize;
        let online = CpuSet::online().map_err(|error| format!("cannot read the processors: {error}"))?;
        // Blocking calls must not take time from a shard.
        let blocking = online.filter(|location| options.plan.housekeeping.iter().any(|kept| *kept as usize == location.cpu));
        LocalExecutorBuilder::new(Placement::Fixed(cpu))
            .name(&format!("shard-{}", self.shard.0))
            .io_memory(options.io_memory_bytes)
            .ring_depth(RING_DEPTH)
            .preempt_timer(options.preempt)
            .spin_before_park(options.spin)
            .blocking_thread_pool_placement(PoolPlacement::Fenced(BLOCKING_THREADS, blocking))
            .make()
            .map_err(|error| format!("cannot make its executor: {error}"))
    }

    async fn run_in_executor(self) -> Entered {
        let shard = Rc::new(Shard::new(self.shard));
        let entered = machine::enter(Machine::Real(Rc::clone(&shard)));
        if self.options.guards {
            // Not awaited and not kept: it ends with the executor.
            glommio::spawn_local(ticker::tick(Rc::clone(&shard), Arc::clone(&self.pulse))).detach();
        }
        let prepared = prepare(&shard, &self.options).await;
        let up = prepared.is_ok();
        // The starter may be gone, having seen another failure.
        let _ = self.started.send((self.shard, prepared));
        if up && self.gate.wait(self.shard).await {
            self.run_main(&shard).await;
        }
        // Closes that were queued when files and sockets were dropped get their turn.
        clock::sleep(TICK).await;
        shard.disk_idle().await;
        self.pulse.end();
        entered
    }

    async fn run_main(&self, shard: &Shard) {
        let mesh = Mesh::connect(Arc::clone(&self.wires), self.shard);
        let context = ShardContext { shard: self.shard, shard_count: self.options.plan.shard_count(), mesh: mesh.clone() };
        let result = shard.spawn((self.main)(context)).await;
        let failed = result.is_err();
        if let Err(error) = &result {
            self.failure.note(format!("{} failed: {error}", self.shard));
        }
        // Before the others see this shard leave. Whoever started the machine may not wait for the end.
        let _ = self.results.send((self.shard, result));
        if failed {
            mesh.fail().await;
        } else {
            mesh.close();
        }
        mesh.closed().await;
    }
}

/// Makes the shard fit for use: its memory, and what its executor believes about the devices.
async fn prepare(shard: &Shard, options: &RunOptions) -> Result<(), String> {
    memory::measure(options.io_memory_bytes)
        .map_err(|_| "the kernel did not register its I/O memory; raise the limit of locked memory (ulimit -l)".to_owned())?;
    for directory in &options.data_directories {
        let directory: PathBuf = std::path::absolute(directory).map_err(|error| error.to_string())?;
        let found = rustix::fs::stat(&directory).map_err(|errno| DiskError::from_io("look at", &directory, &errno.into()));
        let number = found.map_err(|error| error.to_string())?.st_dev;
        shard.device(number, &directory).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}
