//! Windows of segments that were read and checked, kept within a bound, and the reads under way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use shards::buffer::Shared;
use shards::sync::{Notify, Semaphore};

use crate::file_cache::SegmentKey;
use crate::reader::ReadError;

/// A checked batch.
#[derive(Debug)]
pub(crate) struct WindowBatch {
    pub(crate) base: u64,
    pub(crate) last: u64,
    pub(crate) position: u64,
    pub(crate) bytes: Shared,
}

/// What comes after a window's last batch.
#[derive(Debug)]
pub(crate) enum WindowEnd {
    /// More batches, or nothing.
    Whole,
    /// A damaged one.
    Corrupt(ReadError),
}

/// Consecutive batches of one segment: at least one.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) batches: Vec<WindowBatch>,
    pub(crate) end: WindowEnd,
    /// Where the batch after the last one starts.
    pub(crate) next_position: u64,
    /// It continues a window that was read before.
    pub(crate) sequential: bool,
}

impl Window {
    pub(crate) fn first_offset(&self) -> u64 {
        self.batches.first().expect("a window has batches").base
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.batches.last().expect("a window has batches").last + 1
    }

    /// Bytes of the buffer that it keeps.
    fn held_bytes(&self) -> u64 {
        self.batches.first().expect("a window has batches").bytes.block_bytes() as u64
    }
}

#[derive(Debug)]
pub(crate) struct ReadCache {
    windows: RefCell<HashMap<SegmentKey, Vec<Rc<Window>>>>,
    /// In the order of reading: the oldest goes first. A sequential reader does not come back.
    order: RefCell<VecDeque<(SegmentKey, Rc<Window>)>>,
    loading: RefCell<HashSet<(SegmentKey, u64)>>,
    bytes: Cell<u64>,
    bytes_max: u64,
    loaded: Notify,
    /// Bounds the reads in flight.
    pub(crate) permits: Semaphore,
}

/// A read under way: nobody else starts the same one until this is dropped.
pub(crate) struct Loading<'a> {
    cache: &'a ReadCache,
    key: (SegmentKey, u64),
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.cache.loading.borrow_mut().remove(&self.key);
        self.cache.loaded.notify_waiters();
    }
}

impl ReadCache {
    pub(crate) fn new(bytes_max: u64, depth: u32) -> Self {
        Self {
            windows: RefCell::default(),
            order: RefCell::default(),
            loading: RefCell::default(),
            bytes: Cell::new(0),
            bytes_max,
            loaded: Notify::new(),
            permits: Semaphore::new(depth as usize),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The window that holds `offset`.
    pub(crate) fn find(&self, key: SegmentKey, offset: u64) -> Option<Rc<Window>> {
        let windows = self.windows.borrow();
        windows.get(&key)?.iter().find(|window| window.first_offset() <= offset && offset < window.next_offset()).cloned()
    }

    /// The position of `offset` if a window ends right before it.
    pub(crate) fn continues(&self, key: SegmentKey, offset: u64) -> Option<u64> {
        let windows = self.windows.borrow();
        windows.get(&key)?.iter().find(|window| window.next_offset() == offset).map(|window| window.next_position)
    }

    /// Whether the window of `offset` is there or on its way.
    pub(crate) fn is_known(&self, key: SegmentKey, offset: u64) -> bool {
        self.find(key, offset).is_some() || self.loading.borrow().contains(&(key, offset))
    }

    /// Claims the read of a window; `None` when another has claimed it.
    pub(crate) fn begin(&self, key: SegmentKey, offset: u64) -> Option<Loading<'_>> {
        let key = (key, offset);
        let claimed = self.loading.borrow_mut().insert(key);
        claimed.then(|| Loading { cache: self, key })
    }

    /// Resolves when some read under way has ended.
    pub(crate) async fn finished(&self) {
        self.loaded.notified().await;
    }

    pub(crate) fn insert(&self, key: SegmentKey, window: Rc<Window>) {
        let mut windows = self.windows.borrow_mut();
        let mut order = self.order.borrow_mut();
        self.bytes.set(self.bytes.get() + window.held_bytes());
        windows.entry(key).or_default().push(window.clone());
        order.push_back((key, window));
        while self.bytes.get() > self.bytes_max && order.len() > 1 {
            let (old_key, old) = order.pop_front().expect("more than one");
            self.bytes.set(self.bytes.get() - old.held_bytes());
            if let Some(of_segment) = windows.get_mut(&old_key) {
                of_segment.retain(|window| !Rc::ptr_eq(window, &old));
                if of_segment.is_empty() {
                    windows.remove(&old_key);
                }
            }
        }
    }

    /// Forgets a segment: it is removed, or cut and its place may be taken by another of the same name.
    pub(crate) fn forget(&self, key: SegmentKey) {
        let forgotten = self.windows.borrow_mut().remove(&key);
        if forgotten.is_none() {
            return;
        }
        let mut order = self.order.borrow_mut();
        order.retain(|(other, window)| {
            let keep = *other != key;
            if !keep {
                self.bytes.set(self.bytes.get() - window.held_bytes());
            }
            keep
        });
    }
}
