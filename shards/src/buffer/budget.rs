use std::cell::Cell;
use std::rc::Rc;

/// A limit on bytes in use for one purpose on one shard. Full is an answer: push back.
#[derive(Clone, Debug)]
pub struct Budget {
    state: Rc<State>,
}

#[derive(Debug)]
struct State {
    limit_bytes: usize,
    used_bytes: Cell<usize>,
}

impl Budget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Budget {
        Budget { state: Rc::new(State { limit_bytes, used_bytes: Cell::new(0) }) }
    }

    /// Takes `bytes` from the budget until the reservation is dropped. `None` when they do not fit now.
    ///
    /// When nothing is in use, any amount fits: a single large request is served, however small the budget.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let used = self.state.used_bytes.get();
        let total = used.checked_add(bytes)?;
        if used > 0 && total > self.state.limit_bytes {
            return None;
        }
        self.state.used_bytes.set(total);
        Some(Reservation { state: Rc::clone(&self.state), bytes })
    }

    /// The limit.
    pub fn limit_bytes(&self) -> usize {
        self.state.limit_bytes
    }

    /// Bytes reserved now.
    pub fn used_bytes(&self) -> usize {
        self.state.used_bytes.get()
    }
}

/// Bytes taken from a [`Budget`]; they go back when this is dropped.
#[derive(Debug)]
#[must_use = "the bytes go back when this is dropped"]
pub struct Reservation {
    state: Rc<State>,
    bytes: usize,
}

impl Reservation {
    /// The bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back all but `bytes`, which are at most those held.
    pub fn shrink_to(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes);
        self.state.used_bytes.set(self.state.used_bytes.get() - (self.bytes - bytes));
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.state.used_bytes.set(self.state.used_bytes.get() - self.bytes);
    }
}
