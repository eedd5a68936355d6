//! Why a shard needs a ticker.
//!
//! glommio's loop parks when the preempt timer fires before the first queue has run, even with ready tasks. A periodic timer
//! alone does not end that sleep: the expired tick is itself a ready task that does not run, and no timer is left. So every
//! tick drops and re-arms nine more timers, at 2, 4, 8 … 512 ticks: one of them is always ahead. The monitor thread is the
//! second net: it wakes the ticker's task of a shard whose ticks have stopped. And when the very first poll of a shard is lost
//! that way, nothing of ours has run that could be woken: the monitor interrupts the sleep of the thread with a signal.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use glommio::timer::Timer;

use super::{Shard, clock};
use crate::mesh::WakerSlot;
use crate::{STALL, TICK};

/// Timers of the ladder: at 2^1 … 2^9 ticks.
const LADDER_RUNGS: u32 = 9;

/// How often the monitor looks. A stall is seen after at most `STALL` plus this.
const MONITOR_INTERVAL: Duration = Duration::from_millis(25);

/// Ignored unless somebody handles it: a stray one does no harm.
const START_SIGNAL: libc::c_int = libc::SIGURG;

extern "C" fn ignore_signal(_signal: libc::c_int) {}

/// What the monitor sees of a shard.
#[derive(Default)]
pub(super) struct Pulse {
    ticks: AtomicU64,
    ended: AtomicBool,
    ticker: WakerSlot,
    /// The thread of the shard while it has not ticked; 0 before it runs.
    starting_thread: AtomicI32,
}

/// Ticks until the shard ends. Detached on every shard.
pub(super) async fn tick(shard: Rc<Shard>, pulse: Arc<Pulse>) {
    let mut ladder: Vec<Timer> = Vec::new();
    loop {
        pulse.ticks.fetch_add(1, Ordering::Relaxed);
        shard.set_coarse_ns(clock::monotonic_ns());
        ladder.clear();
        ladder.extend((1..=LADDER_RUNGS).map(|rung| Timer::new(TICK * (1 << rung))));
        let mut next = Timer::new(TICK);
        poll_fn(|context| {
            pulse.ticker.set(context.waker());
            let ready = Pin::new(&mut next).poll(context).is_ready();
            for rung in &mut ladder {
                // Polling arms it. One that has expired has done its work by waking us.
                let _ = Pin::new(rung).poll(context);
            }
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Pulse {
    /// The executor is about to run on this thread.
    pub(super) fn begin(&self) {
        self.starting_thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    }

    /// Ends a sleep that began before the first tick.
    fn interrupt_start(&self) {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            let action = libc::sigaction {
                sa_sigaction: ignore_signal as extern "C" fn(libc::c_int) as usize,
                // SAFETY: a set of signals is plain data; all zeroes is the empty one.
                sa_mask: unsafe { std::mem::zeroed() },
                sa_flags: libc::SA_RESTART,
                sa_restorer: None,
            };
            // SAFETY: both point to one valid action each; the handler does nothing, so it is safe in any thread at any time.
            unsafe {
                let mut present = action;
                libc::sigaction(START_SIGNAL, std::ptr::null(), &raw mut present);
                // A handler of the program interrupts just as well.
                if present.sa_sigaction == libc::SIG_DFL || present.sa_sigaction == libc::SIG_IGN {
                    libc::sigaction(START_SIGNAL, &raw const action, std::ptr::null_mut());
                }
            }
        });
        let thread = self.starting_thread.load(Ordering::Acquire);
        if thread != 0 {
            // SAFETY: takes three numbers; a thread that has ended gives an error, which needs no answer.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, START_SIGNAL) };
        }
    }

    /// The shard is about to end: called on its thread.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.ticker.clear();
    }
}

/// Stops the monitor thread when told.
#[derive(Default)]
pub(super) struct MonitorStop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl MonitorStop {
    pub(super) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for one interval; true once the monitor is to stop.
    fn wait(&self) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let (stopped, _) = self
            .changed
            .wait_timeout_while(stopped, MONITOR_INTERVAL, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }
}

/// The monitor thread: wakes shards whose ticks have stopped, and calls `watch` every round. Ends when told, or with the shards.
pub(super) fn monitor(pulses: &[Arc<Pulse>], wake: bool, stalls: &AtomicU64, stop: &MonitorStop, mut watch: impl FnMut()) {
    let start = Instant::now();
    let mut seen: Vec<(u64, Instant)> = pulses.iter().map(|_| (0, start)).collect();
    while !stop.wait() && !pulses.iter().all(|pulse| pulse.ended.load(Ordering::Acquire)) {
        let now = Instant::now();
        for (pulse, (ticks, since)) in pulses.iter().zip(&mut seen) {
            let present = pulse.ticks.load(Ordering::Relaxed);
            if present != *ticks || pulse.ended.load(Ordering::Acquire) {
                (*ticks, *since) = (present, now);
            } else if wake && now - *since >= STALL {
                *since = now;
                if present == 0 {
                    pulse.interrupt_start();
                } else {
                    stalls.fetch_add(1, Ordering::Relaxed);
                    pulse.ticker.wake();
                }
            }
        }
        watch();
    }
}
