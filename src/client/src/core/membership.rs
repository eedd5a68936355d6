//! A member of a group: what it says with each heartbeat, and what the answers mean for the partitions it reads.
//!
//! ```text
//!   Joining ──epoch, assignment──► Member ──smaller assignment──► revoking: the program ends with them ──confirmed──┐
//!      ▲                             ▲  └──larger assignment───► given: read from now on                            │
//!      │                             └──────────────────────────────────────────────────────────────────────────────┘
//!      └── unknown, fenced, or no answer for a session: everything is lost, and a new member joins
//! ```
//!
//! Invariants:
//! - A partition is confirmed as given up only after the program has ended with it.
//! - At most one heartbeat is under way, and another behind it when there is something to tell at once.
//! - Who had no answer for a whole session reads nothing any more: the coordinator may have given its partitions to another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{
    Assignor, ErrorCode, GroupHeartbeatReply, GroupHeartbeatRequest, MemberEpoch, PartitionIndex, PartitionKey, TopicId,
    TopicPartitions,
};

/// Before the next heartbeat after one that was refused for now.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// What stays the same over the life of a member.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) group: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) topics: Vec<String>,
    pub(crate) assignor: Option<Assignor>,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
}

/// What changes for the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// To be read from now on.
    Given(Vec<PartitionKey>),
    /// To be ended with; [`MembershipCore::given_up`] confirms it.
    Revoked(Vec<PartitionKey>),
    /// No longer the member's, whatever it does.
    Lost(Vec<PartitionKey>),
}

/// The state of a member.
#[derive(Debug)]
pub(crate) struct MembershipCore {
    member: Membership,
    member_id: String,
    epoch: MemberEpoch,
    held: BTreeSet<PartitionKey>,
    /// Held, and to be given up.
    revoking: BTreeSet<PartitionKey>,
    names: BTreeMap<TopicId, Arc<str>>,
    /// When the heartbeats under way left, oldest first.
    beating: VecDeque<Instant>,
    /// The subscription has reached the coordinator.
    is_announced: bool,
    /// There is something to tell at once.
    is_urgent: bool,
    next_beat: Instant,
    /// When the last heartbeat that was answered left.
    last_alive: Option<Instant>,
}

impl MembershipCore {
    /// A member that has not joined. `member_id` is like no other.
    pub(crate) fn new(member: Membership, member_id: String, now: Instant) -> Self {
        Self {
            member,
            member_id,
            epoch: MemberEpoch::JOIN,
            held: BTreeSet::new(),
            revoking: BTreeSet::new(),
            names: BTreeMap::new(),
            beating: VecDeque::new(),
            is_announced: false,
            is_urgent: false,
            next_beat: now,
            last_alive: None,
        }
    }

    pub(crate) fn member_id(&self) -> &str {
        &self.member_id
    }

    pub(crate) fn epoch(&self) -> MemberEpoch {
        self.epoch
    }

    /// What is held, and not to be given up.
    pub(crate) fn held(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.held.difference(&self.revoking).copied()
    }

    /// The name of a topic that was assigned.
    pub(crate) fn name(&self, topic: TopicId) -> Option<&Arc<str>> {
        self.names.get(&topic)
    }

    /// The heartbeat to send now; `max_wait` is how long the coordinator may hold it while there is no news.
    pub(crate) fn next_beat(&mut self, now: Instant, max_wait: Duration) -> Option<GroupHeartbeatRequest> {
        // The coordinator answers the one that it holds when the next comes.
        let is_time = match self.beating.len() {
            0 => self.is_urgent || now >= self.next_beat,
            1 => self.is_urgent,
            _ => false,
        };
        if !is_time {
            return None;
        }
        self.beating.push_back(now);
        self.is_urgent = false;
        // What is told is confirmed: the answer may be held back as long as nothing is new.
        let max_wait = if self.epoch == MemberEpoch::JOIN { Duration::ZERO } else { max_wait };
        Some(self.request(self.epoch, max_wait))
    }

    /// The heartbeat that leaves the group. A static member goes for a while only: its partitions wait for it as long as its session.
    pub(crate) fn leave(&self) -> Option<GroupHeartbeatRequest> {
        let epoch = if self.member.instance_id.is_some() { MemberEpoch::LEAVE_STATIC } else { MemberEpoch::LEAVE };
        (self.epoch != MemberEpoch::JOIN).then(|| self.request(epoch, Duration::ZERO))
    }

    fn request(&self, member_epoch: MemberEpoch, max_wait: Duration) -> GroupHeartbeatRequest {
        let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        let mut owned: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
        for key in &self.held {
            owned.entry(key.topic).or_default().push(key.partition);
        }
        let owned = owned.into_iter().map(|(topic, partitions)| TopicPartitions { topic, partitions }).collect();
        let is_joining = self.epoch == MemberEpoch::JOIN;
        GroupHeartbeatRequest {
            group: self.member.group.clone(),
            member_id: self.member_id.clone(),
            instance_id: self.member.instance_id.clone(),
            member_epoch,
            max_wait_ms: ms(max_wait),
            rebalance_timeout_ms: ms(self.member.rebalance_timeout),
            session_timeout_ms: ms(self.member.session_timeout),
            assignor: self.member.assignor,
            topics: (is_joining || !self.is_announced).then(|| self.member.topics.clone()),
            owned: Some(owned),
        }
    }

    /// The answer to a heartbeat that `of` sent; one to an earlier member's says nothing of this one. `member_id` is like no other, for the case
    /// that a new member has to join.
    ///
    /// # Errors
    /// The group cannot be joined: trying again does not help.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        of: &str,
        reply: &GroupHeartbeatReply,
        member_id: String,
    ) -> Result<Vec<Change>, ErrorCode> {
        if of != self.member_id {
            return Ok(Vec::new());
        }
        let began = self.beating.pop_front().unwrap_or(now);
        match reply.error {
            ErrorCode::None => {}
            ErrorCode::UnknownMember | ErrorCode::FencedMemberEpoch => return Ok(self.rejoin(now, member_id)),
            code if code.retryable() => {
                self.next_beat = now + REFUSED_PAUSE;
                return Ok(Vec::new());
            }
            code => return Err(code),
        }
        self.is_announced = true;
        self.last_alive = Some(began);
        self.epoch = reply.member_epoch;
        // The coordinator holds the next one: it may leave at once.
        self.next_beat = now;
        let Some(assignment) = &reply.assignment else { return Ok(Vec::new()) };
        let mut assigned = BTreeSet::new();
        for topic in assignment {
            self.names.entry(topic.topic).or_insert_with(|| Arc::from(topic.name.as_str()));
            assigned.extend(topic.partitions.iter().map(|index| PartitionKey::new(topic.topic, *index)));
        }
        let revoked: Vec<_> = self.held.difference(&assigned).filter(|key| !self.revoking.contains(key)).copied().collect();
        let given: Vec<_> = assigned.difference(&self.held).copied().collect();
        self.revoking.extend(&revoked);
        self.held.extend(&given);
        self.is_urgent = true;
        let mut changes = Vec::new();
        if !revoked.is_empty() {
            changes.push(Change::Revoked(revoked));
        }
        if !given.is_empty() {
            changes.push(Change::Given(given));
        }
        Ok(changes)
    }

    /// No answer came to a heartbeat that `of` sent: another try after `delay`.
    pub(crate) fn failed(&mut self, now: Instant, of: &str, delay: Duration) {
        if of == self.member_id {
            self.beating.pop_front();
            self.next_beat = now + delay;
        }
    }

    /// The program has ended with these: the coordinator is told at once.
    pub(crate) fn given_up(&mut self, partitions: &[PartitionKey]) {
        for key in partitions {
            if self.revoking.remove(key) {
                self.held.remove(key);
                self.is_urgent = true;
            }
        }
    }

    /// What is lost because no heartbeat was answered for a session.
    pub(crate) fn expire(&mut self, now: Instant, member_id: String) -> Vec<Change> {
        match self.expires_at() {
            Some(at) if now >= at => self.rejoin(now, member_id),
            _ => Vec::new(),
        }
    }

    /// When [`MembershipCore::expire`] or [`MembershipCore::next_beat`] has something to do though nothing happens.
    pub(crate) fn next_timer(&self, now: Instant) -> Instant {
        let beat = self.beating.is_empty().then_some(if self.is_urgent { now } else { self.next_beat });
        let far = now + Duration::from_secs(3600);
        beat.into_iter().chain(self.expires_at()).min().unwrap_or(far)
    }

    fn expires_at(&self) -> Option<Instant> {
        self.last_alive.map(|alive| alive + self.member.session_timeout)
    }

    fn rejoin(&mut self, now: Instant, member_id: String) -> Vec<Change> {
        let lost: Vec<_> = std::mem::take(&mut self.held).into_iter().collect();
        self.revoking.clear();
        self.beating.clear();
        self.member_id = member_id;
        self.epoch = MemberEpoch::JOIN;
        self.is_announced = false;
        self.is_urgent = false;
        self.last_alive = None;
        self.next_beat = now;
        if lost.is_empty() { Vec::new() } else { vec![Change::Lost(lost)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::AssignedTopic;

    const TOPIC: TopicId = TopicId([7; 16]);
    const WAIT: Duration = Duration::from_secs(3);

    fn core(now: Instant) -> MembershipCore {
        let member = Membership {
            group: "g".to_owned(),
            instance_id: None,
            topics: vec!["orders".to_owned()],
            assignor: None,
            session_timeout: Duration::from_secs(30),
            rebalance_timeout: Duration::from_secs(60),
        };
        MembershipCore::new(member, "m-1".to_owned(), now)
    }

    fn key(index: u32) -> PartitionKey {
        PartitionKey::new(TOPIC, PartitionIndex(index))
    }

    fn reply(epoch: i32, assignment: Option<&[u32]>) -> GroupHeartbeatReply {
        let assignment = assignment.map(|indexes| {
            vec![AssignedTopic {
                topic: TOPIC,
                name: "orders".to_owned(),
                partitions: indexes.iter().map(|index| PartitionIndex(*index)).collect(),
            }]
        });
        let (error, message, heartbeat_interval_ms) = (ErrorCode::None, None, 3000);
        GroupHeartbeatReply { error, message, member_epoch: MemberEpoch(epoch), heartbeat_interval_ms, assignment }
    }

    fn answer(core: &mut MembershipCore, now: Instant, epoch: i32, assignment: Option<&[u32]>) -> Vec<Change> {
        core.answered(now, "m-1", &reply(epoch, assignment), "m-2".to_owned()).unwrap()
    }

    #[test]
    fn a_member_joins_and_says_what_it_holds() {
        let now = Instant::now();
        let mut core = core(now);
        let join = core.next_beat(now, WAIT).unwrap();
        assert_eq!((join.member_epoch, join.max_wait_ms, join.topics), (MemberEpoch::JOIN, 0, Some(vec!["orders".to_owned()])));
        assert_eq!(core.next_beat(now, WAIT), None, "one at a time");
        assert_eq!(answer(&mut core, now, 1, Some(&[0, 1])), [Change::Given(vec![key(0), key(1)])]);
        let next = core.next_beat(now, WAIT).unwrap();
        assert_eq!((next.member_epoch, next.max_wait_ms, next.topics), (MemberEpoch(1), 3000, None));
        assert_eq!(next.owned.unwrap()[0].partitions, [PartitionIndex(0), PartitionIndex(1)]);
    }

    #[test]
    fn what_is_revoked_is_held_until_the_program_has_ended_with_it() {
        let now = Instant::now();
        let mut core = core(now);
        core.next_beat(now, WAIT).unwrap();
        answer(&mut core, now, 1, Some(&[0, 1, 2]));
        core.next_beat(now, WAIT).unwrap();
        assert_eq!(
            answer(&mut core, now, 2, Some(&[2, 3])),
            [Change::Revoked(vec![key(0), key(1)]), Change::Given(vec![key(3)])]
        );
        assert_eq!(core.held().collect::<Vec<_>>(), [key(2), key(3)]);
        let owned = |core: &mut MembershipCore| {
            let beat = core.next_beat(now, WAIT).unwrap();
            beat.owned.unwrap()[0].partitions.iter().map(|index| index.0).collect::<Vec<_>>()
        };
        assert_eq!(owned(&mut core), [0, 1, 2, 3]);
        assert_eq!(answer(&mut core, now, 2, Some(&[2, 3])), [], "said again, it changes nothing");
        core.given_up(&[key(0), key(1)]);
        assert_eq!(owned(&mut core), [2, 3]);
    }

    #[test]
    fn who_is_unknown_loses_everything_and_joins_anew() {
        let now = Instant::now();
        let mut core = core(now);
        core.next_beat(now, WAIT).unwrap();
        answer(&mut core, now, 1, Some(&[0]));
        core.next_beat(now, WAIT).unwrap();
        let unknown = GroupHeartbeatReply { error: ErrorCode::UnknownMember, ..reply(-1, None) };
        assert_eq!(core.answered(now, "m-1", &unknown, "m-2".to_owned()), Ok(vec![Change::Lost(vec![key(0)])]));
        let join = core.next_beat(now, WAIT).unwrap();
        assert_eq!((join.member_id.as_str(), join.member_epoch), ("m-2", MemberEpoch::JOIN));
    }

    #[test]
    fn a_session_without_an_answer_ends_by_itself() {
        let now = Instant::now();
        let mut core = core(now);
        core.next_beat(now, WAIT).unwrap();
        answer(&mut core, now, 1, Some(&[0]));
        core.next_beat(now, WAIT).unwrap();
        core.failed(now, "m-1", Duration::from_millis(100));
        let late = now + Duration::from_secs(29);
        assert_eq!(core.expire(late, "m-2".to_owned()), []);
        let end = now + Duration::from_secs(30);
        assert_eq!(core.expire(end, "m-2".to_owned()), [Change::Lost(vec![key(0)])]);
        assert_eq!(core.epoch(), MemberEpoch::JOIN);
    }

    #[test]
    fn a_group_that_cannot_be_joined_is_an_error_and_one_that_loads_is_not() {
        let now = Instant::now();
        let mut core = core(now);
        core.next_beat(now, WAIT).unwrap();
        let refused = GroupHeartbeatReply { error: ErrorCode::CoordinatorLoading, ..reply(-1, None) };
        assert_eq!(core.answered(now, "m-1", &refused, "m-2".to_owned()), Ok(Vec::new()));
        assert_eq!(core.next_beat(now, WAIT), None);
        core.next_beat(now + Duration::from_secs(1), WAIT).unwrap();
        let refused = GroupHeartbeatReply { error: ErrorCode::InvalidGroupId, ..reply(-1, None) };
        assert_eq!(core.answered(now, "m-1", &refused, "m-2".to_owned()), Err(ErrorCode::InvalidGroupId));
    }

    #[test]
    fn what_is_answered_to_a_member_that_has_ended_says_nothing_of_the_next_one() {
        let now = Instant::now();
        let mut core = core(now);
        core.next_beat(now, WAIT).unwrap();
        answer(&mut core, now, 1, Some(&[0]));
        core.next_beat(now, WAIT).unwrap();
        let end = now + Duration::from_secs(30);
        assert_eq!(core.expire(end, "m-2".to_owned()), [Change::Lost(vec![key(0)])]);
        let join = core.next_beat(end, WAIT).expect("the next member does not wait for an answer to the last one");
        assert_eq!((join.member_id.as_str(), join.member_epoch), ("m-2", MemberEpoch::JOIN));
        assert_eq!(core.answered(end, "m-1", &reply(1, Some(&[0])), "m-3".to_owned()), Ok(Vec::new()));
        core.failed(end, "m-1", Duration::from_secs(1));
        assert_eq!((core.epoch(), core.held().count()), (MemberEpoch::JOIN, 0));
        assert_eq!(core.next_beat(end, WAIT), None, "its own is under way");
        assert_eq!(core.answered(end, "m-2", &reply(3, Some(&[1])), "m-3".to_owned()), Ok(vec![Change::Given(vec![key(1)])]));
    }
}
