//! Appends that found the log's queue full, in the order in which they came: from connections of this shard and over hops alike.
//!
//! ```text
//!  append ─► line empty, and room? ── yes ──► log
//!                     │ no
//!                     ▼
//!                   line ── whenever the log has progressed ──► log;  the first waited memory.admission_wait ──► "overloaded"
//! ```
//!
//! What stands here was admitted, so the bound on requests in memory is its bound too.

use super::Append;
use crate::{admission::within, shard::Shard};
use shards::{
    clock::{self, Monotonic},
    executor,
    sync::{OneshotReceiver, OneshotSender, oneshot},
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

/// The line of one shard.
#[derive(Debug, Default)]
pub(crate) struct WaitingLine {
    waiting: RefCell<VecDeque<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    append: Append,
    give_up: Monotonic,
    /// Dropped when the append has left the line: who waits for that goes on.
    placed: OneshotSender<()>,
}

impl WaitingLine {
    /// Appends that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }
}

/// Appends now, or stands in line: then the receiver resolves when it has its place or its refusal.
pub(super) fn append(shard: &Rc<Shard>, append: Append) -> Option<OneshotReceiver<()>> {
    let is_first = shard.appends_waiting.len() == 0;
    let append = if is_first {
        match append.try_now(shard) {
            Ok(()) => return None,
            Err((append, _full)) => append,
        }
    } else {
        append
    };
    let (placed, receiver) = oneshot();
    let give_up = clock::monotonic() + shard.config.memory.admission_wait.0;
    shard.appends_waiting.waiting.borrow_mut().push_back(Waiting { append, give_up, placed });
    if is_first {
        executor::spawn(serve(Rc::clone(shard))).detach();
    }
    Some(receiver)
}

/// Runs while anybody stands in line.
async fn serve(shard: Rc<Shard>) {
    loop {
        let progressed = shard.log.progressed();
        let Some(left) = place(&shard) else { return };
        // Why it woke does not matter: the line is looked at again.
        let _why = within(left, progressed).await;
    }
}

/// Appends those for whom there is room and refuses those who have waited long enough; gives how long the first may go on waiting, and
/// nothing when nobody is left.
fn place(shard: &Shard) -> Option<Duration> {
    let line = &shard.appends_waiting.waiting;
    loop {
        let Waiting { append, give_up, placed } = line.borrow_mut().pop_front()?;
        if let Err((append, full)) = append.try_now(shard) {
            let left = give_up.since(clock::monotonic());
            if !left.is_zero() {
                line.borrow_mut().push_front(Waiting { append, give_up, placed });
                return Some(left);
            }
            append.refuse(&full);
        }
    }
}
