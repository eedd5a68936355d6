//! A member as it should be written: what it believes to own, and for how long.

use std::collections::BTreeMap;

use wire::{AssignedTopic, ErrorCode, GroupHeartbeatReply, GroupHeartbeatRequest, MemberEpoch, PartitionKey, TopicPartitions};

pub(crate) const SESSION_MS: u32 = 10_000;
pub(crate) const REBALANCE_MS: u32 = 15_000;

/// One process that consumes.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u32,
    /// It takes a new name whenever it has left or was removed.
    lives: u32,
    pub(crate) instance: Option<String>,
    pub(crate) epoch: MemberEpoch,
    pub(crate) topics: Vec<String>,
    pub(crate) is_alive: bool,
    /// It has left and does not come back.
    pub(crate) is_gone: bool,
    pub(crate) max_wait_ms: u32,
    /// What it believes to own; with a time by which it has given it up.
    pub(crate) belief: BTreeMap<PartitionKey, Option<u64>>,
    /// Sending time of the last heartbeat that was answered.
    answered_sent_ms: u64,
    /// Number of the last heartbeat sent, and when.
    pub(crate) last_sent: Option<(u64, u64)>,
}

impl Client {
    pub(crate) fn new(number: u32, topics: Vec<String>, instance: Option<String>, max_wait_ms: u32) -> Client {
        Client {
            number,
            lives: 0,
            instance,
            epoch: MemberEpoch::JOIN,
            topics,
            is_alive: true,
            is_gone: false,
            max_wait_ms,
            belief: BTreeMap::new(),
            answered_sent_ms: 0,
            last_sent: None,
        }
    }

    pub(crate) fn member_id(&self) -> String {
        format!("m{}-{}", self.number, self.lives)
    }

    /// The next heartbeat, sent now as number `token`.
    pub(crate) fn heartbeat(&mut self, now_ms: u64, token: u64) -> GroupHeartbeatRequest {
        self.last_sent = Some((token, now_ms));
        let mut owned: BTreeMap<_, Vec<_>> = BTreeMap::new();
        self.belief.keys().for_each(|partition| owned.entry(partition.topic).or_default().push(partition.partition));
        GroupHeartbeatRequest {
            topics: (self.epoch == MemberEpoch::JOIN).then(|| self.topics.clone()),
            owned: Some(owned.into_iter().map(|(topic, partitions)| TopicPartitions { topic, partitions }).collect()),
            ..request(&self.member_id(), self.instance.as_deref(), self.epoch, self.max_wait_ms)
        }
    }

    /// Leaves: from here on it owns nothing.
    pub(crate) fn leave(&mut self, epoch: MemberEpoch) -> GroupHeartbeatRequest {
        self.belief.clear();
        self.is_gone = true;
        self.is_alive = false;
        request(&self.member_id(), self.instance.as_deref(), epoch, 0)
    }

    /// A reply came. Only that to the last heartbeat counts: older ones are overtaken.
    pub(crate) fn receive(&mut self, now_ms: u64, token: u64, reply: &GroupHeartbeatReply) {
        let Some((last, sent_ms)) = self.last_sent else { return };
        if last != token || !self.is_alive {
            return;
        }
        // An answer that comes after the session that it would extend counts as lost.
        if now_ms >= sent_ms + u64::from(SESSION_MS) {
            return;
        }
        if reply.error != ErrorCode::None {
            match reply.error {
                ErrorCode::UnknownMember | ErrorCode::FencedMemberEpoch => self.start_again(),
                // Another process has the instance id: two of them would fence each other for ever.
                ErrorCode::FencedInstance => {
                    self.belief.clear();
                    self.is_alive = false;
                }
                _ => {}
            }
            return;
        }
        self.answered_sent_ms = sent_ms;
        self.epoch = reply.member_epoch;
        if let Some(assignment) = &reply.assignment {
            self.take_assignment(now_ms, assignment);
        }
    }

    fn take_assignment(&mut self, now_ms: u64, assignment: &[AssignedTopic]) {
        let assigned: Vec<PartitionKey> = assignment
            .iter()
            .flat_map(|of| of.partitions.iter().map(|&partition| PartitionKey::new(of.topic, partition)))
            .collect();
        for (partition, given_up_by) in &mut self.belief {
            if !assigned.contains(partition) && given_up_by.is_none() {
                *given_up_by = Some(now_ms + u64::from(REBALANCE_MS));
            }
        }
        for partition in assigned {
            self.belief.entry(partition).or_insert(None);
        }
    }

    /// Finishes giving up what it was told to.
    pub(crate) fn give_up(&mut self) {
        self.belief.retain(|_, given_up_by| given_up_by.is_none());
    }

    /// Time passes: a belief has an end, also of one that was killed and does not know.
    pub(crate) fn pass_time(&mut self, now_ms: u64) {
        self.belief.retain(|_, given_up_by| given_up_by.is_none_or(|by_ms| by_ms > now_ms));
        if self.epoch != MemberEpoch::JOIN && now_ms >= self.answered_sent_ms + u64::from(SESSION_MS) {
            self.start_again();
        }
    }

    /// When time changes something of it.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let session = (self.epoch != MemberEpoch::JOIN).then_some(self.answered_sent_ms + u64::from(SESSION_MS));
        self.belief.values().flatten().copied().chain(session).min()
    }

    fn start_again(&mut self) {
        self.belief.clear();
        self.epoch = MemberEpoch::JOIN;
        self.lives += 1;
        self.last_sent = None;
    }
}

pub(crate) fn request(
    member_id: &str,
    instance: Option<&str>,
    member_epoch: MemberEpoch,
    max_wait_ms: u32,
) -> GroupHeartbeatRequest {
    GroupHeartbeatRequest {
        group: "g".to_owned(),
        member_id: member_id.to_owned(),
        instance_id: instance.map(str::to_owned),
        member_epoch,
        rebalance_timeout_ms: REBALANCE_MS,
        session_timeout_ms: SESSION_MS,
        max_wait_ms,
        assignor: None,
        topics: None,
        owned: None,
    }
}
