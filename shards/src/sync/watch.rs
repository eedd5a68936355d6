use std::cell::RefCell;

use super::Notify;

/// A value that tasks of this shard can wait on until it satisfies them.
#[derive(Debug)]
pub struct Watch<T> {
    value: RefCell<T>,
    changed: Notify,
}

impl<T> Watch<T> {
    /// A watch that starts with `value`.
    pub fn new(value: T) -> Watch<T> {
        Watch { value: RefCell::new(value), changed: Notify::new() }
    }

    /// Replaces the value and wakes everybody who waits.
    pub fn set(&self, value: T) {
        drop(self.value.replace(value));
        self.changed.notify_waiters();
    }

    /// Reads the value. `read` must not call back into this watch's [`Watch::set`].
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.value.borrow())
    }

    /// A copy of the value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.value.borrow().clone()
    }

    /// Waits until the value satisfies `condition`; at once when it does already. A value that is replaced before this task
    /// runs is not seen.
    pub async fn wait_until(&self, mut condition: impl FnMut(&T) -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition(&self.value.borrow()) {
                return;
            }
            changed.await;
        }
    }
}
