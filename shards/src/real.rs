//! The real machine: glommio executors, one per pinned thread. The only module that names glommio.
//!
//! ```text
//!   run ─► thread per shard ─► Shard { queues, disk permits, probed devices }
//!    │                            ├ ticker: 2 ms, with a ladder of later timers
//!    └► monitor thread ───────────┘ wakes a shard whose ticks stop
//! ```

pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod probe;
pub(crate) mod random;
pub(crate) mod run;
mod shard;
mod ticker;
pub(crate) mod tree;

pub(crate) use shard::{Shard, Task};
