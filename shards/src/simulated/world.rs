//! The scheduler: tasks, virtual time, events.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::disk::{Disk, OperationId};
use super::net::Network;
use super::random::{Concern, Random, mix};
use super::task::{JoinState, Task};
use super::{CrashPoint, SimOptions};
use crate::ShardId;

type TaskId = u64;
type EventId = u64;
type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

/// One simulated machine: a thread's executor, clock and random streams. The disks mounted on it outlive it.
pub(crate) struct World {
    now_ns: Cell<u64>,
    wall_start_ms: i64,
    current: Cell<(TaskId, ShardId)>,
    next_id: Cell<u64>,
    tasks: RefCell<BTreeMap<TaskId, TaskCell>>,
    woken: Arc<Mutex<Vec<TaskId>>>,
    heap: RefCell<BinaryHeap<Reverse<(u64, u64, EventId)>>>,
    events: RefCell<BTreeMap<EventId, Event>>,
    schedule: RefCell<Random>,
    disk_stream: RefCell<Random>,
    workload: RefCell<Random>,
    trace: Cell<u64>,
    mounts: Vec<(PathBuf, Disk)>,
    network: RefCell<Network>,
    time_max_ns: u64,
    crash: Cell<Option<CrashPoint>>,
    io_count: Cell<u64>,
    crash_due: Cell<bool>,
    stopped: Cell<bool>,
    weak: Weak<World>,
}

struct TaskCell {
    /// None while it is polled.
    future: Option<BoxedFuture>,
    signal: Arc<TaskSignal>,
    shard: ShardId,
}

struct TaskSignal {
    id: TaskId,
    queued: AtomicBool,
    woken: Arc<Mutex<Vec<TaskId>>>,
}

impl Wake for TaskSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.woken.lock().expect("no waker panics while it holds the lock").push(self.id);
        }
    }
}

enum Event {
    Wake(Waker),
    DiskDone(Disk, OperationId),
    Call(Box<dyn FnOnce()>),
}

/// Why the scheduler stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    RootFinished,
    Crash,
    Stuck,
}

/// What the trace records. The discriminants are part of the hash.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Poll = 1,
    Wake = 2,
    DiskSubmit = 3,
    DiskDone = 4,
    Call = 5,
    Crash = 6,
}

impl World {
    pub(super) fn new(seed: u64, options: &SimOptions, mounts: Vec<(PathBuf, Disk)>) -> Rc<Self> {
        Rc::new_cyclic(|weak| Self {
            // Not zero, so that code which subtracts from "now" is exercised as on a machine that has been up for a while.
            now_ns: Cell::new(1_000_000_000),
            wall_start_ms: options.wall_start_ms,
            current: Cell::new((0, ShardId(0))),
            next_id: Cell::new(1),
            tasks: RefCell::default(),
            woken: Arc::default(),
            heap: RefCell::default(),
            events: RefCell::default(),
            schedule: RefCell::new(Random::new(seed, Concern::Schedule)),
            disk_stream: RefCell::new(Random::new(seed, Concern::Disk)),
            workload: RefCell::new(Random::new(seed, Concern::Workload)),
            trace: Cell::new(mix(seed)),
            mounts,
            network: RefCell::default(),
            time_max_ns: u64::try_from(options.time_max.as_nanos()).unwrap_or(u64::MAX),
            crash: Cell::new(options.crash),
            io_count: Cell::new(0),
            crash_due: Cell::new(false),
            stopped: Cell::new(false),
            weak: weak.clone(),
        })
    }

    pub(crate) fn monotonic_ns(&self) -> u64 {
        self.now_ns.get()
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        self.wall_start_ms + i64::try_from(self.monotonic_ns() / 1_000_000).expect("virtual time stays far below 2^63 ns")
    }

    pub(crate) fn current_shard(&self) -> ShardId {
        self.current.get().1
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.workload.borrow_mut().next_u64()
    }

    /// Numbers for delays that are not the disk's.
    pub(crate) fn schedule_below(&self, bound: u64) -> u64 {
        self.schedule.borrow_mut().below(bound)
    }

    /// Numbers for what the disks do.
    pub(crate) fn with_disk_stream<R>(&self, draw: impl FnOnce(&mut Random) -> R) -> R {
        draw(&mut self.disk_stream.borrow_mut())
    }

    /// The disk that holds `path`, by the longest mount that is its prefix.
    pub(crate) fn disk_of(&self, path: &Path) -> Option<Disk> {
        let mounts = self.mounts.iter().filter(|(mount, _)| path.starts_with(mount));
        mounts.max_by_key(|(mount, _)| mount.components().count()).map(|(_, disk)| disk.clone())
    }

    pub(super) fn network(&self) -> &RefCell<Network> {
        &self.network
    }

    /// True when a long loop should let others run. Drawn, so that every loop is cut at every point in some run.
    pub(crate) fn need_preempt(&self) -> bool {
        self.schedule.borrow_mut().chance(1, 3)
    }

    pub(crate) fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.spawn_on(self.current_shard(), future)
    }

    pub(crate) fn spawn_on<T: 'static>(&self, shard: ShardId, future: impl Future<Output = T> + 'static) -> Task<T> {
        let id = self.take_id();
        let state = Rc::new(RefCell::new(JoinState::default()));
        let task = Task::new(self.weak.clone(), id, state.clone());
        // A machine that has stopped runs nothing more: a destructor that spawns its clean-up loses it, as in a crash.
        if self.stopped.get() {
            return task;
        }
        let wrapped: BoxedFuture = Box::pin(async move {
            let output = future.await;
            JoinState::finish(&state, output);
        });
        let signal = Arc::new(TaskSignal { id, queued: AtomicBool::new(false), woken: self.woken.clone() });
        self.tasks.borrow_mut().insert(id, TaskCell { future: Some(wrapped), signal: signal.clone(), shard });
        signal.wake_by_ref();
        task
    }

    /// Removes a task; its future is dropped, or, when it runs at this moment, after it yields.
    pub(super) fn cancel(&self, id: TaskId) {
        let cell = self.tasks.borrow_mut().remove(&id);
        drop(cell);
    }

    /// Runs `call` after a delay, outside every task.
    pub(crate) fn call_after(&self, delay_ns: u64, call: impl FnOnce() + 'static) {
        self.push_event(self.monotonic_ns().saturating_add(delay_ns), Event::Call(Box::new(call)));
    }

    pub(super) fn disk_done_after(&self, delay_ns: u64, disk: Disk, operation: OperationId) {
        self.push_event(self.monotonic_ns().saturating_add(delay_ns), Event::DiskDone(disk, operation));
    }

    /// Counts one submission or completion, which is where a crash may be asked for.
    pub(super) fn count_io(&self) {
        self.io_count.set(self.io_count.get() + 1);
        if let Some(CrashPoint::IoCount(count)) = self.crash.get()
            && self.io_count.get() >= count
        {
            self.crash_due.set(true);
        }
    }

    pub(crate) fn io_count(&self) -> u64 {
        self.io_count.get()
    }

    pub(crate) fn request_crash(&self) {
        self.crash_due.set(true);
    }

    pub(crate) fn trace(&self, step: Step, detail: u64) {
        let word = mix(self.monotonic_ns() ^ mix(detail.wrapping_add(step as u64)));
        self.trace.set(mix(self.trace.get().rotate_left(5) ^ word));
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace.get()
    }

    /// Runs until the root task ends, a crash is due, or nothing can ever happen again.
    pub(super) fn run_until(&self, root_finished: &dyn Fn() -> bool) -> Stop {
        let mut ready = Vec::new();
        loop {
            if root_finished() {
                return Stop::RootFinished;
            }
            let crash_time = matches!(self.crash.get(), Some(CrashPoint::Time(time)) if self.monotonic_ns() >= u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            if crash_time || self.crash_due.get() {
                self.trace(Step::Crash, self.io_count.get());
                return Stop::Crash;
            }
            if self.monotonic_ns() > self.time_max_ns {
                return Stop::Stuck;
            }
            ready.append(&mut self.woken.lock().expect("no waker panics while it holds the lock"));
            self.fire_due_events();
            if ready.is_empty() {
                ready.append(&mut self.woken.lock().expect("no waker panics while it holds the lock"));
                if ready.is_empty() && !self.advance_to_next_event() {
                    return Stop::Stuck;
                }
                continue;
            }
            let index = self.schedule.borrow_mut().below(ready.len() as u64);
            let id = ready.swap_remove(usize::try_from(index).expect("an index into a Vec"));
            self.poll_task(id);
            // Work costs time: a loop that waits for the clock must see it move.
            let cost_ns = self.schedule.borrow_mut().between(50, 2_000);
            self.now_ns.set(self.monotonic_ns() + cost_ns);
        }
    }

    /// Drops every task and event. Destructors may still ask the machine for the time; what they spawn is lost.
    pub(super) fn stop(&self) {
        self.stopped.set(true);
        loop {
            let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
            let events = std::mem::take(&mut *self.events.borrow_mut());
            let sockets = self.network.borrow_mut().close();
            drop(sockets);
            if tasks.is_empty() && events.is_empty() {
                return;
            }
            drop(tasks);
            drop(events);
        }
    }

    fn poll_task(&self, id: TaskId) {
        let taken = self.tasks.borrow_mut().get_mut(&id).map(|cell| (cell.future.take(), cell.signal.clone(), cell.shard));
        let Some((Some(mut future), signal, shard)) = taken else { return };
        self.trace(Step::Poll, id);
        signal.queued.store(false, Ordering::Release);
        self.current.set((id, shard));
        let waker = Waker::from(signal);
        let finished = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        self.current.set((0, ShardId(0)));
        let mut tasks = self.tasks.borrow_mut();
        if finished {
            let cell = tasks.remove(&id);
            drop(tasks);
            drop(future);
            drop(cell);
        } else if let Some(cell) = tasks.get_mut(&id) {
            cell.future = Some(future);
        } else {
            // Cancelled while it ran.
            drop(tasks);
            drop(future);
        }
    }

    fn take_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    fn push_event(&self, time_ns: u64, event: Event) -> EventId {
        let id = self.take_id();
        let tie_break = self.schedule.borrow_mut().next_u64();
        if !self.stopped.get() {
            self.heap.borrow_mut().push(Reverse((time_ns, tie_break, id)));
            self.events.borrow_mut().insert(id, event);
        }
        id
    }

    fn fire_due_events(&self) {
        loop {
            let mut heap = self.heap.borrow_mut();
            match heap.peek() {
                Some(Reverse((time_ns, _, _))) if *time_ns <= self.monotonic_ns() => {}
                _ => return,
            }
            let Some(Reverse((_, _, id))) = heap.pop() else { return };
            drop(heap);
            self.fire(id);
        }
    }

    fn advance_to_next_event(&self) -> bool {
        loop {
            let popped = self.heap.borrow_mut().pop();
            let Some(Reverse((time_ns, _, id))) = popped else { return false };
            if self.events.borrow().contains_key(&id) {
                if let Some(CrashPoint::Time(time)) = self.crash.get() {
                    let crash_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                    if time_ns > crash_ns {
                        // The power goes before this event.
                        self.now_ns.set(self.monotonic_ns().max(crash_ns));
                        self.heap.borrow_mut().push(Reverse((time_ns, 0, id)));
                        return true;
                    }
                }
                self.now_ns.set(self.monotonic_ns().max(time_ns));
                self.fire(id);
                return true;
            }
        }
    }

    fn fire(&self, id: EventId) {
        let event = self.events.borrow_mut().remove(&id);
        match event {
            // A timer that was dropped before it fired.
            None => {}
            Some(Event::Wake(waker)) => {
                self.trace(Step::Wake, id);
                waker.wake();
            }
            Some(Event::DiskDone(disk, operation)) => disk.complete(self, operation),
            Some(Event::Call(call)) => {
                self.trace(Step::Call, id);
                call();
            }
        }
    }
}

/// Resolves when the virtual clock reaches its deadline.
pub(crate) struct Sleep {
    world: Weak<World>,
    deadline_ns: u64,
    event: Option<EventId>,
}

impl Sleep {
    pub(crate) fn new(world: &Rc<World>, duration: Duration) -> Self {
        let deadline_ns = world.monotonic_ns().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        Self { world: Rc::downgrade(world), deadline_ns, event: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(world) = self.world.upgrade() else { return Poll::Pending };
        if let Some(event) = self.event.take() {
            world.events.borrow_mut().remove(&event);
        }
        if world.monotonic_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        self.event = Some(world.push_event(self.deadline_ns, Event::Wake(context.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let (Some(event), Some(world)) = (self.event, self.world.upgrade()) {
            let removed = world.events.borrow_mut().remove(&event);
            drop(removed);
        }
    }
}
