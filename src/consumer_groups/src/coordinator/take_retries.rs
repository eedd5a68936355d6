//! Records that are due again: answered when there are some.

use wire::{DueRecord, ErrorCode, TakeRetriesReply, TakeRetriesRequest};

use super::Coordinator;
use crate::group::Group;
use crate::ids::{GroupId, MemberId};
use crate::now::Now;
use crate::outcome::{Outcome, Token};
use crate::refusal::Refusal;
use crate::retry::RetryPoll;
use crate::topics::Topics;

impl Coordinator {
    /// The reply when the request is refused; else it comes with what is found, at once or later.
    pub(super) fn take_retries(
        &mut self,
        now: Now,
        topics: &dyn Topics,
        token: Token,
        request: TakeRetriesRequest,
        outcome: &mut Outcome,
    ) -> Option<TakeRetriesReply> {
        let id = GroupId::from(request.group.as_str());
        if let Err(refusal) = self.poll_retries(now, token, &id, request) {
            return Some(TakeRetriesReply { error: refusal.code, message: refusal.message, records: Vec::new() });
        }
        self.finish(now, topics, &id, outcome);
        None
    }

    fn poll_retries(&mut self, now: Now, token: Token, id: &GroupId, request: TakeRetriesRequest) -> Result<(), Refusal> {
        request.validate()?;
        let Group { membership, retries, retried, .. } = self.groups.get_mut(id).ok_or(ErrorCode::UnknownMember)?;
        membership.authorize(&request.member_id, request.member_epoch)?;
        let poll = RetryPoll {
            request: token.0,
            member: MemberId::from(request.member_id.as_str()),
            poll: request.poll,
            partitions: request.partitions.iter().copied().collect(),
            records_max: request.max_records as usize,
            deadline_steady_ms: now.steady_ms + u64::from(request.max_wait_ms),
        };
        retries.poll(now, poll, |member, partition| membership.is_owner(member, partition), retried);
        Ok(())
    }
}

pub(super) fn taken(records: Vec<DueRecord>) -> TakeRetriesReply {
    TakeRetriesReply { error: ErrorCode::None, message: None, records }
}
