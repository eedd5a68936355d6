//! Waiting for one another on one shard: no atomics, no executor, the same on both machines.
//!
//! Fair: waiters are served in the order in which they came. Nothing here crosses threads.

mod notify;
mod oneshot;
mod semaphore;
mod watch;

pub use notify::{Notified, Notify};
pub use oneshot::{Closed, OneshotReceiver, OneshotSender, oneshot};
pub use semaphore::{Acquire, Permit, Semaphore};
pub use watch::Watch;
