//! One member: what it said, what it is to have, and what it holds.

use std::collections::BTreeMap;

use wire::{Assignor, ErrorCode, MemberEpoch, PartitionKey};

use crate::ids::InstanceId;
use crate::outcome::Token;

/// Whether a member is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It sends heartbeats.
    Here,
    /// A static member that said it would be back: it holds nothing, and its target is kept.
    Away,
    /// Its instance id belongs to another member now. It may not know: what it holds is held until its session ends.
    Replaced,
}

/// A member of a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub instance: Option<InstanceId>,
    pub presence: Presence,
    /// The first epoch it was given: older ones belong to somebody else of its name.
    pub joined: MemberEpoch,
    /// The last epoch it was given. It may not have seen it.
    pub epoch: MemberEpoch,
    /// Names of topics, ordered, without repetition.
    pub topics: Vec<String>,
    pub assignor: Option<Assignor>,
    pub session_timeout_ms: u32,
    pub rebalance_timeout_ms: u32,
    pub client: Client,
    /// What it is to have, ordered.
    pub target: Vec<PartitionKey>,
    pub holdings: BTreeMap<PartitionKey, Holding>,

    /// How many of the holdings are revoked.
    pub revoked: usize,

    // From here on: not stored.
    pub session_ends_ms: u64,
    /// It has confirmed that it owns exactly what it was told.
    pub is_confirmed: bool,
    pub waiting: Option<Waiting>,
}

/// Where a member's heartbeats come from, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// What it calls itself.
    pub id: String,
    /// Its address.
    pub host: String,
}

/// A partition at its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The epoch in which it was given.
    pub granted: MemberEpoch,
    /// The epoch from which on the member is told to give it up.
    pub revoked: Option<MemberEpoch>,
    /// When it is freed at the latest; not stored.
    pub free_at_ms: Option<u64>,
    /// The member knows that it is to give it up; not stored.
    pub is_revocation_seen: bool,
}

/// A heartbeat that is answered when there is news, or then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub token: Token,
    pub until_ms: u64,
}

impl Holding {
    pub(crate) fn new(granted: MemberEpoch) -> Holding {
        Holding { granted, revoked: None, free_at_ms: None, is_revocation_seen: false }
    }
}

impl Member {
    /// What the member is told that it owns.
    pub(crate) fn assignment(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.holdings.iter().filter(|(_, holding)| holding.revoked.is_none()).map(|(&partition, _)| partition)
    }

    pub(crate) fn has_reached_target(&self) -> bool {
        self.holdings.len() == self.target.len() && self.assignment().eq(self.target.iter().copied())
    }

    pub(crate) fn is_in_target(&self, partition: PartitionKey) -> bool {
        self.target.binary_search(&partition).is_ok()
    }

    /// Whether it holds the partition, and knew so in that epoch.
    ///
    /// # Errors
    /// Another holds it or nobody, or it was given to this member after that epoch.
    pub(crate) fn authorize_partition(&self, epoch: MemberEpoch, partition: PartitionKey) -> Result<(), ErrorCode> {
        let holding = self.holdings.get(&partition).ok_or(ErrorCode::PartitionNotOwned)?;
        if epoch < holding.granted { Err(ErrorCode::StaleMemberEpoch) } else { Ok(()) }
    }

    /// It gave a sign of life.
    pub(crate) fn touch(&mut self, now_ms: u64) {
        self.session_ends_ms = now_ms + u64::from(self.session_timeout_ms);
    }

    /// Tells it to give up `partition` from `epoch` on. When it sees that, it has its rebalance time-out.
    pub(crate) fn revoke(&mut self, now_ms: u64, partition: PartitionKey, epoch: MemberEpoch) {
        let free_at_ms = self.unheard_end_ms(now_ms);
        if let Some(holding) = self.holdings.get_mut(&partition).filter(|holding| holding.revoked.is_none()) {
            holding.revoked = Some(epoch);
            holding.free_at_ms = Some(free_at_ms);
            self.revoked += 1;
        }
    }

    /// Until when it may believe in what is revoked now, when no heartbeat shows that it has heard of it.
    ///
    /// ```text
    ///  revoked                   the last heartbeat in ignorance             its answer is a session old
    ///     ├──── below a session ────┼──────────────── a session ─────────────────┤
    /// ```
    /// The last answer that it saw was to a heartbeat sent before now: it sends heartbeats for less than a session from now on, unless it
    /// sees another answer. Each answer tells it, and lets it believe for a session from the sending of that heartbeat.
    fn unheard_end_ms(&self, now_ms: u64) -> u64 {
        now_ms + 2 * u64::from(self.session_timeout_ms)
    }

    /// Takes a partition from it; false when it did not hold it.
    pub(crate) fn drop_holding(&mut self, partition: PartitionKey) -> bool {
        let held = self.holdings.remove(&partition);
        self.revoked -= usize::from(held.as_ref().is_some_and(|holding| holding.revoked.is_some()));
        held.is_some()
    }

    /// Notes that it knows, in `epoch`, what it is to give up.
    pub(crate) fn see_revocations(&mut self, now_ms: u64, epoch: MemberEpoch) {
        let free_at_ms = now_ms + u64::from(self.rebalance_timeout_ms);
        for holding in self.holdings.values_mut() {
            if holding.revoked.is_some_and(|revoked| revoked <= epoch) && !holding.is_revocation_seen {
                holding.is_revocation_seen = true;
                holding.free_at_ms = Some(free_at_ms);
            }
        }
    }

    pub(crate) fn overdue(&self, now_ms: u64) -> impl Iterator<Item = PartitionKey> + '_ {
        // Most of the time nothing is revoked, and this is asked for each member at each tick.
        let holdings = (self.revoked > 0).then_some(&self.holdings).into_iter().flatten();
        holdings.filter(move |(_, holding)| holding.free_at_ms.is_some_and(|at| at <= now_ms)).map(|(&partition, _)| partition)
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let waiting = self.waiting.as_ref().map(|waiting| waiting.until_ms);
        let holdings = (self.revoked > 0).then_some(&self.holdings).into_iter().flatten();
        let frees = holdings.filter_map(|(_, holding)| holding.free_at_ms);
        frees.chain(waiting).chain([self.session_ends_ms]).min()
    }

    pub(crate) fn start_session(&mut self, now_ms: u64) {
        self.touch(now_ms);
        let free_at_ms = self.unheard_end_ms(now_ms);
        for holding in self.holdings.values_mut() {
            holding.free_at_ms = holding.revoked.map(|_| free_at_ms);
            holding.is_revocation_seen = false;
        }
    }
}
