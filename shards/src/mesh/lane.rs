use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::{MESH_LANE_MESSAGES_MAX, REMOTE_MESSAGES_MAX, ShardId};

/// Everything that connects the shards: one inbox per shard, one lane per source in it.
pub(crate) struct Wires<M> {
    inboxes: Box<[Inbox<M>]>,
}

/// What waits for one shard.
pub(super) struct Inbox<M> {
    /// One per shard, then one for ordinary threads.
    lanes: Box<[Lane<M>]>,
    /// Something was put in since the receiver looked: whoever sets it wakes the receiver.
    signalled: AtomicBool,
    receiver: WakerSlot,
}

/// A bounded queue from one source.
pub(super) struct Lane<M> {
    state: Mutex<LaneState<M>>,
    /// The state holds something to see. Only a hint that saves locks; `signalled` carries the order.
    occupied: AtomicBool,
    /// Wakes the source when there is room again.
    source: WakerSlot,
}

pub(super) struct LaneState<M> {
    pub(super) messages: Vec<M>,
    pub(super) source_end: End,
    pub(super) receiver_end: End,
    source_waits: bool,
}

/// One end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    /// Ended in order.
    Closed,
    /// Dropped without closing.
    Broken,
}

/// A waker that its owner sets and clears, and that other threads only wake by reference: a task must not be dropped on a
/// foreign thread, which the last waker would do.
#[derive(Default)]
pub(crate) struct WakerSlot {
    waker: Mutex<Option<Waker>>,
}

impl WakerSlot {
    pub(crate) fn set(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        match &*slot {
            Some(present) if present.will_wake(waker) => {}
            _ => *slot = Some(waker.clone()),
        }
    }

    pub(crate) fn clear(&self) {
        *lock(&self.waker) = None;
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }
}

/// A poisoned lock means that a thread panicked, which ends the process: the state itself is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M> Wires<M> {
    /// The wires between `shard_count` shards.
    pub(crate) fn new(shard_count: u16) -> Wires<M> {
        let inbox = || Inbox {
            lanes: (0..=shard_count).map(|_| Lane::new()).collect(),
            signalled: AtomicBool::new(false),
            receiver: WakerSlot::default(),
        };
        Wires { inboxes: (0..shard_count).map(|_| inbox()).collect() }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        u16::try_from(self.inboxes.len()).expect("the constructor took a u16")
    }

    pub(super) fn inbox(&self, shard: ShardId) -> &Inbox<M> {
        &self.inboxes[shard.index()]
    }

    /// The lane of ordinary threads comes after those of the shards.
    pub(super) fn outside_lane(&self) -> usize {
        self.inboxes.len()
    }
}

impl<M> Inbox<M> {
    pub(super) fn lane(&self, source: usize) -> &Lane<M> {
        &self.lanes[source]
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = (usize, &Lane<M>)> {
        self.lanes.iter().enumerate()
    }

    /// Wakes the receiver unless somebody has done so since it looked.
    pub(super) fn signal(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            self.receiver.wake();
        }
    }

    /// The receiver starts to look: later signals wake it again. Returns whether there is anything to see.
    pub(super) fn look(&self) -> bool {
        self.signalled.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    pub(super) fn receiver(&self) -> &WakerSlot {
        &self.receiver
    }
}

impl<M> Lane<M> {
    fn new() -> Lane<M> {
        let state = LaneState { messages: Vec::new(), source_end: End::Open, receiver_end: End::Open, source_waits: false };
        Lane { state: Mutex::new(state), occupied: AtomicBool::new(false), source: WakerSlot::default() }
    }

    /// Moves what fits from `outbox` into the lane, in order. Returns whether anything moved and how the receiver stands.
    /// When something stays behind, `waker` is woken once there is room.
    pub(super) fn push_batch(&self, outbox: &mut Vec<M>, waker: &Waker) -> (bool, End) {
        let mut state = lock(&self.state);
        if state.receiver_end != End::Open {
            return (false, state.receiver_end);
        }
        let room = MESH_LANE_MESSAGES_MAX - state.messages.len();
        let moved = room.min(outbox.len());
        if state.messages.is_empty() && moved == outbox.len() {
            std::mem::swap(&mut state.messages, outbox);
        } else {
            state.messages.extend(outbox.drain(..moved));
        }
        if !outbox.is_empty() {
            self.source.set(waker);
            state.source_waits = true;
        }
        self.occupied.store(true, Ordering::Release);
        (moved > 0, End::Open)
    }

    /// Puts in one message of an ordinary thread.
    pub(super) fn push_posted(&self, message: M) -> Result<(), (M, End)> {
        let mut state = lock(&self.state);
        if state.receiver_end != End::Open {
            return Err((message, state.receiver_end));
        }
        if state.messages.len() >= REMOTE_MESSAGES_MAX {
            return Err((message, End::Open));
        }
        state.messages.push(message);
        self.occupied.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes the whole batch by swapping it with the empty `batch`. Returns how the source stands.
    pub(super) fn take_batch(&self, batch: &mut Vec<M>) -> End {
        debug_assert!(batch.is_empty());
        if !self.occupied.swap(false, Ordering::AcqRel) {
            return End::Open;
        }
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.messages, batch);
        if state.source_waits {
            state.source_waits = false;
            self.source.wake();
        }
        state.source_end
    }

    pub(super) fn end_source(&self, end: End) {
        let mut state = lock(&self.state);
        if state.source_end == End::Open {
            state.source_end = end;
        }
        self.source.clear();
        self.occupied.store(true, Ordering::Release);
    }

    pub(super) fn end_receiver(&self, end: End) {
        let messages = {
            let mut state = lock(&self.state);
            state.receiver_end = end;
            if state.source_waits {
                state.source_waits = false;
                self.source.wake();
            }
            std::mem::take(&mut state.messages)
        };
        // Messages may hold anything, also what takes this lock when dropped.
        drop(messages);
    }
}
