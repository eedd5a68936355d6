//! The written buffers of a shard in the order in which they were filled, and the bound on their bytes.
//!
//! A buffer holds batches of several partitions; it can be let go when each of its batches stands in a segment. So the order of letting go is
//! the order of writing, and what keeps the oldest buffer is flushed next.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::partition::Partition;

#[derive(Debug)]
struct Held {
    bytes: u64,
    /// Each partition with batches in this buffer, and the end of them.
    parts: Vec<(Rc<Partition>, u64)>,
}

impl Held {
    /// A partition whose batches in this buffer are not all in segments.
    fn waiting(&self) -> impl Iterator<Item = &Rc<Partition>> {
        self.parts
            .iter()
            .filter(|(partition, end)| {
                let inner = partition.inner.borrow();
                // A cut may have taken the end of what was in the buffer.
                !inner.deleted && inner.flushed_end < (*end).min(inner.marks.appended_end.0)
            })
            .map(|(partition, _)| partition)
    }
}

#[derive(Debug, Default)]
pub(crate) struct TailCache {
    held: RefCell<VecDeque<Held>>,
    bytes: Cell<u64>,
    /// The oldest buffers, of which nothing waited at the last look: how many, and their bytes. Only a start for the next look.
    flushed: Cell<usize>,
    flushed_bytes: Cell<u64>,
}

impl TailCache {
    /// Bytes of all buffers held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Takes note of a filled buffer.
    pub(crate) fn hold(&self, bytes: u64, parts: Vec<(Rc<Partition>, u64)>) {
        self.bytes.set(self.bytes.get() + bytes);
        self.held.borrow_mut().push_back(Held { bytes, parts });
    }

    /// Lets the oldest buffers go while more than `bytes_max` are held and nothing in them waits for a segment.
    pub(crate) fn shrink_to(&self, bytes_max: u64) {
        let mut held = self.held.borrow_mut();
        while self.bytes.get() > bytes_max {
            if held.front().is_none_or(|front| front.waiting().next().is_some()) {
                break;
            }
            let front = held.pop_front().expect("the front was just seen");
            self.bytes.set(self.bytes.get() - front.bytes);
            if self.flushed.get() > 0 {
                self.flushed.set(self.flushed.get() - 1);
                self.flushed_bytes.set(self.flushed_bytes.get() - front.bytes);
            }
            for (partition, end) in front.parts {
                let mut inner = partition.inner.borrow_mut();
                // After a cut, newer batches may stand below the end that this buffer had: those not in a segment stay.
                let end = end.min(inner.flushed_end);
                while inner.cached.front().is_some_and(|batch| batch.last < end) {
                    inner.cached.pop_front();
                }
                inner.shrink();
            }
        }
    }

    /// The partitions that keep the oldest `bytes` of buffers from going, oldest first.
    pub(crate) fn oldest_unflushed(&self, bytes: u64, count_max: usize) -> Vec<Rc<Partition>> {
        let held = self.held.borrow();
        let mut found: Vec<Rc<Partition>> = Vec::new();
        let mut seen = self.flushed_bytes.get();
        for entry in held.iter().skip(self.flushed.get()) {
            if seen >= bytes || found.len() >= count_max {
                break;
            }
            seen += entry.bytes;
            for partition in entry.waiting() {
                if found.len() < count_max && !found.iter().any(|other| Rc::ptr_eq(other, partition)) {
                    found.push(partition.clone());
                }
            }
            if found.is_empty() {
                self.flushed.set(self.flushed.get() + 1);
                self.flushed_bytes.set(seen);
            }
        }
        found
    }
}
