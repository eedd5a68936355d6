//! The written buffers of a shard in the order in which they were filled, and the bound on their bytes.
//!
//! A buffer holds batches of several partitions; it can be let go when each of its batches stands in a segment. So the order of letting go is
//! the order of writing, and what keeps the oldest buffer is flushed next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::partition::Partition;

#[derive(Debug)]
struct Held {
    bytes: u64,
    /// Each partition with batches in this buffer, and the end of them.
    parts: Vec<(Rc<Partition>, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct TailCache {
    held: RefCell<VecDeque<Held>>,
    bytes: std::cell::Cell<u64>,
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
            let Some(front) = held.front() else { break };
            let waits = front.parts.iter().any(|(partition, end)| {
                let inner = partition.inner.borrow();
                !inner.deleted && inner.flushed_end < (*end).min(inner.marks.appended_end.0)
            });
            if waits {
                break;
            }
            let front = held.pop_front().expect("the front was just seen");
            self.bytes.set(self.bytes.get() - front.bytes);
            for (partition, end) in front.parts {
                let mut inner = partition.inner.borrow_mut();
                while inner.cached.front().is_some_and(|batch| batch.last < end) {
                    inner.cached.pop_front();
                }
                inner.shrink();
            }
        }
    }

    /// The partitions that keep the oldest buffers from going, oldest first, until `bytes` of buffers are looked at.
    pub(crate) fn oldest_unflushed(&self, bytes: u64, count_max: usize) -> Vec<Rc<Partition>> {
        let held = self.held.borrow();
        let mut found: Vec<Rc<Partition>> = Vec::new();
        let mut seen = 0;
        for entry in held.iter() {
            for (partition, end) in &entry.parts {
                let inner = partition.inner.borrow();
                if !inner.deleted && inner.flushed_end < *end && !found.iter().any(|other| Rc::ptr_eq(other, partition)) {
                    found.push(partition.clone());
                }
                if found.len() >= count_max {
                    return found;
                }
            }
            seen += entry.bytes;
            if seen >= bytes {
                break;
            }
        }
        found
    }
}
