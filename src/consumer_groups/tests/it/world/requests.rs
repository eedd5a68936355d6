//! What members ask, and what the way does to it.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Sent {
    Heartbeat(GroupHeartbeatRequest),
    Commit(CommitOffsetsRequest),
    Settle(SettleRequest, u64),
    TakeRetries(TakeRetriesRequest),
}

impl World {
    pub(crate) fn beat(&mut self, client: usize, fate: Fate) {
        if !self.clients[client].is_alive {
            return;
        }
        let token = self.token();
        let request = self.clients[client].heartbeat(self.now.steady_ms, token.0);
        self.send(client, token, Sent::Heartbeat(request), fate);
    }

    pub(crate) fn leave(&mut self, client: usize, epoch: MemberEpoch, fate: Fate) {
        if !self.clients[client].is_alive {
            return;
        }
        let request = self.clients[client].leave(epoch);
        let token = self.token();
        self.send(client, token, Sent::Heartbeat(request), fate);
    }

    pub(crate) fn commit(&mut self, client: usize, pick: usize, step: i64, fate: Fate) {
        let member = &self.clients[client];
        let Some(&partition) = member.belief.keys().nth(pick % member.belief.len().max(1)) else { return };
        let position = self.seen.get(&partition).map_or(0, |offset| offset.0 as i64);
        let offset = Offset((position + step).max(0) as u64);
        let request = CommitOffsetsRequest {
            group: "g".to_owned(),
            member_id: Some(member.member_id()),
            member_epoch: member.epoch,
            partitions: vec![commit_partition(partition, offset)],
        };
        let token = self.token();
        self.send(client, token, Sent::Commit(request), fate);
    }

    /// A member says of some records at its position that they failed, are held back or done.
    pub(crate) fn settle(&mut self, client: usize, pick: usize, seed: u64, fate: Fate) {
        let member = &mut self.clients[client];
        let Some(&partition) = member.belief.keys().nth(pick % member.belief.len().max(1)) else { return };
        let position = self.seen.get(&partition).copied().unwrap_or_default();
        let key = |number: u64| vec![b'k', (number % 3) as u8];
        let mut part = SettlePartition {
            topic: partition.topic,
            partition: partition.partition,
            deferred: Vec::new(),
            done: Vec::new(),
            failed: Vec::new(),
            commit: Some(CommittedOffset { offset: position.plus(4), leader_epoch: None, metadata: None }),
        };
        for number in 0..4 {
            let offset = position.plus(number);
            match seed >> (2 * number) & 3 {
                0 => part.deferred.push(DeferredRecord { offset, key: key(seed >> number) }),
                1 => part.failed.push(failed(offset, (seed & 64 == 0).then(|| key(seed >> number)), 1)),
                _ => {}
            }
        }
        let due: Vec<DueRecord> = member.retrying.drain(..).filter(|due| due.topic == partition.topic).collect();
        for (number, due) in due.into_iter().filter(|due| due.partition == partition.partition).enumerate() {
            match seed >> (8 + number % 32) & 1 {
                0 => part.done.push(DoneRecord { offset: due.offset, key: due.key }),
                _ => part.failed.push(failed(due.offset, due.key, due.attempt)),
            }
        }
        let request = SettleRequest {
            group: "g".to_owned(),
            member_id: member.member_id(),
            member_epoch: member.epoch,
            partitions: vec![part],
        };
        let token = self.token();
        self.send(client, token, Sent::Settle(request, seed), fate);
    }

    pub(crate) fn take_retries(&mut self, client: usize, max_wait_ms: u32, fate: Fate) {
        if !self.clients[client].is_alive {
            return;
        }
        let token = self.token();
        let member = &self.clients[client];
        let request = TakeRetriesRequest {
            group: "g".to_owned(),
            member_id: member.member_id(),
            member_epoch: member.epoch,
            poll: token.0,
            received: member.received,
            partitions: member.belief.keys().copied().collect(),
            max_records: 3,
            max_wait_ms,
        };
        self.send(client, token, Sent::TakeRetries(request), fate);
    }

    fn send(&mut self, client: usize, token: Token, sent: Sent, fate: Fate) {
        if fate == Fate::RequestLost {
            return;
        }
        if fate == Fate::Twice {
            self.late.push((client, sent.clone()));
        }
        self.addressees.insert(token, Addressee { client, is_lost: fate == Fate::ReplyLost });
        self.arrive(token, sent);
    }

    fn arrive(&mut self, token: Token, sent: Sent) {
        let request = match sent {
            Sent::Heartbeat(request) => Request::Heartbeat { request, client: Default::default() },
            Sent::Settle(request, random) => Request::Settle { request, random },
            Sent::TakeRetries(request) => Request::TakeRetries(request),
            Sent::Commit(request) => {
                let named = request.partitions.iter();
                let named = named.map(|one| (PartitionKey::new(one.topic, one.partition), one.commit.offset)).collect();
                self.commits.insert(token, named);
                Request::CommitOffsets(request)
            }
        };
        self.handle(Event::Request { token, request });
    }

    /// A copy of something sent earlier arrives now; nobody waits for its reply.
    pub(crate) fn late_copy(&mut self, pick: usize) {
        if self.late.is_empty() {
            return;
        }
        let (client, sent) = self.late.remove(pick % self.late.len());
        let token = self.token();
        self.addressees.insert(token, Addressee { client, is_lost: true });
        self.arrive(token, sent);
    }
}

fn failed(offset: Offset, key: Option<Vec<u8>>, attempt: u32) -> FailedRecord {
    FailedRecord { offset, key, attempt, reason: "no".to_owned() }
}
