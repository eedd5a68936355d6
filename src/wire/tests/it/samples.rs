//! One value of every request, reply and batch, with every field different from its neighbours and from zero: what the golden
//! files hold.

use wire::*;

pub(crate) const TOPIC: TopicId = TopicId([0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

pub(crate) fn config() -> TopicConfig {
    TopicConfig {
        partitions: 12,
        replication_factor: 3,
        durability: Durability::Relaxed,
        retention_ms: Some(86_400_000),
        retention_bytes: Some(1 << 40),
        message_bytes_max: 1 << 20,
        compression: Compression::Zstd,
        timestamp_kind: TimestampKind::Append,
        segment_bytes: 1 << 28,
        segment_ms: 3_600_000,
        cleanup: Cleanup::CompactAndDelete,
        tombstone_retention_ms: 7_200_000,
        compaction_lag_ms: 60_000,
    }
}

pub(crate) fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Calls `$visit!(name, value)` for each.
macro_rules! for_each_body {
    ($visit:ident) => {
        $visit!(
            "hello_request",
            HelloRequest {
                client_id: "orders-service".to_owned(),
                versions: vec![
                    ApiRange { api: 1, version_min: 1, version_max: 2 },
                    ApiRange { api: 10, version_min: 3, version_max: 4 }
                ],
                shard_wanted: Some(7),
            }
        );
        $visit!(
            "hello_reply",
            HelloReply {
                error: ErrorCode::TooManyConnections,
                message: samples::text("10000 of 10000"),
                broker_id: 9,
                cluster_id: [0xc1; 16],
                shard_count: 14,
                shard: 7,
                apis: Api::ALL.map(|api| ApiRange { api: api.code(), version_min: 1, version_max: 1 }).to_vec(),
                frame_bytes_max: 1 << 26,
                server: "corelane 0.1.0".to_owned(),
            }
        );
        $visit!(
            "metadata_request",
            MetadataRequest {
                topics: Some(vec!["orders".to_owned(), "x".to_owned()]),
                since_version: 77,
                after: None,
                limit: 500
            }
        );
        $visit!(
            "metadata_request_all",
            MetadataRequest { topics: None, since_version: 0, after: Some("orders".to_owned()), limit: 0 }
        );
        $visit!(
            "metadata_reply",
            MetadataReply {
                error: ErrorCode::None,
                message: Some("too many".to_owned()),
                version: 78,
                only_changes: true,
                brokers: vec![BrokerMetadata { id: 9, host: "broker-9.example".to_owned(), port: 7311, shard_count: 14 }],
                topics: vec![TopicMetadata {
                    error: ErrorCode::UnknownTopicOrPartition,
                    name: "orders".to_owned(),
                    id: TOPIC,
                    config: config(),
                    partitions: vec![PartitionMetadata {
                        partition: PartitionIndex(3),
                        leader: 9,
                        leader_epoch: LeaderEpoch(21),
                        shard: 5
                    }],
                }],
                more: true,
                deleted: vec![TopicId([0xdd; 16])],
            }
        );
        $visit!("create_topic_request", CreateTopicRequest { name: "orders".to_owned(), config: config(), validate_only: true });
        $visit!(
            "create_topic_reply",
            CreateTopicReply { error: ErrorCode::TopicExists, message: samples::text("since yesterday"), id: TOPIC }
        );
        $visit!("delete_topic_request", DeleteTopicRequest { name: "orders".to_owned() });
        $visit!("delete_topic_reply", DeleteTopicReply { error: ErrorCode::ShuttingDown, message: None });
        $visit!(
            "alter_topic_request",
            AlterTopicRequest {
                name: "orders".to_owned(),
                changes: TopicConfigChanges {
                    partitions: Some(24),
                    replication_factor: None,
                    durability: Some(Durability::Stable),
                    retention_ms: Change::Unset,
                    retention_bytes: Change::Set(99),
                    message_bytes_max: Some(2048),
                    compression: Some(Compression::Lz4),
                    timestamp_kind: None,
                    segment_bytes: Some(1 << 27),
                    segment_ms: Some(5000),
                    cleanup: Some(Cleanup::Compact),
                    tombstone_retention_ms: None,
                    compaction_lag_ms: Some(7000),
                },
                validate_only: false,
            }
        );
        $visit!(
            "alter_topic_reply",
            AlterTopicReply { error: ErrorCode::InvalidConfig, message: samples::text("segment_ms"), config: config() }
        );
        $visit!("describe_topic_request", DescribeTopicRequest { name: "orders".to_owned() });
        $visit!(
            "describe_topic_reply",
            DescribeTopicReply {
                error: ErrorCode::None,
                message: None,
                id: TOPIC,
                config: config(),
                created_ms: 1_764_000_000_000,
                partitions: vec![PartitionDescription {
                    partition: PartitionIndex(3),
                    error: ErrorCode::PartitionLossy,
                    leader: 9,
                    leader_epoch: LeaderEpoch(21),
                    shard: 5,
                    log_start: Offset(100),
                    high_watermark: Offset(200),
                    log_end: Offset(300),
                    size_bytes: 400,
                    segments: 6,
                }],
            }
        );
        $visit!(
            "list_topics_request",
            ListTopicsRequest { prefix: "ord".to_owned(), after: Some("order".to_owned()), limit: 100 }
        );
        $visit!(
            "list_topics_reply",
            ListTopicsReply {
                error: ErrorCode::None,
                topics: vec![TopicListing { name: "orders".to_owned(), id: TOPIC, partitions: 12, replication_factor: 3 }],
                more: true,
            }
        );
        $visit!(
            "produce_request",
            ProduceRequest {
                acks: Acks::Leader,
                timeout_ms: 30_000,
                partitions: vec![
                    ProducePartition { topic: TOPIC, partition: PartitionIndex(3), batch_lengths: vec![96, 4096] },
                    ProducePartition { topic: TOPIC, partition: PartitionIndex(4), batch_lengths: vec![112] },
                ],
            }
        );
        $visit!(
            "produce_reply",
            ProduceReply {
                partitions: vec![ProducePartitionReply {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    error: ErrorCode::NotLeader,
                    message: samples::text("broker 4 does"),
                    base_offset: Offset(1000),
                    last_offset: Offset(1009),
                    log_start: Offset(100),
                    append_time_ms: TimestampMs(1_764_000_000_001),
                    level: AckLevel::Relaxed,
                    replicas_durable: 2,
                }],
            }
        );
        $visit!(
            "fetch_request",
            FetchRequest {
                max_wait_ms: 500,
                min_bytes: 1,
                max_bytes: 1 << 24,
                partitions: vec![FetchPartition {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    offset: Offset(1001),
                    max_bytes: 1 << 20,
                    leader_epoch: Some(LeaderEpoch(21)),
                }],
            }
        );
        $visit!(
            "fetch_reply",
            FetchReply {
                partitions: vec![FetchPartitionReply {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    error: ErrorCode::OffsetOutOfRange,
                    message: samples::text("it starts at 100"),
                    high_watermark: Offset(200),
                    log_start: Offset(100),
                    log_end: Offset(300),
                    batch_bytes: 4096,
                }],
            }
        );
        $visit!(
            "list_offsets_request",
            ListOffsetsRequest {
                partitions: vec![
                    ListOffsetsPartition { topic: TOPIC, partition: PartitionIndex(1), at: OffsetAt::Earliest },
                    ListOffsetsPartition { topic: TOPIC, partition: PartitionIndex(2), at: OffsetAt::Latest },
                    ListOffsetsPartition { topic: TOPIC, partition: PartitionIndex(3), at: OffsetAt::Timestamp(TimestampMs(-5)) },
                ],
            }
        );
        $visit!(
            "list_offsets_reply",
            ListOffsetsReply {
                partitions: vec![ListOffsetsPartitionReply {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    error: ErrorCode::None,
                    offset: Offset(150),
                    timestamp_ms: TimestampMs(1_764_000_000_002),
                }],
            }
        );
        $visit!("describe_cluster_request", DescribeClusterRequest { broker: Some(9) });
        $visit!(
            "describe_cluster_reply",
            DescribeClusterReply {
                error: ErrorCode::None,
                cluster_id: [0xc1; 16],
                controller: 8,
                topics: 3,
                partitions: 36,
                brokers: vec![BrokerDescription {
                    id: 9,
                    host: "broker-9.example".to_owned(),
                    port: 7311,
                    server: "corelane 0.1.0".to_owned(),
                    uptime_ms: 123_456,
                    shards: vec![ShardDescription {
                        shard: 5,
                        cpu: Some(7),
                        disk: "/nvme0/corelane".to_owned(),
                        partitions: 4,
                        connections: 11,
                        log_bytes: 1 << 33,
                        disk_available_bytes: 1 << 39,
                    }],
                }],
            }
        );
        $visit!("describe_config_request", DescribeConfigRequest { prefix: "cores.".to_owned() });
        $visit!(
            "describe_config_reply",
            DescribeConfigReply {
                error: ErrorCode::None,
                entries: vec![
                    ConfigEntry { key: "cores.shards".to_owned(), value: "\"2-15\"".to_owned(), origin: ConfigOrigin::Given },
                    ConfigEntry { key: "io.read_depth".to_owned(), value: "8".to_owned(), origin: ConfigOrigin::Measured },
                ],
            }
        );
        $visit!(
            "delete_records_request",
            DeleteRecordsRequest {
                partitions: vec![DeleteRecordsPartition { topic: TOPIC, partition: PartitionIndex(3), before: Offset(150) }],
            }
        );
        $visit!(
            "delete_records_reply",
            DeleteRecordsReply {
                partitions: vec![DeleteRecordsPartitionReply {
                    topic: TOPIC,
                    partition: PartitionIndex(3),
                    error: ErrorCode::OffsetOutOfRange,
                    message: samples::text("it ends at 140"),
                    log_start: Offset(100),
                }],
            }
        );
        $visit!(
            "init_producer_request",
            InitProducerRequest {
                name: samples::text("orders-writer-7"),
                current: Some(ProducerIdentity { id: ProducerId(0x1122_3344_5566_7788), epoch: ProducerEpoch(5) }),
            }
        );
        $visit!(
            "init_producer_reply",
            InitProducerReply {
                error: ErrorCode::ProducerFenced,
                message: samples::text("by another instance"),
                producer_id: ProducerId(0x1122_3344_5566_7788),
                producer_epoch: ProducerEpoch(6),
            }
        );
        $visit!("find_coordinator_request", FindCoordinatorRequest { groups: vec!["billing".to_owned(), "audit".to_owned()] });
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
                partitions: vec![CommitPartition { topic: TOPIC, partition: PartitionIndex(3), commit: samples::committed() }],
            }
        );
        $visit!(
            "commit_offsets_reply",
            CommitOffsetsReply {
                error: ErrorCode::UnknownMember,
                message: samples::text("member-1"),
                partitions: vec![samples::group_partition_reply()],
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
                    committed: Some(samples::committed()),
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
                retry: samples::retry_policy(),
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
                    committed: Some(samples::committed()),
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
                partitions: vec![samples::group_partition_reply()],
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
                retry: samples::retry_policy(),
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
                    commit: Some(samples::committed()),
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

/// Records with every combination of key, value and headers, and lengths around the alignment.
pub(crate) fn batch(compression: Compression) -> AlignedVec {
    let mut builder = BatchBuilder::new(BuilderOptions { compression, ..BuilderOptions::default() });
    builder.set_producer(ProducerId(0x1122_3344_5566_7788), ProducerEpoch(5), Sequence(6));
    let long = "compressible ".repeat(40);
    builder.push(TimestampMs(1_764_000_000_000), Some(b"key"), Some(b"value"), &[]).unwrap();
    builder.push(TimestampMs(1_763_999_999_990), None, Some(long.as_bytes()), &[("trace", Some(b"7")), ("none", None)]).unwrap();
    builder.push(TimestampMs(1_764_000_000_500), Some(b""), None, &[("", Some(b""))]).unwrap();
    builder.push(TimestampMs(1_764_000_000_001), None, None, &[]).unwrap();
    builder.push(TimestampMs(1_764_000_000_002), Some(b"123456789"), Some(b""), &[("a", Some(b"1")), ("a", Some(b"2"))]).unwrap();
    stamped(builder.build())
}

/// The batch as a leader stores it.
pub(crate) fn stamped(mut bytes: AlignedVec) -> AlignedVec {
    let mut header = BatchHeader::decode(&bytes).unwrap();
    header.stamp(Offset(0x0102_0304_0506), LeaderEpoch(0x2a), None);
    header.encode(bytes.as_mut_slice().first_chunk_mut().unwrap());
    bytes
}
