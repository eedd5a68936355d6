//! One value of every request, reply and batch, with every field different from its neighbours and from zero: what the golden
//! files hold.

pub(crate) mod groups;

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
        samples::groups::for_each_body!($visit);
    };
}
pub(crate) use for_each_body;

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
