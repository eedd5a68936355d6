//! What a coordinator has decided and its log does not hold yet.
//!
//! Invariants:
//! - Units are appended in the order in which they came.
//! - What they take has a bound; who comes when it is reached, or while the disk is full, is told so and comes again.
//! - A heartbeat waits for what changes its group's members, for nothing else: a commit that cannot be written ends no session.

use consumer_groups::{GroupId, Reply, Request, StateRecord, Token, retry::RetryAction};
use hashbrown::HashMap;
use shards::sync::OneshotSender;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};
use wire::ErrorCode;

/// What may be unwritten when a request is taken: seconds of a disk that hardly answers. One event may add some MiB to that.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;
/// What a record or a reply counts beside its bytes.
const ENTRY_BYTES: usize = 256;

/// What one event led to: its records become durable together, before its replies leave.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) records: Vec<StateRecord>,
    /// Groups of whose members there are records.
    pub(super) memberships: Vec<GroupId>,
    pub(super) replies: Vec<(Token, Reply)>,
    pub(super) actions: Vec<RetryAction>,
    /// Told when the records are durable.
    pub(super) written: Option<OneshotSender<()>>,
}

impl Unit {
    /// Records alone.
    pub(super) fn of(records: Vec<StateRecord>, written: Option<OneshotSender<()>>) -> Unit {
        Unit { records, written, ..Unit::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.key.len() + record.value.as_ref().map_or(0, Vec::len)).sum()
    }

    /// What it takes in memory, about.
    fn held_bytes(&self) -> usize {
        self.bytes() + (self.records.len() + self.replies.len() + self.actions.len()) * ENTRY_BYTES
    }
}

/// The units of a coordinator that are not durable.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    queue: RefCell<VecDeque<Unit>>,
    /// Of those in the queue and of those being appended.
    held_bytes: Cell<usize>,
    /// Likewise, of each group how many change its members.
    memberships: RefCell<HashMap<GroupId, usize>>,
    disk_full: Cell<bool>,
}

impl Unwritten {
    /// Puts a unit behind all others.
    pub(super) fn push(&self, unit: Unit) {
        self.held_bytes.set(self.held_bytes.get() + unit.held_bytes());
        let mut memberships = self.memberships.borrow_mut();
        for group in &unit.memberships {
            *memberships.entry(group.clone()).or_default() += 1;
        }
        self.queue.borrow_mut().push_back(unit);
    }

    /// The units that go into the next batch: as many as stay within `bytes_max`, and at least one. Each is given back to
    /// [`Unwritten::written`].
    pub(super) fn take(&self, bytes_max: usize) -> Vec<Unit> {
        let mut queue = self.queue.borrow_mut();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(unit) = queue.front() {
            bytes += unit.bytes();
            if !taken.is_empty() && bytes > bytes_max {
                break;
            }
            taken.extend(queue.pop_front());
        }
        taken
    }

    /// A unit that was taken is durable.
    pub(super) fn written(&self, unit: &Unit) {
        self.forget(unit.held_bytes());
        let mut memberships = self.memberships.borrow_mut();
        for group in &unit.memberships {
            let count = memberships.get_mut(group).expect("it was counted when it was pushed");
            *count -= 1;
            if *count == 0 {
                memberships.remove(group);
            }
        }
    }

    /// The log refuses records for lack of space, until it takes some: gives the replies that wait, which nobody is to wait for so long.
    pub(super) fn disk_full(&self, taken: &mut [Unit]) -> Vec<Token> {
        self.disk_full.set(true);
        let mut queue = self.queue.borrow_mut();
        let mut tokens = Vec::new();
        for unit in taken.iter_mut().chain(queue.iter_mut()) {
            self.forget(unit.replies.len() * ENTRY_BYTES);
            tokens.extend(unit.replies.drain(..).map(|(token, _)| token));
        }
        tokens
    }

    /// The log takes records.
    pub(super) fn disk_has_room(&self) {
        self.disk_full.set(false);
    }

    /// Whether a request may be taken.
    ///
    /// # Errors
    /// It could not be answered soon: try again later.
    pub(super) fn admit(&self, request: &Request) -> Result<(), ErrorCode> {
        let refusal = if self.disk_full.get() {
            ErrorCode::DiskFull
        } else if self.held_bytes.get() >= UNWRITTEN_BYTES_MAX {
            ErrorCode::Overloaded
        } else {
            return Ok(());
        };
        match request {
            Request::Heartbeat { request, .. } if !self.changes_members_of(&request.group) => Ok(()),
            _ => Err(refusal),
        }
    }

    /// Whether a change of the group's members is not durable.
    pub(super) fn changes_members_of(&self, group: &str) -> bool {
        self.memberships.borrow().contains_key(group)
    }

    /// Forgets all; dropped by the caller, outside of the borrow: senders wake those who wait.
    pub(super) fn clear(&self) -> VecDeque<Unit> {
        self.held_bytes.set(0);
        self.memberships.borrow_mut().clear();
        self.queue.take()
    }

    fn forget(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() - bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer_groups::Client;
    use wire::{DeleteGroupReply, DeleteGroupRequest, GroupHeartbeatRequest, MemberEpoch};

    fn heartbeat(group: &str) -> Request {
        let request = GroupHeartbeatRequest {
            group: group.to_owned(),
            member_id: "m".to_owned(),
            instance_id: None,
            member_epoch: MemberEpoch(1),
            max_wait_ms: 0,
            rebalance_timeout_ms: 60_000,
            session_timeout_ms: 60_000,
            assignor: None,
            topics: None,
            owned: None,
        };
        Request::Heartbeat { request, client: Client { id: String::new(), host: String::new() } }
    }

    fn change(group: &str) -> Request {
        Request::DeleteGroup(DeleteGroupRequest { group: group.to_owned() })
    }

    fn unit(bytes: usize, memberships: &[&str]) -> Unit {
        let records = vec![StateRecord { key: vec![0; bytes], value: None }];
        let reply = Reply::DeleteGroup(DeleteGroupReply { error: ErrorCode::None, message: None });
        let memberships = memberships.iter().map(|group| GroupId::from(*group)).collect();
        Unit { records, memberships, replies: vec![(Token(bytes as u64), reply)], ..Unit::default() }
    }

    #[test]
    fn what_is_unwritten_has_a_bound_and_heartbeats_of_a_group_without_changes_are_taken_beyond_it() {
        let unwritten = Unwritten::default();
        let half = UNWRITTEN_BYTES_MAX / 2;
        unwritten.push(unit(half, &[]));
        assert_eq!(unwritten.admit(&change("a")), Ok(()));
        unwritten.push(unit(half, &["b"]));
        assert_eq!(unwritten.admit(&change("a")), Err(ErrorCode::Overloaded));
        assert_eq!(unwritten.admit(&heartbeat("a")), Ok(()));
        assert_eq!(unwritten.admit(&heartbeat("b")), Err(ErrorCode::Overloaded));
        let mut taken = unwritten.take(1);
        assert_eq!(taken.len(), 1, "one at least, whatever its size");
        assert_eq!(unwritten.admit(&change("a")), Err(ErrorCode::Overloaded), "it is being appended");
        unwritten.written(&taken.remove(0));
        assert_eq!(unwritten.admit(&change("a")), Ok(()));
        assert!(unwritten.changes_members_of("b"));
        unwritten.written(&unwritten.take(1)[0]);
        assert!(!unwritten.changes_members_of("b"));
        assert_eq!(unwritten.held_bytes.get(), 0);
    }

    #[test]
    fn nobody_waits_for_a_disk_that_is_full() {
        let unwritten = Unwritten::default();
        for bytes in [1, 2, 3] {
            unwritten.push(unit(bytes, &["b"]));
        }
        let mut taken = unwritten.take(2);
        assert_eq!(unwritten.disk_full(&mut taken), [Token(1), Token(2), Token(3)]);
        assert_eq!(unwritten.disk_full(&mut taken), []);
        assert_eq!(unwritten.admit(&change("a")), Err(ErrorCode::DiskFull));
        assert_eq!(unwritten.admit(&heartbeat("a")), Ok(()));
        assert_eq!(unwritten.admit(&heartbeat("b")), Err(ErrorCode::DiskFull));
        unwritten.disk_has_room();
        assert_eq!(unwritten.admit(&change("a")), Ok(()));
        taken.iter().for_each(|unit| unwritten.written(unit));
        unwritten.take(usize::MAX).iter().for_each(|unit| unwritten.written(unit));
        assert_eq!(unwritten.held_bytes.get(), 0);
    }
}
