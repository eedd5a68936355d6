//! Why a shard needs a ticker.
//!
//! glommio's loop parks when the preempt timer fires before the first queue has run, even with ready tasks. A periodic timer
//! alone does not end that sleep: the expired tick is itself a ready task that does not run, and no timer is left. So every
//! tick drops and re-arms nine more timers, at 2, 4, 8 … 512 ticks: one of them is always ahead. The monitor thread is the
//! second net: it wakes the ticker's task of a shard whose ticks have stopped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
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

/// What the monitor sees of a shard.
#[derive(Default)]
pub(super) struct Pulse {
    ticks: AtomicU64,
    ended: AtomicBool,
    ticker: WakerSlot,
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
            if present != *ticks || present == 0 || pulse.ended.load(Ordering::Acquire) {
                (*ticks, *since) = (present, now);
            } else if wake && now - *since >= STALL {
                stalls.fetch_add(1, Ordering::Relaxed);
                pulse.ticker.wake();
                *since = now;
            }
        }
        watch();
    }
}
