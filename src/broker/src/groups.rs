//! Consumer groups: the internal topic that holds their state, its coordinators, and the way of a request to the right one.
//!
//! ```text
//!  request, on any shard ─► route.rs: hash of the group ─► a partition of `__groups` ─► the shard that owns it   (one hop at most)
//!                                                                                         │
//!                         coordinator.rs: the pure core decides (crate `consumer_groups`)◄┘
//!                                            │ records, replies
//!                         writer.rs: appends the records as one batch, waits for stable storage, then sends the replies
//!                                            │ dead letters
//!                         dead_letter.rs: reads the record, appends it to its dead-letter topic, reports that to the core
//!
//!  start:  load.rs reads the partition back into the core         now and then:  snapshot.rs writes all state anew, and the log starts there
//! ```
//!
//! Invariants:
//! - A reply leaves only when everything that the core decided before it is on stable storage; that to a heartbeat, when that of its group's
//!   members is.
//! - The records of one event stand in one batch.
//! - The log of a coordinator starts at or before the beginning of its last whole snapshot.

mod coordinator;
mod dead_letter;
mod describe;
mod load;
mod reply;
mod request;
mod route;
mod snapshot;
mod topic;
mod unwritten;
mod view;
mod writer;

pub(crate) use coordinator::Coordinator;
pub(crate) use request::{answer_for, find, handle, list, not_found, read, refuse};
pub(crate) use topic::{GROUPS_TOPIC as TOPIC, all, changed, deleted, serve};

use hashbrown::HashMap;
use std::{cell::RefCell, rc::Rc};
use wire::PartitionIndex;

/// The coordinators of one shard, by their partition of the internal topic.
pub(crate) type Coordinators = RefCell<HashMap<PartitionIndex, Rc<Coordinator>>>;
