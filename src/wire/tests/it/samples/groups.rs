//! Requests and replies of consumer groups.

use wire::*;

use super::{TOPIC, text};

/// Calls `$visit!(name, value)` for each.
macro_rules! for_each_body {
    ($visit:ident) => {
        $visit!(
            "find_coordinator_reply",
            FindCoordinatorReply {
                groups: vec![GroupCoordinator {
                    group: "billing".to_owned(),
                    error: ErrorCode::CoordinatorLoading,
                    message: samples::text("soon"),
                    partition: PartitionIndex(11),
                    broker: 9,
                    shard: 5,
                }],
            }
        );
        $visit!(
            "group_heartbeat_request",
            GroupHeartbeatRequest {
                group: "billing".to_owned(),
                member_id: "0b0f7a52-5e0c-4e3a-9d0e-6f1f2f7f7a10".to_owned(),
                instance_id: samples::text("billing-3"),
                member_epoch: MemberEpoch(21),
                max_wait_ms: 5000,
                rebalance_timeout_ms: 60_000,
                session_timeout_ms: 45_000,
                assignor: Some(Assignor::RoundRobin),
                topics: Some(vec!["orders".to_owned(), "refunds".to_owned()]),
                owned: Some(vec![TopicPartitions { topic: TOPIC, partitions: vec![PartitionIndex(3), PartitionIndex(5)] }]),
            }
        );
        $visit!(
            "group_heartbeat_request_unchanged",
            GroupHeartbeatRequest {
                group: "billing".to_owned(),
                member_id: "0b0f7a52-5e0c-4e3a-9d0e-6f1f2f7f7a10".to_owned(),
                instance_id: None,
                member_epoch: MemberEpoch::LEAVE_STATIC,
                max_wait_ms: 0,
                rebalance_timeout_ms: 60_000,
                session_timeout_ms: 45_000,
                assignor: None,
                topics: None,
                owned: None,
            }
        );
        $visit!(
            "group_heartbeat_reply",
            GroupHeartbeatReply {
                error: ErrorCode::FencedMemberEpoch,
                message: samples::text("it is 23"),
                member_epoch: MemberEpoch(22),
                heartbeat_interval_ms: 3000,
                assignment: Some(vec![AssignedTopic {
                    topic: TOPIC,
                    name: "orders".to_owned(),
                    partitions: vec![PartitionIndex(3), PartitionIndex(4)],
                }]),
            }
        );
        $visit!(
            "commit_offsets_request",
            CommitOffsetsRequest {
                group: "billing".to_owned(),
                member_id: samples::text("member-1"),
                member_epoch: MemberEpoch(21),
                partitions: vec![CommitPartition {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    commit: samples::groups::committed()
                }],
            }
        );
        $visit!(
            "commit_offsets_reply",
            CommitOffsetsReply {
                error: ErrorCode::UnknownMember,
                message: samples::text("member-1"),
                partitions: vec![samples::groups::group_partition_reply()],
            }
        );
        $visit!(
            "fetch_offsets_request",
            FetchOffsetsRequest {
                group: "billing".to_owned(),
                partitions: Some(vec![PartitionKey::new(TOPIC, PartitionIndex(3))]),
                after: Some(PartitionKey::new(TOPIC, PartitionIndex(2))),
            }
        );
        $visit!(
            "fetch_offsets_reply",
            FetchOffsetsReply {
                error: ErrorCode::NotCoordinator,
                message: samples::text("shard 3 is"),
                partitions: vec![FetchedOffset {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    committed: Some(samples::groups::committed()),
                    parked: vec![
                        ParkedKey { key: b"alice".to_vec(), head: Offset(1006) },
                        ParkedKey { key: Vec::new(), head: Offset(1008) },
                    ],
                    held: vec![Offset(1005), Offset(1007)],
                    stopped: true,
                }],
                more: true,
            }
        );
        $visit!(
            "list_groups_request",
            ListGroupsRequest {
                prefix: "bil".to_owned(),
                state: Some(GroupState::Reconciling),
                after: samples::text("bill"),
                limit: 100,
            }
        );
        $visit!(
            "list_groups_reply",
            ListGroupsReply {
                error: ErrorCode::ShuttingDown,
                message: samples::text("now"),
                groups: vec![GroupListing {
                    group: "billing".to_owned(),
                    state: GroupState::Stable,
                    members: 4,
                    partitions: 12,
                    parked_keys: 2,
                }],
                more: true,
            }
        );
        $visit!(
            "describe_group_request",
            DescribeGroupRequest { group: "billing".to_owned(), after: Some(PartitionKey::new(TOPIC, PartitionIndex(2))) }
        );
        $visit!(
            "describe_group_reply",
            DescribeGroupReply {
                error: ErrorCode::None,
                message: samples::text("as of now"),
                state: GroupState::Stable,
                epoch: MemberEpoch(23),
                assignor: Assignor::Range,
                shard: 5,
                retry: samples::groups::retry_policy(),
                topic_retries: vec![TopicRetryPolicy { topic: "refunds".to_owned(), retry: RetryPolicy::default() }],
                offsets_retention_ms: Some(604_800_000),
                members: vec![MemberDescription {
                    member_id: "member-1".to_owned(),
                    instance_id: samples::text("billing-3"),
                    client_id: "billing-service".to_owned(),
                    host: "10.0.0.7:4711".to_owned(),
                    member_epoch: MemberEpoch(22),
                    topics: vec!["orders".to_owned()],
                    owned: vec![TopicPartitions { topic: TOPIC, partitions: vec![PartitionIndex(3)] }],
                    assigned: vec![TopicPartitions { topic: TOPIC, partitions: vec![PartitionIndex(3), PartitionIndex(4)] }],
                }],
                partitions: vec![GroupPartitionDescription {
                    topic: TOPIC,
                    name: "orders".to_owned(),
                    partition: PartitionIndex(3),
                    member_id: samples::text("member-1"),
                    committed: Some(samples::groups::committed()),
                    log_start: Offset(100),
                    high_watermark: Offset(2000),
                    parked_keys: 2,
                    parked_records: 7,
                    next_due_ms: Some(TimestampMs(1_764_000_000_003)),
                    dead_lettered: 8,
                    dead_letters_pending: 3,
                    skipped: 9,
                    stopped: Some(StoppedAt { offset: Offset(1009), reason: "no such account".to_owned() }),
                }],
                more: true,
            }
        );
        $visit!("delete_group_request", DeleteGroupRequest { group: "billing".to_owned() });
        $visit!("delete_group_reply", DeleteGroupReply { error: ErrorCode::GroupNotEmpty, message: samples::text("4 members") });
        $visit!(
            "alter_offsets_request",
            AlterOffsetsRequest {
                group: "billing".to_owned(),
                clear_parked: true,
                partitions: vec![
                    AlterPartition { topic: TOPIC, partition: PartitionIndex(3), offset: Some(Offset(500)) },
                    AlterPartition { topic: TOPIC, partition: PartitionIndex(4), offset: None },
                ],
            }
        );
        $visit!(
            "alter_offsets_reply",
            AlterOffsetsReply {
                error: ErrorCode::InvalidGroupId,
                message: samples::text("billing/eu"),
                partitions: vec![samples::groups::group_partition_reply()],
            }
        );
        $visit!(
            "alter_group_request",
            AlterGroupRequest {
                group: "billing".to_owned(),
                topic: samples::text("orders"),
                retry: Change::Set(RetryPolicyChanges {
                    attempts_max: Some(9),
                    backoff_first_ms: None,
                    backoff_factor_percent: Some(150),
                    backoff_max_ms: Some(90_000),
                    jitter_percent: None,
                    exhausted: Some(Exhausted::Skip),
                    dead_letter_topic: Change::Set("dead.{group}".to_owned()),
                }),
                offsets_retention: Change::Set(OffsetsRetention::Ms(86_400_000)),
                resume: true,
            }
        );
        $visit!(
            "alter_group_reply",
            AlterGroupReply {
                error: ErrorCode::InvalidConfig,
                message: samples::text("attempts_max"),
                retry: samples::groups::retry_policy(),
                offsets_retention_ms: Some(604_800_000),
            }
        );
        $visit!(
            "settle_request",
            SettleRequest {
                group: "billing".to_owned(),
                member_id: "member-1".to_owned(),
                member_epoch: MemberEpoch(22),
                partitions: vec![SettlePartition {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    deferred: vec![DeferredRecord { key: b"alice".to_vec(), offset: Offset(1010) }],
                    done: vec![
                        DoneRecord { key: Some(b"bob".to_vec()), offset: Offset(1004) },
                        DoneRecord { key: None, offset: Offset(1005) },
                    ],
                    failed: vec![
                        FailedRecord {
                            offset: Offset(1011),
                            key: Some(b"carol".to_vec()),
                            attempt: 2,
                            reason: "no such account".to_owned(),
                        },
                        FailedRecord { offset: Offset(1012), key: None, attempt: 1, reason: "not JSON".to_owned() },
                    ],
                    commit: Some(samples::groups::committed()),
                }],
            }
        );
        $visit!(
            "settle_reply",
            SettleReply {
                error: ErrorCode::StaleMemberEpoch,
                message: samples::text("it is 23"),
                partitions: vec![SettlePartitionReply {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    error: ErrorCode::PartitionNotOwned,
                    message: samples::text("member-2 does"),
                    outcomes: vec![
                        SettleOutcome::Parked { due_ms: TimestampMs(1_764_000_000_004), attempts: 2 },
                        SettleOutcome::DeadLettered,
                        SettleOutcome::Skipped,
                        SettleOutcome::Stopped,
                        SettleOutcome::Full,
                        SettleOutcome::Settled,
                    ],
                    released: vec![b"bob".to_vec()],
                    full_from: Some(Offset(1010)),
                    committed: Some(Offset(1006)),
                }],
            }
        );
        $visit!(
            "take_retries_request",
            TakeRetriesRequest {
                group: "billing".to_owned(),
                member_id: "member-1".to_owned(),
                member_epoch: MemberEpoch(22),
                poll: 44,
                received: 42,
                partitions: vec![PartitionKey::new(TOPIC, PartitionIndex(3)), PartitionKey::new(TOPIC, PartitionIndex(4))],
                max_records: 100,
                max_wait_ms: 500,
            }
        );
        $visit!(
            "take_retries_reply",
            TakeRetriesReply {
                error: ErrorCode::UnknownMember,
                message: samples::text("member-1"),
                records: vec![DueRecord {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    offset: Offset(1004),
                    attempt: 2,
                    key: Some(b"bob".to_vec()),
                }],
            }
        );
    };
}
pub(crate) use for_each_body;

pub(crate) fn committed() -> CommittedOffset {
    CommittedOffset { offset: Offset(1003), leader_epoch: Some(LeaderEpoch(21)), metadata: text("checkpoint 17") }
}

pub(crate) fn group_partition_reply() -> GroupPartitionReply {
    GroupPartitionReply {
        topic: TOPIC,
        partition: PartitionIndex(3),
        error: ErrorCode::PartitionOwned,
        message: text("by member-2"),
    }
}

pub(crate) fn retry_policy() -> RetryPolicy {
    RetryPolicy {
        attempts_max: 8,
        backoff_first_ms: 2000,
        backoff_factor_percent: 300,
        backoff_max_ms: 60_000,
        jitter_percent: 10,
        exhausted: Exhausted::Stop,
        dead_letter_topic: text("{topic}.dead"),
    }
}
