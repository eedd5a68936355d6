//! Memory of replies: a connection gets as much of it as its client takes.
//!
//! ```text
//!  a reply to be made ─► the connection's line ─► room in its window? ─► the shard's gate ─► read ─► written ─► given back
//!                        in order of asking       what its client takes    in order of asking,      piece by piece
//!                                                 in half a second         shard/relief.rs helps
//! ```
//!
//! A window holds two replies: one is written while the next is read. A client that takes nothing has the least window, and no more.

use super::Connection;
use crate::{
    admission::Held,
    shard::{Shard, relief},
};
use shards::{
    clock,
    sync::{Notify, Semaphore},
};
use std::{cell::Cell, rc::Rc};

/// The window of a client of which nothing is known, or that takes little: below it a reply carries too little for its costs.
const WINDOW_BYTES_MIN: usize = 2 << 20;
/// A window is what the client takes in this part of a second.
const WINDOW_PER_SECOND: usize = 2;
/// No connection's window is more than this part of the shard's memory for replies.
const WINDOW_SHARE_MAX: usize = 4;

/// The memory that replies of one connection may have.
#[derive(Debug)]
pub(crate) struct ReplyWindow {
    bytes_max: usize,
    /// Held, or waited for at the shard's gate.
    taken_bytes: Cell<usize>,
    /// Of the shard's memory.
    held_bytes: Cell<usize>,
    /// Replies that wait for the shard's memory.
    waiting: Cell<usize>,
    line: Semaphore,
    changed: Notify,
    /// What was prepared was taken back: nothing is prepared until the client takes something.
    parked: Cell<bool>,
}

/// What a reply holds: of its connection's window and of the shard's memory.
#[derive(Debug)]
#[must_use = "what is held goes back when this is dropped"]
pub(crate) struct ReplyHold {
    window: WindowHold,
    shard: Held,
}

#[derive(Debug)]
struct WindowHold {
    connection: Rc<Connection>,
    bytes: usize,
}

impl ReplyWindow {
    /// `connection_bytes_max` is the most of a connection, `shard_bytes` what all of the shard have.
    pub(super) fn new(connection_bytes_max: usize, shard_bytes: usize) -> Self {
        let bytes_max = (shard_bytes / WINDOW_SHARE_MAX).max(WINDOW_BYTES_MIN).min(connection_bytes_max);
        ReplyWindow {
            bytes_max,
            taken_bytes: Cell::new(0),
            held_bytes: Cell::new(0),
            waiting: Cell::new(0),
            line: Semaphore::new(1),
            changed: Notify::new(),
            parked: Cell::new(false),
        }
    }

    /// Bytes of the shard's memory that the replies of the connection hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes.get()
    }

    /// Replies of the connection that wait for the shard's memory.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// The client has taken nothing for long: no reply is prepared ahead until it does.
    pub(super) fn park(&self) {
        self.parked.set(true);
    }

    /// The client takes replies, or the connection is closed.
    pub(super) fn moves_on(&self) {
        self.parked.set(false);
        self.changed.notify_waiters();
    }
}

impl Connection {
    /// Bytes of the connection's window now.
    fn window_bytes(&self) -> usize {
        let pace = self.output.pace().bytes_per_second(clock::monotonic_coarse());
        (pace / WINDOW_PER_SECOND).max(WINDOW_BYTES_MIN).min(self.replies.bytes_max)
    }

    /// The most that one reply should bring now; a single batch may be more.
    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.window_bytes() / 2
    }

    /// Takes `bytes` of the window, or more than there is when nothing else is taken.
    async fn window_hold(self: &Rc<Self>, bytes: usize) -> WindowHold {
        let _turn = self.replies.line.acquire(1).await;
        loop {
            let changed = self.replies.changed.notified();
            let taken = self.replies.taken_bytes.get();
            let fits = !self.replies.parked.get() && taken + bytes <= self.window_bytes();
            if taken == 0 || fits || self.is_closed() {
                return WindowHold::new(self, bytes);
            }
            changed.await;
        }
    }
}

impl WindowHold {
    fn new(connection: &Rc<Connection>, bytes: usize) -> Self {
        let taken = &connection.replies.taken_bytes;
        taken.set(taken.get() + bytes);
        WindowHold { connection: Rc::clone(connection), bytes }
    }

    fn set(&mut self, bytes: usize) {
        let window = &self.connection.replies;
        window.taken_bytes.set(window.taken_bytes.get() - self.bytes + bytes);
        if bytes < self.bytes {
            window.changed.notify_waiters();
        }
        self.bytes = bytes;
    }
}

impl Drop for WindowHold {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Holds memory for a reply before it is made, until the client has taken it; nothing when the connection is closed meanwhile.
pub(crate) async fn reply_memory(shard: &Rc<Shard>, connection: &Rc<Connection>, bytes: usize) -> Option<ReplyHold> {
    let window = connection.window_hold(bytes).await;
    if connection.is_closed() {
        return None;
    }
    let shard = match shard.reply_bytes.try_acquire(bytes) {
        Some(held) => held,
        None => {
            relief::wanted(shard);
            let waiting = &connection.replies.waiting;
            waiting.set(waiting.get() + 1);
            let held = shard.reply_bytes.acquire(bytes).await;
            waiting.set(waiting.get() - 1);
            held
        }
    };
    if connection.is_closed() {
        return None;
    }
    let held = &connection.replies.held_bytes;
    held.set(held.get() + shard.count());
    Some(ReplyHold { window, shard })
}

impl ReplyHold {
    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.window.bytes {
            self.window.set(bytes);
        }
        self.change_shard(|held| held.shrink_to(bytes));
    }

    /// Whether `bytes` are held; takes what is missing if it is free. The window is passed: what is there already is better sent.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let mut grown = false;
        self.change_shard(|held| grown = held.grow_to(bytes));
        if grown && bytes > self.window.bytes {
            self.window.set(bytes);
        }
        grown
    }

    fn change_shard(&mut self, change: impl FnOnce(&mut Held)) {
        let held = &self.window.connection.replies.held_bytes;
        let before = self.shard.count();
        change(&mut self.shard);
        held.set(held.get() - before + self.shard.count());
    }
}

impl Drop for ReplyHold {
    fn drop(&mut self) {
        let held = &self.window.connection.replies.held_bytes;
        held.set(held.get() - self.shard.count());
    }
}
