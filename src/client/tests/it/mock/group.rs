//! A coordinator with one group and one member, which it gives all partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::*;

use super::{SHARDS, Shared};

#[derive(Default)]
pub(crate) struct GroupState {
    /// Partitions in one answer to where the group stands; `None`: all.
    pub(crate) offsets_at_once: Option<usize>,
    /// Coming heartbeats are refused.
    pub(crate) refuses: Option<ErrorCode>,
    /// Settle requests stay without an answer.
    pub(crate) is_silent: bool,
    pub(crate) settle_requests: usize,
    pub(crate) committed: BTreeMap<PartitionKey, Offset>,
}

/// The reply to a request about the group; `None`: there is none.
pub(super) async fn answer(shared: &Shared, api: Api, header: &FrameHeader, body: &[u8]) -> Option<AlignedVec> {
    match api {
        Api::FindCoordinator => {
            let request = decode_body::<FindCoordinatorRequest>(body).unwrap();
            let groups = request.groups.into_iter().map(|group| GroupCoordinator {
                group,
                error: ErrorCode::None,
                message: None,
                partition: PartitionIndex(0),
                broker: 1,
                shard: SHARDS - 1,
            });
            Some(encode_reply(header, &FindCoordinatorReply { groups: groups.collect() }, 0))
        }
        Api::GroupHeartbeat => {
            let request = decode_body::<GroupHeartbeatRequest>(body).unwrap();
            tokio::time::sleep(Duration::from_millis(u64::from(request.max_wait_ms))).await;
            Some(encode_reply(header, &heartbeat(shared, &request), 0))
        }
        Api::FetchOffsets => {
            let request = decode_body::<FetchOffsetsRequest>(body).unwrap();
            Some(encode_reply(header, &fetch_offsets(shared, request), 0))
        }
        Api::Settle => {
            let request = decode_body::<SettleRequest>(body).unwrap();
            settle(shared, &request).map(|reply| encode_reply(header, &reply, 0))
        }
        Api::TakeRetries => {
            let request = decode_body::<TakeRetriesRequest>(body).unwrap();
            tokio::time::sleep(Duration::from_millis(u64::from(request.max_wait_ms))).await;
            let reply = TakeRetriesReply { error: ErrorCode::None, message: None, records: Vec::new() };
            Some(encode_reply(header, &reply, 0))
        }
        other => panic!("{other} is not about groups"),
    }
}

fn heartbeat(shared: &Shared, request: &GroupHeartbeatRequest) -> GroupHeartbeatReply {
    let state = shared.state.lock().unwrap();
    let topics = state.topics.iter().map(|(name, (topic, config))| AssignedTopic {
        topic: *topic,
        name: name.clone(),
        partitions: (0..config.partitions).map(PartitionIndex).collect(),
    });
    GroupHeartbeatReply {
        error: state.group.refuses.unwrap_or_default(),
        message: None,
        member_epoch: MemberEpoch(1),
        heartbeat_interval_ms: 3000,
        assignment: (request.member_epoch == MemberEpoch::JOIN).then(|| topics.collect()),
    }
}

fn fetch_offsets(shared: &Shared, request: FetchOffsetsRequest) -> FetchOffsetsReply {
    let state = shared.state.lock().unwrap();
    let asked = request.partitions.unwrap();
    let count = state.group.offsets_at_once.unwrap_or(usize::MAX);
    let position = |offset: &Offset| CommittedOffset { offset: *offset, leader_epoch: None, metadata: None };
    let partitions = asked.iter().take(count).map(|key| FetchedOffset {
        topic: key.topic,
        partition: key.partition,
        committed: state.group.committed.get(key).map(position),
        parked: Vec::new(),
        held: Vec::new(),
        stopped: false,
    });
    FetchOffsetsReply { error: ErrorCode::None, message: None, partitions: partitions.collect(), more: asked.len() > count }
}

fn settle(shared: &Shared, request: &SettleRequest) -> Option<SettleReply> {
    let mut state = shared.state.lock().unwrap();
    state.group.settle_requests += 1;
    if state.group.is_silent {
        return None;
    }
    let partitions = request.partitions.iter().map(|part| {
        let key = PartitionKey::new(part.topic, part.partition);
        if let Some(commit) = &part.commit {
            state.group.committed.insert(key, commit.offset);
        }
        SettlePartitionReply {
            topic: part.topic,
            partition: part.partition,
            error: ErrorCode::None,
            message: None,
            outcomes: vec![SettleOutcome::Skipped; part.failed.len()],
            released: Vec::new(),
            full_from: None,
            committed: state.group.committed.get(&key).copied(),
        }
    });
    let partitions = partitions.collect();
    Some(SettleReply { error: ErrorCode::None, message: None, partitions })
}
